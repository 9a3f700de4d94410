#!/usr/bin/env bash
# Installs the Debian packages that `devcluster up --node` runs: the container runtime, the CNI plugins and the network
# tools that kubelet and kube-proxy call. Run it as root on Debian 12 or newer, or Ubuntu 22.04 or newer.
# devcluster runs a containerd of its own, with its own directories and socket; it does not use or touch the service that
# the package may start.
set -euo pipefail

packages=(containerd runc containernetworking-plugins iptables conntrack ipset iproute2 socat busybox-static)

missing=()
for p in "${packages[@]}"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null || true)" = installed ] || missing+=("$p")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "node packages are installed"
  exit 0
fi

if [ "$(id -u)" != 0 ]; then
  echo "install-node-deps.sh: run as root: apt-get install -y --no-install-recommends ${missing[*]}" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y --no-install-recommends "${missing[@]}"
