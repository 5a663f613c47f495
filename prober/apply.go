package prober

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/go-kit/log/level"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/scenario"
)

// How many probes may run at once where the configuration does not say.
const (
	defaultConcurrency          = 16
	defaultConcurrencyPerTarget = 4
)

func limit(configured, def int) int {
	if configured > 0 {
		return configured
	}
	return def
}

// next is a configuration that is built and not yet in use.
type next struct {
	config  *config.Config
	specs   map[string]*spec
	targets map[string]*target
	pairs   map[key]*pair
	fresh   []*target // of targets: those that were made for it
}

// Apply takes the first configuration or another one. All that is new is built first: an error leaves everything as
// it was. Targets and scenarios that did not change keep everything: connections, facts, numbers, and their ticks.
// Errors about a setting are *config.FieldError with the whole path (scenarios[2].lengths), joined.
func (p *Prober) Apply(c *config.Config) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return errStopping
	}
	n, err := p.build(c)
	if err != nil {
		return err
	}
	p.swap(n)
	return nil
}

// build makes everything that a configuration needs. The caller holds the lock.
func (p *Prober) build(c *config.Config) (*next, error) {
	specs, err := p.buildSpecs(c)
	errs := []error{err}
	n := &next{config: c, specs: specs, targets: map[string]*target{}, pairs: map[key]*pair{}}
	for i, tc := range c.Targets {
		names, required, err := selection(c, i, specs)
		errs = append(errs, err)
		t, err := p.buildTarget(n, i, tc)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, name := range names {
			pr := newPair(t, specs[name], required[name])
			n.pairs[pr.id] = pr
		}
	}
	if err := errors.Join(errs...); err != nil {
		for _, t := range n.fresh {
			t.engine.Close()
		}
		return nil, err
	}
	return n, nil
}

// buildTarget reuses a target that did not change, or makes a new incarnation.
func (p *Prober) buildTarget(n *next, i int, c config.Target) (*target, error) {
	field := fmt.Sprintf("targets[%d]", i)
	if n.targets[c.Name] != nil {
		return nil, config.Errorf(field+".name", "%q is the name of another target as well", c.Name)
	}
	old := p.targets[c.Name]
	if old != nil && sameEngine(old.config, c) {
		n.targets[c.Name] = old
		return old, nil
	}
	e, err := p.options.NewTarget(c)
	if err != nil {
		return nil, within(field, err)
	}
	t := newTarget(c, e, p.sinks, p.logger)
	if old != nil {
		t.inherit(old)
	}
	n.targets[c.Name] = t
	n.fresh = append(n.fresh, t)
	return t, nil
}

// within puts a path before the fields of an error that names some, and names the whole thing if it names none.
func within(path string, err error) error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var out []error
		for _, e := range joined.Unwrap() {
			out = append(out, within(path, e))
		}
		return errors.Join(out...)
	}
	var f *config.FieldError
	if errors.As(err, &f) {
		return &config.FieldError{Field: path + "." + f.Field, Err: f.Err}
	}
	return &config.FieldError{Field: path, Err: err}
}

// buildSpecs makes the scenarios.
func (p *Prober) buildSpecs(c *config.Config) (map[string]*spec, error) {
	specs := map[string]*spec{}
	var errs []error
	for i, sc := range c.Scenarios {
		s, err := buildSpec(sc, c.Global, p.options.Lookup)
		if err != nil {
			errs = append(errs, within(fmt.Sprintf("scenarios[%d]", i), err))
			continue
		}
		specs[sc.Name] = s
	}
	return specs, errors.Join(errs...)
}

func buildSpec(c config.Scenario, g config.Global, lookup func(string) (scenario.Type, bool)) (*spec, error) {
	typ, ok := lookup(c.Type)
	if !ok {
		return nil, config.Errorf("type", "%q is no type of scenario: there are %s", c.Type, strings.Join(typeNames(), ", "))
	}
	s := &spec{config: c, typ: typ, timeouts: g.Effective(c.Timeouts)}
	var errs []error
	switch {
	case c.Interval < 0:
		errs = append(errs, config.Errorf("interval", "is %s, must be positive", c.Interval))
	case c.Interval > 0 && c.Schedule != "":
		errs = append(errs, config.Errorf("schedule", "cannot be set together with an interval: leave one of them out"))
	case c.Schedule != "":
		schedule, err := parseSchedule(c.Schedule)
		if err != nil {
			errs = append(errs, &config.FieldError{Field: "schedule", Err: err})
		}
		s.schedule = schedule
	case c.Interval > 0:
		s.interval = time.Duration(c.Interval)
	default:
		s.interval = typ.Interval
	}
	var err error
	if s.scenario, err = typ.New(c); err != nil {
		errs = append(errs, err)
	}
	return s, errors.Join(errs...)
}

func typeNames() []string {
	var names []string
	for _, t := range scenario.Types() {
		names = append(names, t.Name)
	}
	return names
}

// selection returns the scenarios that a target runs on their cadence, and which of them it must be able to do. Without
// a list it runs every built-in one that has a cadence. What is required runs in any case.
func selection(c *config.Config, i int, specs map[string]*spec) (names []string, required map[string]bool, err error) {
	t := c.Targets[i]
	required = map[string]bool{}
	seen := map[string]bool{}
	var errs []error
	add := func(list, name string, j int) {
		s := specs[name]
		switch {
		case s == nil && c.Scenario(name) == nil:
			errs = append(errs, config.Errorf(fmt.Sprintf("targets[%d].%s[%d]", i, list, j), "there is no scenario %q", name))
		case s != nil && s.onCadence() && !seen[name]:
			seen[name] = true
			names = append(names, name)
		}
	}
	for j, name := range t.Scenarios {
		add("scenarios", name, j)
	}
	for j, name := range t.Require {
		add("require", name, j)
		required[name] = true
	}
	if len(t.Scenarios) == 0 {
		for j, sc := range c.Scenarios {
			if sc.Name == sc.Type {
				add("scenarios", sc.Name, j)
			}
		}
	}
	return names, required, errors.Join(errs...)
}

// swap takes a built configuration into use. It cannot fail. The caller holds the lock.
func (p *Prober) swap(n *next) {
	p.slots.resize(limit(n.config.Global.MaxConcurrentProbes, defaultConcurrency))
	p.stopChanged(n)
	for id, old := range p.pairs {
		if n.pairs[id] == nil || !sameSeries(old, n.pairs[id]) {
			p.remove(old)
		}
	}
	p.extra = map[key]*pair{}
	for name, old := range p.targets {
		if t := n.targets[name]; t != old {
			old.retire(t == nil)
			p.wg.Go(old.closeWhenIdle)
		}
	}
	if p.config == nil || n.config.Global.Seed != 0 {
		p.setSeed(n.config.Global.Seed)
	}
	old := p.pairs
	p.config, p.specs, p.targets, p.pairs = n.config, n.specs, n.targets, n.pairs
	for _, t := range p.targets {
		t.slots.resize(limit(n.config.Global.MaxConcurrentProbesPerTarget, defaultConcurrencyPerTarget))
		t.announce()
	}
	for _, t := range n.fresh {
		if p.running != nil {
			p.watch(t)
		}
	}
	for id, pr := range p.pairs {
		p.start(pr, old[id])
	}
	level.Info(p.logger).Log("msg", "configuration applied", "targets", len(p.targets), "pairs", len(p.pairs), "new_or_changed_targets", len(n.fresh))
}

func (p *Prober) setSeed(seed uint64) {
	if seed != 0 {
		p.seed.Store(seed)
	}
}

// stopChanged keeps the pairs that did not change, and stops the loops of all others.
func (p *Prober) stopChanged(n *next) {
	var halted []*pair
	for id, old := range p.pairs {
		pr := n.pairs[id]
		if pr != nil && pr.target == old.target && pr.required == old.required && pr.spec.same(old.spec) {
			n.pairs[id] = old
			continue
		}
		old.halt()
		halted = append(halted, old)
	}
	for _, old := range halted {
		old.wait()
	}
}

// sameSeries reports whether two pairs report the same figures.
func sameSeries(a, b *pair) bool {
	return a.info.Type == b.info.Type && reflect.DeepEqual(a.info.Variants, b.info.Variants) && reflect.DeepEqual(a.info.Checks, b.info.Checks)
}

// remove ends a pair: its probes are cancelled, and the sinks hear no more of it.
func (p *Prober) remove(pr *pair) {
	s := pr.state
	s.tell.Lock()
	s.removed = true
	p.sinks.pairRemoved(pr.id.target, pr.id.scenario)
	s.tell.Unlock()
	s.cancel()
}

// start takes a pair into use. old is what was there under its name, or nil.
func (p *Prober) start(pr, old *pair) {
	switch {
	case old == pr:
		return
	case old == nil || old.state.removed:
		pr.state = newPairState(p.probes)
		p.sinks.pairAdded(pr.info)
	default:
		pr.state = old.state
		if !pr.spec.sameCadence(old.spec) {
			pr.state.cadence, pr.state.pending = nil, time.Time{}
		}
		if pr.info.Interval != old.info.Interval {
			pr.state.deliver(func() { p.sinks.pairAdded(pr.info) })
		}
	}
	if p.running != nil {
		p.launch(pr)
	}
}
