package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llmcanary/llm_canary_exporter/collector"
	"github.com/llmcanary/llm_canary_exporter/collector/gpu"
	"github.com/llmcanary/llm_canary_exporter/dashboards/gen/grafana"
)

// metric is what a dashboard may ask of a metric.
type metric struct {
	labels    []string
	histogram bool
}

// pending are metrics of the design that the tables of the exporter do not have yet. One that has come is an error
// here, so that the list ends with the last of them.
func pending() map[string]metric {
	target, pair := []string{"target"}, []string{"target", "scenario"}
	slo := append(slices.Clone(pair), "slo")
	return map[string]metric{
		"llm_canary_slo_objective_ratio":                          {labels: slo},
		"llm_canary_slo_threshold_seconds":                        {labels: slo},
		"llm_canary_slo_requests_total":                           {labels: slo},
		"llm_canary_slo_bad_requests_total":                       {labels: slo},
		"llm_canary_engine_requests_running":                      {labels: target},
		"llm_canary_engine_requests_waiting":                      {labels: target},
		"llm_canary_engine_kv_cache_usage_ratio":                  {labels: target},
		"llm_canary_engine_preemptions_total":                     {labels: target},
		"llm_canary_engine_prompt_tokens_total":                   {labels: target},
		"llm_canary_engine_generation_tokens_total":               {labels: target},
		"llm_canary_engine_prefix_cache_hits_total":               {labels: target},
		"llm_canary_engine_prefix_cache_queries_total":            {labels: target},
		"llm_canary_budget_tokens_used":                           {labels: []string{"target", "window"}},
		"llm_canary_budget_tokens_limit":                          {labels: []string{"target", "window"}},
		"llm_canary_comparison_ratio":                             {labels: []string{"target", "to", "scenario", "figure"}},
		"llm_canary_baseline_ratio":                               {labels: []string{"target", "benchmark", "figure"}},
		"llm_canary_build_info":                                   {labels: []string{"version", "revision", "goversion"}},
		"llm_canary_config_last_reload_successful":                {},
		"llm_canary_config_last_reload_success_timestamp_seconds": {},
	}
}

// foreign are metrics of Prometheus itself and of its Go client.
func foreign() map[string]metric {
	out := map[string]metric{}
	for _, name := range []string{
		"process_cpu_seconds_total", "process_resident_memory_bytes", "process_start_time_seconds",
		"go_goroutines", "go_memstats_heap_alloc_bytes", "scrape_duration_seconds",
	} {
		out[name] = metric{}
	}
	return out
}

// exported reads the tables from which the exporter builds its metrics.
func exported() map[string]metric {
	out := map[string]metric{}
	for _, m := range collector.Metrics() {
		out[m.Name] = metric{labels: m.Labels, histogram: m.Type == collector.Histogram}
	}
	for _, f := range gpu.Families() {
		out[f.Name] = metric{labels: f.Labels}
	}
	return out
}

// known are all of them. Histograms have the series of classic ones too.
func known(t *testing.T) map[string]metric {
	t.Helper()
	out := exported()
	for name, m := range pending() {
		if _, ok := out[name]; ok {
			t.Errorf("%s is exported now: take it out of the pending ones", name)
		}
		out[name] = m
	}
	for name, m := range foreign() {
		out[name] = m
	}
	for name, m := range out {
		if m.histogram {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				out[name+suffix] = metric{labels: m.labels}
			}
		}
	}
	return out
}

func TestMetricsExist(t *testing.T) {
	all := known(t)
	eachQuery(t, func(t *testing.T, d grafana.Dashboard, q grafana.Query) {
		for _, v := range selectors(t, fill(t, d, q.Expr)) {
			m, ok := all[v.Name]
			if !ok {
				if strings.Contains(v.String(), "vllm|sglang") {
					continue
				}
				t.Errorf("there is no metric %q", v.Name)
				continue
			}
			for _, matcher := range v.LabelMatchers {
				if !slices.Contains(append(m.labels, "job", "instance", "le", "__name__"), matcher.Name) {
					t.Errorf("%s has no label %q", v.Name, matcher.Name)
				}
			}
		}
	})
}

// Labels that are aggregated by, matched on, or shown in legends exist on what is read.
func TestLabelsExist(t *testing.T) {
	all := known(t)
	// labelsIn are the labels of all metrics under a node.
	labelsIn := func(n parser.Node) []string {
		out := []string{"job", "instance", "le", "model_name"}
		parser.Inspect(n, func(n parser.Node, _ []parser.Node) error {
			if v, ok := n.(*parser.VectorSelector); ok {
				out = append(out, all[v.Name].labels...)
			}
			return nil
		})
		return out
	}
	eachQuery(t, func(t *testing.T, d grafana.Dashboard, q grafana.Query) {
		parser.Inspect(parse(t, fill(t, d, q.Expr)), func(n parser.Node, _ []parser.Node) error {
			var wanted []string
			switch e := n.(type) {
			case *parser.AggregateExpr:
				wanted = e.Grouping
			case *parser.BinaryExpr:
				if e.VectorMatching != nil {
					wanted = e.VectorMatching.MatchingLabels
				}
			}
			for _, label := range wanted {
				if !slices.Contains(labelsIn(n), label) {
					t.Errorf("%s: no metric there has the label %q", n, label)
				}
			}
			return nil
		})
	})
	eachPanel(t, func(t *testing.T, d grafana.Dashboard, p grafana.Panel) {
		for _, target := range p.Targets {
			e := parse(t, fill(t, d, target.Expr))
			for _, m := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !slices.Contains(labelsIn(e), m[1]) {
					t.Errorf("legend %q: no metric has the label %q", target.LegendFormat, m[1])
				}
			}
		}
	})
}

// What an on-call asks for is somewhere: every metric with figures of requests, probes and scenarios is on a panel.
func TestEveryMetricOfTheTableIsShown(t *testing.T) {
	shown := map[string]bool{}
	for _, d := range load(t) {
		for _, q := range d.Queries() {
			for _, name := range metricNames(t, fill(t, d, q.Expr)) {
				shown[histogramSuffix.ReplaceAllString(name, "")] = true
			}
		}
	}
	elsewhere := map[string]string{
		"llm_canary_requests_total":                  "probes_total is what people count; both grow together",
		"llm_canary_cached_prompt_tokens_total":      "prefix_cache_hit_ratio says it better",
		"llm_canary_exporter_results_observed_total": "probes_total of all targets",
	}
	for _, m := range collector.Metrics() {
		if !shown[m.Name] && elsewhere[m.Name] == "" {
			t.Errorf("%s is on no dashboard", m.Name)
		}
	}
}
