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
for suite in "" "--select-optional suite=operatorframework --optional-values=k8s-version=1.36" "--select-optional name=operatorhub" \
  "--select-optional name=good-practices"; do
  echo "operator-sdk bundle validate ./bundle $suite"
  status=0
  # shellcheck disable=SC2086 # options
  log=$("$sdk" bundle validate ./bundle $suite 2>&1) || status=$?
  echo "  ${log//$'\n'/$'\n'  }"
  if [ $status != 0 ] || grep -E 'level=(warning|error|fatal)' <<<"$log" | grep -Evq "$explained"; then failed=true; fi
done
echo "opm validate catalog"
"$opm" validate catalog
go run ./hack/bundle lint catalog
go test ./hack/bundle
(cd test/olm && GOWORK=off go test -count=1 -v -run "${RUN:-.}" . 2>&1 | grep -Ev '^=== ') || failed=true
if $failed; then echo "test-bundle: something above is neither right nor explained" >&2; exit 1; fi
