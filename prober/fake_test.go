package prober

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/engine"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
	"github.com/llmcanary/llm_canary_exporter/prober/scenario"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeEngine answers after a while. Its fields may be changed under its lock.
type fakeEngine struct {
	mu      sync.Mutex
	name    string
	facts   engine.Facts
	detects int
	sent    []sentRequest
	closed  int

	down   error         // what Detect says
	takes  time.Duration // of each request
	detect func() (engine.Facts, error)

	detectTakes time.Duration                               // whatever its ctx says; not changed after the start
	answer      func(n int, r engine.Request) engine.Answer // nil: good answers
}

type sentRequest struct {
	at time.Time
	r  engine.Request
	t  config.Timeouts
}

func (e *fakeEngine) Detect(ctx context.Context) (engine.Facts, error) {
	time.Sleep(e.detectTakes)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.detects++
	if ctx.Err() != nil {
		return engine.Facts{}, ctx.Err()
	}
	if e.detect != nil {
		f, err := e.detect()
		if err == nil {
			e.facts = f
		}
		return f, err
	}
	if e.down != nil {
		return engine.Facts{}, e.down
	}
	e.facts.Engine, e.facts.Protocol = "vllm", "openai_chat"
	if e.facts.Model == "" {
		e.facts.Model = "m"
	}
	return e.facts, nil
}

func (e *fakeEngine) Facts() engine.Facts {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.facts
}

func (e *fakeEngine) CountTokens(context.Context, string) (int, bool) { return 0, false }

func (e *fakeEngine) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed++
}

func (e *fakeEngine) Send(ctx context.Context, r engine.Request, t config.Timeouts) engine.Answer {
	start := time.Now()
	e.mu.Lock()
	n := len(e.sent)
	e.sent = append(e.sent, sentRequest{start, r, t})
	takes, answer := e.takes, e.answer
	e.mu.Unlock()
	if !sleep(ctx, takes) {
		return failed(r, result.ReasonCanceled, 0)
	}
	if answer != nil {
		a := answer(n, r)
		a.StartTime = start
		return a
	}
	a := good(r)
	a.StartTime = start
	return a
}

func (e *fakeEngine) requests() []sentRequest {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.sent)
}

func (e *fakeEngine) set(f func(*fakeEngine)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f(e)
}

func good(r engine.Request) engine.Answer {
	return engine.Answer{Request: result.Request{
		Variant: r.Variant, Outcome: result.Success, FinishReason: "length", HTTPStatus: 200,
		PromptTokens: result.Ptr(100), CompletionTokens: result.Ptr(r.MaxTokens), TokenCountSource: result.CountUsage,
		TimeToFirstTokenSeconds: result.Ptr(0.1), TimePerOutputTokenSeconds: result.Ptr(0.01), E2ELatencySeconds: result.Ptr(0.5),
	}}
}

func failed(r engine.Request, why result.Reason, status int) engine.Answer {
	return engine.Answer{Request: result.Request{
		Variant: r.Variant, Outcome: result.Failure, Reason: why, HTTPStatus: status, Detail: "it failed",
	}}
}

// recorder is a sink that remembers.
type recorder struct {
	mu       sync.Mutex
	calls    []string
	added    []result.Pair
	found    []result.Target
	probes   []*result.Probe
	skips    []result.Skip
	running  map[string]int
	panicky  bool
	keepNone bool // counts alone
	finished int
}

func (r *recorder) call(parts ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.keepNone {
		r.calls = append(r.calls, strings.Join(parts, " "))
	}
	if r.panicky {
		panic("sink out of order")
	}
}

func (r *recorder) PairAdded(p result.Pair) {
	r.mu.Lock()
	r.added = append(r.added, p)
	r.mu.Unlock()
	r.call("PairAdded", p.Target, p.Scenario)
}
func (r *recorder) PairRemoved(t, s string) { r.call("PairRemoved", t, s) }
func (r *recorder) TargetFound(t result.Target) {
	r.mu.Lock()
	r.found = append(r.found, t)
	r.mu.Unlock()
	r.call("TargetFound", t.Name)
}
func (r *recorder) TargetRemoved(n string) { r.call("TargetRemoved", n) }
func (r *recorder) ProbeStarted(t, s string) {
	r.mu.Lock()
	if r.running == nil {
		r.running = map[string]int{}
	}
	r.running[t+"/"+s]++
	r.mu.Unlock()
	r.call("ProbeStarted", t, s)
}

func (r *recorder) ProbeFinished(p *result.Probe) {
	r.mu.Lock()
	r.running[p.Target+"/"+p.Scenario]--
	r.finished++
	if !r.keepNone {
		r.probes = append(r.probes, p)
	}
	r.mu.Unlock()
	r.call("ProbeFinished", p.Target, p.Scenario)
}

func (r *recorder) ProbeSkipped(s result.Skip) {
	r.mu.Lock()
	if !r.keepNone {
		r.skips = append(r.skips, s)
	}
	r.mu.Unlock()
	r.call("ProbeSkipped", s.Target, s.Scenario)
}

func (r *recorder) of(target, scenario string) []*result.Probe {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*result.Probe
	for _, p := range r.probes {
		if p.Target == target && p.Scenario == scenario {
			out = append(out, p)
		}
	}
	return out
}

func (r *recorder) skipped(why result.SkipReason) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, s := range r.skips {
		if s.Reason == why {
			n++
		}
	}
	return n
}

// house is a prober with fake engines and a recorder.
type house struct {
	*Prober
	rec     *recorder
	mu      sync.Mutex
	engines map[string][]*fakeEngine // incarnations by name of the target
	setUp   func(*fakeEngine)
	refuse  error
	logs    strings.Builder
	stop    context.CancelFunc
	ended   chan error
}

func newHouse(t *testing.T, setUp func(*fakeEngine), change ...func(*Options)) *house {
	t.Helper()
	h := &house{rec: &recorder{}, engines: map[string][]*fakeEngine{}, setUp: setUp, ended: make(chan error, 1)}
	o := Options{
		Sinks:     []Sink{h.rec},
		Logger:    log.NewLogfmtLogger(log.NewSyncWriter(&h.logs)),
		NewTarget: h.newTarget,
		Lookup:    lookup,
	}
	for _, f := range change {
		f(&o)
	}
	h.Prober = New(o)
	return h
}

func (h *house) newTarget(c config.Target) (Engine, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refuse != nil {
		return nil, h.refuse
	}
	e := &fakeEngine{name: c.Name, takes: time.Second}
	if c.Model != config.Auto {
		e.facts.Model = c.Model
	}
	if h.setUp != nil {
		h.setUp(e)
	}
	h.engines[c.Name] = append(h.engines[c.Name], e)
	return e, nil
}

func (h *house) engine(name string) *fakeEngine {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.engines[name]
	return list[len(list)-1]
}

// start runs the prober until end.
func (h *house) start() {
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	go func() { h.ended <- h.Run(ctx) }()
}

func (h *house) end(t *testing.T) {
	t.Helper()
	h.stop()
	if err := <-h.ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func (h *house) apply(t *testing.T, c *config.Config) {
	t.Helper()
	if err := h.Apply(c); err != nil {
		t.Fatalf("Apply: %v", err)
	}
}

// fakeScenario is one request, or whatever its type says.
type fakeScenario struct {
	run func(context.Context, *scenario.Env) scenario.Report
}

func (fakeScenario) Variants() []string         { return []string{"default"} }
func (fakeScenario) Checks() []result.CheckName { return nil }
func (fakeScenario) Cost(engine.Facts) scenario.Cost {
	return scenario.Cost{Requests: 1, PromptTokens: 10, OutputTokens: 5, Concurrency: 3}
}

func (s fakeScenario) Run(ctx context.Context, e *scenario.Env) scenario.Report { return s.run(ctx, e) }

func request(ctx context.Context, e *scenario.Env) engine.Answer {
	return e.Send(ctx, engine.Request{
		Variant: "default", MaxTokens: 5, Messages: []engine.Message{{Role: engine.User, Text: "hi"}}, Seed: e.Rand.Int64(), CacheSalt: e.Nonce,
	})
}

func single(ctx context.Context, e *scenario.Env) scenario.Report {
	return scenario.Report{Requests: []result.Request{request(ctx, e).Request}}
}

// types are the types of the tests beside the real ones.
func types() map[string]scenario.Type {
	row := func(name string, interval time.Duration, poisson bool, run func(context.Context, *scenario.Env) scenario.Report) scenario.Type {
		return scenario.Type{
			Name: name, Interval: interval, Poisson: poisson,
			New: func(c config.Scenario) (scenario.Scenario, error) {
				if c.MaxTokens < 0 {
					return nil, config.Errorf("max_tokens", "must be positive")
				}
				return fakeScenario{run}, nil
			},
		}
	}
	list := []scenario.Type{
		row("even", time.Minute, false, single),
		row("random", time.Minute, true, single),
		row("off", 0, false, single),
		row("panics", time.Minute, false, func(context.Context, *scenario.Env) scenario.Report { panic("what a day") }),
		row("cannot", time.Hour, false, func(ctx context.Context, e *scenario.Env) scenario.Report {
			a := request(ctx, e)
			a.Outcome, a.Detail = result.Unsupported, "no vision"
			return scenario.Report{Requests: []result.Request{a.Request}}
		}),
		row("wrong", time.Minute, false, func(ctx context.Context, e *scenario.Env) scenario.Report {
			r := single(ctx, e)
			r.Checks = []result.Check{{Variant: "v", Name: "fine", OK: true}, {Variant: "v", Name: "needle", Detail: "not\nfound"}}
			return r
		}),
		row("idle", time.Minute, false, func(context.Context, *scenario.Env) scenario.Report { return scenario.Report{} }),
	}
	out := map[string]scenario.Type{}
	for _, t := range list {
		out[t.Name] = t
	}
	return out
}

func lookup(name string) (scenario.Type, bool) {
	if t, ok := types()[name]; ok {
		return t, true
	}
	return scenario.Lookup(name)
}

// conf is a configuration of targets, each with every scenario.
func conf(targets []string, scenarios ...config.Scenario) *config.Config {
	c := &config.Config{Global: config.Global{
		MaxConcurrentProbes: 16, MaxConcurrentProbesPerTarget: 4, ShutdownGrace: model.Duration(10 * time.Second), Seed: 7,
		Timeouts: config.Timeouts{Timeout: model.Duration(time.Minute)},
	}}
	c.Scenarios = scenarios
	for _, n := range targets {
		t := config.Target{Name: n, URL: "http://user:secret@" + n + ".example:8000/?key=secret", Model: config.Auto, Protocol: config.Auto, Engine: config.Auto}
		for _, s := range scenarios {
			t.Scenarios = append(t.Scenarios, s.Name)
		}
		c.Targets = append(c.Targets, t)
	}
	return c
}

func sc(typ string, interval time.Duration) config.Scenario {
	return config.Scenario{Name: typ, Type: typ, Interval: model.Duration(interval)}
}

var errDown = errors.New("connection refused")
