#!/usr/bin/env bash
# catalog.sh [--ledger FILE] [--bundle DIR] [--out DIR] [--inline | --ref IMAGE]
#
# Makes the file-based catalogue in DIR (catalog/libretto) from the ledger of releases and the bundle of the newest one, and
# judges it. The blobs of earlier releases stay as they are. --inline puts the manifests into the catalogue instead of the name
# of a bundle image: what serves it needs no registry. --ref is the name of the bundle image, if not the tag of the release.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ledger=config/catalog/releases.yaml bundle=bundle out=catalog/libretto inline=false ref=''
while [ $# -gt 0 ]; do
  case "$1" in
    --ledger) ledger=$2; shift ;;
    --bundle) bundle=$2; shift ;;
    --out) out=$2; shift ;;
    --inline) inline=true ;;
    --ref) ref=$2; shift ;;
    *) echo "usage: catalog.sh [--ledger FILE] [--bundle DIR] [--out DIR] [--inline | --ref IMAGE]" >&2; exit 2 ;;
  esac
  shift
done
opm=$(hack/tool.sh opm)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

version='' bundle_image=''
go build -o "$tmp/bundle-tool" ./hack/bundle
eval "$("$tmp/bundle-tool" ledger --ledger "$ledger")"
mkdir -p "$out"
if $inline; then
  "$opm" render "$bundle" -o yaml >"$out/v$version.yaml"
else
  "$opm" render "$bundle" -o yaml --migrate-level bundle-object-to-csv-metadata \
    --alpha-image-ref-template "${ref:-$bundle_image:v$version}" >"$out/v$version.yaml"
fi
"$tmp/bundle-tool" catalog --ledger "$ledger" --out "$out"
"$opm" validate "$out"
"$tmp/bundle-tool" lint "$out"
