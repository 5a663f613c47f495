#!/usr/bin/env bash
# Proves the import rules of .golangci.yml: lays out an empty module of the same shape in a temporary folder, with
# one file for each case below, and compares what depguard refuses with what it has to refuse.
# A rule that is added to .golangci.yml gets its cases here.
# Usage: check-import-rules.sh [GOLANGCI-LINT]
set -euo pipefail
cd "$(dirname "$0")/.."
lint=$(realpath "${1:-.tools/bin/golangci-lint}")
module=$(awk '$1 == "module" {print $2; exit}' go.mod)

# want | file's folder | test or code | import; "~" stands for the module path
cases() {
	cat <<-'CASES'
		deny  collector         code gopkg.in/yaml.v2
		deny  config            code gopkg.in/yaml.v3
		allow config            code go.yaml.in/yaml/v3
		deny  web               code github.com/pkg/errors
		deny  web               code io/ioutil
		deny  prober            code math/rand
		allow prober            code math/rand/v2
		deny  prober            code log
		deny  web               code log/slog
		deny  config            test log
		allow web               code github.com/go-kit/log
		allow cmd/app           code log/slog
		deny  sim               code testing
		allow sim               test testing
		deny  prober/engine     code go.uber.org/goleak
		deny  collector         code github.com/prometheus/client_golang/prometheus/testutil
		allow collector         test github.com/prometheus/client_golang/prometheus/testutil

		deny  prober            code github.com/prometheus/client_golang/prometheus
		deny  prober/engine     test github.com/prometheus/client_golang/prometheus
		deny  prober/scenario   code github.com/prometheus/client_model/go
		deny  config            code github.com/prometheus/client_golang/prometheus
		deny  nvml              code github.com/prometheus/client_golang/prometheus
		deny  config            code github.com/prometheus/exporter-toolkit/web
		allow config            code github.com/prometheus/common/config
		allow prober            code github.com/prometheus/common/config
		allow sim               code github.com/prometheus/client_golang/prometheus
		allow collector         code github.com/prometheus/client_golang/prometheus

		deny  config            code ~/prober
		deny  config            code ~/prober/result
		deny  config            code ~/collector
		deny  config            code ~/sim
		deny  prober            code ~/collector
		deny  prober/scenario   code ~/web
		deny  prober/engine     code ~/sim
		allow prober/engine     test ~/sim
		allow prober            code ~/config
		allow prober            code ~/prober/scenario
		allow prober            code ~/prober/result
		allow prober/scenario   code ~/prober/engine
		allow prober/scenario   code ~/prober/dataset
		deny  prober/scenario   code ~/prober
		deny  prober/engine     code ~/prober
		deny  prober/engine     code ~/prober/scenario
		allow prober/engine     code ~/prober/stream
		allow prober/engine     code ~/prober/measure
		deny  prober/stream     code ~/prober
		deny  prober/stream     code ~/prober/scenario
		deny  prober/stream     code ~/prober/engine
		deny  prober/stream     code ~/prober/measure
		allow prober/stream     code net/http
		deny  prober/measure    code ~/prober
		deny  prober/measure    code ~/prober/scenario
		deny  prober/measure    code ~/prober/engine
		deny  prober/measure    code net
		deny  prober/measure    code net/http
		deny  prober/measure    code os
		deny  prober/measure    code os/exec
		allow prober/measure    test os
		allow prober/measure    code ~/prober/result
		deny  prober/dataset    code ~/prober
		deny  prober/dataset    code ~/prober/scenario
		deny  prober/dataset    code ~/prober/engine
		deny  prober/result     code ~/config
		deny  prober/result     code ~/prober/engine
		deny  collector         code ~/prober
		deny  collector         code ~/prober/engine
		deny  collector/engine  code ~/prober/scenario
		deny  collector/gpu     test ~/prober/stream
		deny  collector         code ~/web
		allow collector         code ~/prober/result
		allow collector         code ~/config
		allow collector/gpu     code ~/nvml
		deny  nvml              code ~/config
		deny  nvml              code ~/prober/result
		deny  sim               code ~/config
		deny  sim               code ~/prober/stream
		allow sim               test ~/prober/engine
		allow web               code ~/prober
		allow cmd/app           code ~/sim
	CASES
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cp .golangci.yml "$tmp/"
printf 'module %s\n\ngo 1.26.0\n' "$module" >"$tmp/go.mod"

# package_file FOLDER [FILE IMPORT]: a Go file that imports one thing, or nothing
package_file() {
	mkdir -p "$tmp/$1"
	{
		echo "package $(basename "${1//-/}" | tr -d '.')"
		[[ -z ${3-} ]] || printf '\nimport _ "%s"\n' "$3"
	} >"$tmp/$1/${2-doc.go}"
}

for dir in config prober prober/{scenario,engine,stream,measure,result,dataset} collector nvml sim web; do
	package_file "$dir"
done
# Empty modules stand for the libraries, so that nothing is downloaded.
cases | awk '$4 ~ /^[a-z.]+\.[a-z]+\// {print $4}' | sort -u | while read -r library; do
	case $library in
	*.v2) version=v2.0.0 ;;
	*.v3 | */v3) version=v3.0.0 ;;
	*) version=v0.0.0 ;;
	esac
	package_file "third_party/$library"
	printf 'module %s\n\ngo 1.26.0\n' "$library" >"$tmp/third_party/$library/go.mod"
	printf 'require %s %s\nreplace %s => ./third_party/%s\n' "$library" "$version" "$library" "$library" >>"$tmp/go.mod"
done

n=0
declare -A want_of what_of
while read -r want dir kind import; do
	[[ -n $want ]] || continue
	n=$((n + 1))
	file=case$n.go
	[[ $kind == code ]] || file=case${n}_test.go
	package_file "$dir/case$n" "$file" "${import/\~/$module}"
	want_of[$n]=$want
	what_of[$n]="$dir ($kind) -> $import"
done < <(cases)

out=$(cd "$tmp" && "$lint" run --allow-parallel-runners --enable-only depguard --output.text.path stdout --output.text.print-issued-lines=false ./... 2>&1) || true
bad=0
for ((i = 1; i <= n; i++)); do
	got=allow
	grep -Eq "case${i}(_test)?\.go:.*\(depguard\)" <<<"$out" && got=deny
	if [[ $got != "${want_of[$i]}" ]]; then
		echo "import rules: ${what_of[$i]}: got $got, want ${want_of[$i]}" >&2
		bad=$((bad + 1))
	fi
done
if ((bad > 0)) || ! grep -q depguard <<<"$out"; then
	echo "$out" | grep -v '(depguard)' | head -n 20 >&2
	echo "import rules: $bad of $n cases wrong" >&2
	exit 1
fi
echo "import rules: $n cases right"
