package collector

import (
	"fmt"
	"slices"
	"strings"
)

//go:generate go test . -run Docs -update

// Document returns the metric reference in Markdown: what is generated into docs/metrics.md. Metrics of other
// packages that are described in the same form can be appended with DocumentGroup.
func Document() string {
	var b strings.Builder
	b.WriteString(`# Metrics

Generated from the table that the exporter builds its metrics from; ` + "`go test ./collector -run Docs -update`" + ` renews it.

Times are in seconds. What was not measured is absent, never 0. Labels:

| label | meaning |
|---|---|
| ` + "`target`" + ` | name of the target in the configuration |
| ` + "`scenario`" + ` | name of the scenario in the configuration |
| ` + "`variant`" + ` | which of the scenario's requests; ` + "`default`" + ` if it has only one |
| ` + "`reason`" + ` | why something failed, was skipped or stopped; a closed list |

Histograms carry classic buckets, native buckets (growing by 2^(1/8), at most 160), or both, as ` + "`global.histograms`" + ` says, and
exemplars with the label ` + "`trace_id`" + `. Native buckets need a scrape in protobuf (` + "`scrape_native_histograms: true`" + `), exemplars protobuf
or OpenMetrics. No default bound is a whole number of seconds, because ` + "`le=\"1\"`" + ` in Prometheus 2 is ` + "`le=\"1.0\"`" + ` in Prometheus 3; the
threshold of a configured SLO is a bound exactly as configured, so write ` + "`le=~\"1(\\\\.0)?\"`" + ` for one that is whole. Every series of a histogram has
about 20 classic buckets: with more than some 30 targets that run every scenario, prefer ` + "`histograms: native`" + `.

All series of a target or scenario vanish when it is removed from the configuration. The others keep their counts over a reload.
`)
	for _, g := range groups() {
		b.WriteString(DocumentGroup(g.title, g.intro, g.rows()))
	}
	return b.String()
}

// DocumentGroup returns a section of the metric reference.
func DocumentGroup(title, intro string, metrics []Metric) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n", title)
	if intro != "" {
		fmt.Fprintf(&b, "\n%s\n", intro)
	}
	for _, m := range metrics {
		b.WriteString(documentMetric(m))
	}
	return b.String()
}

func documentMetric(m Metric) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n### `%s`\n\n%s", m.Name, m.Type)
	if m.Unit != "" {
		fmt.Fprintf(&b, " in %s", m.Unit)
	}
	if len(m.Labels) > 0 {
		fmt.Fprintf(&b, " by `%s`", strings.Join(m.Labels, "`, `"))
	}
	fmt.Fprintf(&b, ", since %s. %s", m.Since, m.Help)
	if m.Detail != "" {
		fmt.Fprintf(&b, " %s", m.Detail)
	}
	if x := documentValues(m); x != "" {
		fmt.Fprintf(&b, " %s", x)
	}
	b.WriteString("\n")
	if len(m.Bounds) > 0 {
		fmt.Fprintf(&b, "\nClassic bounds: %s.\n", joinFloats(m.Bounds))
	}
	if m.Example != "" {
		fmt.Fprintf(&b, "\n```promql\n%s\n```\n", m.Example)
	}
	return b.String()
}

// documentValues lists the values of a further label that has a list of its own.
func documentValues(m Metric) string {
	for _, x := range figures() {
		if Namespace+x.name == m.Name && x.allowed != nil {
			values := slices.Clone(x.allowed)
			return fmt.Sprintf("Values of `%s`: `%s`.", x.label, strings.Join(values, "`, `"))
		}
	}
	return ""
}

func joinFloats(v []float64) string {
	texts := make([]string, len(v))
	for i := range v {
		texts[i] = formatFloat(v[i], false)
	}
	return strings.Join(texts, ", ")
}
