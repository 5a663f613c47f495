package prober

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/engine"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
	"github.com/llmcanary/llm_canary_exporter/prober/scenario"
)

func TestJudge(t *testing.T) {
	ok := result.Request{Variant: "default", Outcome: result.Success}
	slow := result.Request{Variant: "8k", Outcome: result.Failure, Reason: result.ReasonTimeoutStall, Detail: "no output for 10 s"}
	reset := result.Request{Variant: "default", Outcome: result.Failure, Reason: result.ReasonConnectionReset, Detail: "reset"}
	cannot := result.Request{Variant: "image", Outcome: result.Unsupported, Detail: "no vision"}
	wrong := result.Check{Variant: "8k", Name: "needle", Detail: "not found"}
	tests := []struct {
		name     string
		r        scenario.Report
		required bool
		outcome  result.Outcome
		reason   result.Reason
		detail   string
	}{
		{"good", scenario.Report{Requests: []result.Request{ok}, Checks: []result.Check{{Name: "c", OK: true}}}, false, result.Success, "", ""},
		{"the first failed request", scenario.Report{Requests: []result.Request{ok, slow, reset}}, false, result.Failure, result.ReasonTimeoutStall, "variant 8k: no output for 10 s"},
		{"the default variant goes without saying", scenario.Report{Requests: []result.Request{reset}}, false, result.Failure, result.ReasonConnectionReset, "reset"},
		{"a failed check", scenario.Report{Requests: []result.Request{ok}, Checks: []result.Check{wrong}}, false, result.Failure, result.ReasonWrongAnswer, "variant 8k: check needle: not found"},
		{"a failed request comes before a check", scenario.Report{Requests: []result.Request{slow}, Checks: []result.Check{wrong}}, false, result.Failure, result.ReasonTimeoutStall, "variant 8k: no output for 10 s"},
		{"unsupported", scenario.Report{Requests: []result.Request{ok, cannot}}, false, result.Unsupported, "", "variant image: no vision"},
		{"unsupported, required", scenario.Report{Requests: []result.Request{ok, cannot}}, true, result.Failure, result.ReasonUnsupported, "required by the configuration, but the target cannot do it: variant image: no vision"},
		{"a failure is no proof of being unsupported", scenario.Report{Requests: []result.Request{cannot, slow}}, true, result.Failure, result.ReasonTimeoutStall, "variant 8k: no output for 10 s"},
		{"as the scenario says", scenario.Report{Outcome: result.Failure, Reason: result.ReasonWrongAnswer, Detail: "d", Requests: []result.Request{ok}}, false, result.Failure, result.ReasonWrongAnswer, "d"},
		{"a failure without a reason", scenario.Report{Outcome: result.Failure}, false, result.Failure, result.ReasonInternal, ""},
		{"nothing sent", scenario.Report{}, false, result.Failure, result.ReasonInternal, "internal error: the scenario sent nothing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var p result.Probe
			fill(&p, tt.r, tt.required)
			if p.Outcome != tt.outcome || p.Reason != tt.reason || p.Detail != tt.detail {
				t.Errorf("got %s, %q, %q; want %s, %q, %q", p.Outcome, p.Reason, p.Detail, tt.outcome, tt.reason, tt.detail)
			}
			if p.Requests == nil {
				t.Error("requests are null in JSON")
			}
		})
	}
}

func TestDetailsAreOneShortLine(t *testing.T) {
	got := clean("a\nb\x1b[31m\xff" + strings.Repeat("é", 400))
	if len(got) > detailMost+len("…") || !strings.HasSuffix(got, "…") || !strings.HasPrefix(got, "a b [31m\uFFFD") || strings.ContainsAny(got, "\n\x1b") || strings.Contains(got, "\xff") {
		t.Errorf("got %q (%d bytes)", got, len(got))
	}
}

// once applies a configuration and returns a probe outside of any cadence.
func once(t *testing.T, h *house, c *config.Config, name string) *result.Probe {
	t.Helper()
	h.apply(t, c)
	defer h.Close()
	p, err := h.Probe(context.Background(), "a", name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPanicIsAFailedProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		h.apply(t, conf([]string{"a"}, sc("panics", time.Minute), sc("even", time.Minute)))
		h.start()
		time.Sleep(10 * time.Minute)
		h.end(t)
		bad, fine := h.rec.of("a", "panics"), h.rec.of("a", "even")
		if len(bad) < 9 || len(fine) < 9 {
			t.Fatalf("%d and %d probes in ten minutes", len(bad), len(fine))
		}
		if bad[0].Reason != result.ReasonInternal || bad[0].Outcome != result.Failure || strings.Contains(bad[0].Detail, "what a day") {
			t.Errorf("%+v", bad[0])
		}
		if !strings.Contains(h.logs.String(), "what a day") {
			t.Error("the log has no trace of the panic")
		}
	})
}

func TestPanickingSinkDoesNotStopProbing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, fine := &recorder{panicky: true}, &recorder{}
		h := newHouse(t, nil, func(o *Options) { o.Sinks = []Sink{broken, fine} })
		h.apply(t, conf([]string{"a"}, sc("even", time.Minute)))
		h.start()
		time.Sleep(10 * time.Minute)
		h.end(t)
		if n := len(fine.of("a", "even")); n < 9 {
			t.Errorf("the sink behind the broken one got %d probes", n)
		}
	})
}

type hooks struct{ asked []time.Duration }

func (*hooks) Load(string) (running, waiting *float64) { return result.Ptr(3.0), nil }

func (h *hooks) Window(_ string, from, to time.Time) result.Window {
	h.asked = append(h.asked, to.Sub(from))
	return result.Window{KVCacheUsagePeakRatio: result.Ptr(0.5)}
}

func TestResultIsAssembled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &hooks{}
		h := newHouse(t, nil, func(o *Options) { o.Load, o.Windows = x, x })
		begin := time.Now()
		p := once(t, h, conf([]string{"a"}, sc("wrong", time.Minute)), "wrong")
		if p.Target != "a" || p.Scenario != "wrong" || p.Type != "wrong" || !strings.HasPrefix(p.ID, "llm-canary-") || len(p.ID) != 27 {
			t.Errorf("named %+v", p)
		}
		if !p.StartTime.Equal(begin) || p.DurationSeconds != 1 || p.ScheduleLagSeconds != nil {
			t.Errorf("times: %s, %v, %v", p.StartTime, p.DurationSeconds, p.ScheduleLagSeconds)
		}
		if p.Reason != result.ReasonWrongAnswer || p.Detail != "variant v: check needle: not found" || len(p.Checks) != 2 {
			t.Errorf("judged %q %q %v", p.Reason, p.Detail, p.Checks)
		}
		if p.EngineRequestsRunning == nil || *p.EngineRequestsRunning != 3 || p.EngineRequestsWaiting != nil {
			t.Errorf("load: %v, %v", p.EngineRequestsRunning, p.EngineRequestsWaiting)
		}
		if len(x.asked) != 1 || x.asked[0] != 500*time.Millisecond || *p.Requests[0].Window.KVCacheUsagePeakRatio != 0.5 {
			t.Errorf("windows asked for: %v", x.asked)
		}
		if len(h.rec.probes) != 0 || len(h.rec.running) != 0 {
			t.Error("sinks heard of a probe outside of the cadence")
		}
		if e := h.engine("a"); e.closed != 1 || e.sent[0].t.Timeout != conf(nil).Global.Timeout {
			t.Errorf("closed %d times, timeouts %+v", e.closed, e.sent[0].t)
		}
	})
}

func TestPromptsAreAFunctionOfTheSeed(t *testing.T) {
	seeds := func(seed uint64, n int) (out []int64, nonces map[string]bool) {
		synctest.Test(t, func(t *testing.T) {
			h := newHouse(t, nil)
			c := conf([]string{"a"}, sc("even", time.Minute))
			c.Global.Seed = seed
			h.apply(t, c)
			nonces = map[string]bool{}
			for range n {
				if _, err := h.Probe(context.Background(), "a", "even"); err != nil {
					t.Fatal(err)
				}
			}
			h.Close()
			for _, q := range h.engine("a").requests() {
				out = append(out, q.r.Seed)
				nonces[q.r.CacheSalt] = true
			}
		})
		return out, nonces
	}
	a, n1 := seeds(7, 5)
	b, n2 := seeds(7, 5)
	c, _ := seeds(8, 5)
	d, _ := seeds(0, 5)
	e, _ := seeds(0, 5)
	same := func(x, y []int64) bool {
		for i := range x {
			if x[i] != y[i] {
				return false
			}
		}
		return true
	}
	if !same(a, b) || same(a, c) || same(d, e) || a[0] == a[1] {
		t.Errorf("seeds %v, again %v, another %v, drawn %v and %v", a, b, c, d, e)
	}
	for n := range n2 {
		n1[n] = true
	}
	if len(n1) != 10 {
		t.Errorf("%d nonces of 10 probes of two processes with one seed", len(n1))
	}
}

func TestProbeByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		c := conf([]string{"a"}, sc("off", 0), sc("even", time.Minute))
		c.Targets[0].Scenarios = []string{"even"}
		h.apply(t, c)
		if got := h.Pairs(); len(got) != 1 || got[0].Scenario != "even" {
			t.Errorf("on a cadence: %v", got)
		}
		for range 3 {
			if p, err := h.Probe(context.Background(), "a", "off"); err != nil || p.Outcome != result.Success {
				t.Errorf("a scenario that is off, by name: %v, %v", p, err)
			}
		}
		if s := h.engine("a").requests(); s[0].r.Seed == s[1].r.Seed {
			t.Error("the same body was sent twice")
		}
		if _, err := h.Probe(context.Background(), "nobody", "off"); err == nil || !strings.Contains(err.Error(), `"nobody"`) {
			t.Errorf("unknown target: %v", err)
		}
		if _, err := h.Probe(context.Background(), "a", "nothing"); err == nil || !strings.Contains(err.Error(), "even, off") {
			t.Errorf("unknown scenario: %v", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		if p, err := h.Probe(ctx, "a", "even"); err != nil || p.Reason != result.ReasonCanceled {
			t.Errorf("cancelled by the caller: %v, %v", p, err)
		}
		h.Close()
		if _, err := h.Probe(context.Background(), "a", "even"); !errors.Is(err, errStopping) {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestRepeatedFailuresAreLoggedSparingly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(e *fakeEngine) {
			e.answer = func(n int, r engine.Request) engine.Answer {
				if n < 30 {
					return failed(r, result.ReasonConnect, 0)
				}
				return good(r)
			}
		})
		h.apply(t, conf([]string{"a"}, sc("even", time.Minute)))
		h.start()
		time.Sleep(time.Hour)
		h.end(t)
		logs := h.logs.String()
		if n := strings.Count(logs, `msg="probe failed"`); n < 5 || n > 8 {
			t.Errorf("%d lines about 30 failures in 30 minutes, want one in five minutes", n)
		}
		for _, want := range []string{"reason=connect", `detail="it failed"`, "target=a", "scenario=even", "id=llm-canary-", "same_not_logged=4"} {
			if !strings.Contains(logs, want) {
				t.Errorf("no %s in the log", want)
			}
		}
		if strings.Count(logs, `msg="probe works again"`) != 1 || !strings.Contains(logs, "failures=30") {
			t.Error("the log does not say that it works again, once, after 30 failures")
		}
		if strings.Contains(logs, "secret") {
			t.Error("a secret of the URL is in the log")
		}
	})
}
