package collector

import (
	"slices"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// stallSeconds is the gap between two chunks that counts as a stall: at any usual speed of generation a reader
// notices it.
const stallSeconds = 1.0

// variantReasons are the reasons that differ between the variants of a scenario, and for which
// request_failures_total exists at 0. All others (DNS, credentials, …) hit every variant alike. In numbers, for 100
// targets with all eleven scenarios (35 variants): these four are 14,000 series, all 25 reasons would be 87,500;
// probe_failures_total with all reasons is 27,500, of 93,000 series besides the histograms'.
func variantReasons() []result.Reason {
	return []result.Reason{result.ReasonTimeoutFirstToken, result.ReasonTimeoutStall, result.ReasonTruncated, result.ReasonWrongAnswer}
}

// requestGroup holds the counters of requests, tokens and oddities.
func requestGroup() group {
	pairLabels := []string{"target", "scenario"}
	return group{
		title: "Requests and tokens",
		intro: "`requests_total` exists at 0 for every variant from the start. `request_failures_total` does so for the reasons `timeout_first_token`, `timeout_stall`, " +
			"`truncated` and `wrong_answer`, which tell variants apart; a series with another reason appears with its first failure, which `increase()` does not see. " +
			"Alerts on any reason belong on `probe_failures_total`, where every reason exists from the start.",
		metrics: []Metric{
			{
				Name: "requests_total", Type: Counter, Labels: []string{"target", "scenario", "variant"},
				Help: "Requests that were sent, whatever became of them.",
			},
			{
				Name: "request_failures_total", Type: Counter, Labels: []string{"target", "scenario", "variant", "reason"},
				Help:    "Requests that failed, by reason.",
				Example: `sum by (target, scenario, variant) (rate(llm_canary_request_failures_total[1h])) / on (target, scenario, variant) rate(llm_canary_requests_total[1h])`,
			},
			{
				Name: "prompt_tokens_total", Type: Counter, Labels: pairLabels, Unit: "tokens",
				Help:   "Prompt tokens that the canary sent, as the server counted them.",
				Detail: "Cached ones included.",
			},
			{
				Name: "cached_prompt_tokens_total", Type: Counter, Labels: pairLabels, Unit: "tokens",
				Help:   "Prompt tokens of the canary that the server took from its prefix cache.",
				Detail: "Absent as long as the server has never reported such a count: that is not the same as no hits.",
			},
			{
				Name: "generation_tokens_total", Type: Counter, Labels: pairLabels, Unit: "tokens",
				Help:   "Tokens that the canary got.",
				Detail: "Where the server reports no count these are chunks; `request_token_counts_total` says how often.",
			},
			{
				Name: "request_token_counts_total", Type: Counter, Labels: []string{"target", "scenario", "source"},
				Help:   "Answers by where their token count comes from: usage, exact or chunks.",
				Detail: "`usage`: the server's usage object. `exact`: exact counts per chunk. `chunks`: an estimate, since a chunk is not a token; time per output token is then not exact either.",
			},
			{
				Name: "stream_anomalies_total", Type: Counter, Labels: []string{"target", "scenario", "anomaly"},
				Help:   "Oddities of streams that did not fail the request.",
				Detail: "A series appears with the first anomaly of its kind.",
			},
			{
				Name: "stream_stalls_total", Type: Counter, Labels: pairLabels,
				Help:   "Gaps of one second or more between two chunks of a stream, and streams that were given up in such a gap.",
				Detail: "Counted for failed requests as well.",
			},
		},
		added: func(p *pair) {
			for _, v := range p.Variants {
				p.scope.get(p.family("requests_total"), v)
				for _, reason := range variantReasons() {
					p.scope.get(p.family("request_failures_total"), v, string(reason))
				}
			}
			for _, name := range []string{"prompt_tokens_total", "generation_tokens_total", "stream_stalls_total"} {
				p.scope.get(p.family(name))
			}
		},
		finished: func(p *pair, r *result.Probe) {
			for i := range r.Requests {
				p.countRequest(&r.Requests[i])
			}
		},
	}
}

func (p *pair) countRequest(q *result.Request) {
	variant := p.variant(q.Variant)
	p.scope.add(p.family("requests_total"), 1, variant)
	if q.Outcome == result.Failure {
		p.scope.add(p.family("request_failures_total"), 1, variant, p.reason(q.Reason))
	}
	p.countTokens("prompt_tokens_total", q.PromptTokens)
	p.countTokens("cached_prompt_tokens_total", q.CachedPromptTokens)
	p.countTokens("generation_tokens_total", q.CompletionTokens)
	switch q.TokenCountSource {
	case result.CountUsage, result.CountExact, result.CountChunks:
		p.scope.add(p.family("request_token_counts_total"), 1, string(q.TokenCountSource))
	}
	for _, a := range q.Anomalies {
		anomaly := string(a)
		if !slices.Contains(result.Anomalies(), a) {
			anomaly = p.dropped("anomaly", anomaly)
		}
		p.scope.add(p.family("stream_anomalies_total"), 1, anomaly)
	}
	for _, gap := range q.InterChunkLatenciesSeconds {
		if gap >= stallSeconds {
			p.scope.add(p.family("stream_stalls_total"), 1)
		}
	}
	if q.Reason == result.ReasonTimeoutStall {
		p.scope.add(p.family("stream_stalls_total"), 1)
	}
}

// countTokens adds a token count that may not be known.
func (p *pair) countTokens(name string, n *int) {
	if n == nil {
		return
	}
	if f := p.family(name); p.usable(f, float64(*n)) {
		p.scope.add(f, float64(*n))
	}
}

// reason returns the label value for the reason of a failure.
func (p *pair) reason(r result.Reason) string {
	switch {
	case r == result.ReasonNone:
		return string(result.ReasonInternal) // a failure without a reason is a fault of ours
	case !slices.Contains(result.Reasons(), r):
		return p.dropped("reason", string(r))
	}
	return string(r)
}
