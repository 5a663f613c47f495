package nvml

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-kit/log"
)

// scripted is a Source that answers what its function says.
type scripted struct {
	mu     sync.Mutex
	calls  int
	closed bool
	f      func(ctx context.Context, call int) (Snapshot, error)
}

func (s *scripted) Sample(ctx context.Context) (Snapshot, error) {
	s.mu.Lock()
	s.calls++
	n := s.calls
	s.mu.Unlock()
	return s.f(ctx, n)
}

func (s *scripted) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

func (s *scripted) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func one(uuid string, used, util float64) Snapshot {
	return Snapshot{Time: time.Now(), GPUs: []Sample{{
		GPU:    GPU{UUID: uuid},
		Memory: Memory{Total: Of(100), Used: Of(used)}, Utilization: Of(util), MemoryUtilization: Of(util / 2), PowerWatts: Of(100 * util),
	}}}
}

// run starts a sampler inside a synctest bubble and returns it with its stop.
func run(t *testing.T, src Source, o SamplerOptions) (s *Sampler, stop func() error) {
	t.Helper()
	s, err := NewSampler(src, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return s, func() error { cancel(); return <-done }
}

func want(t *testing.T, what string, got Value, v float64) {
	t.Helper()
	if f, ok := got.Get(); !ok || math.Abs(f-v) > 1e-9 {
		t.Errorf("%s: %v, %v; want %v", what, f, ok, v)
	}
}

func absent(t *testing.T, what string, got Value) {
	t.Helper()
	if got.Valid() {
		t.Errorf("%s: %v, want it absent", what, got.v)
	}
}

func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Cycle n (from 1) runs at n-1 seconds: memory 10 n, busy in cycles 3 to 5.
		src := &scripted{f: func(_ context.Context, n int) (Snapshot, error) {
			util := 0.0
			if n >= 3 && n <= 5 {
				util = 0.5
			}
			return one("GPU-a", float64(10*min(n, 5)), util), nil
		}}
		begin := time.Now()
		s, stop := run(t, src, SamplerOptions{})
		at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
		time.Sleep(4500 * time.Millisecond) // cycles at 0, 1, 2, 3, 4 s
		synctest.Wait()

		w := s.Window(at(1500), at(3500))
		if len(w) != 1 || w[0].Samples != 2 {
			t.Fatalf("window: %+v", w)
		}
		want(t, "memory before", w[0].MemoryUsed.Before, 20)
		want(t, "memory peak", w[0].MemoryUsed.Peak, 40)
		want(t, "memory after", w[0].MemoryUsed.After, 50)
		want(t, "memory delta", w[0].MemoryUsed.Delta(), 20)
		want(t, "utilization before", w[0].Utilization.Before, 0)
		want(t, "utilization peak", w[0].Utilization.Peak, 0.5)
		want(t, "power peak", w[0].Power.Peak, 50)

		// On the very moments of samples both ends are inside.
		w = s.Window(at(1000), at(3000))
		if w[0].Samples != 3 {
			t.Errorf("%d samples in a window that begins and ends on one, want 3", w[0].Samples)
		}
		want(t, "memory before", w[0].MemoryUsed.Before, 20)
		want(t, "memory after", w[0].MemoryUsed.After, 40)

		// Between two samples: no reading inside, the one after stands for it.
		w = s.Window(at(2200), at(2400))
		if w[0].Samples != 0 {
			t.Errorf("%d samples inside", w[0].Samples)
		}
		want(t, "memory before", w[0].MemoryUsed.Before, 30)
		want(t, "memory peak", w[0].MemoryUsed.Peak, 40)

		// Nothing after yet: the last one inside.
		w = s.Window(at(3500), at(4400))
		want(t, "memory after", w[0].MemoryUsed.After, 50)
		// Nothing inside and nothing after: no peak.
		w = s.Window(at(4300), at(4400))
		absent(t, "peak", w[0].MemoryUsed.Peak)
		absent(t, "delta", w[0].MemoryUsed.Delta())
		// WaitWindow waits for the cycle at 5 s.
		w = s.WaitWindow(t.Context(), at(4300), at(4400))
		want(t, "memory after waiting", w[0].MemoryUsed.After, 50)
		if got := time.Since(begin); got != 5*time.Second {
			t.Errorf("waited until %s", got)
		}

		for _, uuid := range []string{"GPU-a", "a", "gpu-A"} {
			if len(s.Window(at(0), at(1000), "other", uuid)) != 1 {
				t.Errorf("no window for UUID %q", uuid)
			}
		}
		if w := s.Window(at(0), at(1000), "GPU-b"); len(w) != 0 {
			t.Errorf("window of another GPU: %+v", w)
		}
		if w := s.Window(begin.Add(-time.Hour), begin.Add(-30*time.Minute)); len(w) != 0 {
			t.Errorf("window long before the first sample: %+v", w)
		}
		if err := stop(); err != nil || !src.closed {
			t.Errorf("stop: %v, closed %v", err, src.closed)
		}
	})
}

func TestRingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &scripted{f: func(_ context.Context, n int) (Snapshot, error) { return one("GPU-a", float64(n%100), 0), nil }}
		begin := time.Now()
		s, stop := run(t, src, SamplerOptions{Interval: 100 * time.Millisecond, Keep: 10 * time.Second})
		time.Sleep(60*time.Second - time.Millisecond)
		synctest.Wait()
		if n := len(s.tracks[trackKey{"GPU-a", whole}].ring); n != 101 {
			t.Errorf("ring of %d; want 101", n)
		}
		// 60 s are 600 cycles; the last is number 600 at 59.9 s.
		w := s.Window(begin.Add(59*time.Second), begin.Add(59500*time.Millisecond))
		if len(w) != 1 || w[0].Samples != 6 {
			t.Fatalf("window after the ring wrapped: %+v", w)
		}
		want(t, "before", w[0].MemoryUsed.Before, 91)
		want(t, "peak", w[0].MemoryUsed.Peak, 96)
		if w := s.Window(begin.Add(20*time.Second), begin.Add(30*time.Second)); len(w) != 0 {
			t.Errorf("window beyond what is kept: %+v", w)
		}
		_ = stop()
	})
}

func TestTotalsOnlyGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &scripted{f: func(_ context.Context, n int) (Snapshot, error) {
			util := 0.5
			if n == 3 {
				util = 1
			}
			return one("GPU-a", 10, util), nil
		}}
		s, stop := run(t, src, SamplerOptions{})
		time.Sleep(9500 * time.Millisecond) // samples 1 to 10, nine seconds between
		synctest.Wait()
		// Reading is not resetting: any number of readers sees the same.
		for range 3 {
			tot := s.State().Totals[0]
			want(t, "utilization seconds", tot.UtilizationSeconds, 8*0.5+1)
			want(t, "memory utilization seconds", tot.MemoryUtilizationSeconds, 2.5)
			want(t, "sampled seconds", tot.SampledSeconds, 9)
			want(t, "maximum", tot.UtilizationMax, 1)
			want(t, "power maximum", tot.PowerMax, 100)
			absent(t, "SM seconds", tot.SMSeconds)
		}
		time.Sleep(60 * time.Second)
		synctest.Wait()
		want(t, "maximum a minute later", s.State().Totals[0].UtilizationMax, 0.5)
		_ = stop()
	})
}

func TestGapIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &scripted{f: func(_ context.Context, n int) (Snapshot, error) {
			if n >= 3 && n <= 8 {
				return Snapshot{}, errors.New("away")
			}
			return one("GPU-a", 10, 1), nil
		}}
		s, stop := run(t, src, SamplerOptions{})
		time.Sleep(100 * time.Second)
		synctest.Wait()
		st := s.State()
		// Failures back off: 1, 2, 4, 8, 16 and 30 s.
		if st.Failures[ReasonUnknown] != 6 {
			t.Errorf("failures: %v", st.Failures)
		}
		got, _ := st.Totals[0].SampledSeconds.Get()
		if n := float64(src.count()); got != (n-6-1)+1 { // every step is 1 s, but that over the gap is 2
			t.Errorf("sampled seconds %v after %v cycles", got, n)
		}
		_ = stop()
	})
}

func TestBackoffAndLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		begin := time.Now()
		src := &scripted{f: func(_ context.Context, n int) (Snapshot, error) {
			at = append(at, time.Since(begin))
			if n <= 8 {
				return Snapshot{}, &DownError{Reason: ReasonLibraryMissing, Detail: "no library", Hint: hintLibrary}
			}
			return one("GPU-a", 1, 0), nil
		}}
		var buf bytes.Buffer
		s, stop := run(t, src, SamplerOptions{Logger: log.NewLogfmtLogger(log.NewSyncWriter(&buf))})
		time.Sleep(200 * time.Second)
		synctest.Wait()
		for i, w := range []int{0, 1, 3, 7, 15, 31, 61, 91, 121, 122} {
			if i >= len(at) || at[i] != time.Duration(w)*time.Second {
				t.Fatalf("cycles at %v; number %d should be at %d s", at[:min(len(at), 12)], i, w)
			}
		}
		if !s.State().Up {
			t.Error("not up after recovery")
		}
		if n := strings.Count(buf.String(), "cannot read GPU figures"); n != 1 {
			t.Errorf("%d lines about the same failure, want 1:\n%s", n, buf.String())
		}
		for _, text := range []string{"reason=library_not_found", "runtimeClassName: nvidia", "GPU figures are back"} {
			if !strings.Contains(buf.String(), text) {
				t.Errorf("the log lacks %q:\n%s", text, buf.String())
			}
		}
		_ = stop()
	})
}

func TestWedgedSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		src := &scripted{f: func(_ context.Context, n int) (Snapshot, error) {
			if n == 3 {
				<-release // heeds no context, like a call into the driver
			}
			return one("GPU-a", 1, 0), nil
		}}
		s, stop := run(t, src, SamplerOptions{})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		st := s.State()
		if st.Up || st.Reason != ReasonTimeout || len(st.Snapshot.GPUs) != 0 {
			t.Errorf("state while wedged: %+v", st)
		}
		if src.count() != 3 {
			t.Errorf("%d calls: the wedged source was called again", src.count())
		}
		close(release)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if !s.State().Up {
			t.Errorf("not up after the call returned: %+v", s.State())
		}
		_ = stop()
	})
}

func TestShutdownWhileWedged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		src := &scripted{f: func(context.Context, int) (Snapshot, error) {
			<-release
			return Snapshot{}, errors.New("late")
		}}
		_, stop := run(t, src, SamplerOptions{})
		time.Sleep(10 * time.Second)
		begin := time.Now()
		err := stop()
		if err == nil || src.closed {
			t.Errorf("closed a source with a call inside (err %v)", err)
		}
		if d := time.Since(begin); d > 3*time.Second {
			t.Errorf("shutdown took %s", d)
		}
		close(release)
	})
}

func TestWindowOfGPUInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &scripted{f: func(_ context.Context, n int) (Snapshot, error) {
			s := one("GPU-a", 60, 0)
			s.GPUs[0].MIG = []MIGInstance{
				{GPUInstance: 3, UUIDs: []string{"MIG-x", "MIG-y"}, Memory: Memory{Used: Of(float64(n))}, Activity: Activity{SM: Of(0.5)}},
				{GPUInstance: 5, UUIDs: []string{"MIG-z"}, Memory: Memory{Used: Of(50)}},
			}
			return s, nil
		}}
		begin := time.Now()
		s, stop := run(t, src, SamplerOptions{})
		time.Sleep(10500 * time.Millisecond)
		synctest.Wait()
		from, to := begin.Add(2500*time.Millisecond), begin.Add(5500*time.Millisecond)
		if w := s.Window(from, to); len(w) != 1 || w[0].GPUInstance != whole || w[0].Label() != "0" {
			t.Errorf("all: %+v", w)
		}
		w := s.Window(from, to, "mig-Y")
		if len(w) != 1 || w[0].GPUInstance != 3 || w[0].Label() != "0/3" {
			t.Fatalf("one instance: %+v", w)
		}
		want(t, "memory", w[0].MemoryUsed.Peak, 6)
		want(t, "delta", w[0].MemoryUsed.Delta(), 3)
		want(t, "SM activity", w[0].SMActivity.Peak, 0.5)
		absent(t, "utilization", w[0].Utilization.Peak)
		if w := s.Window(from, to, "GPU-a", "MIG-z"); len(w) != 2 || w[0].Label() != "0" || w[1].Label() != "0/5" {
			t.Errorf("both: %+v", w)
		}
		_ = stop()
	})
}

// Whatever GPUs a source makes up, what is kept is bounded.
func TestTracksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &scripted{f: func(_ context.Context, n int) (Snapshot, error) {
			s := Snapshot{Time: time.Now()}
			for i := range 100 {
				s.GPUs = append(s.GPUs, Sample{GPU: GPU{UUID: fmt.Sprintf("GPU-%d-%d", n, i)}, Memory: Memory{Used: Of(1)}})
			}
			return s, nil
		}}
		s, stop := run(t, src, SamplerOptions{})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(s.tracks) > maxTracks {
			t.Errorf("%d tracks", len(s.tracks))
		}
		now := time.Now()
		if w := s.Window(now.Add(-time.Second), now); len(w) == 0 {
			t.Error("no window of the newest GPUs")
		}
		_ = stop()
	})
}

func TestOptions(t *testing.T) {
	for _, o := range []SamplerOptions{
		{Interval: 50 * time.Millisecond},
		{Interval: -1},
		{Keep: time.Millisecond},
		{Keep: 2 * time.Hour},
		{Timeout: -1},
	} {
		if _, err := NewSampler(&scripted{}, o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

func TestClean(t *testing.T) {
	g := func(f func(*Sample)) Snapshot {
		s := one("GPU-a", 10, 0.5)
		f(&s.GPUs[0])
		return s
	}
	for _, c := range []struct {
		name string
		snap Snapshot
		get  func(*Sample) Value
	}{
		{"utilization of a sentinel", g(func(s *Sample) { s.Utilization = Of(math.MaxUint32 / 100) }), func(s *Sample) Value { return s.Utilization }},
		{"utilization of 101 %", g(func(s *Sample) { s.Utilization = Of(1.01) }), func(s *Sample) Value { return s.Utilization }},
		{"NaN", g(func(s *Sample) { s.Activity.SM = Of(math.NaN()) }), func(s *Sample) Value { return s.Activity.SM }},
		{"infinity", g(func(s *Sample) { s.EnergyJoules = Of(math.Inf(1)) }), func(s *Sample) Value { return s.EnergyJoules }},
		{"more used than there is", g(func(s *Sample) { s.Memory.Used = Of(101) }), func(s *Sample) Value { return s.Memory.Used }},
		{"temperature of a blank", g(func(s *Sample) { s.TemperatureCelsius = Of(0x7ffffff0) }), func(s *Sample) Value { return s.TemperatureCelsius }},
		{"negative power", g(func(s *Sample) { s.PowerWatts = Of(-1) }), func(s *Sample) Value { return s.PowerWatts }},
		{"MIG memory", g(func(s *Sample) { s.MIG = []MIGInstance{{Memory: Memory{Total: Of(5), Used: Of(6)}}} }), func(s *Sample) Value { return s.MIG[0].Memory.Used }},
	} {
		clean(&c.snap)
		absent(t, c.name, c.get(&c.snap.GPUs[0]))
		want(t, c.name+": memory total", c.snap.GPUs[0].Memory.Total, 100)
	}

	s := Snapshot{GPUs: make([]Sample, 0, 200)}
	s.GPUs = append(s.GPUs, Sample{GPU: GPU{UUID: ""}}, Sample{GPU: GPU{UUID: "a\xff", Name: strings.Repeat("ü", 200)}}, Sample{GPU: GPU{UUID: "a"}})
	for i := range 100 {
		s.GPUs = append(s.GPUs, Sample{GPU: GPU{UUID: strings.Repeat("x", i+1)}})
	}
	clean(&s)
	if len(s.GPUs) != MaxGPUs || s.GPUs[0].UUID != "a" || len(s.GPUs[0].Name) > maxText || s.GPUs[1].UUID != "x" {
		t.Errorf("%d GPUs, first %+v", len(s.GPUs), s.GPUs[0].GPU)
	}
}

func TestSplitMemory(t *testing.T) {
	const total, reserved, free = 1000 << 20, 100 << 20, 600 << 20
	for _, c := range []struct {
		name     string
		used     uint64
		want     float64
		reserved bool
	}{
		{"used without reserved", 300 << 20, 300 << 20, true},
		{"used with reserved", 400 << 20, 300 << 20, true},
		{"parts that do not add up", 50 << 20, 50 << 20, false},
	} {
		m := splitMemory(total, c.used, free, reserved)
		want(t, c.name, m.Used, c.want)
		if m.Reserved.Valid() != c.reserved {
			t.Errorf("%s: reserved %+v", c.name, m.Reserved)
		}
	}
}

func TestWraps(t *testing.T) {
	w := wraps{}
	steps := []struct {
		field uint32
		now   uint64
		bits  int
		want  float64
	}{
		{1, 4294967000, 32, 4294967000},
		{1, 704, 32, 4294968000}, // wrapped: 296 + 704
		{1, 704, 32, 4294968000},
		{2, 5000, 64, 5000},
		{2, 100, 64, 5100}, // reset: 100 more are known
		{3, math.MaxUint64 - 9, 64, math.MaxUint64 - 9},
	}
	for i, s := range steps {
		want(t, "step "+string(rune('0'+i)), w.add(wrapKey{"a", s.field}, s.now, s.bits), s.want)
	}
	if w[wrapKey{"a", 2}].total != 5100 {
		t.Errorf("total %d", w[wrapKey{"a", 2}].total)
	}
}

func TestXidStoreIsBounded(t *testing.T) {
	s := newXidStore()
	s.watch("a", true)
	now := time.Now()
	for code := uint64(1000); code < 1200; code++ {
		s.add("a", code, now)
	}
	s.add("unknown", 79, now)
	watched, xids := s.get("a")
	if !watched || len(xids) > maxXids+1 {
		t.Fatalf("watched %v, %d codes", watched, len(xids))
	}
	var sum uint64
	for _, x := range xids {
		sum += x.Count
	}
	if sum != 200 {
		t.Errorf("%d events counted of 200", sum)
	}
	if _, other := s.get("unknown"); other != nil {
		t.Errorf("events of a GPU that is not watched: %+v", other)
	}
}
