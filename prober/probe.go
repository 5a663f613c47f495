package prober

import (
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/go-kit/log/level"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/engine"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
	"github.com/llmcanary/llm_canary_exporter/prober/scenario"
)

// idPrefix makes the canary's requests recognisable in a server's log.
const idPrefix = "llm-canary-"

// detailMost bounds the length of a detail.
const detailMost = 500

// scheduled runs a probe of the cadence and tells the sinks.
func (p *Prober) scheduled(pr *pair, due time.Time) {
	s := pr.state
	s.deliver(func() { p.sinks.started(pr.id.target, pr.id.scenario) })
	probe := p.probe(s.ctx, pr, due)
	if s.ctx.Err() != nil {
		// Cut short by us: that says nothing about the target. A removed pair hears nothing at all.
		p.skip(pr, result.SkipShutdown, "the daemon stopped before the probe ended")
		return
	}
	s.deliver(func() {
		p.sinks.finished(probe)
		p.log(pr, probe)
	})
}

// probe runs a scenario once against a target. It is the one way in which that is done. scheduled is when the cadence
// wanted it, zero if none did.
func (p *Prober) probe(ctx context.Context, pr *pair, scheduled time.Time) *result.Probe {
	s, t := pr.state, pr.target
	t.ready(ctx)
	facts := t.engine.Facts()
	number := s.number.Add(1) - 1
	env := &scenario.Env{
		Sender: sender{target: t, timeouts: pr.spec.timeouts},
		Facts:  facts,
		Sizer:  s.sizerFor(facts),
		Tokens: t.engine,
		Rand:   p.random(pr.id, number),
		Number: number,
		Nonce:  randomHex(16),
	}
	probe := &result.Probe{
		Target: pr.id.target, Scenario: pr.id.scenario, Type: pr.spec.typ.Name,
		ID: idPrefix + randomHex(8),
	}
	if p.options.Load != nil {
		probe.EngineRequestsRunning, probe.EngineRequestsWaiting = p.options.Load.Load(pr.id.target)
	}
	start := time.Now()
	probe.StartTime = start.Round(0)
	if !scheduled.IsZero() {
		probe.ScheduleLagSeconds = result.Ptr(max(0, start.Sub(scheduled).Seconds()))
	}
	report := p.run(ctx, pr, probe.ID, env)
	probe.DurationSeconds = time.Since(start).Seconds()
	fill(probe, report, pr.required)
	p.windows(probe)
	s.learn(probe, facts, time.Now())
	return probe
}

// random returns the source of a probe's prompts: a function of the seed, the pair and the number.
func (p *Prober) random(id key, number uint64) *rand.Rand {
	return rand.New(rand.NewPCG(hash64("probe", strconv.FormatUint(p.seed.Load(), 16), id.target, id.scenario), number))
}

// run runs the scenario; a panic in it becomes a failed probe.
func (p *Prober) run(ctx context.Context, pr *pair, id string, env *scenario.Env) (r scenario.Report) {
	defer func() {
		if x := recover(); x != nil {
			level.Error(p.logger).Log("msg", "a scenario panicked; this is a fault of the exporter, please report it",
				"target", pr.id.target, "scenario", pr.id.scenario, "id", id, "panic", x, "stack", string(debug.Stack()))
			r = scenario.Report{
				Outcome: result.Failure, Reason: result.ReasonInternal,
				Detail: "internal error: the scenario panicked; the log has the stack",
			}
		}
	}()
	return pr.spec.scenario.Run(ctx, env)
}

// fill puts what the scenario reported into the result, and judges it.
func fill(p *result.Probe, r scenario.Report, required bool) {
	p.Requests, p.Checks, p.Values = r.Requests, r.Checks, r.Values
	if p.Requests == nil {
		p.Requests = []result.Request{}
	}
	p.Outcome, p.Reason, p.Detail = judge(r)
	if p.Outcome == result.Unsupported {
		p.Reason = result.ReasonNone
		if required {
			p.Outcome, p.Reason = result.Failure, result.ReasonUnsupported
			p.Detail = "required by the configuration, but the target cannot do it: " + p.Detail
		}
	}
	p.Detail = clean(p.Detail)
	for i := range p.Requests {
		p.Requests[i].Detail = clean(p.Requests[i].Detail)
	}
	for i := range p.Checks {
		p.Checks[i].Detail = clean(p.Checks[i].Detail)
	}
}

// judge says how a probe ended: as the scenario says, else as its first failed request did, else by its checks.
func judge(r scenario.Report) (result.Outcome, result.Reason, string) {
	if r.Outcome != "" {
		reason := r.Reason
		if r.Outcome == result.Failure && reason == result.ReasonNone {
			reason = result.ReasonInternal
		}
		return r.Outcome, reason, r.Detail
	}
	for _, q := range r.Requests {
		if q.Outcome == result.Failure {
			return result.Failure, q.Reason, inVariant(q.Variant, q.Detail)
		}
	}
	for _, q := range r.Requests {
		if q.Outcome == result.Unsupported {
			return result.Unsupported, result.ReasonNone, inVariant(q.Variant, q.Detail)
		}
	}
	for _, c := range r.Checks {
		if !c.OK {
			return result.Failure, result.ReasonWrongAnswer, inVariant(c.Variant, "check "+c.Name+": "+c.Detail)
		}
	}
	if len(r.Requests) == 0 {
		return result.Failure, result.ReasonInternal, "internal error: the scenario sent nothing"
	}
	return result.Success, result.ReasonNone, ""
}

// inVariant names the variant, where there is more than the default one.
func inVariant(variant, detail string) string {
	if variant == "" || variant == "default" {
		return detail
	}
	return "variant " + variant + ": " + detail
}

// clean makes a detail fit for one line of a log: a target's words may be in it.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if len(s) <= detailMost {
		return s
	}
	cut := s[:detailMost]
	return strings.ToValidUTF8(cut, "") + "…"
}

// windows asks what the GPUs and the KV cache did while each request ran.
func (p *Prober) windows(probe *result.Probe) {
	if p.options.Windows == nil {
		return
	}
	for i := range probe.Requests {
		q := &probe.Requests[i]
		if q.StartTime.IsZero() || q.E2ELatencySeconds == nil {
			continue
		}
		end := q.StartTime.Add(time.Duration(*q.E2ELatencySeconds * float64(time.Second)))
		q.Window = p.options.Windows.Window(probe.Target, q.StartTime, end)
	}
}

// sender sends a probe's requests, and lets the target learn from the answers.
type sender struct {
	target   *target
	timeouts config.Timeouts
}

func (s sender) Send(ctx context.Context, r engine.Request) engine.Answer {
	sent := time.Now()
	a := s.target.engine.Send(ctx, r, s.timeouts)
	s.target.backoff.observe(a, sent, time.Now())
	if a.Reason == result.ReasonModelNotFound || hasAnomaly(a, result.AnomalyModelMismatch) {
		s.target.changed()
	}
	return a
}

func hasAnomaly(a engine.Answer, want result.Anomaly) bool {
	for _, x := range a.Anomalies {
		if x == want {
			return true
		}
	}
	return false
}

// randomHex returns n random bytes in hex. They never repeat, whatever the seed.
func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = crand.Read(b) // never fails: it ends the process instead
	return hex.EncodeToString(b)
}

// Probe runs one probe now, outside of the cadence, with the same code. It waits for a slot until ctx ends. A scenario
// that the target is not configured for, or that is off, runs as well. The result goes to the caller alone: sinks hear
// of the cadence's probes, so that their counters have the cadence's rate.
func (p *Prober) Probe(ctx context.Context, target, scenario string) (*result.Probe, error) {
	pr, done, err := p.oneShot(key{target, scenario})
	if err != nil {
		return nil, err
	}
	defer done()
	release, err := p.acquire(ctx, pr.target)
	if err != nil {
		return nil, fmt.Errorf("target %s, scenario %s: no slot became free (max_concurrent_probes): %w", target, scenario, err)
	}
	defer release()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(pr.state.ctx, cancel)()
	return p.probe(ctx, pr, time.Time{}), nil
}

// oneShot returns the pair for a probe outside of the cadence, and what to call when it has ended.
func (p *Prober) oneShot(id key) (pr *pair, done func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return nil, nil, errStopping
	}
	t := p.targets[id.target]
	if t == nil {
		return nil, nil, fmt.Errorf("there is no target %q in the configuration", id.target)
	}
	sp := p.specs[id.scenario]
	if sp == nil {
		return nil, nil, fmt.Errorf("there is no scenario %q: configured and built in are %s", id.scenario, strings.Join(p.scenarioNames(), ", "))
	}
	if pr = p.pairs[id]; pr == nil {
		if pr = p.extra[id]; pr == nil {
			pr = newPair(t, sp, false)
			pr.state = &pairState{ctx: p.probes, cancel: func() {}}
			p.extra[id] = pr
		}
	}
	t.inFlight.Add(1)
	p.wg.Add(1)
	return pr, func() { t.inFlight.Done(); p.wg.Done() }, nil
}
