#!/usr/bin/env bash
# build.sh [node]
#
# Builds devcluster, and with "node" devnode and the pause program as well, into a cache outside the tree, and prints
# the path of the devcluster binary as its only line on standard output. Progress goes to standard error.
#
#   DEVCLUSTER=$(hack/devcluster/build.sh)        # control plane only
#   DEVCLUSTER=$(hack/devcluster/build.sh node)   # and the node binaries, beside it where `up --node` finds them
#
# The cache is ${XDG_CACHE_HOME:-~/.cache}/libretto/devcluster/<hash>/. The two binaries have a hash each, over go.mod,
# go.sum, this script, the toolchain and the sources that go into that binary (no tests, no docs), so editing the
# launcher links only devcluster again and never devnode. A cached binary is found in milliseconds.
#
#   DEVCLUSTER_BUILD_JOBS=N   packages compiled at a time (default: as many as there are processors)
#   DEVCLUSTER_CACHE=DIR      another cache directory
set -euo pipefail

want_node=false
case "${1:-}" in
  "") ;;
  node) want_node=true ;;
  *) echo "usage: build.sh [node]" >&2; exit 2 ;;
esac

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
cd "$here"
cache=${DEVCLUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/libretto/devcluster}
export CGO_ENABLED=0 GOWORK=off

command -v go >/dev/null || { echo "build.sh: go is not on the PATH; install Go 1.26 or newer" >&2; exit 1; }
toolchain=$(go env GOVERSION GOOS GOARCH | tr '\n' ' ')

# key DIR... prints the hash of everything that determines a binary built from the Go files of those directories.
key() {
  {
    echo "$toolchain"
    cat go.mod go.sum build.sh
    find "$@" -name '*.go' ! -name '*_test.go' ! -name 'doc.go' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
  } | sha256sum | cut -c1-16
}

# ldflags makes every component report the version that go.mod pins. Without them a server calls itself
# v0.0.0-master+$Format:%H$, which kubectl cannot parse and which version comparisons take for older than anything.
ldflags() {
  local version major minor flags="-s -w" pkg
  version=$(sed -n 's/^[[:space:]]*k8s\.io\/kubernetes \(v[0-9][^ ]*\).*/\1/p' go.mod | head -1)
  [ -n "$version" ] || { echo "build.sh: go.mod has no k8s.io/kubernetes requirement" >&2; return 1; }
  major=${version#v}; major=${major%%.*}
  minor=${version#v*.}; minor=${minor%%.*}
  for pkg in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $pkg.gitVersion=$version -X $pkg.gitMajor=$major -X $pkg.gitMinor=$minor"
    flags+=" -X $pkg.gitCommit=$version -X $pkg.gitTreeState=clean -X $pkg.buildDate=1970-01-01T00:00:00Z"
  done
  echo "$flags"
}

# build_one NAME DEST compiles ./cmd/NAME to DEST, saying every few seconds how far it is.
build_one() {
  local name=$1 dest=$2 log tmp total pid started now last=0 done_count flags
  log=$dest.build.log; tmp=$dest.tmp.$$
  started=$(date +%s)
  flags=$(ldflags)
  # shellcheck disable=SC2064 # expanded now on purpose: the locals are gone when the trap runs
  trap "rm -f '$tmp'" EXIT
  echo "devcluster: building $name (first build: several minutes; log: $log)" >&2
  total=$(go list -trimpath -buildvcs=false -deps -f '{{if .Stale}}x{{end}}' "./cmd/$name" 2>/dev/null | grep -c x || true)
  go build -v -p "${DEVCLUSTER_BUILD_JOBS:-$(nproc)}" -trimpath -buildvcs=false -ldflags "$flags" -o "$tmp" "./cmd/$name" \
    >"$log" 2>&1 </dev/null &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.5
    now=$(($(date +%s) - started))
    if [ $((now - last)) -ge 5 ]; then
      last=$now
      done_count=$(grep -vc '^go: ' "$log" || true)
      if [ "$done_count" -lt "$total" ]; then
        echo "devcluster: $name: compiled $done_count of $total packages, ${now}s" >&2
      else
        echo "devcluster: $name: linking, ${now}s" >&2
      fi
    fi
  done
  if ! wait "$pid"; then
    echo "devcluster: building $name failed; the end of $log:" >&2
    tail -n 30 "$log" >&2
    return 1
  fi
  mv -f "$tmp" "$dest"
  trap - EXIT
  echo "devcluster: built $name in $(($(date +%s) - started))s" >&2
}

# ensure NAME DEST builds DEST unless it is there. The lock makes a second build.sh wait for the first one's result
# instead of compiling the same thing beside it.
ensure() {
  local name=$1 dest=$2
  [ -x "$dest" ] && return 0
  mkdir -p "$(dirname "$dest")"
  (
    if ! flock -n 9; then
      echo "devcluster: another build of $name is running; waiting for it" >&2
      flock 9
    fi
    if [ ! -x "$dest" ]; then build_one "$name" "$dest"; fi
  ) 9>"$dest.lock"
}

# prune removes builds that nobody asked for in a week, beyond the five newest.
prune() {
  local dir
  # shellcheck disable=SC2012 # the names are hashes: ls is safe, and sorts by time
  ls -1dt "$cache"/*/ 2>/dev/null | tail -n +6 | while read -r dir; do
    [ -n "$(find "$dir" -maxdepth 0 -mtime +7)" ] && rm -rf "$dir"
  done || true
}

main_dir=$cache/$(key cmd/devcluster cluster image pki proc)
[ -x "$main_dir/devcluster" ] || prune
ensure devcluster "$main_dir/devcluster"
touch "$main_dir"

if $want_node; then
  node_dir=$cache/$(key cmd/devnode cmd/pause)
  ensure devnode "$node_dir/devnode"
  ensure pause "$node_dir/pause"
  touch "$node_dir"
  for f in devnode pause; do
    target=../$(basename "$node_dir")/$f
    [ "$(readlink "$main_dir/$f" || true)" = "$target" ] && continue
    ln -sfn "$target" "$main_dir/.$f.$$"
    mv -fT "$main_dir/.$f.$$" "$main_dir/$f"
  done
fi

echo "$main_dir/devcluster"
