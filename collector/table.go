// Package collector turns what the prober finds into Prometheus metrics.
//
// A Collector is a sink of the prober and a prometheus.Collector. Every metric that it exports is a row of the table
// that Metrics returns: descriptors are built from the rows and the metric reference in docs/ is generated from
// them, so that neither can differ from what is exported. A new group of metrics is one file and one line in groups.
//
// Series are plain values that live with their target or with their pair of target and scenario. Removing a pair
// removes its series in one step, and a result that arrives after that finds nothing to write to.
package collector

import (
	"slices"
	"strings"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// Namespace is the prefix of every metric's name.
const Namespace = "llm_canary_"

// Type is the kind of a metric.
type Type string

// The kinds of metrics.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Metric is one row of the table of metrics.
type Metric struct {
	Name    string // with the namespace
	Type    Type
	Labels  []string // in the order in which people read them, widest first
	Unit    string   // base unit: seconds, tokens, bytes, ratio, …; empty where there is none
	Help    string   // one sentence, as exposed
	Detail  string   // what a reader of the docs has to know beyond Help: when it is absent, which formula
	Example string   // PromQL that answers a common question
	Since   string   // first version that exports it
	Group   string   // title of the group in the docs

	// Expires marks gauges that show the last measurement: they vanish when it is too old (see lifetime).
	Expires bool
	// Rotates marks expiring gauges of scenarios that measure one variant per probe, in turn.
	Rotates bool
	// Bounds are the classic buckets of a histogram, as they are by default.
	Bounds []float64
}

// group is a set of metrics that are kept by the same code. Hooks are called with the locks of the pair and of its
// target held; a nil hook is skipped.
type group struct {
	title   string
	intro   string // Markdown, for the docs
	metrics []Metric

	// added initialises the series that exist before the first probe. It is called again when the pair changes.
	added func(p *pair)
	// finished takes over what a probe found.
	finished func(p *pair, r *result.Probe)
}

// groups is the table: a new group of metrics is one file and one line here.
func groups() []group {
	return []group{
		latencyGroup(),
		requestGroup(),
		probeGroup(),
		checkGroup(),
		valueGroup(),
		windowGroup(),
		targetGroup(),
		selfGroup(),
	}
}

// Metrics returns the table of all metrics that a Collector exports, in the order of the docs.
func Metrics() []Metric {
	var out []Metric
	for _, g := range groups() {
		out = append(out, g.rows()...)
	}
	return out
}

// rows returns the metrics of the group with the fields that all of them share filled in.
func (g group) rows() []Metric {
	rows := slices.Clone(g.metrics)
	for i := range rows {
		rows[i].Name = Namespace + rows[i].Name
		rows[i].Group = g.title
		if rows[i].Since == "" {
			rows[i].Since = "0.1.0"
		}
		rows[i].Example = strings.TrimSpace(rows[i].Example)
	}
	return rows
}
