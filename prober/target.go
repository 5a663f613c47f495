package prober

import (
	"context"
	"fmt"
	"net/url"
	"reflect"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/engine"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// detectTimeout bounds one detection.
const detectTimeout = 10 * time.Second

// target is one incarnation of a configured target: a reload that changes how it is spoken to makes a new one.
type target struct {
	config  config.Target
	engine  Engine
	sinks   sinks
	logger  log.Logger
	slots   *slots   // kept by the next incarnation
	backoff *backoff // kept by the next incarnation
	kick    chan struct{}

	stop     context.CancelFunc // ends watch; nil while it does not run
	inFlight sync.WaitGroup     // probes that use the engine

	detecting chan struct{} // full during a detection

	mu      sync.Mutex // also held while the sinks are told, so that nothing comes after TargetRemoved
	retired bool
	told    result.Target
	state   detection
}

// detection is what is known about the detection of a target.
type detection struct {
	checked time.Time // of the last attempt; zero: none yet
	worked  bool      // at least once
	err     error     // of the last attempt
}

func newTarget(c config.Target, e Engine, s sinks, logger log.Logger) *target {
	return &target{
		config: c, engine: e, sinks: s,
		logger:    log.With(logger, "target", c.Name),
		slots:     newSlots(defaultConcurrencyPerTarget),
		backoff:   &backoff{},
		kick:      make(chan struct{}, 1),
		detecting: make(chan struct{}, 1),
	}
}

// inherit takes over from the incarnation before.
func (t *target) inherit(old *target) {
	t.slots, t.backoff = old.slots, old.backoff
	old.mu.Lock()
	defer old.mu.Unlock()
	if old.told.URL == t.describe(t.engine.Facts()).URL {
		t.told = old.told
	}
}

// sameEngine reports whether a configuration speaks to the target in the same way as another.
func sameEngine(a, b config.Target) bool {
	for _, c := range []*config.Target{&a, &b} {
		c.Scenarios, c.Require, c.Price = nil, nil, config.Price{}
	}
	return reflect.DeepEqual(a, b)
}

// describe returns a target as the sinks see it.
func (t *target) describe(f engine.Facts) result.Target {
	return result.Target{
		Name: t.config.Name, URL: publicURL(t.config.URL),
		Engine: f.Engine, Version: f.Version, Model: f.Model, Protocol: f.Protocol,
	}
}

// publicURL returns a URL without what may be secret in it.
func publicURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// announce tells the sinks what is configured, unless an incarnation before told more.
func (t *target) announce() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.told == (result.Target{}) {
		t.tell(t.engine.Facts())
	}
}

// tell tells the sinks what is known, if that is new. The caller holds the lock.
func (t *target) tell(f engine.Facts) {
	d := t.describe(f)
	if t.retired || d == t.told {
		return
	}
	t.told = d
	t.sinks.targetFound(d)
}

// retire ends the life of this incarnation: the sinks hear no more of it, and its connections are closed when the
// last probe ends. gone says that no other one follows.
func (t *target) retire(gone bool) {
	if t.stop != nil {
		t.stop()
	}
	t.mu.Lock()
	t.retired = true
	if gone {
		t.sinks.targetRemoved(t.config.Name)
	}
	t.mu.Unlock()
}

// closeWhenIdle closes the connections after the last probe.
func (t *target) closeWhenIdle() {
	t.inFlight.Wait()
	t.engine.Close()
}

// watch detects the target until ctx ends: with growing pauses until it works, then every few minutes and when an
// answer says that something changed.
func (t *target) watch(ctx context.Context) {
	tries := 0
	for ctx.Err() == nil {
		pause := exponential(redetectInterval, redetectInterval, 0)
		if err := t.detect(ctx, 0); err != nil {
			pause = exponential(detectRetryFirst, detectRetryMost, tries)
			tries++
		} else {
			tries = 0
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-t.kick:
			// Many probes may ask at once, and a model that stays missing asks with each: one attempt in a while.
			sleep(ctx, detectRetryFirst)
		}
		timer.Stop()
	}
}

// changed asks for a detection soon.
func (t *target) changed() {
	select {
	case t.kick <- struct{}{}:
	default:
	}
}

// detect finds out what the target is, unless that was tried less than fresh ago. One detection runs at a time.
func (t *target) detect(ctx context.Context, fresh time.Duration) error {
	select {
	case t.detecting <- struct{}{}:
		defer func() { <-t.detecting }()
	case <-ctx.Done():
		return ctx.Err()
	}
	t.mu.Lock()
	last := t.state
	t.mu.Unlock()
	if fresh > 0 && !last.checked.IsZero() && time.Since(last.checked) < fresh {
		return last.err
	}
	limited, cancel := context.WithTimeout(ctx, detectTimeout)
	defer cancel()
	facts, err := t.safeDetect(limited)
	if ctx.Err() != nil {
		return ctx.Err() // it says nothing about the target
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state = detection{checked: time.Now(), worked: last.worked || err == nil, err: err}
	t.logDetection(last, facts, err)
	if err == nil {
		t.tell(facts)
	}
	return err
}

func (t *target) safeDetect(ctx context.Context) (f engine.Facts, err error) {
	defer func() {
		if r := recover(); r != nil {
			level.Error(t.logger).Log("msg", "detection panicked", "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("internal error: detection panicked: %v", r)
		}
	}()
	return t.engine.Detect(ctx)
}

// logDetection logs what is new. The caller holds the lock.
func (t *target) logDetection(last detection, f engine.Facts, err error) {
	switch {
	case err != nil && (last.err == nil || last.checked.IsZero()):
		level.Warn(t.logger).Log("msg", "the target could not be detected; it is probed with what is known, and detection goes on",
			"url", publicURL(t.config.URL), "err", err)
	case err != nil:
		level.Debug(t.logger).Log("msg", "the target could still not be detected", "err", err)
	case last.err != nil || t.describe(f) != t.told:
		level.Info(t.logger).Log("msg", "target detected", "engine", f.Engine, "version", f.Version, "model", f.Model,
			"protocol", f.Protocol, "max_model_len", f.MaxModelLen)
	}
}

// ready waits for a first detection, and tries another one where the model is still unknown. When it does not work,
// the probe goes on with what is known: its failure says why.
func (t *target) ready(ctx context.Context) {
	t.mu.Lock()
	attempted := !t.state.checked.IsZero()
	t.mu.Unlock()
	if attempted && t.engine.Facts().Model != "" {
		return
	}
	_ = t.detect(ctx, detectTimeout)
}

// sleep waits for d or the end of ctx, and reports whether ctx goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
