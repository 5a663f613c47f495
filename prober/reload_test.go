package prober

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/common/model"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/engine"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
	"github.com/llmcanary/llm_canary_exporter/prober/scenario"
)

// sentAt runs a prober for six hours, with something done to it every hour, and returns when it sent what to a.
func sentAt(t *testing.T, hourly func(h *house, hour int)) (when []time.Duration, seeds []int64) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		h.apply(t, conf([]string{"a", "b"}, sc("even", time.Minute), sc("random", time.Minute)))
		begin := time.Now()
		h.start()
		for hour := range 6 {
			time.Sleep(time.Hour)
			hourly(h, hour)
		}
		h.end(t)
		for _, e := range h.engines["a"] {
			for _, q := range e.requests() {
				when = append(when, q.at.Sub(begin))
				seeds = append(seeds, q.r.Seed)
			}
		}
	})
	return when, seeds
}

func TestReloadKeepsThePhase(t *testing.T) {
	all := []config.Scenario{sc("even", time.Minute), sc("random", time.Minute)}
	quietWhen, quietSeeds := sentAt(t, func(*house, int) {})
	tests := map[string]func(h *house, hour int){
		"same configuration": func(h *house, _ int) { h.apply(t, conf([]string{"a", "b"}, all...)) },
		"another target":     func(h *house, n int) { h.apply(t, conf([]string{"a", fmt.Sprint("c", n)}, all...)) },
		"another scenario": func(h *house, n int) {
			h.apply(t, conf([]string{"a"}, append(slices.Clone(all), config.Scenario{Name: "x", Type: "off", MaxTokens: n})...))
		},
		"a changed target": func(h *house, n int) {
			c := conf([]string{"a", "b"}, all...)
			c.Targets[0].Engine = fmt.Sprint("engine", n)
			h.apply(t, c)
		},
		"refused configuration": func(h *house, n int) {
			h.refuse = errors.New("no")
			if err := h.Apply(conf([]string{"b", "new"}, sc("even", time.Hour))); err == nil {
				t.Error("it was taken")
			}
			if err := h.Apply(conf([]string{"b"}, sc("nothing of that type", time.Hour))); err == nil {
				t.Error("it was taken")
			}
		},
	}
	for name, hourly := range tests {
		t.Run(name, func(t *testing.T) {
			when, seeds := sentAt(t, hourly)
			if !slices.Equal(when, quietWhen) || !slices.Equal(seeds, quietSeeds) {
				t.Errorf("%d requests, %d without reloads; first ones at %v and %v", len(when), len(quietWhen), when[:5], quietWhen[:5])
			}
		})
	}
}

func TestReloadKeepsUnchangedTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		all := []config.Scenario{sc("even", time.Minute), sc("random", time.Minute)}
		h.apply(t, conf([]string{"a", "b", "c"}, all...))
		h.start()
		time.Sleep(time.Hour)
		h.rec.mu.Lock()
		h.rec.calls = nil
		h.rec.mu.Unlock()

		c := conf([]string{"a", "b", "d"}, all...)
		c.Targets[1].HTTPClient.FollowRedirects = true
		h.apply(t, c)
		synctest.Wait() // until the new target is detected: it is told as configured, and then as found
		h.rec.mu.Lock()
		got := slices.DeleteFunc(slices.Clone(h.rec.calls), func(s string) bool { return strings.HasPrefix(s, "Probe") })
		h.rec.mu.Unlock()
		slices.Sort(got)
		want := []string{
			"PairAdded d even", "PairAdded d random", "PairRemoved c even", "PairRemoved c random", "TargetFound d", "TargetFound d", "TargetRemoved c",
		}
		if !slices.Equal(got, want) {
			t.Errorf("sinks heard %q, want %q", got, want)
		}
		for name, n := range map[string]int{"a": 1, "b": 2, "c": 1, "d": 1} {
			if len(h.engines[name]) != n {
				t.Errorf("target %s has had %d clients, want %d", name, len(h.engines[name]), n)
			}
		}
		synctest.Wait()
		time.Sleep(2 * time.Second)
		if h.engines["b"][0].closed != 1 || h.engines["c"][0].closed != 1 || h.engines["a"][0].closed != 0 {
			t.Error("not exactly the clients out of use are closed")
		}
		old := len(h.engines["b"][0].requests())
		time.Sleep(10 * time.Minute)
		if n := len(h.engines["b"][0].requests()); n != old || len(h.engines["b"][1].requests()) < 10 {
			t.Errorf("after the change the old client sent %d requests, the new one %d", n-old, len(h.engines["b"][1].requests()))
		}
		h.end(t)
	})
}

func TestChangedIntervalIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		h.apply(t, conf([]string{"a"}, sc("even", time.Minute)))
		h.start()
		time.Sleep(time.Hour)
		before := len(h.engine("a").requests())
		h.apply(t, conf([]string{"a"}, sc("even", 10*time.Minute)))
		time.Sleep(10 * time.Hour)
		h.end(t)
		if n := len(h.engine("a").requests()) - before; n < 59 || n > 61 {
			t.Errorf("%d requests in ten hours at ten minutes", n)
		}
		if a := h.rec.added; len(a) != 2 || a[1].Interval != 10*time.Minute {
			t.Errorf("added: %v", a)
		}
		if slices.Contains(h.rec.calls, "PairRemoved a even") {
			t.Error("series were removed although only the interval changed")
		}
	})
}

func TestOtherVariantsMeanOtherSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		h.apply(t, conf([]string{"a"}, sc("prefill", time.Minute)))
		h.start()
		s := sc("prefill", time.Minute)
		s.Lengths = []int{2048}
		h.apply(t, conf([]string{"a"}, s))
		h.end(t)
		if a := h.rec.added; len(a) != 2 || !slices.Contains(a[1].Variants, "2k") || !slices.Contains(h.rec.calls, "PairRemoved a prefill") {
			t.Errorf("added %v, calls %q", a, h.rec.calls)
		}
	})
}

func TestNothingComesAfterRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(e *fakeEngine) { e.takes = 30 * time.Second })
		h.apply(t, conf([]string{"a", "b"}, sc("even", time.Minute)))
		h.start()
		busy := func() bool {
			h.rec.mu.Lock()
			defer h.rec.mu.Unlock()
			return h.rec.running["b/even"] > 0
		}
		for !busy() {
			time.Sleep(time.Second)
		}
		h.apply(t, conf([]string{"a"}, sc("even", time.Minute)))
		time.Sleep(time.Hour)
		h.end(t)
		removed := slices.Index(h.rec.calls, "TargetRemoved b")
		if removed < 0 || slices.Index(h.rec.calls, "PairRemoved b even") > removed {
			t.Fatalf("removal was not told in order: %q", h.rec.calls)
		}
		for _, c := range h.rec.calls[removed+1:] {
			if strings.Contains(c, " b") {
				t.Errorf("%q came after the removal", c)
			}
		}
		if e := h.engine("b"); e.closed != 1 {
			t.Errorf("the client was closed %d times", e.closed)
		}
	})
}

func TestLateDetectionIsNotToldAfterRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(e *fakeEngine) { e.detectTakes = 8 * time.Second })
		h.apply(t, conf([]string{"a", "b"}, sc("off", 0)))
		done := make(chan struct{})
		go func() {
			defer close(done)
			if _, err := h.Probe(context.Background(), "b", "off"); err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(time.Second)
		h.apply(t, conf([]string{"a"}, sc("off", 0)))
		<-done
		if last := h.rec.calls[len(h.rec.calls)-1]; last != "TargetRemoved b" {
			t.Errorf("%q came after the removal", last)
		}
		h.Close()
	})
}

func TestErrorsNameTheField(t *testing.T) {
	bad := conf([]string{"a", "b"},
		config.Scenario{Name: "even", Type: "even"},
		config.Scenario{Name: "p", Type: "prefill", Lengths: []int{128, 64}},
		config.Scenario{Name: "x", Type: "xtype"},
		config.Scenario{Name: "s", Type: "off", Schedule: "at noon"},
		config.Scenario{Name: "both", Type: "chat", Schedule: "@daily", Interval: model.Duration(time.Hour)},
		config.Scenario{Name: "long", Type: "chat", Lengths: []int{128}, MaxTokens: -1},
	)
	bad.Targets[0].Scenarios = []string{"even", "missing"}
	bad.Targets[1].Require = []string{"gone"}
	h := newHouse(t, nil)
	err := h.Apply(bad)
	if err == nil {
		t.Fatal("it was taken")
	}
	for _, want := range []string{
		"scenarios[1].lengths[1]: is 64", "scenarios[2].type: \"xtype\"", "scenarios[3].schedule:", "scenarios[4].schedule:",
		"scenarios[5].lengths:", "targets[0].scenarios[1]: there is no scenario \"missing\"", "targets[1].require[0]:",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
	if len(h.rec.calls) != 0 || len(h.Targets()) != 0 {
		t.Error("something of it is in use")
	}
	for _, list := range h.engines {
		if list[0].closed != 1 {
			t.Error("a client that was made for it is still open")
		}
	}
	if _, err := h.Plan(bad); err == nil {
		t.Error("it was planned")
	}
	h.refuse = errors.New("certificate file is missing")
	err = h.Apply(conf([]string{"a"}, sc("even", time.Minute)))
	var f *config.FieldError
	if !errors.As(err, &f) || f.Field != "targets[0]" {
		t.Errorf("got %v", err)
	}
	h.refuse = nil
	twice := conf([]string{"a", "a"}, sc("even", time.Minute))
	if err := h.Apply(twice); err == nil || !strings.Contains(err.Error(), "targets[1].name") {
		t.Errorf("got %v", err)
	}
	h.Close()
}

func TestDefaultSelection(t *testing.T) {
	c := &config.Config{Scenarios: append(scenario.Builtin(), config.Scenario{Name: "mine", Type: "chat"}, sc("off", 0))}
	c.Targets = []config.Target{{Name: "a", URL: "http://a"}}
	h := newHouse(t, nil)
	h.apply(t, c)
	var got []string
	for _, p := range h.Pairs() {
		got = append(got, p.Scenario)
	}
	if !slices.Equal(got, []string{"chat", "decode", "prefill"}) {
		t.Errorf("by default a target runs %q", got)
	}
	h.Close()
}

func TestHundredReloadsLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		h.rec.keepNone = true
		all := []config.Scenario{sc("even", time.Minute), sc("random", time.Minute)}
		h.apply(t, conf([]string{"a", "b"}, all...))
		h.start()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		before := runtime.NumGoroutine()
		for i := range 100 {
			c := conf([]string{"a", "b", fmt.Sprint("c", i%3)}, all...)
			c.Targets[1].Engine = fmt.Sprint(i)
			h.apply(t, c)
			time.Sleep(7 * time.Second)
		}
		h.apply(t, conf([]string{"a", "b"}, all...))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if after := runtime.NumGoroutine(); after > before+2 { // a probe may be running
			t.Errorf("%d goroutines before, %d after", before, after)
		}
		h.end(t)
		if e := h.engines["a"]; len(e) != 1 {
			t.Errorf("the unchanged target had %d clients", len(e))
		}
		for name, list := range h.engines {
			for i, e := range list {
				if e.closed != 1 {
					t.Errorf("client %d of %s was closed %d times", i, name, e.closed)
				}
			}
		}
	})
}

func TestReloadStormFromManySides(t *testing.T) {
	h := newHouse(t, func(e *fakeEngine) { e.takes = time.Millisecond })
	h.rec.keepNone = true
	all := []config.Scenario{sc("even", 10*time.Millisecond), sc("random", 10*time.Millisecond)}
	h.apply(t, conf([]string{"a"}, all...))
	h.start()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 25 {
				c := conf([]string{"a", fmt.Sprint("t", (i+g)%3)}, all...)
				c.Targets[1].Engine = fmt.Sprint(i % 2)
				h.apply(t, c)
				h.Targets()
				h.Pairs()
				if _, err := h.Plan(c); err != nil {
					t.Error(err)
				}
				if _, err := h.Probe(context.Background(), "a", "even"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	h.end(t)
}

func TestSimulatedMonthEndsWhereItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(e *fakeEngine) {
			e.answer = func(n int, r engine.Request) engine.Answer {
				if n%50 == 0 {
					return failed(r, result.ReasonHTTP503, 503)
				}
				return good(r)
			}
		})
		h.rec.keepNone = true
		h.logger = nopLogger{}
		h.apply(t, conf([]string{"a", "b"}, sc("chat", 10*time.Minute), sc("prefill", 30*time.Minute), sc("decode", 20*time.Minute), sc("cannot", time.Hour)))
		h.start()
		measure := func() (goroutines int, heap uint64) {
			h.rec.mu.Lock()
			h.rec.skips, h.rec.probes, h.rec.found = nil, nil, nil
			h.rec.mu.Unlock()
			for _, name := range []string{"a", "b"} {
				h.engine(name).set(func(e *fakeEngine) { e.sent = nil })
			}
			synctest.Wait()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return runtime.NumGoroutine(), m.HeapAlloc
		}
		time.Sleep(24 * time.Hour)
		g1, m1 := measure()
		time.Sleep(29 * 24 * time.Hour)
		g2, m2 := measure()
		if h.rec.finished < 10_000 {
			t.Errorf("only %d probes in a month", h.rec.finished)
		}
		if g2 > g1+4 { // probes that happen to run
			t.Errorf("%d goroutines after a day, %d after a month", g1, g2)
		}
		if m2 > m1+1<<20 {
			t.Errorf("%d bytes of heap after a day, %d after a month", m1, m2)
		}
		h.end(t)
	})
}

type nopLogger struct{}

func (nopLogger) Log(...any) error { return nil }
