#!/usr/bin/env bash
# test-bundle.sh
#
# Checks bundle/ and catalog/ as they lie in the tree, without a cluster: operator-sdk with its three suites, opm, the validators
# of operator-framework/api and what none of them sees. Every error fails, and every warning that is not explained in
# docs/reference/olm.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
sdk=$(hack/tool.sh operator-sdk)
opm=$(hack/tool.sh opm)

# What stays: Libretto declares kinds; and operator-sdk says of its own suite that it has a successor.
explained='CSV contains permissions to create CRD|The \\"operatorhub\\" validator is deprecated'
failed=false

# validate runs operator-sdk on a bundle, prints what it says and notes what is not explained.
validate() {
  local log status=0
  echo "operator-sdk bundle validate $*"
  log=$("$sdk" bundle validate "$@" 2>&1) || status=$?
  echo "  ${log//$'\n'/$'\n'  }"
  if [ $status != 0 ] || grep -E 'level=(warning|error|fatal)' <<<"$log" | grep -Evq "$explained"; then failed=true; fi
}
validate bundle
validate bundle --select-optional suite=operatorframework --optional-values=k8s-version=1.36
validate bundle --select-optional name=operatorhub
validate bundle --select-optional name=good-practices
echo "OLM v1 loads, validates and renders the bundle"
"$(hack/tools/olmv1/build.sh)" bundle libretto-system >/dev/null
echo "opm validate catalog"
"$opm" validate catalog
go run ./hack/bundle lint catalog
go test ./hack/bundle
echo "what a pull request to community-operators would hold"
submission=$(mktemp -d)
trap 'rm -rf "$submission"' EXIT
hack/release-bundle.sh --digest "sha256:$(printf '0%.0s' {1..64})" --out "$submission/out"
validate "$submission"/out/operators/libretto/[0-9]* --select-optional suite=operatorframework
export LIBRETTO_TEST_SUBMISSION=$submission/out
(cd test/olm && GOWORK=off go test -count=1 -v -run "${RUN:-.}" . 2>&1 | grep -Ev '^=== ') || failed=true
if $failed; then echo "test-bundle: something above is neither right nor explained" >&2; exit 1; fi
