package collector

import "github.com/llmcanary/llm_canary_exporter/prober/result"

// targetGroup holds what targets were found to be.
func targetGroup() group {
	return group{
		title: "Targets",
		metrics: []Metric{{
			Name: "target_info", Type: Gauge, Labels: []string{"target", "url", "engine", "version", "model", "protocol"},
			Help:    "What a target was found to be; always 1.",
			Detail:  "Absent until the target was detected. Values that are not known are empty; those from a server are cut to 256 bytes.",
			Example: `llm_canary_probe_success * on (target) group_left (engine, version, model) llm_canary_target_info`,
		}},
	}
}

// describe replaces what is known of a target. The caller holds the lock of its scope.
func (c *Collector) describe(t *target, found result.Target) {
	f := c.byName["target_info"]
	t.scope.remove(f, func([]string) bool { return true })
	// Versions and models come and go for as long as the target lives: nothing of them may stay behind.
	for _, label := range f.extra {
		t.scope.removeValue(label, func(string) bool { return false })
	}
	t.scope.set(f, 1, c.now(), labelValue(found.URL), labelValue(found.Engine), labelValue(found.Version),
		labelValue(found.Model), labelValue(found.Protocol))
}
