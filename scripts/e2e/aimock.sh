#!/usr/bin/env bash
# The daemon against a server that nobody here wrote: aimock, a mock of LLM APIs from npm.
# docs/servers-seen.md says what it sends. Needs bin/llm_canary_exporter, node, npm, curl; promtool if it is there.
set -euo pipefail
. "$(dirname "$0")/lib.inc"

aimock=@copilotkit/aimock@1.43.0
chunk=24 # characters
fixtures=$repo/scripts/e2e/testdata/aimock

need node npm curl
node -e 'process.exit(process.versions.node.localeCompare("20.15.0", "en", {numeric: true}) < 0 ? 1 : 0)' ||
	skip "aimock needs node 20.15 or newer, here is $(node --version)"
[[ -x $bin ]] || fail "$bin is not there: run make build"

# Into a temporary folder: nothing of it may land in the repository, and none of its scripts runs.
timeout 180 npm install --ignore-scripts --no-audit --no-fund --no-package-lock --prefix "$tmp/npm" "$aimock" \
	>"$tmp/npm.log" 2>&1 || { tail -n 5 "$tmp/npm.log" >&2; skip "npm cannot install $aimock"; }

target_port=$(free_port)
start aimock node "$tmp/npm/node_modules/@copilotkit/aimock/dist/cli.js" \
	-h 127.0.0.1 -p "$target_port" -f "$fixtures" -c "$chunk" --validate-on-load --journal-max 100
aimock_pid=$started
watch=$aimock_pid until_ok 20 "aimock listens" curl -fsS -m 2 -o "$tmp/health" "http://127.0.0.1:$target_port/health"

# aimock ignores max_tokens: its answer is always the same. So of the scenario types only chat fits it.
cat >"$tmp/config.yml" <<-CONFIG
	scenarios:
	  - name: chat
	    type: chat
	    interval: 1s
	    max_tokens: 64
	targets:
	  - name: aimock
	    url: http://127.0.0.1:$target_port
	    scenarios: [chat]
CONFIG
"$bin" check --config.file="$tmp/config.yml" >"$tmp/check.log" 2>&1 || fail "check refuses the config"

port=$(free_port)
metrics=http://127.0.0.1:$port/metrics
start exporter "$bin" --config.file="$tmp/config.yml" --web.listen-address="127.0.0.1:$port"
exporter_pid=$started
watch=$exporter_pid until_ok 20 "the daemon listens" scrape "$metrics"

# 1. It sees successes.
chat='target="aimock" scenario="chat"'
read -r -a labels <<<"$chat"
succeeded() {
	scrape "$metrics" &&
		holds "$(value llm_canary_probes_total "${labels[@]}") >= 3" &&
		holds "$(value llm_canary_probe_success "${labels[@]}") == 1"
}
watch=$exporter_pid until_ok 30 "three chat probes, the last one a success" succeeded

# 2. What it counts is what aimock sent. A scrape may fall between two figures of one probe, so look again a few times.
content=$(node -p 'require(process.argv[1]).fixtures[0].response.content' "$fixtures/chat.json")
gaps=$(((${#content} + chunk - 1) / chunk - 1))
tokens=$(((${#content} + 3) / 4)) # aimock counts a token for every four characters
exact() {
	scrape "$metrics" || return 1
	local n
	n=$(value llm_canary_time_to_first_token_seconds_count "${labels[@]}")
	holds "$n >= 3" &&
		holds "$(value llm_canary_inter_token_latency_seconds_count "${labels[@]}") == $n * $gaps" &&
		holds "$(value llm_canary_generation_tokens_total "${labels[@]}") == $n * $tokens"
}
watch=$exporter_pid until_ok 15 "$gaps gaps and $tokens tokens for every answer" exact

# 3. The role chunk comes after 40 ms, the first text one tick of 100 ms later: it is the text that counts.
n=$(value llm_canary_time_to_first_token_seconds_count "${labels[@]}")
ttft=$(value llm_canary_time_to_first_token_seconds_sum "${labels[@]}")
holds "$ttft / $n > 0.12" || fail "mean time to first token $(awk "BEGIN {print $ttft / $n}") s: the role chunk was counted"
holds "$ttft / $n < 2" || fail "mean time to first token $(awk "BEGIN {print $ttft / $n}") s"

# 4. The page is well-formed.
if command -v promtool >/dev/null 2>&1; then
	promtool check metrics <"$tmp/metrics" >"$tmp/promtool.log" 2>&1 || fail "promtool check metrics"
else
	echo "note: promtool is not installed: the metrics page was not linted"
fi

# 5. It sees the server die.
kill "$aimock_pid"
wait "$aimock_pid" 2>/dev/null || true
saw_failure() {
	scrape "$metrics" &&
		holds "$(value llm_canary_probe_success "${labels[@]}") == 0" &&
		holds "$(value llm_canary_probe_failures_total "${labels[@]}" 'reason="connect"') >= 1"
}
watch=$exporter_pid until_ok 30 "probes fail with reason connect once the server is gone" saw_failure

# 6. It stops in order.
kill -TERM "$exporter_pid"
rc=0
wait "$exporter_pid" || rc=$?
((rc == 0)) || fail "the daemon ended with status $rc on SIGTERM"
echo "aimock: $n answers, mean time to first token $(awk "BEGIN {printf \"%.3f\", $ttft / $n}") s, $gaps gaps each"
