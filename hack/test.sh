#!/usr/bin/env bash
# test.sh [--node] [GO TEST ARGUMENTS]
#
# Starts a Kubernetes control plane of its own on this machine, runs `go test` with it (./... unless told otherwise) and
# takes it down. The first run builds the control plane, which takes minutes; later runs find it in a cache outside the tree.
#
# With --node the cluster has a node that runs pods (root, and the packages of hack/devcluster/install-node-deps.sh), and
# the tests that need one are run, too: they look at LIBRETTO_TEST_NODE, and their names begin with TestOnNode.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

node=
if [ "${1:-}" = --node ]; then
  node=yes
  shift
  export LIBRETTO_TEST_NODE=1
fi
devcluster=$(hack/devcluster/build.sh ${node:+node})

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
"$devcluster" run --quiet ${node:+--node} -- bash -c 'export LIBRETTO_TEST_KUBECONFIG=$KUBECONFIG; unset KUBECONFIG; exec go test -p "$(nproc)" -timeout 20m "$@"' test "$@"
