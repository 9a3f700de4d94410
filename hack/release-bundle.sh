#!/usr/bin/env bash
# release-bundle.sh [--digest sha256:DIGEST] [--out DIR]
#
# Lays out in DIR (dist/community-operators) what a pull request to community-operators needs for the newest release in the ledger:
#
#   operators/libretto/ci.yaml
#   operators/libretto/VERSION/{manifests,metadata,tests}     the bundle, with the image by digest
#   operators/libretto/catalog-templates/basic.yaml           the upgrade graph
#   catalogs/latest/libretto/catalog.yaml                     the same, rendered
#
# and in DIR/released/vVERSION what later releases are checked against; it belongs into test/olm/testdata/released. DIGEST is that of
# the index of the manager's image. Without it the image is built, and has the digest that the same sources always have.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=dist/community-operators digest=''
while [ $# -gt 0 ]; do
  case "$1" in
    --digest) digest=$2 ;;
    --out) out=$2 ;;
    *) echo "usage: release-bundle.sh [--digest sha256:DIGEST] [--out DIR]" >&2; exit 2 ;;
  esac
  shift 2
done
package='' version='' manager_image=''
eval "$(go run ./hack/bundle ledger)"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
if [ -z "$digest" ]; then
  digest=$(hack/image.sh manager --tag "$manager_image:v$version" --out "$tmp/image" | tee /dev/stderr | sed -n '1s/.*@//p')
fi
[[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || { echo "release-bundle.sh: $digest is no digest" >&2; exit 1; }

rm -rf "$out"
operator=$out/operators/$package
mkdir -p "$operator/$version" "$operator/catalog-templates" "$out/catalogs/latest/$package" "$out/released/v$version"
hack/bundle.sh --out "$tmp" --image "$manager_image@$digest"
cp -r "$tmp/bundle/manifests" "$tmp/bundle/metadata" "$tmp/bundle/tests" "$operator/$version/"

cat >"$operator/ci.yaml" <<Y
---
# Only reviewers may change this operator without somebody else's approval.
reviewers:
  - libretto-dev
addReviewers: false
updateGraph: replaces-mode
fbc:
  enabled: true
  catalog_mapping:
    - template_name: basic.yaml
      catalog_names: ["latest"]
      type: olm.template.basic
Y
# Where the pipeline puts the bundle images that it builds.
published=quay.io/operatorhubio/$package
go run ./hack/bundle template --bundle-image "$published" --out "$operator/catalog-templates"
mkdir "$tmp/catalog"
go run ./hack/bundle catalog --out "$tmp/catalog"
"$(hack/tool.sh opm)" render "$tmp/bundle" -o yaml --migrate-level bundle-object-to-csv-metadata \
  --alpha-image-ref-template "$published:v{{.Version}}" >"$tmp/catalog/v$version.yaml"
# The blobs of earlier releases are those of the catalogue here, but for the name of the image.
for blob in catalog/"$package"/v*.yaml; do
  [ -e "$tmp/catalog/$(basename "$blob")" ] || sed "s|^image: .*/$package-bundle:|image: $published:|" "$blob" >"$tmp/catalog/$(basename "$blob")"
done
"$(hack/tool.sh opm)" validate "$tmp/catalog"
go run ./hack/bundle lint "$tmp/catalog"
for blob in "$tmp"/catalog/package.yaml "$tmp"/catalog/v*.yaml; do
  grep -q '^---' <(head -1 "$blob") || [ ! -s "$out/catalogs/latest/$package/catalog.yaml" ] || echo "---"
  cat "$blob"
done >"$tmp/all.yaml"
sed '1{/^---$/d}' "$tmp/all.yaml" >"$out/catalogs/latest/$package/catalog.yaml"
"$(hack/tool.sh opm)" validate "$out/catalogs/latest/$package"

cp "$tmp"/bundle/manifests/libretto.dev_*.yaml "$out/released/v$version/"
go run ./hack/bundle examples --dir "$tmp/bundle" >"$out/released/v$version/examples.json"
echo "$out: the release $version of $manager_image@$digest"
