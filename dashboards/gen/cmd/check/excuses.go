package main

import (
	"regexp"

	"github.com/llmcanary/llm_canary_exporter/dashboards/gen/grafana"
)

// excuse names expressions that need not give data.
type excuse struct {
	what   *regexp.Regexp // of the name of the query, a newline, and the expression
	reason string
	always bool // also where every metric is there
	yet    bool // to go from the table as soon as there is data
}

// excuses is the table of what the demo cannot show.
func excuses() []excuse {
	demo := func(pattern, reason string) excuse { return excuse{what: regexp.MustCompile(pattern), reason: reason} }
	always := func(pattern, reason string) excuse {
		return excuse{what: regexp.MustCompile(pattern), reason: reason, always: true}
	}
	yet := func(pattern, reason string) excuse {
		return excuse{what: regexp.MustCompile(pattern), reason: reason, yet: true}
	}
	return []excuse{
		always(`annotation (Model|Exporter|Configuration)`, "an event that need not happen"),
		always(`\(vllm\|sglang\):`, "this Prometheus does not scrape a server itself"),
		always(`ALERTS`, "no alert fires"),
		demo(`llm_canary_(gpu|probe_gpu)_`, "no GPU"),
		demo(`(?s)_(failures|stalls|anomalies|skips)_total.*> 0$`, "shown only where something went wrong"),
		demo(`(?s)probe_consecutive_failures.*> 0$`, "shown only while something fails"),
		demo(`annotation Probe windows`, "no probe of the scenario was running at a scrape"),
		demo(`llm_canary_budget_`, "no token budget in the demo"),
		demo(`llm_canary_ramp_`, "a ramp runs on a cron schedule only"),
		demo(`llm_canary_(comparison|baseline)_`, "the demo compares its target to nothing"),
		yet(`llm_canary_(engine_|probe_engine_|probe_kv_)`, "the demo's daemon does not read the engine's metrics yet"),
		yet(`llm_canary_slo_`, "the demo has no objectives yet"),
		yet(`llm_canary_(total_tokens|requests)_per_second`, "no burst in the demo yet"),
		yet(`llm_canary_prefix_cache_|cold\.\*`, "no prefix_cache in the demo yet"),
		yet(`llm_canary_structured_|json_schema`, "no structured_output in the demo yet"),
		yet(`"tool|irrelevance`, "no tool_call in the demo yet"),
		yet(`llm_canary_speculative_`, "no speculative in the demo yet"),
		yet(`llm_canary_multimodal_|image\.\*`, "no multimodal in the demo yet"),
		yet(`llm_canary_long_context_|needle`, "no long_context in the demo yet"),
	}
}

// excuseFor is the reason why a query need not give data, if there is one, and whether that is to end.
func excuseFor(q grafana.Query, expr string, complete bool) (reason string, yet bool) {
	for _, e := range excuses() {
		if (e.always || !complete) && e.what.MatchString(q.String()+"\n"+expr) {
			return e.reason, e.yet
		}
	}
	return "", false
}
