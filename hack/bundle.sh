#!/usr/bin/env bash
# bundle.sh [--ledger FILE] [--image IMAGE] [--out DIR]
#
# Makes the bundle of the newest release in the ledger with operator-sdk, from config/manifests, in DIR (the tree): bundle/ and
# bundle.Dockerfile. The same sources make the same bytes. IMAGE is the manager's; by default the tag of the release.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ledger=config/catalog/releases.yaml image='' out=$PWD
while [ $# -gt 0 ]; do
  case "$1" in
    --ledger) ledger=$2 ;;
    --image) image=$2 ;;
    --out) out=$2 ;;
    *) echo "usage: bundle.sh [--ledger FILE] [--image IMAGE] [--out DIR]" >&2; exit 2 ;;
  esac
  shift 2
done
kustomize=$(hack/tool.sh kustomize)
sdk=$(hack/tool.sh operator-sdk)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

package='' version='' channels='' default_channel=''
go build -o "$tmp/bundle-tool" ./hack/bundle
eval "$("$tmp/bundle-tool" ledger --ledger "$ledger")"

mkdir "$tmp/work"
cp PROJECT "$tmp/work/"
"$kustomize" build config/manifests >"$tmp/manifests.yaml"
# Through a pipe: operator-sdk takes nothing else for its standard input.
# shellcheck disable=SC2002
cat "$tmp/manifests.yaml" | (cd "$tmp/work" && "$sdk" generate bundle -q --overwrite --package "$package" --version "$version" \
  --channels "$channels" --default-channel "$default_channel") 2>"$tmp/log" || { cat "$tmp/log" >&2; exit 1; }
# It says what it is not sure about in its log, and goes on.
if grep -E 'level=(warn|error)|No service|No deployment' "$tmp/log" >&2; then exit 1; fi
"$tmp/bundle-tool" finish --ledger "$ledger" --dir "$tmp/work/bundle" ${image:+--image "$image"}

mkdir -p "$out"
rm -rf "$out/bundle"
mv "$tmp/work/bundle" "$out/bundle"
mv "$tmp/work/bundle.Dockerfile" "$out/bundle.Dockerfile"
