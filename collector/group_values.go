package collector

import (
	"slices"
	"time"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// figure is a row of the table of figures that scenarios derive from their requests (result.Values). Each is a gauge
// with the labels target and scenario and at most one more, which takes the label of the value.
type figure struct {
	name    string
	label   string   // the further label; empty if there is none
	allowed []string // the values of the label; nil stands for the variants of the scenario
	alone   bool     // a new value replaces those with another label
	rotates bool     // measured for one label value per probe, in turn
	unit    string
	help    string
	detail  string
	example string
}

// figures is the table: a new figure of a scenario is one row.
func figures() []figure {
	return []figure{
		{
			name: "output_tokens_per_second", label: "variant", unit: "tokens per second",
			help:   "Output tokens per second of the last probe.",
			detail: "The decode rate of a request after its first token; for `burst` the output of all its requests over the wall time of the batch.",
		},
		{
			name: "total_tokens_per_second", unit: "tokens per second",
			help: "Prompt and output tokens of the last batch over its wall time.",
		},
		{
			name: "requests_per_second", unit: "requests per second",
			help: "Requests of the last batch over its wall time.",
		},
		{
			name: "prefix_cache_hit_ratio", label: "source", allowed: []string{"usage", "engine", "latency"}, unit: "ratio",
			help:   "Share of the cacheable prompt tokens of warm requests that came from the prefix cache.",
			detail: "`usage`: cached ÷ cacheable tokens as the server reports them for the requests. `engine`: from the engine's own counters before and after. `latency`: inferred from the time to the first token, cold against warm, where nothing reports it.",
		},
		{
			name: "prefix_cache_ttft_speedup_ratio", unit: "ratio",
			help: "Time to the first token with a cold prefix cache ÷ with a warm one.",
		},
		{
			name: "structured_output_overhead_ratio", label: "variant", unit: "ratio",
			help: "Time per output token with a constraint ÷ without, on twin prompts.",
		},
		{
			name: "structured_output_compile_seconds", label: "variant", unit: "seconds",
			help: "Time to the first token that a constraint costs when the server sees it for the first time.",
		},
		{
			name: "prefill_tokens_per_second", label: "variant", unit: "tokens per second",
			help: "Uncached prompt tokens ÷ (time to the first token − that of a minimal prompt).",
		},
		{
			name: "long_context_interference_ratio", label: "variant", allowed: []string{"ttft", "itl"}, unit: "ratio",
			help:   "Latency of small requests during the prefill of a long prompt ÷ without it.",
			detail: "Variant `ttft`: time to the first token; `itl`: gaps between chunks.",
		},
		{
			name: "ramp_saturation_requests_per_second", unit: "requests per second",
			help: "Request rate at the knee: beyond it latency grows and throughput does not.",
		},
		{
			name: "ramp_max_requests_per_second", unit: "requests per second",
			help: "Highest request rate that a stage of the last ramp held.",
		},
		{
			name: "ramp_stop_info", label: "reason", alone: true, unit: "",
			allowed: []string{"completed", "guard_waiting", "guard_errors", "guard_ttft", "budget", "client_saturated"},
			help:    "Why the last ramp stopped.", detail: "1 for the reason that applies; the others are absent.",
		},
		{
			name: "speculative_acceptance_ratio", label: "variant", rotates: true, unit: "ratio",
			help:   "Accepted ÷ drafted tokens of speculative decoding, by category of the prompt.",
			detail: "Absent where the target does not speculate.",
		},
		{
			name: "speculative_acceptance_length", label: "variant", rotates: true, unit: "tokens",
			help:   "Tokens for each verification step: 1 + accepted ÷ steps, by category of the prompt.",
			detail: "Absent where the target does not speculate.",
		},
		{
			name: "speculative_tokens_per_chunk", label: "variant", rotates: true, unit: "tokens",
			help: "Output tokens for each chunk of the stream, as the client sees it.",
		},
		{
			name: "multimodal_encode_seconds", label: "variant", unit: "seconds",
			help: "Time to the first token with media − that of the twin prompt without.",
		},
	}
}

func (x figure) metric() Metric {
	labels := []string{"target", "scenario"}
	if x.label != "" {
		labels = append(labels, x.label)
	}
	return Metric{
		Name: x.name, Type: Gauge, Labels: labels, Unit: x.unit, Help: x.help, Detail: x.detail, Example: x.example,
		Expires: true, Rotates: x.rotates,
	}
}

// valueGroup holds the figures that scenarios derive.
func valueGroup() group {
	g := group{
		title: "Figures of scenarios",
		intro: "Gauges of the last measurement. They come from probes that succeeded or that failed only because an answer was wrong; a probe that broke off measures nothing. " +
			"A figure vanishes when it was not renewed for three intervals of its scenario (at least 15 minutes; three rounds of all variants for scenarios that take one variant per probe). " +
			"Figures of scenarios on a cron schedule stay until the scenario has run again.",
		finished: recordValues,
	}
	for _, x := range figures() {
		g.metrics = append(g.metrics, x.metric())
	}
	return g
}

func recordValues(p *pair, r *result.Probe) {
	p.forget()
	if r.Outcome != result.Success && r.Reason != result.ReasonWrongAnswer {
		return
	}
	now := p.collector.now()
	for _, v := range r.Values {
		p.recordValue(v, now)
	}
}

func (p *pair) recordValue(v result.Value, now time.Time) {
	table := p.collector.figures
	at := slices.IndexFunc(table, func(x figure) bool { return x.name == v.Metric })
	if at < 0 {
		p.rejected(v.Metric, "unknown_metric", v.Figure)
		return
	}
	x, f := table[at], p.family(v.Metric)
	if !p.usable(f, v.Figure) {
		return
	}
	if x.label == "" {
		if v.Label != "" {
			p.rejected(v.Metric, "unknown_label", v.Figure)
			return
		}
		p.scope.set(f, v.Figure, now)
		return
	}
	allowed := x.allowed
	if allowed == nil {
		allowed = p.Variants
	}
	if v.Label == "" && len(allowed) == 1 {
		v.Label = allowed[0]
	}
	// Unlike a counter's, a gauge's series "other" would show one of several figures: none is better.
	if !slices.Contains(allowed, v.Label) {
		p.dropped(x.label, v.Label)
		return
	}
	if x.alone {
		p.scope.remove(f, func(values []string) bool { return values[0] != v.Label })
	}
	p.scope.set(f, v.Figure, now, v.Label)
}
