package enginemetrics

import (
	"github.com/llmcanary/llm_canary_exporter/collector"
)

// family is a metric with the code that takes its values out of a target's state.
type family struct {
	collector.Metric
	// collect gives each value with the values of the labels beyond target.
	collect func(s State, emit func(v float64, labels ...string))
}

// Families returns the table of the metrics that a Collector exports, in the form of the metric reference.
func Families() []collector.Metric {
	var out []collector.Metric
	for _, f := range families() {
		out = append(out, f.Metric)
	}
	return out
}

// Group and Intro head the section of these metrics in the reference.
const (
	Group = "Engine"
	Intro = "Read from the metrics page of each target's engine, every 15 s and independently of scrapes, and brought to one set of names: " +
		"[engines.md](engines.md) says which engine gives what and under which flag. They count everybody's requests, the canary's included. " +
		"Counters are the engine's own: they begin anew when it restarts. A figure that is older than three reads is not exported."
)

func families() []family {
	out := []family{
		{
			row("engine_up", collector.Gauge, "", "1 if the engine's metrics page could be read and understood at the last try, 0 if not.",
				"Absent before the first try, and for targets whose engine metrics are off."),
			func(s State, emit func(float64, ...string)) {
				if s.Attempt.IsZero() {
					return
				}
				up := 0.0
				if s.Err == nil && s.Fresh {
					up = 1
				}
				emit(up)
			},
		},
		{
			row("engine_info", collector.Gauge, "", "1, with what the engine is and whose metric names its page uses.",
				"`engine` and `version` are as detected or configured, `dialect` is that of the page: several engines speak `vllm`.",
				"engine", "dialect", "version", "model"),
			func(s State, emit func(float64, ...string)) {
				if s.Fresh {
					emit(1, s.Hint.Engine, s.Last.Dialect, first(s.Last.Version, s.Hint.Version), first(s.Last.Model, s.Hint.Model))
				}
			},
		},
	}
	for _, f := range figureRows() {
		out = append(out, family{f.Metric, f.collect})
	}
	return append(out, selfFamilies()...)
}

func figureRows() []family {
	const g, c = collector.Gauge, collector.Counter
	return []family{
		ofFigure(RequestsRunning, g, "requests", "Requests that the engine works on.", "Added up over ranks and replicas. On a gateway or frontend: requests in flight, waiting ones included."),
		ofFigure(RequestsWaiting, g, "requests", "Requests that wait in the engine's queue.", ""),
		ofFigure(KVCacheUsage, g, "ratio", "Share of the KV cache in use, 0 to 1.", "That of the fullest rank. Blocks that only keep a prefix cached count as free."),
		ofFigure(PrefixCacheQueries, c, "tokens", "Prompt tokens looked up in the prefix cache.", "In blocks where the engine counts only blocks (older trtllm-serve); hits and queries always have the same unit."),
		ofFigure(PrefixCacheHits, c, "tokens", "Prompt tokens found in the prefix cache.", "Never taken from a gauge of the hit rate: such gauges are of the last batch only."),
		ofFigure(SpeculativeDrafts, c, "steps", "Verify steps of speculative decoding.", "Absent while the engine does not speculate."),
		ofFigure(SpeculativeDraftTokens, c, "tokens", "Tokens that were drafted.", ""),
		ofFigure(SpeculativeAcceptedTokens, c, "tokens", "Drafted tokens that were accepted.", "Without the token that every verify step yields anyway: mean tokens per step = 1 + accepted ÷ steps."),
		ofFigure(Preemptions, c, "requests", "Times that a running request was put back for lack of KV cache.", ""),
		ofFigure(PromptTokens, c, "tokens", "Prompt tokens processed.", "Cached ones included, but on llama.cpp before August 2026, which counts uncached ones only."),
		ofFigure(GenerationTokens, c, "tokens", "Tokens generated.", "SGLang and TGI count them when a request finishes."),
	}
}

func selfFamilies() []family {
	const g, c = collector.Gauge, collector.Counter
	return []family{
		{
			row("engine_metric_missing", g, "", "1 for each engine metric that the dialect of the page has and the page lacks.",
				"The metric was renamed or is switched off. What a dialect does not have at all is not missing.", "metric"),
			func(s State, emit func(float64, ...string)) {
				if !s.Fresh {
					return
				}
				for _, f := range s.Last.Missing {
					emit(1, string(f))
				}
			},
		},
		{
			row("engine_bad_lines_total", c, "lines", "Lines of metrics pages that could not be parsed and were skipped.", ""),
			func(s State, emit func(float64, ...string)) { emit(float64(s.BadLines)) },
		},
		{
			row("engine_read_failures_total", c, "reads", "Reads of the metrics page that failed.",
				"Reasons that come and go exist at 0 from the start. Those that last until somebody changes something (unauthorized, not_found, …) appear when they occur: `engine_up` shows them.", "reason"),
			func(s State, emit func(float64, ...string)) {
				for _, r := range Reasons() {
					if n := s.Failures[r]; n > 0 || !r.lasting() {
						emit(float64(n), string(r))
					}
				}
			},
		},
		{
			row("engine_last_read_timestamp_seconds", g, "seconds", "When the metrics page was last read with success.", ""),
			func(s State, emit func(float64, ...string)) {
				if s.Last != nil {
					emit(float64(s.Last.At.UnixNano()) / 1e9)
				}
			},
		},
		{
			row("engine_resets_total", c, "", "Times that the engine's own counters were seen to begin anew: restarts.", ""),
			func(s State, emit func(float64, ...string)) { emit(float64(s.Resets)) },
		},
	}
}

// row is a row of the table; labels are those beyond target.
func row(name string, t collector.Type, unit, help, detail string, labels ...string) collector.Metric {
	return collector.Metric{
		Name: collector.Namespace + name, Type: t, Labels: append([]string{"target"}, labels...), Unit: unit,
		Help: help, Detail: detail, Since: "0.1.0", Group: Group,
	}
}

// ofFigure is the family of a normalised figure.
func ofFigure(f Figure, t collector.Type, unit, help, detail string) family {
	return family{
		row(string(f), t, unit, help, detail),
		func(s State, emit func(float64, ...string)) {
			if !s.Fresh {
				return
			}
			if v := s.Last.Get(f); v != nil {
				emit(*v)
			}
		},
	}
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}
