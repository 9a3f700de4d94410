#!/usr/bin/env bash
# tool.sh NAME
#
# Builds a pinned tool into a cache outside the tree, unless it is there, and prints its path. The tools are
# controller-gen and kustomize (pinned in hack/tools), golangci-lint with kube-api-linter (pinned in hack/lint), and those of
# the Operator Framework: operator-sdk, opm, olm, catalog, cpb, scorecard-test, grpc-health-probe (pinned in hack/tools/olm,
# minutes to build).
#
# The cache is ${XDG_CACHE_HOME:-~/.cache}/libretto/tools/, by a hash of the pins and the toolchain.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
name=${1:?usage: tool.sh NAME}
olm=github.com/operator-framework
# The parts of the containers libraries that need C, and what operator-sdk says its version is.
olm_flags=(-tags "containers_image_openpgp exclude_graphdriver_btrfs exclude_graphdriver_devicemapper" -ldflags "-s -w")
flags=()
case "$name" in
  controller-gen) module=tools package=sigs.k8s.io/controller-tools/cmd/controller-gen ;;
  kustomize) module=tools package=sigs.k8s.io/kustomize/kustomize/v5 ;;
  operator-sdk | scorecard-test)
    module=tools/olm
    case "$name" in operator-sdk) package=$olm/operator-sdk/cmd/operator-sdk ;; *) package=$olm/operator-sdk/images/scorecard-test ;; esac
    version=$(sed -n 's|^[[:space:]]*'"$olm"'/operator-sdk \(v[^ ]*\).*|\1|p' "$root/tools/olm/go.mod" | head -1)
    v=$olm/operator-sdk/internal/version
    flags=("${olm_flags[@]}" -ldflags "-s -w -X $v.Version=$version -X $v.GitVersion=$version -X $v.GitCommit=$version -X $v.ImageVersion=$version")
    ;;
  opm) module=tools/olm package=$olm/operator-registry/cmd/opm flags=("${olm_flags[@]}") ;;
  grpc-health-probe) module=tools/olm package=github.com/grpc-ecosystem/grpc-health-probe flags=("${olm_flags[@]}") ;;
  cpb) module=tools/olm package=$olm/operator-lifecycle-manager/util/cpb flags=("${olm_flags[@]}") ;;
  olm | catalog) module=tools/olm package=$olm/operator-lifecycle-manager/cmd/$name flags=("${olm_flags[@]}") ;;
  golangci-lint) module=lint package=. ;;
  *) echo "tool.sh: no tool $name" >&2; exit 2 ;;
esac

cd "$root/$module"
key=$({ go env GOVERSION GOOS GOARCH; cat go.mod go.sum; cat ./*.go 2>/dev/null || true; [ ${#flags[@]} = 0 ] || echo "${flags[*]}"; } | sha256sum | cut -c1-16)
dest=${XDG_CACHE_HOME:-$HOME/.cache}/libretto/tools/$name-$key
if [ ! -x "$dest" ]; then
  mkdir -p "$(dirname "$dest")"
  (
    flock 9 # a second call waits for the first one's result
    if [ ! -x "$dest" ]; then
      echo "building $name (once)…" >&2
      GOWORK=off CGO_ENABLED=0 nice go build -trimpath -buildvcs=false "${flags[@]}" -o "$dest.tmp" "$package" >&2
      mv -f "$dest.tmp" "$dest"
    fi
  ) 9>"$dest.lock"
fi
echo "$dest"
