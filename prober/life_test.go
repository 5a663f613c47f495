package prober

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llmcanary/llm_canary_exporter/prober/engine"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

func TestShutdownLetsProbesFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(e *fakeEngine) { e.takes = 8 * time.Second })
		h.apply(t, conf([]string{"a"}, sc("even", time.Minute)))
		h.start()
		for len(h.engine("a").requests()) == 0 {
			time.Sleep(time.Second)
		}
		at := time.Now()
		h.end(t)
		if d := time.Since(at); d < 6*time.Second || d > 8*time.Second {
			t.Errorf("it took %s to end, the probe's rest was about 7 s", d)
		}
		if p := h.rec.of("a", "even"); len(p) != 1 || p[0].Outcome != result.Success {
			t.Errorf("the running probe: %v", p)
		}
		if h.engine("a").closed != 1 {
			t.Error("the client is still open")
		}
		if err := h.Apply(conf([]string{"a"}, sc("even", time.Minute))); !errors.Is(err, errStopping) {
			t.Errorf("a configuration was taken after the end: %v", err)
		}
		if err := h.Run(context.Background()); !errors.Is(err, errTwice) {
			t.Errorf("it ran twice: %v", err)
		}
	})
}

func TestShutdownCutsWhatOutlastsTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(e *fakeEngine) { e.takes = time.Hour })
		h.apply(t, conf([]string{"a"}, sc("even", time.Minute)))
		h.start()
		time.Sleep(5 * time.Minute)
		at := time.Now()
		h.end(t)
		if d := time.Since(at); d != 10*time.Second {
			t.Errorf("it took %s to end with a grace of 10 s", d)
		}
		if n := len(h.rec.of("a", "even")); n != 0 || h.rec.skipped(result.SkipShutdown) != 1 {
			t.Errorf("%d results and %d skips of the probe that we cut", n, h.rec.skipped(result.SkipShutdown))
		}
	})
}

func TestShutdownWhileWaitingForASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(e *fakeEngine) { e.takes = time.Hour })
		c := conf([]string{"a"}, sc("even", time.Hour), sc("wrong", time.Hour))
		c.Global.MaxConcurrentProbesPerTarget = 1
		h.apply(t, c)
		h.start()
		time.Sleep(time.Hour)
		h.end(t)
		if n := len(h.engine("a").requests()); n != 1 || h.rec.skipped(result.SkipShutdown) != 2 {
			t.Errorf("%d requests, %d skips; want one that was cut and one that had waited", n, h.rec.skipped(result.SkipShutdown))
		}
	})
}

func TestTargetThatIsDownIsProbedFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(e *fakeEngine) {
			e.down = errDown
			e.answer = func(_ int, r engine.Request) engine.Answer { return failed(r, result.ReasonConnect, 0) }
		})
		h.apply(t, conf([]string{"a"}, sc("even", time.Minute)))
		h.start()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		probes := h.rec.of("a", "even")
		if len(probes) < 9 || probes[0].Reason != result.ReasonConnect {
			t.Fatalf("%d probes of a target that is down", len(probes))
		}
		if f := h.rec.found; len(f) != 1 || f[0].URL != "http://a.example:8000/" || f[0].Engine != "" {
			t.Errorf("told of it: %v", f)
		}
		if s := h.Targets()[0]; s.Detected || !errors.Is(s.Err, errDown) || s.Checked.IsZero() {
			t.Errorf("state: %+v", s)
		}
		h.engine("a").set(func(e *fakeEngine) { e.down, e.answer = nil, nil })
		time.Sleep(90 * time.Second)
		synctest.Wait()
		if f := h.rec.found; len(f) != 2 || f[1].Engine != "vllm" || f[1].Model != "m" {
			t.Errorf("after it came up: %v", f)
		}
		if s := h.Targets()[0]; !s.Detected || s.Err != nil || s.Model != "m" {
			t.Errorf("state: %+v", s)
		}
		h.end(t)
	})
}

func TestDetectionAttemptsAreSpaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(e *fakeEngine) { e.down = errDown; e.facts.Model = "configured" })
		h.apply(t, conf([]string{"a"}, sc("even", time.Hour)))
		h.start()
		time.Sleep(time.Hour)
		e := h.engine("a")
		e.mu.Lock()
		failing := e.detects
		e.down = nil
		e.mu.Unlock()
		if failing < 50 || failing > 66 {
			t.Errorf("%d attempts in an hour of failures, want about one a minute", failing)
		}
		time.Sleep(10 * time.Hour)
		e.mu.Lock()
		n := e.detects - failing
		e.mu.Unlock()
		if n < 100 || n > 125 {
			t.Errorf("%d detections in ten hours, want one in five minutes", n)
		}
		h.end(t)
	})
}

func TestMissingModelIsLookedForSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		h.apply(t, conf([]string{"a"}, sc("even", time.Minute)))
		h.start()
		// Between the second detection (5 to 6 minutes after the first) and the third (10 to 12).
		time.Sleep(6*time.Minute + 30*time.Second)
		e := h.engine("a")
		e.set(func(e *fakeEngine) {
			e.detect = func() (engine.Facts, error) { return engine.Facts{Engine: "vllm", Version: "2", Model: "new"}, nil }
			e.answer = func(_ int, r engine.Request) engine.Answer {
				if e.facts.Model == "new" {
					return good(r)
				}
				return failed(r, result.ReasonModelNotFound, 404)
			}
		})
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if f := h.rec.found[len(h.rec.found)-1]; f.Model != "new" || f.Version != "2" {
			t.Errorf("told of %+v", f)
		}
		probes := h.rec.of("a", "even")
		if n := len(slices.DeleteFunc(probes, func(p *result.Probe) bool { return p.Outcome == result.Success })); n != 1 {
			t.Errorf("%d probes failed for want of the model", n)
		}
		h.end(t)
	})
}

func TestFirstProbeWaitsForDetection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		c := conf([]string{"a"}, sc("even", time.Minute))
		h.apply(t, c)
		if p, err := h.Probe(context.Background(), "a", "even"); err != nil || p.Outcome != result.Success {
			t.Errorf("%v, %v", p, err)
		}
		if h.engine("a").detects != 1 || h.Targets()[0].Model != "m" {
			t.Errorf("%d detections before the first probe", h.engine("a").detects)
		}
		h.Close()
	})
}

func TestPanickingDetectionIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(e *fakeEngine) { e.detect = func() (engine.Facts, error) { panic("odd server") } })
		h.apply(t, conf([]string{"a"}, sc("even", time.Minute)))
		h.start()
		time.Sleep(5 * time.Minute)
		h.end(t)
		if len(h.rec.of("a", "even")) < 4 || h.Targets()[0].Err == nil {
			t.Error("probing stopped, or the error is not shown")
		}
	})
}
