#!/usr/bin/env bash
# tool.sh NAME
#
# Builds a pinned tool into a cache outside the tree, unless it is there, and prints its path. The tools are
# controller-gen and kustomize (pinned in hack/tools) and golangci-lint with kube-api-linter (pinned in hack/lint).
#
# The cache is ${XDG_CACHE_HOME:-~/.cache}/libretto/tools/, by a hash of the pins and the toolchain.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
name=${1:?usage: tool.sh NAME}
case "$name" in
  controller-gen) module=tools package=sigs.k8s.io/controller-tools/cmd/controller-gen ;;
  kustomize) module=tools package=sigs.k8s.io/kustomize/kustomize/v5 ;;
  golangci-lint) module=lint package=. ;;
  *) echo "tool.sh: no tool $name" >&2; exit 2 ;;
esac

cd "$root/$module"
key=$({ go env GOVERSION GOOS GOARCH; cat go.mod go.sum; cat ./*.go 2>/dev/null || true; } | sha256sum | cut -c1-16)
dest=${XDG_CACHE_HOME:-$HOME/.cache}/libretto/tools/$name-$key
if [ ! -x "$dest" ]; then
  mkdir -p "$(dirname "$dest")"
  (
    flock 9 # a second call waits for the first one's result
    if [ ! -x "$dest" ]; then
      echo "building $name (once)…" >&2
      GOWORK=off CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$dest.tmp" "$package" >&2
      mv -f "$dest.tmp" "$dest"
    fi
  ) 9>"$dest.lock"
fi
echo "$dest"
