#!/usr/bin/env bash
# image.sh manager|scorecard|bundle|catalog [--tag IMAGE] [--out DIR] [--arch ARCH]... [--from DIR]
#
# Builds an image, for each architecture that Libretto is released for unless some are named, without a base image and without a
# network. With --out the images go to DIR: NAME.oci.tar, an archive of the index with all architectures, and NAME-ARCH.tar, which
# a container runtime loads. Without it they stay in the storage of buildah. The same sources make the same digests.
#
# --from is where bundle/ and bundle.Dockerfile are, if not in the tree.
#
# It takes buildah, or docker where that is not there; --out is for buildah alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

architectures=(amd64 arm64)
name=${1:?usage: image.sh manager|scorecard|bundle|catalog [--tag IMAGE] [--out DIR] [--arch ARCH]...}
shift
tag='' out='' from=. chosen=()
while [ $# -gt 0 ]; do
  case "$1" in
    --tag) tag=$2 ;;
    --out) out=$2 ;;
    --arch) chosen+=("$2") ;;
    --from) from=$2 ;;
    *) echo "image.sh: no option $1" >&2; exit 2 ;;
  esac
  shift 2
done
[ ${#chosen[@]} = 0 ] || architectures=("${chosen[@]}")

version='' bundle_image=''
eval "$(go run ./hack/bundle ledger)"
: "${VERSION:=v$version}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# static builds a Go program without C for an architecture.
static() {
  local arch=$1 package=$2 to=$3
  CGO_ENABLED=0 GOOS=linux GOARCH=$arch nice go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X github.com/libretto-dev/libretto/internal/version.version=$VERSION" -o "$to" "$package"
}

certificates() {
  local f
  for f in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt; do
    if [ -e "$f" ]; then cp "$f" "$1"; return; fi
  done
  echo "image.sh: no certificates of public authorities on this machine" >&2
  return 1
}

# context makes the folder that the image of an architecture is built from, and sets $file.
context() {
  local arch=$1 dir=$2
  mkdir -p "$dir"
  case "$name" in
    manager)
      : "${tag:=ghcr.io/libretto-dev/libretto:$VERSION}"
      file=Dockerfile
      static "$arch" . "$dir/libretto"
      certificates "$dir/ca-certificates.crt"
      ;;
    scorecard)
      : "${tag:=ghcr.io/libretto-dev/libretto-scorecard:$VERSION}"
      file=test/scorecard/Dockerfile
      static "$arch" ./test/scorecard "$dir/libretto-scorecard"
      ;;
    bundle)
      : "${tag:=$bundle_image:v$version}"
      file=$from/bundle.Dockerfile
      cp -r "$from/bundle" "$dir/"
      ;;
    catalog)
      : "${tag:=ghcr.io/libretto-dev/libretto-catalog:latest}"
      file=catalog.Dockerfile
      cp -r catalog "$dir/configs"
      mkdir -p "$dir/tmp"
      cp "$(GOOS=linux GOARCH=$arch hack/tool.sh opm)" "$dir/opm"
      cp "$(GOOS=linux GOARCH=$arch hack/tool.sh grpc-health-probe)" "$dir/grpc_health_probe"
      ;;
    *) echo "image.sh: no image $name" >&2; exit 2 ;;
  esac
}

if ! command -v buildah >/dev/null; then
  [ -z "$out" ] || { echo "image.sh: --out needs buildah: apt-get install buildah" >&2; exit 1; }
  arch=$(go env GOARCH)
  context "$arch" "$tmp/$arch"
  exec docker build -t "$tag" -f "$file" "$tmp/$arch"
fi

# A storage of its own when the images go to files: nothing on the machine is touched.
buildah=(buildah)
[ -z "$out" ] || buildah+=(--storage-driver vfs --root "$tmp/storage" --runroot "$tmp/run")
for arch in "${architectures[@]}"; do
  context "$arch" "$tmp/$arch"
  "${buildah[@]}" bud --isolation chroot --quiet --format oci --timestamp "${SOURCE_DATE_EPOCH:-0}" --os linux --arch "$arch" --tag "$tag-$arch" \
    -f "$file" "$tmp/$arch" >/dev/null
done
"${buildah[@]}" manifest create "$tag" >/dev/null
for arch in "${architectures[@]}"; do "${buildah[@]}" manifest add "$tag" "$tag-$arch" >/dev/null; done

if [ -n "$out" ]; then
  mkdir -p "$out"
  rm -f "$out/$name.oci.tar"
  # shellcheck disable=SC2086 # the list of images is known to be plain words
  "${buildah[@]}" manifest push --quiet --all "$tag" "oci-archive:$out/$name.oci.tar:$tag"
  for arch in "${architectures[@]}"; do
    rm -f "$out/$name-$arch.tar"
    "${buildah[@]}" push --quiet "$tag-$arch" "docker-archive:$out/$name-$arch.tar:$tag"
  done
  digest=$(tar -xOf "$out/$name.oci.tar" index.json | sed 's/.*"digest":"\([^"]*\)".*/\1/')
  echo "$tag@$digest"
  for arch in "${architectures[@]}"; do
    printf '  %s: %s MB compressed\n' "$arch" "$(gzip -c "$out/$name-$arch.tar" | wc -c | awk '{printf "%.1f", $1 / 1e6}')"
  done
else
  echo "$tag"
fi
