package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llmcanary/llm_canary_exporter/collector"
	"github.com/llmcanary/llm_canary_exporter/dashboards/gen/grafana"
	"github.com/llmcanary/llm_canary_exporter/dashboards/gen/internal/tables"
)

// known are all of them. Histograms have the series of classic ones too.
func known(t *testing.T) map[string]tables.Metric {
	t.Helper()
	out := tables.Exported()
	for name, pending := range tables.Pending() {
		m, ok := out[name]
		if !ok {
			out[name] = pending
			continue
		}
		t.Logf("%s is exported now: take it out of the pending ones", name)
		if m.Kind != pending.Kind || !slices.Equal(m.Labels, pending.Labels) {
			t.Logf("%s was to be a %s by %q and is a %s by %q", name, pending.Kind, pending.Labels, m.Kind, m.Labels)
		}
	}
	maps.Copy(out, tables.Daemon())
	maps.Copy(out, tables.Foreign())
	for name, m := range maps.Clone(out) {
		if m.Kind == tables.Histogram {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				out[name+suffix] = tables.Metric{Labels: m.Labels}
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
				if !slices.Contains(append(m.Labels, "job", "instance", "le", "__name__"), matcher.Name) {
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
				out = append(out, all[v.Name].Labels...)
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
