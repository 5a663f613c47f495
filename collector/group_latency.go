package collector

import (
	"slices"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// latencyGroup holds the histograms of what a request took.
func latencyGroup() group {
	variant := []string{"target", "scenario", "variant"}
	return group{
		title: "Latency of requests",
		intro: "Only requests that succeeded feed these histograms: status, stream, finish reason and every check were right. " +
			"Failures are counted by reason instead. A series appears with its first success.",
		metrics: []Metric{
			{
				Name: "time_to_first_token_seconds", Type: Histogram, Labels: variant, Unit: "seconds", Bounds: firstTokenBounds(),
				Help:   "Time from issuing a request to its first chunk with output of any kind.",
				Detail: "Text, reasoning and tool calls are output; role-only, empty, ping, progress and usage events are not. Includes DNS, TCP and TLS of a fresh connection (see `request_phase_seconds`).",
				Example: `histogram_quantile(0.95, sum by (le, target, scenario) (rate(llm_canary_time_to_first_token_seconds_bucket[15m])))
histogram_quantile(0.95, sum by (target, scenario) (rate(llm_canary_time_to_first_token_seconds[15m]))) # native buckets`,
			},
			{
				Name: "time_to_first_content_seconds", Type: Histogram, Labels: variant, Unit: "seconds", Bounds: firstTokenBounds(),
				Help:   "Time from issuing a request to the first content of its answer.",
				Detail: "Later than the first token on models that reason before they answer, else the same.",
			},
			{
				Name: "inter_token_latency_seconds", Type: Histogram, Labels: variant, Unit: "seconds", Bounds: gapBounds(),
				Help:   "Gaps between consecutive chunks with output, one observation for each gap.",
				Detail: "A chunk may hold several tokens (speculative decoding, servers that bundle): see `time_per_output_token_seconds` for the time per token. The exemplar is the request with the longest gap.",
			},
			{
				Name: "time_per_output_token_seconds", Type: Histogram, Labels: variant, Unit: "seconds", Bounds: gapBounds(),
				Help:   "Mean time per output token after the first, one observation for each request.",
				Detail: "(last output − first output) ÷ (output tokens − 1). Absent for answers of fewer than two tokens.",
			},
			{
				Name: "e2e_request_latency_seconds", Type: Histogram, Labels: variant, Unit: "seconds", Bounds: wholeBounds(),
				Help:   "Time from issuing a request to its last chunk with output.",
				Detail: "The usage chunk and `[DONE]` do not extend it.",
			},
			{
				Name: "max_inter_token_latency_seconds", Type: Histogram, Labels: variant, Unit: "seconds", Bounds: gapBounds(),
				Help:    "The longest gap of each request.",
				Detail:  "Shows stalls that a p99 over the gaps of all requests hides.",
				Example: `histogram_quantile(0.99, sum by (le, target) (rate(llm_canary_max_inter_token_latency_seconds_bucket[15m])))`,
			},
			{
				Name: "request_phase_seconds", Type: Histogram, Labels: []string{"target", "phase"}, Unit: "seconds", Bounds: lagBounds(),
				Help:   "Parts of a request before the answer begins: dns, connect, tls, send, headers.",
				Detail: "A part that did not happen (no DNS for an address, no TLS, a connection that was reused) is not observed. `send` runs from the ready connection to the last byte of the request, `headers` from there to the first byte of the answer.",
			},
		},
		finished: func(p *pair, r *result.Probe) {
			for i := range r.Requests {
				if r.Requests[i].Outcome == result.Success {
					p.observeLatency(&r.Requests[i])
				}
			}
		},
	}
}

func (p *pair) observeLatency(q *result.Request) {
	variant := p.variant(q.Variant)
	for _, x := range []struct {
		name   string
		figure *float64
	}{
		{"time_to_first_token_seconds", q.TimeToFirstTokenSeconds},
		{"time_to_first_content_seconds", q.TimeToFirstContentSeconds},
		{"time_per_output_token_seconds", q.TimePerOutputTokenSeconds},
		{"e2e_request_latency_seconds", q.E2ELatencySeconds},
	} {
		p.observeIf(p.scope, p.family(x.name), x.figure, q.TraceID, variant)
	}
	p.observeGaps(q, variant)
	for _, x := range phases(q.Phases) {
		p.observeIf(p.target.scope, p.family("request_phase_seconds"), x.seconds, q.TraceID, x.name)
	}
}

// observeGaps feeds the histograms of gaps. One exemplar per request is enough: of the longest gap.
func (p *pair) observeGaps(q *result.Request, variant string) {
	gaps := q.InterChunkLatenciesSeconds
	if len(gaps) == 0 {
		return
	}
	longest := slices.Max(gaps)
	all := p.family("inter_token_latency_seconds")
	trace := q.TraceID
	for _, gap := range gaps {
		if gap == longest {
			p.observe(p.scope, all, gap, trace, variant)
			trace = "" // said once
			continue
		}
		p.observe(p.scope, all, gap, "", variant)
	}
	p.observe(p.scope, p.family("max_inter_token_latency_seconds"), longest, q.TraceID, variant)
}

type phase struct {
	name    string
	seconds *float64
}

func phases(x result.Phases) []phase {
	return []phase{{"dns", x.DNS}, {"connect", x.Connect}, {"tls", x.TLS}, {"send", x.Send}, {"headers", x.Headers}}
}
