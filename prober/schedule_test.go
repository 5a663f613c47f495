package prober

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llmcanary/llm_canary_exporter/prober/engine"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

func TestEvenCadenceDoesNotDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(e *fakeEngine) { e.takes = 7 * time.Second })
		h.apply(t, conf([]string{"a", "b"}, sc("even", time.Minute)))
		begin := time.Now()
		h.start()
		time.Sleep(24 * time.Hour)
		h.end(t)
		for _, name := range []string{"a", "b"} {
			place := phase(name, "even", time.Minute)
			sent := h.engine(name).requests()
			if n := len(sent); n < 1439 || n > 1440 {
				t.Errorf("%s: %d requests in a day of minutes", name, n)
			}
			for i, q := range sent {
				late := q.at.Sub(begin) - place - time.Duration(i)*time.Minute
				if late < 0 || late > 6*time.Second {
					t.Fatalf("%s: request %d is %s from its place", name, i, late)
				}
			}
		}
	})
}

func TestPoissonCadenceHasItsMean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(e *fakeEngine) { e.takes = time.Millisecond })
		h.apply(t, conf([]string{"a"}, sc("random", time.Minute)))
		h.start()
		time.Sleep(14 * 24 * time.Hour)
		h.end(t)
		n := len(h.engine("a").requests()) + h.rec.skipped(result.SkipOverlap)
		if want := 14 * 24 * 60.0; math.Abs(float64(n)-want) > 0.03*want {
			t.Errorf("%d ticks in two weeks, want %.0f ± 3 %%", n, want)
		}
	})
}

func TestSlowProbesAreSkippedAsOverlapAndDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(e *fakeEngine) { e.takes = 150 * time.Second })
		h.apply(t, conf([]string{"a"}, sc("even", time.Minute)))
		h.start()
		time.Sleep(time.Hour)
		h.end(t)
		probes := h.rec.of("a", "even")
		if n := len(probes); n < 19 || n > 20 {
			t.Errorf("%d probes of 150 s on a cadence of 60 s in an hour, want one for each three ticks", n)
		}
		if n := h.rec.skipped(result.SkipOverlap); n < 38 || n > 41 {
			t.Errorf("%d ticks were skipped, want two of three", n)
		}
		for _, p := range probes {
			if *p.ScheduleLagSeconds != 0 {
				t.Errorf("a probe started %v s late", *p.ScheduleLagSeconds)
			}
		}
	})
}

func TestWaitingForASlotIsLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(e *fakeEngine) { e.takes = 25 * time.Second })
		c := conf([]string{"a"}, sc("even", time.Minute), sc("random", time.Minute))
		c.Global.MaxConcurrentProbesPerTarget = 1
		h.apply(t, c)
		h.start()
		time.Sleep(time.Hour)
		h.end(t)
		most := 0.0
		for _, p := range append(h.rec.of("a", "even"), h.rec.of("a", "random")...) {
			most = max(most, *p.ScheduleLagSeconds)
		}
		if most == 0 || most > 25 {
			t.Errorf("the largest lag is %v s, want more than nothing and less than the other probe's 25 s", most)
		}
		sent := h.engine("a").requests()
		for i := range sent[1:] {
			if gap := sent[i+1].at.Sub(sent[i].at); gap < 25*time.Second {
				t.Fatalf("two requests %s apart with one slot and 25 s each", gap)
			}
		}
	})
}

func TestNoSlotBeforeTheNextTick(t *testing.T) {
	for _, which := range []string{"target", "global"} {
		t.Run(which, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t, func(e *fakeEngine) { e.takes = 10 * time.Minute })
				c := conf([]string{"a", "b"}, sc("even", time.Minute), sc("wrong", time.Minute))
				c.Global.MaxConcurrentProbesPerTarget = 1
				if which == "global" {
					c.Global.MaxConcurrentProbesPerTarget, c.Global.MaxConcurrentProbes = 4, 1
				}
				h.apply(t, c)
				h.start()
				time.Sleep(time.Hour)
				h.end(t)
				if h.rec.skipped(result.SkipConcurrency) == 0 {
					t.Error("no tick was skipped for want of a slot")
				}
				want := map[string]int{"target": 12, "global": 6}[which]
				if n := len(h.engine("a").requests()) + len(h.engine("b").requests()); n > want+2 || n < want-2 {
					t.Errorf("%d requests of ten minutes in an hour, want about %d", n, want)
				}
				h.slots.mu.Lock()
				defer h.slots.mu.Unlock()
				if h.slots.used != 0 || len(h.slots.waiting) != 0 {
					t.Errorf("%d slots are used and %d waited for after the end", h.slots.used, len(h.slots.waiting))
				}
			})
		})
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(e *fakeEngine) {
			e.answer = func(n int, r engine.Request) engine.Answer {
				if n > 0 {
					return good(r)
				}
				a := failed(r, result.ReasonHTTP429, 429)
				a.RetryAfter = 10 * time.Minute
				return a
			}
		})
		h.apply(t, conf([]string{"a", "b"}, sc("even", time.Minute), sc("wrong", time.Minute)))
		h.engine("b").set(func(e *fakeEngine) { e.answer = nil })
		h.start()
		time.Sleep(30 * time.Minute)
		h.end(t)
		sent := h.engine("a").requests()
		if gap := sent[1].at.Sub(sent[0].at); gap < 10*time.Minute || gap > 12*time.Minute {
			t.Errorf("the target was left alone for %s, it asked for 10 min", gap)
		}
		if n := h.rec.skipped(result.SkipBackoff); n < 18 || n > 21 {
			t.Errorf("%d ticks of two scenarios a minute were skipped in ten minutes", n)
		}
		if n := len(h.engine("b").requests()); n < 58 {
			t.Errorf("another target got %d requests of 60: a pause is one target's", n)
		}
	})
}

func TestBackoff(t *testing.T) {
	refusal := func(status int, why result.Reason, after time.Duration) engine.Answer {
		a := failed(engine.Request{}, why, status)
		a.RetryAfter = after
		return a
	}
	var b backoff
	now := day1
	pause := func() time.Duration {
		until, _, yes := b.active(now)
		if !yes {
			return 0
		}
		return until.Sub(now)
	}
	check := func(what string, least, most time.Duration) {
		t.Helper()
		if got := pause(); got < least || got > most {
			t.Errorf("%s: pause is %s, want %s to %s", what, got, least, most)
		}
	}
	for i, want := range []time.Duration{5, 10, 20, 40, 80, 160, 300, 300, 300} {
		want *= time.Second
		b.observe(refusal(503, result.ReasonHTTP503, 0), now, now)
		check("refusal "+string(rune('1'+i)), want, want*6/5)
		now = now.Add(pause() + time.Second)
	}
	b.observe(good(engine.Request{}), now, now)
	check("after a success", 0, 0)
	b.observe(refusal(429, result.ReasonHTTP429, 0), now, now)
	check("a success resets", 5*time.Second, 6*time.Second)

	// Eight requests of a burst are refused together: that is one refusal.
	sent := now
	for range 8 {
		now = now.Add(time.Millisecond)
		b.observe(refusal(429, result.ReasonHTTP429, 0), sent.Add(-time.Second), now)
	}
	check("a burst", 4*time.Second, 7*time.Second)
	b.observe(good(engine.Request{}), sent.Add(-time.Minute), now)
	if pause() == 0 {
		t.Error("a success that began before the refusal ended the pause")
	}
	b.observe(refusal(503, result.ReasonHTTP503, 48*time.Hour), now, now)
	check("an absurd Retry-After", time.Hour, time.Hour)
	b.observe(refusal(500, result.ReasonHTTP5xx, 0), now, now)
	check("a 500 changes nothing", time.Hour, time.Hour)
}

func TestUnsupportedIsTriedOnceADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		h.apply(t, conf([]string{"a"}, sc("cannot", time.Hour)))
		h.start()
		time.Sleep(10*24*time.Hour + time.Hour)
		if n := len(h.engine("a").requests()); n < 10 || n > 11 {
			t.Errorf("%d requests in ten days, want one a day", n)
		}
		if n := h.rec.skipped(result.SkipUnsupported); n < 228 || n > 232 {
			t.Errorf("%d skips in ten days of 24 ticks", n)
		}
		for _, p := range h.rec.of("a", "cannot") {
			if p.Outcome != result.Unsupported || p.Reason != "" || p.Detail != "no vision" {
				t.Fatalf("outcome %s, reason %q, detail %q", p.Outcome, p.Reason, p.Detail)
			}
		}
		// Another model may be able to do it: it is tried at the next tick after that is noticed.
		before := len(h.engine("a").requests())
		h.engine("a").set(func(e *fakeEngine) { e.facts.Model = "with eyes" })
		time.Sleep(70 * time.Minute)
		if n := len(h.engine("a").requests()) - before; n != 1 {
			t.Errorf("%d requests in the hour after the model changed, want 1", n)
		}
		h.end(t)
	})
}

func TestRequiredButUnsupportedFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		c := conf([]string{"a"}, sc("cannot", time.Hour))
		c.Targets[0].Require = []string{"cannot"}
		h.apply(t, c)
		h.start()
		time.Sleep(24 * time.Hour)
		h.end(t)
		probes := h.rec.of("a", "cannot")
		if len(probes) < 23 {
			t.Errorf("%d probes in a day of hours: what is required stays visible", len(probes))
		}
		for _, p := range probes {
			if p.Outcome != result.Failure || p.Reason != result.ReasonUnsupported {
				t.Fatalf("outcome %s, reason %q", p.Outcome, p.Reason)
			}
		}
	})
}

func TestCronScheduleRunsAtItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		s := sc("off", 0)
		s.Schedule = "0 3 * * *"
		h.apply(t, conf([]string{"a"}, s))
		h.start()
		time.Sleep(3 * 24 * time.Hour)
		h.end(t)
		sent := h.engine("a").requests()
		if len(sent) != 3 {
			t.Fatalf("%d probes in three days", len(sent))
		}
		for _, q := range sent {
			if at := q.at.Local(); at.Hour() != 3 || at.Minute() != 0 {
				t.Errorf("a probe at %s, want 03:00 local time", at)
			}
		}
		if p := h.rec.added[0]; p.Interval != 0 {
			t.Errorf("the pair's interval is %s, want none", p.Interval)
		}
	})
}
