package main

import (
	"regexp"

	"github.com/llmcanary/llm_canary_exporter/dashboards/gen/grafana"
)

// excuse names expressions that need not give data in the demo.
type excuse struct {
	what   *regexp.Regexp // of the name of the query, a newline, and the expression
	reason string
}

// excuses is the table of what the demo cannot show. Each is an expression of its own, not a whole dashboard.
func excuses() []excuse {
	of := func(pattern, reason string) excuse { return excuse{regexp.MustCompile(pattern), reason} }
	return []excuse{
		of(`llm_canary_(gpu|probe_gpu)_`, "the demo has no GPU"),
		of(`\(vllm\|sglang\):`, "this Prometheus does not scrape a server itself"),
		of(`(?s)_(failures|stalls|anomalies|skips)_total.*> 0$`, "shown only where something went wrong"),
		of(`(?s)probe_consecutive_failures.*> 0$`, "shown only while something fails"),
		of(`llm_canary_budget_`, "no token budget in the demo"),
		of(`llm_canary_ramp_`, "a ramp runs on a cron schedule only"),
		of(`llm_canary_(comparison|baseline)_`, "the demo compares its target to nothing"),
		of(`annotation `, "an event that need not happen"),
	}
}

// excuseFor is the reason why a query need not give data, if there is one.
func excuseFor(q grafana.Query, expr string) string {
	for _, e := range excuses() {
		if e.what.MatchString(q.String() + "\n" + expr) {
			return e.reason
		}
	}
	return ""
}
