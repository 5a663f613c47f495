package boards

import "github.com/grafana/grafana-foundation-sdk/go/dashboard"

func exporter() board {
	return board{
		file:        "exporter",
		title:       "LLM canary / Exporter",
		description: "Can the figures be trusted, and what does probing cost? The exporter's own lag, skips, token budget, configuration and resources.",
		from:        "6h",
		variables:   pairVars("30m"),
		annotations: events(),
		rows: []row{
			{title: "At a glance", panels: exporterStats()},
			{title: "Can the figures be trusted?", panels: trustPanels()},
			{title: "What probing costs", panels: costPanels()},
			{title: "Process", panels: processPanels()},
		},
	}
}

func exporterStats() []panel {
	return []panel{
		{
			kind: number, title: "Exporters", unit: "short", width: 4, height: 4, base: bad, limits: []limit{{1, good}},
			description: "Exporters that were scraped.", noData: "None",
			queries: []query{{expr: "count(" + byExporter.sel("build_info") + ")"}},
		},
		{
			kind: number, title: "Configuration", unit: "short", width: 4, height: 4, base: bad, limits: []limit{{1, good}},
			description: "Whether the last reload of the configuration succeeded, on the exporter where it is worst. After a failed one the configuration before it stays in force.",
			values: map[string]dashboard.ValueMappingResult{
				"0": shown("Reload failed", bad), "1": shown("OK", good),
			},
			noData:  "Unknown",
			queries: []query{{expr: byExporter.least("", "config_last_reload_successful")}},
		},
		{
			kind: number, title: "Last reload", unit: "s", width: 4, height: 4, base: neutral,
			description: "Time since the last successful reload of the configuration, or since the start.", noData: "Unknown",
			queries: []query{{expr: "time() - " + byExporter.last("", "config_last_reload_success_timestamp_seconds")}},
		},
		{
			kind: number, title: "Schedule lag, p99", unit: "s", width: 4, height: 4, limits: []limit{{0.05, warning}, {0.5, bad}},
			description: "How much later than scheduled probes started, over the window. Above 50 ms the figures are to be doubted.",
			queries:     []query{{expr: byTarget.quantile(0.99, "", "schedule_lag_seconds")}},
		},
		{
			kind: number, title: "Skipped ticks", unit: "percentunit", width: 4, height: 4, limits: []limit{{0.01, warning}, {0.1, bad}}, decimals: ptr(1.0),
			description: "Share of the ticks in the window that did not become a probe, other than for scenarios that the target cannot do.",
			noData:      "No tick in this window",
			queries:     []query{{expr: skips() + "\n/\n((" + skips() + "\n+\n" + byPair.grown("", "probes_total") + ") > 0)"}},
		},
		{
			kind: number, title: "Budget used, highest", unit: "percentunit", width: 4, height: 4, limits: []limit{{0.8, warning}, {0.95, bad}}, decimals: ptr(0.0),
			description: "Tokens used of the budget, for the target and window that is nearest to its limit. At 100 % probes are skipped.",
			noData:      "No budget configured",
			queries:     []query{{expr: "max(" + budgetUsed() + ")"}},
		},
	}
}

func skips() string { return byPair.grown("", "probe_skips_total", `reason!="unsupported"`) }

func budgetUsed() string {
	return byTarget.last("target, window", "budget_tokens_used") + "\n/\n(" + byTarget.last("target, window", "budget_tokens_limit") + " > 0)"
}

func trustPanels() []panel {
	return []panel{
		{
			kind: lines, title: "Schedule lag", unit: "s", width: 12, log: true, limits: []limit{{0.05, warning}}, limitLines: true,
			description: "How much later than scheduled probes started, over the window. Logarithmic; the line stands at 50 ms.",
			queries: []query{
				{expr: byTarget.quantile(0.5, "instance", "schedule_lag_seconds"), legend: "{{instance}} p50"},
				{expr: byTarget.quantile(0.99, "instance", "schedule_lag_seconds"), legend: "{{instance}} p99"},
			},
		},
		{
			kind: lines, title: "Client lag", unit: "s", width: 12, log: true, limits: []limit{{0.01, warning}}, limitLines: true,
			noData:      "No kernel time stamps on this platform",
			description: "Time from the kernel's receipt of bytes to our reading them, the longest of each request, over the window. Logarithmic; the line stands at 10 ms.",
			queries: []query{
				{expr: byTarget.quantile(0.5, "instance", "client_lag_seconds"), legend: "{{instance}} p50"},
				{expr: byTarget.quantile(0.99, "instance", "client_lag_seconds"), legend: "{{instance}} p99"},
			},
		},
		{
			kind: bars, title: "Skipped ticks by reason", unit: "short", width: 8, min: ptr(0.0), noData: "No skip",
			description: "Ticks of the cadence in each minute or step that did not become a probe. `overlap`: the one before still ran. `missed`: the exporter did not run when ticks were due (suspended, starved). `budget`: tokens are used up. `guard`: the engine is loaded. `unsupported`: the target cannot do it. `backoff`: the target keeps failing.",
			queries:     []query{{expr: byPair.events("reason", "probe_skips_total"), legend: "{{reason}}"}},
		},
		{
			kind: lines, title: "Probes that run", unit: "short", width: 8, min: ptr(0.0),
			description: "Probes that were running at the moment of the scrape.",
			queries:     []query{{expr: "sum by (target) (" + byPair.last("target, scenario", "probe_running") + ")", legend: "{{target}}"}},
		},
		{
			kind: bars, title: "Where token counts come from", unit: "short", width: 8, min: ptr(0.0),
			description: "Answers in each minute or step by the source of their token count. `chunks` is an estimate: then rates and times per token are estimates too.",
			queries:     []query{{expr: byPair.events("source", "request_token_counts_total"), legend: "{{source}}"}},
		},
		{
			kind: lines, title: "Duration of probes, p95", unit: "s", width: 12, min: ptr(0.0),
			description: "Of successful probes with all their requests, over the window. A probe that takes longer than its interval makes the next tick an `overlap`.",
			queries:     []query{{expr: byPair.quantile(0.95, "target, scenario", "probe_duration_seconds"), legend: "{{target}} {{scenario}}"}},
		},
		{
			kind: lines, title: "Results that were not exported", unit: "short", width: 12, min: ptr(0.0),
			description: "Increase over the window. A few dropped results after a reload are normal; label values and figures are faults of the exporter, and its log names them.",
			queries: []query{
				{expr: byExporter.grown("instance", "exporter_results_dropped_total"), legend: "{{instance}} results"},
				{expr: byExporter.grown("instance", "exporter_label_values_dropped_total"), legend: "{{instance}} label values"},
				{expr: byExporter.grown("instance", "exporter_figures_dropped_total"), legend: "{{instance}} figures"},
			},
		},
	}
}

func costPanels() []panel {
	perHour := func(metric string) string {
		return "3600 * " + agg("sum", "target", "rate("+byPair.sel(metric)+"[$window])")
	}
	return []panel{
		{
			kind: lines, title: "Token budget used", unit: "percentunit", width: 12, min: ptr(0.0), limits: []limit{{1, bad}}, limitLines: true,
			noData:      "No budget configured",
			description: "Tokens used of each budget. At 100 % probes are skipped until the window moves on.",
			queries:     []query{{expr: budgetUsed(), legend: "{{target}} per {{window}}"}},
		},
		{
			kind: areas, title: "Tokens per hour", unit: "suffix: tok/h", width: 12, min: ptr(0.0),
			description: "What the canary sends and gets, at the rate of the window. Prompt tokens include those that came from the server's cache.",
			queries: []query{
				{expr: perHour("prompt_tokens_total"), legend: "{{target}} prompt"},
				{expr: perHour("generation_tokens_total"), legend: "{{target}} generated"},
			},
		},
		{
			kind: areas, title: "Tokens per hour by scenario", unit: "suffix: tok/h", width: 12, min: ptr(0.0),
			description: "Prompt and generated tokens, at the rate of the window: which scenario costs most.",
			queries: []query{{
				expr: "3600 * (\n" + agg("sum", "scenario", "rate("+byPair.sel("prompt_tokens_total")+"[$window])") +
					"\n+\n" + agg("sum", "scenario", "rate("+byPair.sel("generation_tokens_total")+"[$window])") + "\n)",
				legend: "{{scenario}}",
			}},
		},
		{
			kind: lines, title: "Share of the engine's work", unit: "percentunit", width: 12, min: ptr(0.0), noData: "No engine metrics",
			description: "Tokens that the canary had generated of all that the engine generated, over the window.",
			queries: []query{{
				expr: share(
					agg("sum", "target", "rate("+byTarget.sel("generation_tokens_total")+"[$window])"),
					agg("sum", "target", "rate("+byTarget.sel("engine_generation_tokens_total")+"[$window])")),
				legend: "{{target}}",
			}},
		},
	}
}

func processPanels() []panel {
	return []panel{
		{
			kind: lines, title: "CPU", unit: "none", width: 6, min: ptr(0.0),
			description: "Cores that the exporter keeps busy.",
			queries:     []query{{expr: agg("sum", "instance", own("rate("+byExporter.raw("process_cpu_seconds_total")+"[$__rate_interval])")), legend: "{{instance}}"}},
		},
		{
			kind: lines, title: "Memory", unit: "bytes", width: 6, min: ptr(0.0),
			description: "Resident memory, and the live heap of Go.",
			queries: []query{
				{expr: agg("max", "instance", own(byExporter.raw("process_resident_memory_bytes"))), legend: "{{instance}} resident"},
				{expr: agg("max", "instance", own(byExporter.raw("go_memstats_heap_alloc_bytes"))), legend: "{{instance}} heap"},
			},
		},
		{
			kind: lines, title: "Goroutines", unit: "short", width: 6, min: ptr(0.0),
			description: "Should not grow with time.",
			queries:     []query{{expr: agg("max", "instance", own(byExporter.raw("go_goroutines"))), legend: "{{instance}}"}},
		},
		{
			kind: lines, title: "Scrapes", unit: "s", width: 6, min: ptr(0.0),
			description: "How long scraping the exporter takes, as Prometheus sees it.",
			queries:     []query{{expr: agg("max", "instance", own(byExporter.raw("scrape_duration_seconds"))), legend: "{{instance}}"}},
		},
		{
			kind: grid, title: "Versions", unit: "short", width: 24, height: 5, noData: "None",
			description: "Which version of the exporter runs where, and what it was built with.",
			queries:     []query{{expr: "count by (instance, version, revision, goversion) (" + byExporter.sel("build_info") + ")"}},
			columns: []column{
				{field: "instance", title: "Exporter"},
				{field: "version", title: "Version"},
				{field: "revision", title: "Revision"},
				{field: "goversion", title: "Go"},
				{field: "Value"},
				{field: "Value #A"},
			},
		},
	}
}

// own keeps what exporters of ours say of themselves: every process has metrics of these names, and "All" in the
// variables job and instance is `.+`.
func own(expr string) string {
	return expr + "\nand on (job, instance)\n" + byExporter.sel("build_info")
}
