#!/usr/bin/env bash
# Runs the end-to-end checks in scripts/e2e, in order of their names, against bin/llm_canary_exporter.
# A check that cannot run here (a tool is missing) exits 77: that is shown and is not a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.tools/bin:$PATH"

passed=0 failed=0 skipped=0
for check in scripts/e2e/*.sh; do
	[[ -e $check ]] || break
	echo "--- $check"
	rc=0
	"$check" || rc=$?
	case $rc in
	0) passed=$((passed + 1)) && echo "ok   $check" ;;
	77) skipped=$((skipped + 1)) && echo "SKIP $check" ;;
	*) failed=$((failed + 1)) && echo "FAIL $check (exit status $rc)" ;;
	esac
done
echo "end-to-end: $passed ok, $failed bad, $skipped skipped"
((failed == 0))
