#!/usr/bin/env bash
# e2e-olm.sh [GO TEST ARGUMENTS]
#
# Installs, upgrades and removes Libretto by a real Operator Lifecycle Manager, on a cluster of its own with a node, without any
# registry: the images are built here and given to the node by digest. The first version is unpacked from its bundle image, as a
# published one is; of the others the catalogue carries the manifests.
# The versions are made from this tree. As root, with the packages of hack/devcluster/install-node-deps.sh and
# hack/install-image-deps.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

devcluster=$(hack/devcluster/build.sh node)
export OLM_BIN CATALOG_BIN OPM_BIN SDK_BIN OLMV1_RENDER_BIN OLM_TEST_DIR LIBRETTO_BIN
OLM_BIN=$(hack/tool.sh olm) CATALOG_BIN=$(hack/tool.sh catalog) OPM_BIN=$(hack/tool.sh opm) SDK_BIN=$(hack/tool.sh operator-sdk)
OLMV1_RENDER_BIN=$(hack/tools/olmv1/build.sh)
OLM_TEST_DIR=$(mktemp -d)
trap 'rm -rf "$OLM_TEST_DIR"' EXIT

# The ledger of three releases, of which each test catalogue knows one more.
ledger=$OLM_TEST_DIR/releases.yaml
sed '/^releases:/,$d' config/catalog/releases.yaml >"$ledger"
echo "releases:" >>"$ledger"
for version in 0.1.0 0.2.0 0.3.0; do
  VERSION=v$version hack/image.sh manager --arch "$(go env GOARCH)" --tag "ghcr.io/libretto-dev/libretto:v$version" --out "$OLM_TEST_DIR/$version" |
    tee "$OLM_TEST_DIR/image" >&2
  image=$(head -1 "$OLM_TEST_DIR/image")
  cat >>"$ledger" <<Y
- version: $version
  date: "2026-12-01T00:00:00Z"
  channels: [candidate, stable, stable-v0]
Y
  hack/bundle.sh --ledger "$ledger" --out "$OLM_TEST_DIR/$version" --image "${image/:v$version@/@}"
  mkdir -p "$OLM_TEST_DIR/catalog-$version"
  [ -z "${before:-}" ] || cp "$OLM_TEST_DIR/catalog-$before"/v*.yaml "$OLM_TEST_DIR/catalog-$version/"
  if [ "$version" = 0.1.0 ]; then # the first one as published: OLM unpacks it from its image
    hack/image.sh bundle --arch "$(go env GOARCH)" --from "$OLM_TEST_DIR/$version" --tag ghcr.io/libretto-dev/libretto-bundle:v0.1.0 \
      --out "$OLM_TEST_DIR/images" | tee "$OLM_TEST_DIR/image" >&2
    bundle=$(head -1 "$OLM_TEST_DIR/image")
    echo "${bundle/:v0.1.0@/@}" >"$OLM_TEST_DIR/images/bundle"
    hack/catalog.sh --ref "${bundle/:v0.1.0@/@}" --ledger "$ledger" --bundle "$OLM_TEST_DIR/$version/bundle" --out "$OLM_TEST_DIR/catalog-$version"
  else
    hack/catalog.sh --inline --ledger "$ledger" --bundle "$OLM_TEST_DIR/$version/bundle" --out "$OLM_TEST_DIR/catalog-$version"
  fi
  echo "${image/:v$version@/@}" >"$OLM_TEST_DIR/$version/image"
  before=$version
done
# What scorecard runs: its own tests, from the same module as operator-sdk, what unpacks the bundle for them, and our tests.
mkdir -p "$OLM_TEST_DIR/scorecard/bin" "$OLM_TEST_DIR/untar/bin" "$OLM_TEST_DIR/images"
cp "$(hack/tool.sh scorecard-test)" "$OLM_TEST_DIR/scorecard/bin/scorecard-test"
cp "$(command -v busybox)" "$OLM_TEST_DIR/untar/bin/busybox"
for applet in tar gzip sh sleep cat; do ln -s busybox "$OLM_TEST_DIR/untar/bin/$applet"; done
sdk_version=$("$SDK_BIN" version | sed 's/.*version: "\(v[^"]*\)", commit.*/\1/')
for image in scorecard-test:scorecard scorecard-untar:untar scorecard-storage:untar; do
  "$devcluster" make-image --name "quay.io/operator-framework/${image%:*}:$sdk_version" --user 1001 --root "$OLM_TEST_DIR/${image#*:}" \
    --out "$OLM_TEST_DIR/images/${image%:*}.tar"
done
# What OLM unpacks a bundle image with.
mkdir -p "$OLM_TEST_DIR/util/bin" "$OLM_TEST_DIR/opm/bin"
cp "$(command -v busybox)" "$OLM_TEST_DIR/util/bin/cp"
cp "$(hack/tool.sh cpb)" "$OLM_TEST_DIR/util/bin/cpb"
cp "$OPM_BIN" "$OLM_TEST_DIR/opm/bin/opm"
for image in util opm; do
  "$devcluster" make-image --name "localhost/olm-$image:1" --user 1001 --root "$OLM_TEST_DIR/$image" --out "$OLM_TEST_DIR/images/olm-$image.tar"
done
hack/image.sh scorecard --arch "$(go env GOARCH)" --tag ghcr.io/libretto-dev/libretto-scorecard:v0.1.0 --out "$OLM_TEST_DIR/images" >&2
hack/image.sh catalog --arch "$(go env GOARCH)" --out "$OLM_TEST_DIR/images" >&2

LIBRETTO_BIN=$OLM_TEST_DIR/libretto
CGO_ENABLED=0 go build -trimpath -o "$LIBRETTO_BIN" .
(cd test/olm && GOWORK=off go test -c -o "$OLM_TEST_DIR/olm.test" .)

# Without CI: with it OLM panics on objects that it finds without its labels.
# shellcheck disable=SC2016 # expanded by the inner shell
env -u CI LIBRETTO_TEST_OLM=1 "$devcluster" run --quiet --node -- bash -c '
  cd test/olm
  for v in 0.1.0 0.2.0 0.3.0; do
    "$DEVCLUSTER_BIN" load-image --dir "$DEVCLUSTER_DIR" "$OLM_TEST_DIR/$v/manager.oci.tar" >/dev/null
    ctr -a "$DEVCLUSTER_DIR/containerd/containerd.sock" -n k8s.io images tag "ghcr.io/libretto-dev/libretto:v$v" "$(cat "$OLM_TEST_DIR/$v/image")" >/dev/null
  done
  for image in scorecard-test scorecard-untar scorecard-storage olm-util olm-opm bundle.oci {scorecard,catalog}-"$(go env GOARCH)"; do
    "$DEVCLUSTER_BIN" load-image --dir "$DEVCLUSTER_DIR" "$OLM_TEST_DIR/images/$image.tar" >/dev/null
  done
  ctr -a "$DEVCLUSTER_DIR/containerd/containerd.sock" -n k8s.io images tag ghcr.io/libretto-dev/libretto-bundle:v0.1.0 "$(cat "$OLM_TEST_DIR/images/bundle")" >/dev/null
  "$OLM_TEST_DIR/olm.test" -test.v -test.run "^TestOLM$" -test.timeout 20m "$@"' e2e-olm "$@"
