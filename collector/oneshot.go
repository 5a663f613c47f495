package collector

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// ForProbe returns the metrics of one result alone, in a registry of its own: what /probe answers with. Its counters
// start at 0 with this probe. The Registerer of the options is not used.
func ForProbe(o Options, r *result.Probe) (prometheus.Gatherer, error) {
	reg := prometheus.NewRegistry()
	o.Registerer = reg
	c, err := New(o)
	if err != nil {
		return nil, err
	}
	c.PairAdded(pairOf(r))
	c.ProbeFinished(r)
	return reg, nil
}

// pairOf returns what the prober would have announced for a scenario that reports this result.
func pairOf(r *result.Probe) result.Pair {
	p := result.Pair{Target: r.Target, Scenario: r.Scenario, Type: r.Type}
	variant := func(v string) {
		if !slices.Contains(p.Variants, v) {
			p.Variants = append(p.Variants, v)
		}
	}
	for i := range r.Requests {
		variant(r.Requests[i].Variant)
	}
	for _, c := range r.Checks {
		if name := (result.CheckName{Variant: c.Variant, Name: c.Name}); !slices.Contains(p.Checks, name) {
			p.Checks = append(p.Checks, name)
		}
	}
	// Figures by variant may be of variants that no request is labelled with.
	for _, v := range r.Values {
		at := slices.IndexFunc(figures(), func(x figure) bool { return x.name == v.Metric })
		if at >= 0 && figures()[at].label == "variant" && figures()[at].allowed == nil && v.Label != "" {
			variant(v.Label)
		}
	}
	return p
}
