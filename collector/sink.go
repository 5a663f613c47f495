package collector

import (
	"slices"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// The methods of this file are those of the prober's sink. They may be called from several goroutines.

// maxPending is how many targets are remembered that were found before their first pair was added.
const maxPending = 1000

// PairAdded says that a scenario is probed on a target from now on. Its counters exist at 0 after this. Called again
// for the same pair it takes over the interval, variants and checks, keeps all counters, and drops the series of
// variants and checks that are no more.
func (c *Collector) PairAdded(added result.Pair) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.targetFor(added.Target)
	p, ok := t.pairs[added.Scenario]
	if !ok {
		p = &pair{collector: c, target: t}
		p.scope = newScope(len(c.families), c.now(), t.scope.base[0], labelPair("scenario", added.Scenario))
		p.scope.lifetime = p.lifetime
		t.pairs[added.Scenario] = p
	}
	c.scopes = nil

	p.scope.mu.Lock()
	defer p.scope.mu.Unlock()
	t.scope.mu.Lock()
	defer t.scope.mu.Unlock()
	changed := !slices.Equal(p.Variants, added.Variants) || !slices.Equal(p.Checks, added.Checks)
	added.Variants = slices.Clone(added.Variants)
	added.Checks = slices.Clone(added.Checks)
	p.Pair = added
	if changed {
		p.dropUnknown()
	}
	for _, g := range c.groups {
		if g.added != nil {
			g.added(p)
		}
	}
}

// targetFor returns a target, new if need be. The caller holds mu.
func (c *Collector) targetFor(name string) *target {
	if t, ok := c.targets[name]; ok {
		return t
	}
	t := &target{name: name, pairs: map[string]*pair{}}
	t.scope = newScope(len(c.families), c.now(), labelPair("target", name))
	c.targets[name] = t
	if found, ok := c.pending[name]; ok {
		delete(c.pending, name)
		t.scope.mu.Lock()
		c.describe(t, found)
		t.scope.mu.Unlock()
	}
	return t
}

// dropUnknown removes the series of variants and checks that the pair has no longer.
func (p *pair) dropUnknown() {
	p.scope.removeValue("variant", func(v string) bool {
		return v == other || slices.Contains(p.Variants, v) || p.hasCheck(v, "") || p.collector.isFigureLabel(v)
	})
	for _, name := range []string{"checks_total", "check_failures_total"} {
		p.scope.remove(p.family(name), func(v []string) bool { return v[1] != other && !p.hasCheck(v[0], v[1]) })
	}
}

// PairRemoved says that a scenario is no longer probed on a target: its series vanish. A probe of it that still runs
// finds nothing to write to when it ends.
func (c *Collector) PairRemoved(targetName, scenario string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t, ok := c.targets[targetName]; ok {
		delete(t.pairs, scenario)
		c.scopes = nil
	}
}

// TargetFound takes over what was found out about a target. It may come before the target's first pair.
func (c *Collector) TargetFound(found result.Target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.targets[found.Name]
	if !ok {
		if len(c.pending) < maxPending {
			c.pending[found.Name] = found
		}
		return
	}
	t.scope.mu.Lock()
	defer t.scope.mu.Unlock()
	c.describe(t, found)
}

// TargetRemoved removes a target with all that belongs to it.
func (c *Collector) TargetRemoved(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.targets, name)
	delete(c.pending, name)
	c.scopes = nil
}

// ProbeStarted says that a probe runs.
func (c *Collector) ProbeStarted(targetName, scenario string) {
	c.withPair(targetName, scenario, func(p *pair) {
		p.running++
		p.setRunning()
	})
}

// ProbeFinished takes over the result of a probe. A result of a pair that is not probed any more is dropped.
func (c *Collector) ProbeFinished(r *result.Probe) {
	known := c.withPair(r.Target, r.Scenario, func(p *pair) {
		for _, g := range c.groups {
			if g.finished != nil {
				g.finished(p, r)
			}
		}
	})
	if known {
		c.countSelf("exporter_results_observed_total")
	} else {
		c.countSelf("exporter_results_dropped_total")
	}
}

// ProbeSkipped counts a tick that did not become a probe.
func (c *Collector) ProbeSkipped(s result.Skip) {
	c.withPair(s.Target, s.Scenario, func(p *pair) {
		reason := string(s.Reason)
		if !slices.Contains(result.SkipReasons(), s.Reason) {
			reason = p.dropped("reason", reason)
		}
		p.scope.add(p.family("probe_skips_total"), 1, reason)
	})
}

// withPair calls f with the locks of a pair and its target, and reports whether there is such a pair.
func (c *Collector) withPair(targetName, scenario string, f func(*pair)) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	t, ok := c.targets[targetName]
	if !ok {
		return false
	}
	p, ok := t.pairs[scenario]
	if !ok {
		return false
	}
	p.scope.mu.Lock()
	defer p.scope.mu.Unlock()
	t.scope.mu.Lock()
	defer t.scope.mu.Unlock()
	f(p)
	return true
}
