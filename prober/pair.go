package prober

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/dataset"
	"github.com/llmcanary/llm_canary_exporter/prober/engine"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
	"github.com/llmcanary/llm_canary_exporter/prober/scenario"
)

// key names a pair.
type key struct{ target, scenario string }

// spec is what the configuration says of a scenario, checked and ready to run.
type spec struct {
	config   config.Scenario
	typ      scenario.Type
	scenario scenario.Scenario
	interval time.Duration // 0: none
	schedule cron.Schedule // nil: none
	timeouts config.Timeouts
}

// onCadence reports whether the scenario runs by itself.
func (s *spec) onCadence() bool { return s.interval > 0 || s.schedule != nil }

// same reports whether two specs are configured alike.
func (s *spec) same(o *spec) bool {
	return reflect.DeepEqual(s.config, o.config) && s.interval == o.interval && s.timeouts == o.timeouts
}

// sameCadence reports whether two specs tick alike.
func (s *spec) sameCadence(o *spec) bool {
	return s.interval == o.interval && s.config.Schedule == o.config.Schedule && s.typ.Poisson == o.typ.Poisson
}

// pair is a scenario that runs against a target. A reload that changes either makes a new pair with the same state.
type pair struct {
	id       key
	spec     *spec
	target   *target
	required bool
	info     result.Pair
	state    *pairState

	stop    context.CancelFunc // ends the loop; nil while it does not run
	stopped chan struct{}      // closed when the loop has ended
}

func newPair(t *target, s *spec, required bool) *pair {
	return &pair{
		id: key{t.config.Name, s.config.Name}, spec: s, target: t, required: required,
		info: result.Pair{
			Target: t.config.Name, Scenario: s.config.Name, Type: s.typ.Name, Interval: s.interval,
			Variants: s.scenario.Variants(), Checks: s.scenario.Checks(),
		},
	}
}

// pairState is what outlives a reload.
type pairState struct {
	ctx    context.Context // of the pair's probes: ends when the pair is removed, or the prober's grace is over
	cancel context.CancelFunc
	number atomic.Uint64 // of the next probe

	// Of the loop alone.
	cadence cadence
	pending time.Time // a tick that was drawn and has not come yet; zero: none

	mu          sync.Mutex
	running     bool
	unsupported unsupported
	sizer       *dataset.Sizer
	sizerOf     engine.Facts
	failures    failureLog

	tell    sync.Mutex // held while the sinks are told, so that nothing comes after PairRemoved
	removed bool
}

// unsupported remembers that a target cannot do a scenario.
type unsupported struct {
	until  time.Time
	facts  engine.Facts // of the target then: another engine, version or model may be able to
	detail string
}

func newPairState(ctx context.Context) *pairState {
	s := &pairState{}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s
}

// deliver tells the sinks something of the pair, unless it is removed.
func (s *pairState) deliver(f func()) {
	s.tell.Lock()
	defer s.tell.Unlock()
	if !s.removed {
		f()
	}
}

// sizerFor returns the pair's sizer. Another model or engine counts in another way: there it starts anew.
func (s *pairState) sizerFor(f engine.Facts) *dataset.Sizer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sizer == nil || s.sizerOf.Model != f.Model || s.sizerOf.Engine != f.Engine || s.sizerOf.Protocol != f.Protocol {
		s.sizer, s.sizerOf = dataset.NewSizer(), f
	}
	return s.sizer
}

// begin marks the pair as running, and reports whether it was free.
func (s *pairState) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running {
		return false
	}
	s.running = true
	return true
}

func (s *pairState) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = false
}

// cannot reports whether the target is known not to be able to do the scenario.
func (s *pairState) cannot(f engine.Facts, now time.Time) (detail string, yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.unsupported
	same := u.facts.Engine == f.Engine && u.facts.Version == f.Version && u.facts.Model == f.Model
	return u.detail, same && now.Before(u.until)
}

// learn remembers whether the target can do the scenario.
func (s *pairState) learn(p *result.Probe, f engine.Facts, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsupported = unsupported{}
	if p.Outcome == result.Unsupported {
		s.unsupported = unsupported{until: now.Add(unsupportedRetry), facts: f, detail: p.Detail}
	}
}

// tick returns the tick that comes next, without using it up. Of the loop alone.
func (s *pairState) tick() time.Time {
	if s.pending.IsZero() {
		s.pending = s.cadence.next()
	}
	return s.pending
}

// loop runs the cadence until ctx ends.
func (p *Prober) loop(ctx context.Context, pr *pair) {
	s := pr.state
	wallClock := s.cadence.period() == 0
	for sleepUntil(ctx, s.tick(), wallClock) {
		due, missed := s.due(time.Now())
		if missed > 0 {
			p.skip(pr, result.SkipMissed, fmt.Sprintf("%d ticks were missed: the process was suspended or got no CPU time", missed))
		}
		if !due.IsZero() {
			p.tick(ctx, pr, due, s.tick())
		}
	}
}

// due uses up the ticks that are due, and returns the one to run: the last one, since those before it are missed if
// they are late. It is zero if that one is too late as well.
func (s *pairState) due(now time.Time) (due time.Time, missed int) {
	due, s.pending = s.pending, time.Time{}
	for now.Sub(due) > missedTickGrace && !s.tick().After(now) {
		due, s.pending = s.pending, time.Time{}
		missed++
	}
	// A cron schedule means that time of day.
	if s.cadence.period() == 0 && now.Sub(due) > missedCronGrace {
		return time.Time{}, missed + 1
	}
	return due, missed
}

// sleepUntil waits until t, and reports whether ctx goes on. It wakes now and then if t is a time of the wall clock,
// which may be changed meanwhile.
func sleepUntil(ctx context.Context, t time.Time, wallClock bool) bool {
	for ctx.Err() == nil {
		d := time.Until(t)
		if d <= 0 {
			return true
		}
		if wallClock {
			d = min(d, longestSleep)
		}
		if !sleep(ctx, d) {
			return false
		}
	}
	return false
}

// tick starts a probe, or says why not.
func (p *Prober) tick(ctx context.Context, pr *pair, due, next time.Time) {
	s := pr.state
	if !s.begin() {
		p.skip(pr, result.SkipOverlap, "the probe before is still running")
		return
	}
	free := s.end
	defer func() { free() }()
	if until, why, yes := pr.target.backoff.active(time.Now()); yes {
		p.skip(pr, result.SkipBackoff, fmt.Sprintf("%s: left alone until %s", why, until.Format(time.RFC3339)))
		return
	}
	if why, yes := s.cannot(pr.target.engine.Facts(), time.Now()); yes && !pr.required {
		p.skip(pr, result.SkipUnsupported, why)
		return
	}
	wait, cancel := context.WithTimeout(ctx, time.Until(next))
	release, err := p.acquire(wait, pr.target)
	cancel()
	switch {
	case ctx.Err() != nil:
		if err == nil {
			release()
		}
		if p.ending() {
			p.skip(pr, result.SkipShutdown, "the daemon is stopping")
		}
		return
	case err != nil:
		p.skip(pr, result.SkipConcurrency, "no slot became free before the next tick: raise max_concurrent_probes or the intervals")
		return
	}
	free = func() {} // the probe does it
	pr.target.inFlight.Add(1)
	p.wg.Go(func() {
		defer pr.target.inFlight.Done()
		defer s.end()
		defer release()
		p.scheduled(pr, due)
	})
}

// acquire takes a slot of the target and one of all.
func (p *Prober) acquire(ctx context.Context, t *target) (release func(), err error) {
	if err := t.slots.acquire(ctx); err != nil {
		return nil, err
	}
	if err := p.slots.acquire(ctx); err != nil {
		t.slots.release()
		return nil, err
	}
	return func() { p.slots.release(); t.slots.release() }, nil
}

func (p *Prober) skip(pr *pair, why result.SkipReason, detail string) {
	pr.state.deliver(func() {
		p.sinks.skipped(result.Skip{Target: pr.id.target, Scenario: pr.id.scenario, Reason: why, At: time.Now(), Detail: detail})
	})
}
