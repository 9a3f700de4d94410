#!/usr/bin/env bash
# test.sh [GO TEST ARGUMENTS]
#
# Starts a Kubernetes control plane of its own on this machine, runs `go test` with it (./... unless told otherwise) and
# takes it down. The first run builds the control plane, which takes minutes; later runs find it in a cache outside the tree.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

devcluster=$(hack/devcluster/build.sh)

packages=false
for arg in "$@"; do case "$arg" in ./*) packages=true ;; esac; done
$packages || set -- "$@" ./...

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
echo "building libretto…" >&2
CGO_ENABLED=0 go build -trimpath -o "$bin/libretto" .

export LIBRETTO_TEST_REQUIRE=1 LIBRETTO_BIN=$bin/libretto
# Each package is a process that talks to the same API server: as many at a time as there are processors.
# shellcheck disable=SC2016 # expanded by the inner shell, where KUBECONFIG is the cluster's
"$devcluster" run --quiet -- bash -c 'export LIBRETTO_TEST_KUBECONFIG=$KUBECONFIG; unset KUBECONFIG; exec go test -p "$(nproc)" -timeout 20m "$@"' test "$@"
