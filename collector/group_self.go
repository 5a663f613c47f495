package collector

// selfGroup holds what the collector says of itself.
func selfGroup() group {
	return group{
		title: "The exporter itself",
		metrics: []Metric{
			{
				Name: "exporter_results_observed_total", Type: Counter, Labels: nil,
				Help: "Results of probes that were taken over into metrics.",
			},
			{
				Name: "exporter_results_dropped_total", Type: Counter, Labels: nil,
				Help:   "Results of probes of targets or scenarios that are not configured any more.",
				Detail: "A few after a reload are normal: probes that were still running.",
			},
			{
				Name: "exporter_label_values_dropped_total", Type: Counter, Labels: []string{"label"},
				Help:   "Label values that were not exported since nobody announced them, by label.",
				Detail: "Counters and histograms get the value `other` in their place, gauges no series. Each is a fault in a scenario; the log names the first of each kind.",
			},
			{
				Name: "exporter_figures_dropped_total", Type: Counter, Labels: []string{"reason"},
				Help:   "Figures that were not exported: unknown_metric, unknown_label, not_finite or negative.",
				Detail: "The log names the first of each kind.",
			},
		},
	}
}

// initSelf makes the counters of the collector itself exist at 0.
func (c *Collector) initSelf() {
	for _, name := range []string{"exporter_results_observed_total", "exporter_results_dropped_total"} {
		c.self.get(c.byName[name])
	}
	for _, label := range []string{"variant", "check", "reason", "anomaly", "source", "gpu"} {
		c.self.get(c.byName["exporter_label_values_dropped_total"], label)
	}
	for _, reason := range []string{"unknown_metric", "unknown_label", "not_finite", "negative"} {
		c.self.get(c.byName["exporter_figures_dropped_total"], reason)
	}
}

// countSelf increases a counter of the collector itself.
func (c *Collector) countSelf(name string, labels ...string) {
	c.self.mu.Lock()
	defer c.self.mu.Unlock()
	c.self.add(c.byName[name], 1, labels...)
}
