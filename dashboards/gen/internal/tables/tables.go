// Package tables knows every metric that a dashboard may ask for: those of the exporter's own tables, those of the
// design that the tables do not have yet, and the few of Prometheus and its Go client.
package tables

import (
	"slices"

	"github.com/llmcanary/llm_canary_exporter/collector"
	"github.com/llmcanary/llm_canary_exporter/collector/gpu"
)

// Kind is the kind of a metric.
type Kind string

// The kinds of metrics.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Metric is what a dashboard may ask of a metric.
type Metric struct {
	Labels []string
	Kind   Kind
}

// Pending are metrics of the design that the tables of the exporter do not have yet. A table that has one counts
// for more: the tests then say that it can go from here.
func Pending() map[string]Metric {
	target, pair := []string{"target"}, []string{"target", "scenario"}
	slo := append(slices.Clone(pair), "slo")
	return map[string]Metric{
		"llm_canary_slo_objective_ratio":               {slo, Gauge},
		"llm_canary_slo_threshold_seconds":             {slo, Gauge},
		"llm_canary_slo_requests_total":                {slo, Counter},
		"llm_canary_slo_bad_requests_total":            {slo, Counter},
		"llm_canary_engine_requests_running":           {target, Gauge},
		"llm_canary_engine_requests_waiting":           {target, Gauge},
		"llm_canary_engine_kv_cache_usage_ratio":       {target, Gauge},
		"llm_canary_engine_preemptions_total":          {target, Counter},
		"llm_canary_engine_prompt_tokens_total":        {target, Counter},
		"llm_canary_engine_generation_tokens_total":    {target, Counter},
		"llm_canary_engine_prefix_cache_hits_total":    {target, Counter},
		"llm_canary_engine_prefix_cache_queries_total": {target, Counter},
		"llm_canary_budget_tokens_used":                {[]string{"target", "window"}, Gauge},
		"llm_canary_budget_tokens_limit":               {[]string{"target", "window"}, Gauge},
		"llm_canary_comparison_ratio":                  {[]string{"target", "to", "scenario", "figure"}, Gauge},
		"llm_canary_baseline_ratio":                    {[]string{"target", "benchmark", "figure"}, Gauge},
	}
}

// Daemon are the metrics that the daemon registers beside those of its collectors.
func Daemon() map[string]Metric {
	return map[string]Metric{
		"llm_canary_build_info":                                   {[]string{"version", "revision", "goversion"}, Gauge},
		"llm_canary_config_last_reload_successful":                {nil, Gauge},
		"llm_canary_config_last_reload_success_timestamp_seconds": {nil, Gauge},
	}
}

// Foreign are metrics of Prometheus itself and of its Go client.
func Foreign() map[string]Metric {
	return map[string]Metric{
		"process_cpu_seconds_total":     {nil, Counter},
		"process_resident_memory_bytes": {nil, Gauge},
		"process_start_time_seconds":    {nil, Gauge},
		"go_goroutines":                 {nil, Gauge},
		"go_memstats_heap_alloc_bytes":  {nil, Gauge},
		"scrape_duration_seconds":       {nil, Gauge},
		"ALERTS":                        {[]string{"alertname", "alertstate", "severity", "target", "scenario"}, Gauge},
	}
}

// Exported reads the tables from which the exporter builds its metrics.
func Exported() map[string]Metric {
	out := map[string]Metric{}
	for _, m := range collector.Metrics() {
		out[m.Name] = Metric{m.Labels, Kind(m.Type)}
	}
	for _, f := range gpu.Families() {
		out[f.Name] = Metric{f.Labels, Kind(f.Type)}
	}
	return out
}
