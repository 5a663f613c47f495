package boards

import (
	"slices"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

const noGPU = "No GPU is sampled"

func gpu() board {
	variables := append(pairVars("1h"),
		windowScenarioVar(),
		labelVar("gpu", "GPU", `label_values(llm_canary_gpu_up{`+string(byExporter)+`}, gpu)`, "GPU by its index."),
	)
	return board{
		file:        "gpu",
		title:       "LLM canary / Long context and GPU",
		description: "How close is a long document to the limits of GPU memory and KV cache, what does it do to others, and what did the GPUs do while it ran? Windows: probes of the scenario chosen in \"Show probes of\".",
		from:        "6h",
		variables:   variables,
		annotations: slices.Concat([]cog.Builder[dashboard.AnnotationQuery]{probeWindows()}, events()),
		rows: []row{
			{title: "Long context", panels: longDocumentPanels()},
			{title: "KV cache and queue", panels: kvPanels()},
			{title: "While a probe ran", panels: duringPanels()},
			{title: "GPU memory and utilisation", panels: gpuUsePanels()},
			{title: "GPU power, clocks and temperature", panels: gpuPowerPanels()},
			{title: "GPU errors and links", panels: gpuErrorPanels()},
		},
	}
}

// chosenGPU is the matcher of the variable gpu.
const chosenGPU = `gpu=~"$gpu"`

func longDocumentPanels() []panel {
	prefill := gaugePanel("Prefill rate by length", "suffix: tok/s", "prefill_tokens_per_second", "target, scenario, variant", "{{target}} {{scenario}} {{variant}}",
		"Uncached prompt tokens over the time to the first token less that of a minimal prompt.")
	return []panel{
		variantPanel("Time to first token by length", `\\d+k.*|bystander.*`, "Of long documents, and of the small requests (`bystander`) beside them.").half(),
		prefill.half(),
		rightPanel("Needles found by length", "target, scenario, variant", "{{target}} {{variant}}",
			"Share of answers that found the sentence hidden in the document.", `check=~"needle.*"`).half(),
		gaugePanel("What a long prompt does to others", "suffix:×", "long_context_interference_ratio", "target, scenario, variant", "{{target}} {{variant}}",
			"Latency of small requests during the prefill of a long prompt ÷ without it. 1 is no interference.").half(),
	}
}

func kvPanels() []panel {
	engine := func(title, unit, metric, description string) panel {
		return panel{
			kind: lines, title: title, unit: unit, width: 8, min: ptr(0.0), noData: "No engine metrics",
			description: description,
			queries:     []query{{expr: byTarget.last("target", metric), legend: "{{target}}"}},
		}
	}
	usage := engine("KV cache in use", "percentunit", "engine_kv_cache_usage_ratio", "Share of the engine's KV cache that is in use, as the engine says. An engine that allocates its cache at the start shows flat GPU memory: this is the figure to look at.")
	usage.max, usage.limits, usage.limitLines = ptr(1.0), []limit{{0.9, warning}, {0.98, bad}}, true
	return []panel{
		usage,
		{
			kind: lines, title: "Requests in the engine", unit: "short", width: 8, min: ptr(0.0), noData: "No engine metrics",
			description: "Requests that the engine works on, and those that wait. A queue while the KV cache is full means that it is too small for the traffic.",
			queries: []query{
				{expr: byTarget.last("target", "engine_requests_running"), legend: "{{target}} running"},
				{expr: byTarget.last("target", "engine_requests_waiting"), legend: "{{target}} waiting"},
			},
		},
		{
			kind: bars, title: "Preemptions", unit: "short", width: 8, min: ptr(0.0), noData: "No engine metrics",
			description: "Requests that lost their place in the KV cache to others, in each step.",
			queries:     []query{{expr: agg("sum", "target", "increase("+byTarget.sel("engine_preemptions_total")+"[$__rate_interval])"), legend: "{{target}}"}},
		},
		{
			kind: lines, title: "Tokens that the engine works through", unit: "suffix: tok/s", width: 12, min: ptr(0.0), noData: "No engine metrics",
			description: "All requests of the engine, not only the canary's.",
			queries: []query{
				{expr: byTarget.rate("target", "engine_prompt_tokens_total"), legend: "{{target}} prompt"},
				{expr: byTarget.rate("target", "engine_generation_tokens_total"), legend: "{{target}} generated"},
			},
		},
		{
			kind: lines, title: "Prefix cache hits of the engine", unit: "percentunit", width: 12, min: ptr(0.0), max: ptr(1.0), noData: "No engine metrics",
			description: "Hits ÷ queries over the window, for all requests of the engine.",
			queries: []query{{
				expr: share(
					agg("sum", "target", "rate("+byTarget.sel("engine_prefix_cache_hits_total")+"[$window])"),
					agg("sum", "target", "rate("+byTarget.sel("engine_prefix_cache_queries_total")+"[$window])")),
				legend: "{{target}}",
			}},
		},
	}
}

func duringPanels() []panel {
	during := func(title, unit, metric, labels, legend, description, noData string) panel {
		p := gaugePanel(title, unit, metric, labels, legend, description)
		p.queries = []query{{expr: byPair.last(labels, metric, `scenario=~"$probe"`), legend: legend}}
		p.noData = noData
		return p
	}
	kv := during("KV cache, peak while it ran", "percentunit", "probe_kv_cache_usage_peak_ratio", "target, scenario, variant", "{{target}} {{variant}}",
		"Highest usage of the engine's KV cache while a request of the last probe ran.", "No engine metrics")
	kv.max, kv.limits, kv.limitLines = ptr(1.0), []limit{{0.9, warning}, {0.98, bad}}, true
	return []panel{
		kv,
		during("GPU utilisation, highest while it ran", "percentunit", "probe_gpu_utilization_max_ratio", "target, variant, gpu", "{{target}} {{variant}} GPU {{gpu}}",
			"Highest utilisation of a GPU while a request of the last probe ran.", noGPU),
		during("GPU memory, peak while it ran", "bytes", "probe_gpu_memory_used_peak_bytes", "target, variant, gpu", "{{target}} {{variant}} GPU {{gpu}}",
			"Highest memory use of a GPU while a request of the last probe ran.", noGPU),
		func() panel {
			p := during("GPU memory, growth while it ran", "bytes", "probe_gpu_memory_used_delta_bytes", "target, variant, gpu", "{{target}} {{variant}} GPU {{gpu}}",
				"Peak while a request of the last probe ran, less what was used before. Growth from probe to probe is a leak or a cache that fills.", noGPU)
			p.min = nil
			return p
		}(),
	}
}

// gpuPanel draws figures of the GPUs.
func gpuPanel(title, unit, description string, queries ...query) panel {
	return panel{
		kind: lines, title: title, unit: unit, width: 12, min: ptr(0.0), noData: noGPU,
		description: description, queries: queries,
	}
}

// ofGPU is a gauge of each chosen GPU.
func ofGPU(metric, name string) query {
	return query{expr: byExporter.last("instance, gpu", metric, chosenGPU), legend: "{{instance}} GPU {{gpu}} " + name}
}

// averageOf is the average of a ratio from the counters of its integral and of the time that it covers.
func averageOf(seconds, sampled, name string) query {
	return query{
		expr:   share(byExporter.rate("instance, gpu", seconds, chosenGPU), byExporter.rate("instance, gpu", sampled, chosenGPU)),
		legend: "{{instance}} GPU {{gpu}} " + name,
	}
}

func gpuUsePanels() []panel {
	memory := gpuPanel("Memory", "bytes", "In use, and what there is. Flat for engines that allocate their KV cache at the start.",
		ofGPU("gpu_memory_used_bytes", "used"), ofGPU("gpu_memory_total_bytes", "total"))
	share := gpuPanel("Memory in use, highest within a minute", "percentunit", "Highest use within the last minute as a share of what there is.",
		query{
			expr: byExporter.last("instance, gpu", "gpu_memory_used_max_1m_bytes", chosenGPU) + "\n/\n" +
				byExporter.last("instance, gpu", "gpu_memory_total_bytes", chosenGPU),
			legend: "{{instance}} GPU {{gpu}}",
		})
	share.max, share.limits, share.limitLines = ptr(1.0), []limit{{0.95, warning}, {0.98, bad}}, true
	busy := gpuPanel("Utilisation", "percentunit", "Average, and the highest sample within a minute: share of time with any kernel running. 100 % does not mean that the GPU is full.",
		averageOf("gpu_utilization_seconds_total", "gpu_utilization_sampled_seconds_total", "average"), ofGPU("gpu_utilization_max_1m_ratio", "highest"))
	inside := gpuPanel("Inside the GPU", "percentunit", "Averages: share of time with work on the multiprocessors, their occupancy, the tensor pipes, the bandwidth of the memory. Hopper and newer. High memory and low tensor activity is decoding, the reverse is prefill.",
		averageOf("gpu_sm_activity_seconds_total", "gpu_activity_sampled_seconds_total", "SM"),
		averageOf("gpu_sm_occupancy_seconds_total", "gpu_activity_sampled_seconds_total", "occupancy"),
		averageOf("gpu_tensor_activity_seconds_total", "gpu_activity_sampled_seconds_total", "tensor"),
		averageOf("gpu_dram_activity_seconds_total", "gpu_activity_sampled_seconds_total", "memory"))
	busy.max, inside.max = ptr(1.0), ptr(1.0)
	return []panel{memory, share, busy, inside}
}

func gpuPowerPanels() []panel {
	temperature := gpuPanel("Temperature", "celsius", "Of the GPU and of its memory.",
		ofGPU("gpu_temperature_celsius", "GPU"), ofGPU("gpu_memory_temperature_celsius", "memory"))
	temperature.limits, temperature.limitLines = []limit{{85, warning}}, true
	return []panel{
		gpuPanel("Power", "watt", "Highest draw within a minute, and the limit in force.",
			ofGPU("gpu_power_max_1m_watts", "drawn"), ofGPU("gpu_power_limit_watts", "limit")),
		temperature,
		gpuPanel("Clocks", "hertz", "Of the multiprocessors and of the memory. A lone probe after an idle time may meet low clocks.",
			ofGPU("gpu_sm_clock_hertz", "SM"), ofGPU("gpu_memory_clock_hertz", "memory")),
		gpuPanel("Reasons for lower clocks", "short", "1 while a reason applies. Power cap and idle are normal; hardware slowdown, thermal slowdown and power brake are not.",
			query{expr: byExporter.last("instance, gpu, reason", "gpu_clock_event_reason", chosenGPU) + " > 0", legend: "{{instance}} GPU {{gpu}} {{reason}}"}),
	}
}

func gpuErrorPanels() []panel {
	grown := func(by, metric, legend string) query {
		return query{expr: "sum by (" + by + ") (increase(" + byExporter.sel(metric, chosenGPU) + "[$__rate_interval])) > 0", legend: legend}
	}
	xid := gpuPanel("Xid errors by code", "short", "In each minute or step. 13, 31, 43 and 45 are faults of applications; 48, 63, 64, 74, 79, 94, 95, 119 and 120 are the GPU's own.",
		query{expr: byExporter.births("instance, gpu, xid", "gpu_xid_errors_total", chosenGPU), legend: "{{instance}} GPU {{gpu}} Xid {{xid}}"})
	xid.kind = bars
	xid.noData = "No Xid, or no GPU"
	ecc := gpuPanel("ECC errors", "short", "In each minute or step. Uncorrected ones end what runs on the GPU.",
		grown("instance, gpu, type", "gpu_ecc_volatile_errors_total", "{{instance}} GPU {{gpu}} {{type}}"))
	ecc.kind = bars
	ecc.noData = "No ECC error, or no GPU"
	return []panel{
		xid.third(), ecc.third(),
		gpuPanel("GPUs that want a hand", "short", "`remap pending`: wants a reset. `remap failed`: replace the GPU. `lost`: it can't be read.",
			query{expr: byExporter.last("instance, gpu", "gpu_remapped_rows_pending", chosenGPU), legend: "{{instance}} GPU {{gpu}} remap pending"},
			query{expr: byExporter.last("instance, gpu", "gpu_remapped_rows_failed", chosenGPU), legend: "{{instance}} GPU {{gpu}} remap failed"},
			query{expr: "1 - " + byExporter.least("instance, gpu", "gpu_up", chosenGPU), legend: "{{instance}} GPU {{gpu}} lost"}).third(),
		gpuPanel("PCIe", "Bps", "Bytes per second that the GPU sends and receives.",
			query{expr: byExporter.rate("instance, gpu", "gpu_pcie_transmit_bytes_total", chosenGPU), legend: "{{instance}} GPU {{gpu}} sent"},
			query{expr: byExporter.rate("instance, gpu", "gpu_pcie_receive_bytes_total", chosenGPU), legend: "{{instance}} GPU {{gpu}} received"}),
		gpuPanel("NVLink", "Bps", "Bytes per second over all NVLinks of the GPU.",
			query{expr: byExporter.rate("instance, gpu", "gpu_nvlink_transmit_bytes_total", chosenGPU), legend: "{{instance}} GPU {{gpu}} sent"},
			query{expr: byExporter.rate("instance, gpu", "gpu_nvlink_receive_bytes_total", chosenGPU), legend: "{{instance}} GPU {{gpu}} received"}),
	}
}
