package boards

func scenarios() board {
	return board{
		file:        "scenarios",
		title:       "LLM canary / Scenarios",
		description: "What does a long prompt, a cache hit, a JSON schema, a draft model, an image cost today, and are the answers right? One row for each type of scenario. A row is empty where no scenario of its type runs.",
		from:        "12h",
		variables:   pairVars("1h"),
		annotations: events(),
		rows: []row{
			{title: "All scenarios", panels: allScenarioPanels()},
			{title: "Decode: output rate", panels: decodePanels()},
			{title: "Burst: throughput of a batch", panels: burstPanels()},
			{title: "Prefill: prompt sizes", panels: prefillPanels()},
			{title: "Prefix cache", panels: prefixPanels()},
			{title: "Structured output", panels: structuredPanels()},
			{title: "Tool calls", panels: toolPanels()},
			{title: "Speculative decoding", panels: speculativePanels()},
			{title: "Multimodal", panels: multimodalPanels()},
			{title: "Long context", panels: longContextPanels()},
			{title: "Ramp: where it saturates", panels: rampPanels()},
			{title: "Compared to another target and to a baseline", panels: comparisonPanels()},
		},
	}
}

// gaugePanel draws a figure of a scenario, one line for each label set.
func gaugePanel(title, unit, metric, labels, legend, description string) panel {
	return panel{
		kind: lines, title: title, unit: unit, width: 12, min: ptr(0.0),
		description: description + " The last measurement; it vanishes when it is not renewed for three intervals.",
		queries:     []query{{expr: byPair.last(labels, metric), legend: legend}},
	}
}

// half makes a panel half as wide as the dashboard, third a third.
func (p panel) half() panel  { p.width = 12; return p }
func (p panel) third() panel { p.width = 8; return p }

// rightShare is the share of right answers of one check over the window.
func rightShare(by string, matchers ...string) string {
	return rest(byPair.grown(by, "check_failures_total", matchers...), byPair.grown(by, "checks_total", matchers...))
}

// rightPanel draws the share of right answers of some checks.
func rightPanel(title, by, legend, description string, matchers ...string) panel {
	return panel{
		kind: lines, title: title, unit: "percentunit", width: 12, min: ptr(0.0), max: ptr(1.0),
		base: bad, limits: []limit{{0.9, warning}, {0.98, good}}, limitLines: true, noData: "No answer of this kind was checked",
		description: description + " Over the window; a check that could not be made is not counted.",
		queries:     []query{{expr: rightShare(by, matchers...), legend: legend}},
	}
}

// variantPanel draws the median time to the first token of each variant.
func variantPanel(title, variants, description string) panel {
	return panel{
		kind: lines, title: title, unit: "s", width: 12, min: ptr(0.0),
		description: description + " Median over the window. Dashed: thresholds of objectives.",
		queries: []query{
			{
				expr:   byPair.quantile(0.5, "target, scenario, variant", "time_to_first_token_seconds", `variant=~"`+variants+`"`),
				legend: "{{target}} {{scenario}} {{variant}}",
			},
			byPair.sloLine(sloFirstToken),
		},
	}
}

func allScenarioPanels() []panel {
	const by = "target, scenario"
	return []panel{
		{
			kind: grid, title: "Scenarios", unit: "short", width: 24, height: 11, noData: "No scenario",
			description: "Every pair of target and scenario. Counts, success and quantiles are of the window. An age of more than three intervals means that what is shown of the scenario is old; no age means that it has not run, or that the target cannot do it.",
			queries: []query{
				{expr: byPair.grown(by, "probes_total")},
				{expr: successShare(by)},
				{expr: byPair.least(by, "probe_success")},
				{expr: "time() - " + byPair.last(by, "probe_last_run_timestamp_seconds")},
				{expr: byPair.last(by, "probe_interval_seconds")},
				{expr: byPair.quantile(0.5, by, "time_to_first_token_seconds")},
				{expr: byPair.quantile(0.5, by, "time_per_output_token_seconds")},
				{expr: byPair.quantile(0.5, by, "e2e_request_latency_seconds")},
				{expr: rightShare(by)},
			},
			columns: []column{
				{field: "target", title: "Target", links: true},
				{field: "scenario", title: "Scenario"},
				{field: "Value #A", title: "Probes", unit: "short"},
				{field: "Value #B", title: "Success", unit: "percentunit", limits: successLimits()},
				{field: "Value #C", title: "Last probe", values: okFailed(), limits: []limit{{0, bad}, {1, good}}},
				{field: "Value #D", title: "Age", unit: "s"},
				{field: "Value #E", title: "Interval", unit: "s"},
				{field: "Value #F", title: "TTFT p50", unit: "s"},
				{field: "Value #G", title: "TPOT p50", unit: "s"},
				{field: "Value #H", title: "E2E p50", unit: "s"},
				{field: "Value #I", title: "Right answers", unit: "percentunit", limits: []limit{{0, bad}, {0.9, warning}, {0.98, good}}},
			},
		},
		{
			kind: bars, title: "Failed requests by variant", unit: "short", width: 12, min: ptr(0.0), noData: "No failed request",
			description: "Failed requests in each minute or step. A probe sends several requests in most scenarios.",
			queries: []query{{
				expr:   byPair.births("target, scenario, variant, reason", "request_failures_total"),
				legend: "{{target}} {{scenario}} {{variant}}: {{reason}}",
			}},
		},
		rightPanel("Right answers by scenario", "target, scenario", "{{target}} {{scenario}}", "Share of checks that found the right answer, of any kind."),
	}
}

func decodePanels() []panel {
	return []panel{
		gaugePanel("Output rate by variant", "suffix: tok/s", "output_tokens_per_second", "target, scenario, variant", "{{target}} {{scenario}} {{variant}}",
			"Output tokens per second after the first token; for a burst those of the whole batch."),
		{
			kind: lines, title: "Time per output token, p50 by scenario", unit: "s", width: 12, min: ptr(0.0),
			description: "Median over the window. Dashed: thresholds of objectives.",
			queries: []query{
				{expr: byPair.quantile(0.5, "target, scenario", "time_per_output_token_seconds"), legend: "{{target}} {{scenario}}"},
				byPair.sloLine(sloPerToken),
			},
		},
	}
}

func burstPanels() []panel {
	return []panel{
		gaugePanel("Tokens per second", "suffix: tok/s", "total_tokens_per_second", "target, scenario", "{{target}} {{scenario}}",
			"Prompt and output tokens of the last batch over its wall time."),
		gaugePanel("Requests per second", "reqps", "requests_per_second", "target, scenario", "{{target}} {{scenario}}",
			"Requests of the last batch, or of the last ramp's highest stage, over the wall time."),
	}
}

func prefillPanels() []panel {
	return []panel{
		gaugePanel("Prefill rate by prompt size", "suffix: tok/s", "prefill_tokens_per_second", "target, scenario, variant", "{{target}} {{scenario}} {{variant}}",
			"Uncached prompt tokens over the time to the first token less that of a minimal prompt."),
		variantPanel("Time to first token by prompt size", `\\d+k?`, "Of the sizes that the scenarios send."),
	}
}

func prefixPanels() []panel {
	hit := gaugePanel("Hit ratio by source", "percentunit", "prefix_cache_hit_ratio", "target, scenario, source", "{{target}} {{scenario}} {{source}}",
		"Share of the cacheable prompt tokens of warm requests that came from the prefix cache. `usage`: as the server reports it for the requests. `engine`: from the engine's counters. `latency`: inferred from the time to the first token.").third()
	hit.max = ptr(1.0)
	return []panel{
		hit,
		gaugePanel("Speed-up of the first token", "suffix:×", "prefix_cache_ttft_speedup_ratio", "target, scenario", "{{target}} {{scenario}}",
			"Time to the first token with a cold cache ÷ with a warm one. Near 1 the cache brings nothing.").third(),
		variantPanel("Time to first token, cold and warm", "cold.*|warm.*", "With a prefix that no one has sent before, and with one that was just sent.").third(),
	}
}

func structuredPanels() []panel {
	return []panel{
		rightPanel("Valid answers by constraint", "target, scenario, variant", "{{target}} {{variant}}",
			"Share of answers that validate against the very schema, expression, choice or grammar that was sent.",
			`check=~"json_schema.*|regex|choice|grammar"`).third(),
		gaugePanel("Cost of a constraint", "suffix:×", "structured_output_overhead_ratio", "target, scenario, variant", "{{target}} {{variant}}",
			"Time per output token with the constraint ÷ without, on twin prompts. 1 is free.").third(),
		gaugePanel("Cost of a new constraint", "s", "structured_output_compile_seconds", "target, scenario, variant", "{{target}} {{variant}}",
			"What a constraint adds to the first token when the server sees it for the first time.").third(),
	}
}

func toolPanels() []panel {
	return []panel{
		rightPanel("Right calls by category", "target, scenario, variant", "{{target}} {{variant}}",
			"Share of answers whose call has the right name and arguments.", `check=~"tool.*"`),
		variantPanel("Time to the call by category", "simple|multiple|parallel.*|irrelevance|named", "Time to the first token of the answer."),
	}
}

func speculativePanels() []panel {
	ratio := gaugePanel("Accepted drafts by category", "percentunit", "speculative_acceptance_ratio", "target, scenario, variant", "{{target}} {{variant}}",
		"Accepted ÷ drafted tokens. Below one half drafting may cost more than it brings; drafters of whole blocks can pay at less.").third()
	ratio.max, ratio.base, ratio.limits, ratio.limitLines = ptr(1.0), bad, []limit{{0.5, good}}, true
	ratio.noData = "The target does not speculate, or does not say so"
	return []panel{
		ratio,
		gaugePanel("Tokens per step by category", "suffix: tok", "speculative_acceptance_length", "target, scenario, variant", "{{target}} {{variant}}",
			"Tokens for each verification step: 1 + accepted ÷ steps.").third(),
		gaugePanel("Tokens per chunk by category", "suffix: tok", "speculative_tokens_per_chunk", "target, scenario, variant", "{{target}} {{variant}}",
			"Output tokens for each chunk of the stream, as the client sees it.").third(),
	}
}

func multimodalPanels() []panel {
	return []panel{
		gaugePanel("Cost of media", "s", "multimodal_encode_seconds", "target, scenario, variant", "{{target}} {{variant}}",
			"Time to the first token with the media, less that of the twin prompt without.").third(),
		variantPanel("Time to first token by modality", "text|image.*|audio.*|video.*", "Of the media that the scenarios send.").third(),
		rightPanel("Right answers by modality", "target, scenario, variant", "{{target}} {{variant}}",
			"Share of answers that name what is in the media.", `check=~"image.*|audio.*|media.*|multimodal.*"`).third(),
	}
}

func longContextPanels() []panel {
	return []panel{
		rightPanel("Needles found by length", "target, scenario, variant", "{{target}} {{variant}}",
			"Share of answers that found the sentence hidden in the document.", `check=~"needle.*"`).half(),
		gaugePanel("What a long prompt does to others", "suffix:×", "long_context_interference_ratio", "target, scenario, variant", "{{target}} {{variant}}",
			"Latency of small requests during the prefill of a long prompt ÷ without it. 1 is no interference.").half(),
	}
}

func rampPanels() []panel {
	rate := func(title, metric, description string) panel {
		return panel{
			kind: lines, title: title, unit: "reqps", width: 8, min: ptr(0.0), noData: "No ramp has run",
			description: description + " Stays until the next ramp.",
			queries:     []query{{expr: byPair.last("target, scenario", metric), legend: "{{target}} {{scenario}}"}},
		}
	}
	return []panel{
		rate("Knee", "ramp_saturation_requests_per_second", "Request rate beyond which latency grows and throughput does not."),
		rate("Highest rate held", "ramp_max_requests_per_second", "Highest request rate that a stage of the last ramp held."),
		{
			kind: grid, title: "Why the last ramp stopped", unit: "short", width: 8, height: 8, noData: "No ramp has run",
			description: "`completed`: it reached its end. `guard_*`: a limit of its guard. `budget`: tokens. `client_saturated`: this machine was the limit.",
			queries:     []query{{expr: byPair.last("target, scenario, reason", "ramp_stop_info") + " == 1"}},
			columns: []column{
				{field: "target", title: "Target", links: true},
				{field: "scenario", title: "Scenario"},
				{field: "reason", title: "Reason"},
				{field: "Value"},
				{field: "Value #A"},
			},
		},
	}
}

func comparisonPanels() []panel {
	compared := gaugePanel("Ratio to the compared target", "suffix:×", "comparison_ratio", "target, to, scenario, figure", "{{target}} ÷ {{to}} {{scenario}} {{figure}}",
		"Figure of a target ÷ that of the one that it is compared to, over the same prompts. The speed-up of a draft model is 1 ÷ the ratio of `tpot`.")
	compared.limits, compared.limitLines, compared.noData = []limit{{1, neutral}}, true, "No target is compared to another one"
	baseline := panel{
		kind: lines, title: "Ratio to the imported baseline", unit: "suffix:×", width: 12, min: ptr(0.0),
		limits: []limit{{1, neutral}}, limitLines: true, noData: "No baseline is configured",
		description: "The canary's figure ÷ that of an offline benchmark of the same server. The canary's load is lower: what counts is the change over time.",
		queries:     []query{{expr: byTarget.last("target, benchmark, figure", "baseline_ratio"), legend: "{{target}} {{benchmark}} {{figure}}"}},
	}
	return []panel{compared, baseline}
}
