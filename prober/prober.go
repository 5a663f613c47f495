// Package prober decides when each scenario runs against each target, runs it, and hands what was found to the sinks.
//
// The loop is open: ticks are absolute times that do not wait for earlier probes. A tick that cannot become a probe
// is told as a skip with its reason; a probe that starts late says how late.
package prober

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/engine"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
	"github.com/llmcanary/llm_canary_exporter/prober/scenario"
)

// afterGrace is how long probes may take to end after they were cancelled.
const afterGrace = 5 * time.Second

var (
	errStopping = errors.New("the prober is shutting down")
	errTwice    = errors.New("the prober was started before")
)

// Options are what a Prober is made of. NewTarget is required.
type Options struct {
	Logger log.Logger
	Sinks  []Sink

	// NewTarget makes the client of a target. It must not wait for the target: a target may be down.
	NewTarget func(config.Target) (Engine, error)
	// Lookup finds a scenario type; nil means scenario.Lookup.
	Lookup func(name string) (scenario.Type, bool)

	Load    Load    // nil: how busy the engines are is not known
	Windows Windows // nil: there are no GPU and KV-cache samples
}

// Prober runs scenarios against targets. Its methods are safe for concurrent use; sinks must not call them.
type Prober struct {
	options Options
	logger  log.Logger
	sinks   sinks
	seed    atomic.Uint64
	slots   *slots

	probes context.Context // of all probes: ends when the grace is over
	cut    context.CancelFunc
	wg     sync.WaitGroup // loops, detections and probes

	mu       sync.Mutex
	config   *config.Config
	specs    map[string]*spec
	targets  map[string]*target
	pairs    map[key]*pair
	extra    map[key]*pair   // for probes outside of any cadence
	running  context.Context // of loops and detections; nil before Run, written before any of them starts
	stop     context.CancelFunc
	epoch    time.Time // cadences count from it
	stopping bool
}

// New returns a Prober without a configuration.
func New(o Options) *Prober {
	if o.Logger == nil {
		o.Logger = log.NewNopLogger()
	}
	if o.Lookup == nil {
		o.Lookup = scenario.Lookup
	}
	p := &Prober{
		options: o,
		logger:  o.Logger,
		sinks:   sinks{list: o.Sinks, logger: o.Logger},
		slots:   newSlots(defaultConcurrency),
		specs:   map[string]*spec{},
		targets: map[string]*target{},
		pairs:   map[key]*pair{},
		extra:   map[key]*pair{},
	}
	p.seed.Store(rand.Uint64())
	p.probes, p.cut = context.WithCancel(context.Background())
	return p
}

// Run probes until ctx ends. Then no probe starts any more; those that run may end within the grace of the
// configuration, after which they are cancelled. It may be called once, before or after the first Apply.
func (p *Prober) Run(ctx context.Context) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	p.mu.Lock()
	if p.running != nil || p.stopping {
		p.mu.Unlock()
		return errTwice
	}
	p.running, p.stop, p.epoch = running, stop, time.Now()
	for _, t := range p.targets {
		p.watch(t)
	}
	for _, pr := range p.pairs {
		p.launch(pr)
	}
	p.mu.Unlock()
	<-ctx.Done()
	p.Close()
	return nil
}

// Close ends all probing as the end of Run's ctx does, and closes the targets' connections. It is for those who use
// Probe without Run.
func (p *Prober) Close() {
	p.mu.Lock()
	already := p.stopping
	p.stopping = true
	grace := time.Duration(0)
	if p.config != nil {
		grace = time.Duration(p.config.Global.ShutdownGrace)
	}
	if p.stop != nil {
		p.stop()
	}
	p.mu.Unlock()
	if already {
		return
	}
	ended := make(chan struct{})
	go func() {
		p.wg.Wait()
		close(ended)
	}()
	if !waitFor(ended, grace) {
		level.Warn(p.logger).Log("msg", "probes still run after the grace: they are cancelled", "grace", grace)
	}
	p.cut()
	if !waitFor(ended, afterGrace) {
		level.Error(p.logger).Log("msg", "probes did not end although they were cancelled")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.targets {
		t.engine.Close()
	}
}

func waitFor(ended <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
		return false
	}
}

// ending reports whether the prober is shutting down. For loops, which start after Run was called.
func (p *Prober) ending() bool { return p.running.Err() != nil }

// watch starts the detection of a target. The caller holds the lock; Run was called.
func (p *Prober) watch(t *target) {
	ctx, stop := context.WithCancel(p.running)
	t.stop = stop
	p.wg.Go(func() { t.watch(ctx) })
}

// launch starts the loop of a pair. The caller holds the lock; Run was called.
func (p *Prober) launch(pr *pair) {
	if pr.state.cadence == nil {
		pr.state.cadence = p.newCadence(pr)
	}
	ctx, stop := context.WithCancel(p.running)
	pr.stop, pr.stopped = stop, make(chan struct{})
	p.wg.Go(func() {
		defer close(pr.stopped)
		p.loop(ctx, pr)
	})
}

// newCadence returns the ticks of a pair from now on. Those of a fixed interval have their place relative to the start
// of the prober, which no reload moves.
func (p *Prober) newCadence(pr *pair) cadence {
	now := time.Now()
	s := pr.spec
	if s.schedule != nil {
		return newCrontab(s.schedule, now)
	}
	first := p.epoch.Add(phase(pr.id.target, pr.id.scenario, s.interval))
	if behind := now.Sub(first); behind > 0 {
		first = first.Add((behind/s.interval + 1) * s.interval)
	}
	r := rand.New(rand.NewPCG(hash64("cadence", pr.id.target, pr.id.scenario), p.seed.Load()))
	if s.typ.Poisson {
		return newPoisson(first, s.interval, r)
	}
	return newEvenly(first, s.interval, r)
}

// halt stops the loop of a pair without waiting for it.
func (pr *pair) halt() {
	if pr.stop != nil {
		pr.stop()
	}
}

// wait waits until the loop has ended.
func (pr *pair) wait() {
	if pr.stopped != nil {
		<-pr.stopped
	}
}

// TargetState is what is known about a target, for people.
type TargetState struct {
	result.Target
	Facts    engine.Facts
	Features *engine.Features // nil where the client does not tell
	Detected bool             // a detection worked at least once
	Err      error            // of the last detection
	Checked  time.Time        // of the last detection; zero: none yet

	// BackoffUntil is when the target may be probed again; zero: now.
	BackoffUntil time.Time
}

// Targets returns the state of every target, by name.
func (p *Prober) Targets() []TargetState {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]TargetState, 0, len(p.targets))
	for _, t := range p.targets {
		f := t.engine.Facts()
		s := TargetState{Target: t.describe(f), Facts: f}
		if x, ok := t.engine.(interface{ Features() engine.Features }); ok {
			s.Features = result.Ptr(x.Features())
		}
		t.mu.Lock()
		s.Detected, s.Err, s.Checked = t.state.worked, t.state.err, t.state.checked
		t.mu.Unlock()
		if until, _, yes := t.backoff.active(time.Now()); yes {
			s.BackoffUntil = until
		}
		out = append(out, s)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// Pairs returns what is probed on a cadence, by target and scenario.
func (p *Prober) Pairs() []result.Pair {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]result.Pair, 0, len(p.pairs))
	for _, pr := range p.pairs {
		out = append(out, pr.info)
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i], out[j]
		return a.Target < b.Target || a.Target == b.Target && a.Scenario < b.Scenario
	})
	return out
}

// scenarioNames returns the names of all scenarios. The caller holds the lock.
func (p *Prober) scenarioNames() []string {
	names := make([]string, 0, len(p.specs))
	for n := range p.specs {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
