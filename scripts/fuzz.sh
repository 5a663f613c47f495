#!/usr/bin/env bash
# Runs every fuzz target of the module, one after the other.
# Usage: fuzz.sh [TIME]   TIME is for each target, such as 10s or 5m (default 1m)
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
fuzztime=${1:-1m}
read -r -a flags <<<"${GOTESTFLAGS-}"

# `go test -list` prints the names, then a line with the package that they are in.
if ! list=$("$go" test ${flags[@]+"${flags[@]}"} -list '^Fuzz' ./... 2>&1); then
	echo "$list" >&2
	exit 1
fi
targets=$(awk '
	/^Fuzz/    { names[++n] = $1; next }
	$1 == "ok" { for (i = 1; i <= n; i++) print $2, names[i]; n = 0 }' <<<"$list")
if [[ -z $targets ]]; then
	echo "no fuzz targets"
	exit 0
fi

failed=0
while read -r pkg name; do
	echo "--- $name in $pkg for $fuzztime"
	if ! "$go" test ${flags[@]+"${flags[@]}"} -run '^$' -fuzz "^${name}\$" -fuzztime "$fuzztime" "$pkg"; then
		echo "$name failed: the input is under testdata/fuzz/$name of $pkg; commit it with the fix" >&2
		failed=$((failed + 1))
	fi
done <<<"$targets"
echo "$(wc -l <<<"$targets") fuzz targets run, $failed failed"
((failed == 0))
