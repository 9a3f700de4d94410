#!/usr/bin/env bash
# fuzz.sh
#
# Runs every fuzz test of the tree for FUZZTIME (default 30s) each.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

git grep -lE '^func Fuzz' -- '*_test.go' | xargs -n1 dirname | sort -u | while read -r dir; do
  sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$dir"/*_test.go | while read -r name; do
    echo "== ./$dir $name"
    go test "./$dir" -run '^$' -fuzz "^$name\$" -fuzztime "${FUZZTIME:-30s}"
  done
done
