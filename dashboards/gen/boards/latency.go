package boards

func latency() board {
	return board{
		file:        "latency",
		title:       "LLM canary / Latency",
		description: "How long do people wait, for what, and is it the server, the network or this tool? Only requests that succeeded are in the latencies.",
		from:        "6h",
		variables:   pairVars("30m"),
		annotations: events(),
		rows: []row{
			{title: "First token", panels: latencyRow("time_to_first_token_seconds", "Time to first token",
				"Time from issuing a request to its first chunk of output: text, reasoning or tool call. Includes DNS, TCP and TLS of a fresh connection.", sloFirstToken)},
			{title: "First content", panels: contentPanels()},
			{title: "Between tokens", panels: gapPanels()},
			{title: "Whole requests", panels: latencyRow("e2e_request_latency_seconds", "Whole request",
				"Time from issuing a request to its last chunk of output.", sloWhole)},
			{title: "Where the time goes", panels: phasePanels()},
			{title: "Client against server", panels: clientServerPanels()},
		},
	}
}

// heatPanel is a heatmap of a histogram, with exemplars. Its cells hold what was observed in their own step, so they
// do not use the window.
func heatPanel(metric, title, description string) panel {
	classic := byPair.sel(metric+"_bucket", classicOnly)
	return panel{
		kind: heat, title: title + ", heatmap", unit: "s", width: 12, height: 9,
		description: description + " Each cell counts what was observed in its own step. The dots are exemplars: requests with their trace id.",
		queries: []query{
			{expr: agg("sum", "le", "increase("+classic+"[$__rate_interval])"), exemplar: true},
			{expr: agg("sum", "", "increase("+byPair.sel(metric, nativeOnly)+"[$__rate_interval])") +
				"\nunless on ()\ncount(" + classic + ")", series: true},
		},
	}
}

// quantilesPanel draws some quantiles over everything that is chosen.
func quantilesPanel(metric, title, description, slo string) panel {
	queries := []query{}
	for _, q := range []struct {
		value float64
		name  string
	}{{0.5, "p50"}, {0.9, "p90"}, {0.95, "p95"}, {0.99, "p99"}} {
		queries = append(queries, query{expr: byPair.quantile(q.value, "", metric), legend: q.name})
	}
	if slo != "" {
		queries = append(queries, byPair.sloLine(slo))
	}
	return panel{
		kind: lines, title: title + ", quantiles", unit: "s", width: 12, height: 9, min: ptr(0.0),
		description: description + " Quantiles over the window and everything that is chosen. Dashed: thresholds of objectives.",
		queries:     queries,
	}
}

// pairPanel draws one quantile for each pair of target and scenario.
func pairPanel(q float64, name, metric, title, description, slo string) panel {
	p := panel{
		kind: lines, title: title + ", " + name + " by scenario", unit: "s", width: 24, height: 9, min: ptr(0.0),
		description: description + " Over the window: a window that holds less than a few probes of a scenario shows gaps.",
		queries:     []query{{expr: byPair.quantile(q, "target, scenario", metric), legend: "{{target}} {{scenario}}"}},
	}
	if slo != "" {
		p.description += " Dashed: thresholds of objectives."
		p.queries = append(p.queries, byPair.sloLine(slo))
	}
	return p
}

func latencyRow(metric, title, description, slo string) []panel {
	return []panel{
		heatPanel(metric, title, description),
		quantilesPanel(metric, title, description, slo),
		pairPanel(0.95, "p95", metric, title, description, slo),
	}
}

func contentPanels() []panel {
	const metric = "time_to_first_content_seconds"
	return []panel{
		func() panel {
			p := pairPanel(0.95, "p95", metric, "Time to first content",
				"Time to the first content of the answer itself. Later than the first token on models that reason first.", sloFirstContent)
			p.width = 12
			return p
		}(),
		{
			kind: lines, title: "Reasoning before the answer", unit: "s", width: 12, height: 9, min: ptr(0.0),
			description: "Mean time from the first token to the first content: 0 on models that do not reason aloud. Over the window.",
			queries: []query{{
				expr:   "(" + byPair.mean("target, scenario", metric) + ")\n-\n(" + byPair.mean("target, scenario", "time_to_first_token_seconds") + ")",
				legend: "{{target}} {{scenario}}",
			}},
			limits: []limit{{0, good}},
		},
	}
}

func gapPanels() []panel {
	const gap = "Gaps between consecutive chunks with output. A chunk may hold several tokens (speculative decoding, servers that bundle)."
	maxGap := pairPanel(0.99, "p99", "max_inter_token_latency_seconds", "Longest gap of a request",
		"The longest gap of each request: stalls that a quantile over the gaps of all requests hides.", sloMaxGap)
	maxGap.width = 12
	return []panel{
		heatPanel("inter_token_latency_seconds", "Gaps between chunks", gap),
		quantilesPanel("inter_token_latency_seconds", "Gaps between chunks", gap, ""),
		pairPanel(0.95, "p95", "time_per_output_token_seconds", "Time per output token",
			"Mean time per output token after the first, one observation for each request.", sloPerToken),
		maxGap,
		{
			kind: bars, title: "Stalls", unit: "short", width: 12, height: 9, min: ptr(0.0), noData: "No stall",
			description: "Gaps of a second or more in each minute or step, those of failed requests included.",
			queries:     []query{{expr: byPair.events("target, scenario", "stream_stalls_total"), legend: "{{target}} {{scenario}}"}},
		},
	}
}

func phasePanels() []panel {
	return []panel{
		{
			kind: areas, title: "Parts of a request before the answer, mean", unit: "s", width: 12, height: 9, min: ptr(0.0),
			description: "Mean over the window of each part, for the chosen targets. `send` ends with the last byte of the request, `headers` with the first byte of the answer. Parts that did not happen (a reused connection, no TLS) are not counted.",
			queries:     []query{{expr: byTarget.mean("phase", "request_phase_seconds"), legend: "{{phase}}"}},
		},
		{
			kind: lines, title: "Parts of a request before the answer, p95", unit: "s", width: 12, height: 9, log: true,
			description: "Quantile over the window of each part, for each target. Logarithmic.",
			queries:     []query{{expr: byTarget.quantile(0.95, "target, phase", "request_phase_seconds"), legend: "{{target}} {{phase}}"}},
		},
	}
}

func clientServerPanels() []panel {
	return []panel{
		{
			kind: lines, title: "Time to first token: this client and the server itself", unit: "s", width: 12, height: 9, min: ptr(0.0),
			description: "Median over the window as the canary sees it, against what the server says of all its requests (if this Prometheus scrapes vLLM or SGLang too). What lies between is network, gateway and queues before the engine. Their requests differ from ours: compare the shapes.",
			queries: []query{
				{expr: byPair.quantile(0.5, "target", "time_to_first_token_seconds"), legend: "canary, {{target}}"},
				{expr: `histogram_quantile(0.5, sum by (le, model_name) (rate({__name__=~"(vllm|sglang):time_to_first_token_seconds_bucket"}[$window])))`, legend: "server, {{model_name}}"},
			},
		},
		{
			kind: lines, title: "How busy the engine was", unit: "short", width: 12, height: 9, min: ptr(0.0),
			noData:      "No engine metrics",
			description: "Requests in the engine when the last probe started. A latency among fifty requests and one of an idle engine are different measurements.",
			queries: []query{
				{expr: byPair.last("target", "probe_engine_requests_running"), legend: "{{target}} running"},
				{expr: byPair.last("target", "probe_engine_requests_waiting"), legend: "{{target}} waiting"},
			},
		},
		{
			kind: lines, title: "Error of the measurement: client lag", unit: "s", width: 12, height: 9, log: true,
			noData:      "No kernel time stamps on this platform",
			description: "Time from the kernel's receipt of bytes to our reading them, the longest of each request. Latencies do not contain it, as they use the kernel's time stamps. Over the window.",
			queries: []query{
				{expr: byTarget.quantile(0.5, "target", "client_lag_seconds"), legend: "{{target}} p50"},
				{expr: byTarget.quantile(0.99, "target", "client_lag_seconds"), legend: "{{target}} p99"},
			},
			limits: []limit{{0.01, warning}}, limitLines: true,
		},
		{
			kind: lines, title: "Error of the measurement: schedule lag", unit: "s", width: 12, height: 9, log: true,
			description: "How much later than scheduled probes started. Above 50 ms the exporter is short of CPU or of slots, and its figures are to be doubted. Over the window.",
			queries: []query{
				{expr: byTarget.quantile(0.5, "target", "schedule_lag_seconds"), legend: "{{target}} p50"},
				{expr: byTarget.quantile(0.99, "target", "schedule_lag_seconds"), legend: "{{target}} p99"},
			},
			limits: []limit{{0.05, warning}}, limitLines: true,
		},
	}
}
