// Package web serves the daemon's pages for people and its endpoints for programs: the status page, the recent
// results, /probe, the configuration and the lifecycle. It reads results and asks the prober through a small
// interface; it measures nothing.
package web

import (
	"sort"
	"sync"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// History keeps the newest results of every (target, scenario) pair for the pages. Failures are kept apart, so
// that a burst of successes does not push out the one failure that somebody looks for. It is a sink of the
// prober; its methods may be called concurrently.
type History struct {
	mu      sync.RWMutex
	keep    int
	pairs   map[pairKey]*pairHistory
	targets map[string]result.Target
}

type pairKey struct{ target, scenario string }

type pairHistory struct {
	pair     result.Pair
	running  int
	recent   []*result.Probe // oldest first
	failures []*result.Probe
	skips    map[result.SkipReason]int
	probes   int
	failed   int
	inARow   int
}

// NewHistory returns a History that keeps that many results and that many failures for each pair.
func NewHistory(keep int) *History {
	if keep < 1 {
		keep = 1
	}
	return &History{keep: keep, pairs: map[pairKey]*pairHistory{}, targets: map[string]result.Target{}}
}

// PairAdded begins or updates a pair; its results are kept.
func (h *History) PairAdded(p result.Pair) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := pairKey{p.Target, p.Scenario}
	if old := h.pairs[k]; old != nil {
		old.pair = p
		return
	}
	h.pairs[k] = &pairHistory{pair: p, skips: map[result.SkipReason]int{}}
}

// PairRemoved forgets a pair.
func (h *History) PairRemoved(target, scenario string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.pairs, pairKey{target, scenario})
}

// TargetFound notes what a target was found to be.
func (h *History) TargetFound(t result.Target) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.targets[t.Name] = t
}

// TargetRemoved forgets a target and its pairs.
func (h *History) TargetRemoved(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.targets, name)
	for k := range h.pairs {
		if k.target == name {
			delete(h.pairs, k)
		}
	}
}

// ProbeStarted counts a running probe.
func (h *History) ProbeStarted(target, scenario string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.pairs[pairKey{target, scenario}]; p != nil {
		p.running++
	}
}

// ProbeFinished keeps a result. One of a pair that is no longer known is dropped.
func (h *History) ProbeFinished(r *result.Probe) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.pairs[pairKey{r.Target, r.Scenario}]
	if p == nil {
		return
	}
	p.running = max(0, p.running-1)
	p.probes++
	p.recent = appendBounded(p.recent, r, h.keep)
	if r.Outcome != result.Failure {
		p.inARow = 0
		return
	}
	p.failed++
	p.inARow++
	p.failures = appendBounded(p.failures, r, h.keep)
}

// ProbeSkipped counts a tick that did not become a probe.
func (h *History) ProbeSkipped(s result.Skip) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.pairs[pairKey{s.Target, s.Scenario}]; p != nil {
		p.skips[s.Reason]++
	}
}

func appendBounded(list []*result.Probe, r *result.Probe, keep int) []*result.Probe {
	if len(list) < keep {
		return append(list, r)
	}
	copy(list, list[1:])
	list[len(list)-1] = r
	return list
}

// PairStatus is what the pages show of a pair.
type PairStatus struct {
	result.Pair
	Running             bool
	Last                *result.Probe // nil before the first result
	Probes              int
	Failed              int
	ConsecutiveFailures int
	Skips               map[result.SkipReason]int
}

// Pairs returns the state of every pair, ordered by target and scenario.
func (h *History) Pairs() []PairStatus {
	h.mu.RLock()
	defer h.mu.RUnlock()
	out := make([]PairStatus, 0, len(h.pairs))
	for _, p := range h.pairs {
		s := PairStatus{
			Pair: p.pair, Running: p.running > 0, Probes: p.probes, Failed: p.failed,
			ConsecutiveFailures: p.inARow, Skips: make(map[result.SkipReason]int, len(p.skips)),
		}
		for k, v := range p.skips {
			s.Skips[k] = v
		}
		if n := len(p.recent); n > 0 {
			s.Last = p.recent[n-1]
		}
		out = append(out, s)
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].Target != out[j].Target {
			return out[i].Target < out[j].Target
		}
		return out[i].Scenario < out[j].Scenario
	})
	return out
}

// Targets returns what is known of every detected target, by name.
func (h *History) Targets() map[string]result.Target {
	h.mu.RLock()
	defer h.mu.RUnlock()
	out := make(map[string]result.Target, len(h.targets))
	for k, v := range h.targets {
		out[k] = v
	}
	return out
}

// Filter selects results. Empty fields match everything.
type Filter struct {
	Target, Scenario string
	FailuresOnly     bool
}

// Results returns kept results, newest first.
func (h *History) Results(f Filter) []*result.Probe {
	h.mu.RLock()
	defer h.mu.RUnlock()
	seen := map[*result.Probe]bool{}
	var out []*result.Probe
	add := func(list []*result.Probe) {
		for _, r := range list {
			if !seen[r] && (!f.FailuresOnly || r.Outcome == result.Failure) {
				seen[r] = true
				out = append(out, r)
			}
		}
	}
	for k, p := range h.pairs {
		if (f.Target == "" || f.Target == k.target) && (f.Scenario == "" || f.Scenario == k.scenario) {
			add(p.recent)
			add(p.failures)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].StartTime.After(out[j].StartTime) })
	return out
}

// Result returns the kept result with that id, or nil.
func (h *History) Result(id string) *result.Probe {
	for _, r := range h.Results(Filter{}) {
		if r.ID == id {
			return r
		}
	}
	return nil
}
