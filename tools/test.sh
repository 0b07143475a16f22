#!/bin/bash
# Run tests in two rows: those with the tests' cluster, which often wait, and beside them the targets of make that are
# given (all: those without a cluster, or with clusters of their own). What the latter print follows when they end.
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p .cache
targets=("$@")
[ "$#" != 0 ] || targets=(checks elsewhere)
log=.cache/beside.log

# In a session of its own, so that all of it can be ended.
# What fails does not hide what comes after it.
setsid make --no-print-directory --keep-going "${targets[@]}" >"$log" 2>&1 &
beside=$!
trap 'kill -- "-$beside" 2>/dev/null' EXIT
(tail --pid="$beside" --follow /dev/null; cat "$log") &

make --no-print-directory --keep-going systems
systems=$?
wait "$beside"
code=$?
wait
if [ "$code" != 0 ]; then
  # A scenario prints its failure far above its end, behind a border.
  echo "make ${targets[*]} failed; its output is also in $log. What failed in it:"
  failures='(^|│ )(fatal|failed): |FAILED tests/|^make[^ ]* \*\*\*'
  sed 's/\x1b\[[0-9;]*m//g' "$log" | grep --extended-regexp --before-context=40 --after-context=100 "$failures" | tail --lines=400
fi
[ "$code" = 0 ] && [ "$systems" = 0 ] && echo "all tests passed"
