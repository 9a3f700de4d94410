#!/usr/bin/env bash
# Installs what hack/image.sh builds images with where there is no docker: buildah. Run it as root on Debian 12 or newer, or
# Ubuntu 22.04 or newer.
set -euo pipefail
if command -v buildah >/dev/null; then
  echo "buildah is installed"
  exit 0
fi
if [ "$(id -u)" != 0 ]; then
  echo "install-image-deps.sh: run as root: apt-get install -y --no-install-recommends buildah" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends buildah >/dev/null
