package boards

import "github.com/grafana/grafana-foundation-sdk/go/dashboard"

// Colours of states.
const (
	good    = "green"
	warning = "orange"
	bad     = "red"
	neutral = "blue"
)

// The limits of a share of successes: the default objectives are 99 % for latency and 99.5 % for availability.
func successLimits() []limit {
	return []limit{{0, bad}, {0.99, warning}, {0.995, good}}
}

func okFailed() map[string]dashboard.ValueMappingResult {
	return map[string]dashboard.ValueMappingResult{"0": shown("Failed", bad), "1": shown("OK", good)}
}

// successShare is the share of probes that succeeded in the window.
func successShare(by string) string {
	return rest(byPair.grown(by, "probe_failures_total"), byPair.grown(by, "probes_total"))
}

// budgetLeft is the share of the error budget that the time range of the dashboard has left.
func budgetLeft(by string) string {
	return "1 -\n" + share(
		byPair.grownIn("$__range", by, "slo_bad_requests_total"),
		byPair.grownIn("$__range", by, "slo_requests_total")) +
		"\n/\n(1 - " + byPair.last(by, "slo_objective_ratio") + ")"
}

// burn is how many times faster than allowed the error budget is used up.
func burn(by string) string {
	return share(byPair.grown(by, "slo_bad_requests_total"), byPair.grown(by, "slo_requests_total")) +
		"\n/\n(1 - " + byPair.last(by, "slo_objective_ratio") + ")"
}

func overview() board {
	return board{
		file:        "overview",
		title:       "LLM canary / Overview",
		description: "Is any inference server slow, broken or giving wrong answers right now, for which kind of request, and since when?",
		from:        "6h",
		variables:   pairVars("30m"),
		annotations: events(),
		rows: []row{
			{title: "At a glance", panels: atAGlance()},
			{title: "Targets", panels: targetPanels()},
			{title: "Service level objectives", panels: sloPanels()},
			{title: "Active problems", panels: problemPanels()},
			{title: "Trends", panels: trendPanels()},
		},
	}
}

func atAGlance() []panel {
	return []panel{
		{
			kind: number, title: "Probes that succeeded", unit: "percentunit", width: 4, height: 4, decimals: ptr(2.0),
			description: "Share of all probes in the window that were answered in time and right. Colours follow the default objectives, 99 % and 99.5 %.",
			base:        bad, limits: successLimits(), noData: "No probe in this window",
			queries: []query{{expr: successShare("")}},
		},
		{
			kind: number, title: "Scenarios failing now", unit: "short", width: 4, height: 4,
			description: "Pairs of target and scenario whose last probe failed.",
			limits:      []limit{{1, bad}}, noData: "No probe yet",
			queries: []query{{expr: "sum(" + byPair.least("target, scenario", "probe_success") + " == bool 0)"}},
		},
		{
			kind: number, title: "Stale scenarios", unit: "short", width: 4, height: 4,
			description: "Pairs of target and scenario without a finished probe for more than three of their intervals: what is shown of them is old.",
			limits:      []limit{{1, warning}}, noData: "No probe yet",
			queries: []query{{expr: "sum(time() - " + byPair.last("target, scenario", "probe_last_run_timestamp_seconds") +
				"\n> bool\n3 * " + byPair.last("target, scenario", "probe_interval_seconds") + ")"}},
		},
		{
			kind: number, title: "Wrong answers", unit: "percentunit", width: 4, height: 4, decimals: ptr(2.0),
			description: "Share of the checks in the window that found a wrong answer: schema, regex, choice, grammar, needle, tool call, image.",
			limits:      []limit{{0.005, warning}, {0.01, bad}}, noData: "No check in this window",
			queries: []query{{expr: share(byPair.grown("", "check_failures_total"), byPair.grown("", "checks_total"))}},
		},
		{
			kind: number, title: "Streams broken mid-answer", unit: "short", width: 4, height: 4, decimals: ptr(0.0),
			description: "Probes in the window whose answer began well and then broke: cut, reset, stalled, or an error event in a stream with status 200.",
			limits:      []limit{{0.5, warning}, {2, bad}}, noData: "No probe in this window",
			queries: []query{{expr: byPair.grown("", "probe_failures_total", `reason=~"truncated|stream_error|timeout_stall|connection_reset"`)}},
		},
		{
			kind: number, title: "Lowest error budget left", unit: "percentunit", width: 4, height: 4, decimals: ptr(0.0),
			description: "Error budget left over the time range of the dashboard, of the objective that has the least of it. Below zero the objective is missed.",
			base:        bad, limits: []limit{{0, warning}, {0.25, good}}, noData: "No objective configured",
			queries: []query{{expr: "min(" + budgetLeft("target, scenario, slo") + ")"}},
		},
	}
}

func targetPanels() []panel {
	return []panel{
		{
			kind: grid, title: "Targets", unit: "short", width: 24, height: 8, noData: "No target",
			description: "One line for each target. A click on its name leads to its dashboards. Success and quantiles are of the window and of the chosen scenarios; quantiles are over all of them, so compare a target with itself. Running, waiting and KV cache are what the engine says of itself.",
			queries: []query{
				{expr: successShare("target")},
				{expr: "sum by (target) (" + byPair.least("target, scenario", "probe_success") + " == bool 0)"},
				{expr: byPair.quantile(0.95, "target", "time_to_first_token_seconds")},
				{expr: byPair.quantile(0.95, "target", "time_per_output_token_seconds")},
				{expr: byTarget.last("target", "engine_requests_running")},
				{expr: byTarget.last("target", "engine_requests_waiting")},
				{expr: byTarget.last("target", "engine_kv_cache_usage_ratio")},
				{expr: "count by (target, engine, version, model) (" + byTarget.sel("target_info") + ")"},
			},
			columns: []column{
				{field: "target", title: "Target", links: true},
				{field: "Value #A", title: "Success", unit: "percentunit", limits: successLimits()},
				{field: "Value #B", title: "Failing now", unit: "short", limits: []limit{{1, bad}}},
				{field: "Value #C", title: "TTFT p95", unit: "s"},
				{field: "Value #D", title: "TPOT p95", unit: "s"},
				{field: "Value #E", title: "Running", unit: "short"},
				{field: "Value #F", title: "Waiting", unit: "short"},
				{field: "Value #G", title: "KV cache", unit: "percentunit", limits: []limit{{0.8, warning}, {0.95, bad}}},
				{field: "engine", title: "Engine"},
				{field: "version", title: "Version"},
				{field: "model", title: "Model"},
				{field: "Value #H"},
			},
			sort: "Failing now",
		},
		{
			kind: timeline, title: "Last probe of each scenario", unit: "short", width: 24, height: 12, noData: "No probe yet",
			description: "Since when does what fail? Red from the end of a failed probe to the end of the next one that succeeds. Gaps: nothing has run, or the target cannot do it.",
			values:      okFailed(), base: bad, limits: []limit{{1, good}},
			queries: []query{{expr: byPair.least("target, scenario", "probe_success"), legend: "{{target}} {{scenario}}"}},
		},
	}
}

func sloPanels() []panel {
	const by = "target, scenario, slo"
	return []panel{
		{
			kind: grid, title: "Objectives", unit: "short", width: 24, height: 8, noData: "No objective configured",
			description: "Every configured objective over the time range of the dashboard. Failed requests count as bad for all objectives. Few requests make coarse figures: with 100 of them, one bad request is 1 %.",
			queries: []query{
				{expr: byPair.last(by, "slo_objective_ratio")},
				{expr: byPair.last(by, "slo_threshold_seconds")},
				{expr: byPair.grownIn("$__range", by, "slo_requests_total")},
				{expr: byPair.grownIn("$__range", by, "slo_bad_requests_total")},
				{expr: budgetLeft(by)},
			},
			columns: []column{
				{field: "target", title: "Target", links: true},
				{field: "scenario", title: "Scenario"},
				{field: "slo", title: "Objective"},
				{field: "Value #A", title: "Wanted", unit: "percentunit"},
				{field: "Value #B", title: "Threshold", unit: "s"},
				{field: "Value #C", title: "Requests", unit: "short"},
				{field: "Value #D", title: "Bad", unit: "short"},
				{field: "Value #E", title: "Budget left", unit: "percentunit", limits: []limit{{-1e9, bad}, {0, warning}, {0.25, good}}},
			},
		},
		{
			kind: lines, title: "Burn rate", unit: "short", width: 24, noData: "No objective configured",
			description: "How many times faster than allowed the error budget is used, over the window. At 1 it lasts just for its period; the lines stand at 1, 6 and 14.4, where a budget of 30 days is gone in 30, 5 and 2 days.",
			limits:      []limit{{1, "yellow"}, {6, warning}, {14.4, bad}}, limitLines: true, min: ptr(0.0),
			queries: []query{{expr: burn(by), legend: "{{target}} {{scenario}} {{slo}}"}},
		},
	}
}

func problemPanels() []panel {
	const by = "target, scenario"
	return []panel{
		{
			kind: grid, title: "Alerts that fire", unit: "short", width: 24, height: 6, noData: "No alert fires, or the rules are not loaded",
			description: "Alerts of the rules in `alerts/`, where this Prometheus evaluates them. Not limited by the variables: some alerts are of no single target.",
			queries: []query{{
				expr: `count by (alertname, severity, target, scenario) (ALERTS{alertname=~"(?i)(llm_?)?canary.+", alertstate="firing"})`,
			}},
			columns: []column{
				{field: "alertname", title: "Alert"},
				{field: "severity", title: "Severity"},
				{field: "target", title: "Target", links: true},
				{field: "scenario", title: "Scenario"},
				{field: "Value"}, {field: "Value #A"},
			},
		},
		{
			kind: grid, title: "Failing now", unit: "short", width: 12, height: 9, noData: "Nothing fails",
			description: "Pairs of target and scenario that have failed since their last success, and for how long.",
			queries: []query{
				{expr: byPair.last(by, "probe_consecutive_failures") + " > 0"},
				{expr: "time() - " + byPair.last(by, "probe_last_success_timestamp_seconds") +
					"\nand\n" + byPair.last(by, "probe_consecutive_failures") + " > 0"},
			},
			columns: []column{
				{field: "target", title: "Target", links: true},
				{field: "scenario", title: "Scenario"},
				{field: "Value #A", title: "Failures in a row", unit: "short", limits: []limit{{1, warning}, {3, bad}}},
				{field: "Value #B", title: "Since last success", unit: "s"},
			},
			sort: "Failures in a row",
		},
		{
			kind: bars, title: "Failures by reason", unit: "short", width: 12, height: 9, min: ptr(0.0), noData: "No failure",
			description: "Failed probes in each minute or step by the reason of their first failure.",
			queries:     []query{{expr: byPair.events("target, reason", "probe_failures_total"), legend: "{{target}} {{reason}}"}},
		},
		{
			kind: bars, title: "Wrong answers by check", unit: "short", width: 8, min: ptr(0.0), noData: "No wrong answer",
			description: "Checks in each minute or step that found a wrong answer.",
			queries:     []query{{expr: byPair.events("target, scenario, check", "check_failures_total"), legend: "{{target}} {{scenario}} {{check}}"}},
		},
		{
			kind: bars, title: "Oddities of streams", unit: "short", width: 8, min: ptr(0.0), noData: "No anomaly",
			description: "What was odd in each minute or step without failing a request, and gaps of a second or more between two chunks.",
			queries: []query{
				{expr: byPair.births("target, anomaly", "stream_anomalies_total"), legend: "{{target}} {{anomaly}}"},
				{expr: byPair.events("target", "stream_stalls_total"), legend: "{{target}} stalls"},
			},
		},
		{
			kind: bars, title: "Probes that were skipped", unit: "short", width: 8, min: ptr(0.0), noData: "No skip",
			description: "Ticks of the cadence in each minute or step that did not become a probe: then silence says nothing about the target.",
			queries:     []query{{expr: byPair.events("target, reason", "probe_skips_total"), legend: "{{target}} {{reason}}"}},
		},
	}
}

func trendPanels() []panel {
	return []panel{
		{
			kind: lines, title: "Time to first token, p95", unit: "s", width: 8, min: ptr(0.0),
			description: "Over the window and all chosen scenarios. Choose one scenario for a figure that can be compared between targets. Dashed: thresholds of objectives.",
			queries: []query{
				{expr: byPair.quantile(0.95, "target", "time_to_first_token_seconds"), legend: "{{target}}"},
				byPair.sloLine(sloFirstToken),
			},
		},
		{
			kind: lines, title: "Time per output token, p95", unit: "s", width: 8, min: ptr(0.0),
			description: "Over the window and all chosen scenarios. Dashed: thresholds of objectives.",
			queries: []query{
				{expr: byPair.quantile(0.95, "target", "time_per_output_token_seconds"), legend: "{{target}}"},
				byPair.sloLine(sloPerToken),
			},
		},
		{
			kind: lines, title: "Output rate of the last probe", unit: "suffix: tok/s", width: 8, min: ptr(0.0),
			description: "Output tokens per second, median over variants: the decode rate of one request; for a burst that of the whole batch.",
			queries:     []query{{expr: "quantile by (target, scenario) (0.5, " + byPair.sel("output_tokens_per_second") + ")", legend: "{{target}} {{scenario}}"}},
		},
	}
}
