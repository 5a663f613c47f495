#!/usr/bin/env bash
# Sends every expression of every dashboard to real Prometheus servers that scrape the demo: one keeps classic
# histograms, one native ones. Each has to give data, but for those that dashboards/gen/cmd/check names as impossible in
# the demo, with the reason. Those (GPUs, faults, ramps, …) are then sent for figures that are made up
# (dashboards/gen/cmd/fake), where nothing may be missing. Takes about two minutes.
set -euo pipefail
. "$(dirname "$0")/lib.inc"

need curl go
[[ -x $bin ]] || skip "$bin is not built: run 'make build'"

# The server alone, taken out of its Debian package: installing that would start it as a service.
prometheus=$(command -v prometheus || true)
if [[ -z $prometheus ]] && command -v apt-get >/dev/null 2>&1 && command -v dpkg-deb >/dev/null 2>&1; then
	download() { (cd "$tmp" && timeout 300 apt-get -qq download prometheus); }
	download >"$tmp/apt.log" 2>&1 || { timeout 300 apt-get -qq update && download; } >>"$tmp/apt.log" 2>&1 || true
	dpkg-deb -x "$tmp"/prometheus_*.deb "$tmp/deb" 2>>"$tmp/apt.log" || true
	prometheus=$tmp/deb/usr/bin/prometheus
fi
[[ -n $prometheus && -x $prometheus ]] && "$prometheus" --version >"$tmp/version.log" 2>&1 || skip "no prometheus, and its Debian package cannot be had"
echo "$(head -n 1 "$tmp/version.log")"

(cd "$repo/dashboards/gen" && CGO_ENABLED=0 go build -o "$tmp/" ./cmd/check ./cmd/fake)

# A port that was free a moment ago.
port() {
	local p
	for p in $(shuf -i 20000-29999 -n 50); do
		(exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null || { echo "$p" && return; }
	done
	fail "no free port"
}
demo=127.0.0.1:$(port) fake=127.0.0.1:$(port) classic=127.0.0.1:$(port) native=127.0.0.1:$(port)

cat >"$tmp/prometheus.yml" <<YML
global: {scrape_interval: 2s}
scrape_configs:
  - {job_name: demo, static_configs: [{targets: ["$demo"]}]}
  - {job_name: fake, static_configs: [{targets: ["$fake"]}]}
YML

start demo "$bin" demo --web.listen-address="$demo"
watch=$started
until_ok 30 "the demo's first probes" sh -c "curl -fsS -m 5 http://$demo/metrics | grep -q '^llm_canary_probe_success'"
start fake "$tmp/fake" -listen "$fake"
serve() {
	local name=$1 address=$2
	shift 2
	start "$name" "$prometheus" --config.file="$tmp/prometheus.yml" --storage.tsdb.path="$tmp/$name" --web.listen-address="$address" "$@"
}
serve classic "$classic"
serve native "$native" --enable-feature=native-histograms
for address in "$classic" "$native"; do
	until_ok 30 "Prometheus on $address" curl -fsS -m 5 -o /dev/null "http://$address/-/ready"
done

# Some probes of every scenario, and some scrapes with a cadence of minutes as `$__rate_interval` has it.
sleep "${DASHBOARDS_E2E_SECONDS:-75}"

failed=
check() {
	local what=$1
	shift
	echo "-- $what"
	"$tmp/check" -dashboards "$repo/dashboards" -since 60s "$@" >"$tmp/check.txt" || failed=yes
	grep -E '^(MISSING|REFUSED|NOTE)' -A 8 "$tmp/check.txt" || true
	tail -n 1 "$tmp/check.txt"
}
check "demo, classic histograms" -prometheus "http://$classic" -job demo
check "demo, classic histograms asked for" -prometheus "http://$classic" -job demo -histogram '.*'
check "demo, native histograms" -prometheus "http://$native" -job demo
check "demo, native histograms asked for" -prometheus "http://$native" -job demo -histogram none
check "every metric, classic histograms" -prometheus "http://$classic" -job fake -complete
check "every metric, native histograms" -prometheus "http://$native" -job fake -complete
echo "-- without data in the demo"
"$tmp/check" -dashboards "$repo/dashboards" -since 60s -prometheus "http://$classic" -job demo | sed -n 's/^no data .*: //p' | sort | uniq -c || true
[[ -z $failed ]] || fail "some expressions give no data"
