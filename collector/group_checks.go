package collector

import "github.com/llmcanary/llm_canary_exporter/prober/result"

// checkGroup holds whether answers were right.
func checkGroup() group {
	labels := []string{"target", "scenario", "variant", "check"}
	return group{
		title: "Right answers",
		intro: "Both exist at 0 for every check from the start. A check that could not be made (its request failed) is not counted.",
		metrics: []Metric{
			{
				Name: "checks_total", Type: Counter, Labels: labels,
				Help: "Answers that were checked.",
			},
			{
				Name: "check_failures_total", Type: Counter, Labels: labels,
				Help:    "Answers that were wrong.",
				Example: `1 - increase(llm_canary_check_failures_total[1h]) / increase(llm_canary_checks_total[1h])`,
			},
		},
		added: func(p *pair) {
			for _, c := range p.Checks {
				p.scope.get(p.family("checks_total"), c.Variant, c.Name)
				p.scope.get(p.family("check_failures_total"), c.Variant, c.Name)
			}
		},
		finished: func(p *pair, r *result.Probe) {
			for _, c := range r.Checks {
				variant, check := p.checkLabels(c)
				p.scope.add(p.family("checks_total"), 1, variant, check)
				if !c.OK {
					p.scope.add(p.family("check_failures_total"), 1, variant, check)
				}
			}
		},
	}
}
