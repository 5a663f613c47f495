package enginemetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmcanary/llm_canary_exporter/collector"
)

// Source is what a Collector exports; Set is one. States must return at once: a scrape never waits for an engine.
type Source interface {
	States() []State
}

// Collector exports what the readers have read last. It is a prometheus.Collector that makes its metrics anew for
// each scrape, so that a target that is gone leaves nothing behind.
type Collector struct {
	source   Source
	families []exported
}

type exported struct {
	family
	desc  *prometheus.Desc
	value prometheus.ValueType
}

// NewCollector returns a Collector of what source knows.
func NewCollector(source Source) *Collector {
	c := &Collector{source: source}
	for _, f := range families() {
		e := exported{family: f, value: prometheus.GaugeValue}
		e.desc = prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
		if f.Type == collector.Counter {
			e.value = prometheus.CounterValue
		}
		c.families = append(c.families, e)
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range c.families {
		ch <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.source.States() {
		for _, f := range c.families {
			f.collect(s, func(v float64, labels ...string) {
				ch <- prometheus.MustNewConstMetric(f.desc, f.value, v, append([]string{s.Target}, labels...)...)
			})
		}
	}
}
