#!/usr/bin/env bash
# build.sh
#
# Builds olmv1-render into a cache outside the tree, unless it is there, and prints its path. What it needs of operator-controller
# is internal: the program is compiled in a copy of its sources, which come from the Go module proxy.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
module=github.com/operator-framework/operator-controller version=v1.11.0

key=$({ go env GOVERSION GOOS GOARCH; cat build.sh main.go; } | sha256sum | cut -c1-16)
dest=${XDG_CACHE_HOME:-$HOME/.cache}/libretto/tools/olmv1-render-$key
if [ ! -x "$dest" ]; then
  mkdir -p "$(dirname "$dest")"
  (
    flock 9
    if [ ! -x "$dest" ]; then
      echo "building olmv1-render (once)…" >&2
      tmp=$(mktemp -d)
      trap 'rm -rf "$tmp"' EXIT
      dir=$(cd "$tmp" && GOWORK=off GOFLAGS=-mod=mod go mod download -json "$module@$version" | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",*$/\1/p')
      mkdir -p "$tmp/src/cmd/olmv1-render"
      cp -r "$dir"/{go.mod,go.sum,api,internal} "$tmp/src/"
      chmod -R u+w "$tmp/src"
      sed '/^\/\/go:build/d' main.go >"$tmp/src/cmd/olmv1-render/main.go"
      (cd "$tmp/src" && GOWORK=off CGO_ENABLED=0 nice go build -trimpath -buildvcs=false \
        -tags "containers_image_openpgp exclude_graphdriver_btrfs exclude_graphdriver_devicemapper" -ldflags "-s -w" \
        -o "$dest.tmp" ./cmd/olmv1-render) >&2
      mv -f "$dest.tmp" "$dest"
    fi
  ) 9>"$dest.lock"
fi
echo "$dest"
