package enginemetrics

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"

	"github.com/llmcanary/llm_canary_exporter/collector"
)

// fixed is a Source that always knows the same.
type fixed []State

func (f fixed) States() []State { return f }

func exampleStates(t *testing.T) fixed {
	t.Helper()
	at := time.Unix(1_790_000_000, 500_000_000)
	page := func(file string) *Reading {
		return &Reading{Normalised: normalisePage(t, readPage(t, "testdata/pages/"+file), Hint{}), At: at}
	}
	return fixed{
		{Target: "chat", Hint: Hint{Engine: "vllm", Version: "0.25.1"}, Last: page("vllm_v1_0.25_dp2_spec.txt"), Attempt: at, Fresh: true, BadLines: 2, Resets: 1},
		{Target: "down", Hint: Hint{Engine: "sglang"}, Attempt: at, Err: errors.New("no"), Reason: ReasonNotFound, Failures: map[Reason]uint64{ReasonNotFound: 7}},
		{Target: "old", Hint: Hint{Engine: "tgi"}, Last: page("tgi_2.0.txt"), Attempt: at.Add(time.Minute), Err: errors.New("no"), Reason: ReasonTimeout, Failures: map[Reason]uint64{ReasonTimeout: 3}},
		{Target: "partial", Hint: Hint{Model: "from-the-config"}, Last: page("sglang_0.4.txt"), Attempt: at, Fresh: true},
		{Target: "untried"},
	}
}

func TestCollector(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewCollector(exampleStates(t)))
	const golden = "testdata/collector.prom"
	if *update {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		for _, f := range families {
			if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.Open(golden)
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	if err := testutil.GatherAndCompare(registry, want); err != nil {
		t.Error(err)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%+v", promlint.Problem(p))
	}
}

func TestFamilies(t *testing.T) {
	known := map[string]bool{}
	for _, m := range Families() {
		if known[m.Name] {
			t.Errorf("%s twice", m.Name)
		}
		known[m.Name] = true
		if !strings.HasPrefix(m.Name, collector.Namespace+"engine_") || m.Help == "" || m.Labels[0] != "target" || m.Group != Group {
			t.Errorf("%+v", m)
		}
		if (m.Type == collector.Counter) != strings.HasSuffix(m.Name, "_total") {
			t.Errorf("%s is a %s", m.Name, m.Type)
		}
	}
	for _, f := range Figures() {
		if !known[collector.Namespace+string(f)] {
			t.Errorf("%s is not exported", f)
		}
	}
	for _, f := range counters() {
		if !strings.HasSuffix(string(f), "_total") {
			t.Errorf("%s is no counter", f)
		}
	}
	for _, m := range collector.Metrics() {
		if known[m.Name] {
			t.Errorf("%s is exported by collector already", m.Name)
		}
	}
}

func pageTransport(page string) *http.Client {
	return &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) { return answer(200, page), nil })}
}

func TestSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSet()
		defer s.Close()
		c := NewCollector(s)
		if n := testutil.CollectAndCount(c); n != 0 {
			t.Errorf("%d series without a target", n)
		}
		o := ReaderOptions{Target: "a", Base: "http://h", Client: pageTransport(vllmPage), Hint: Hint{Engine: "vllm"}}
		r := s.Put(o)
		time.Sleep(time.Second)
		if n := testutil.CollectAndCount(c, "llm_canary_engine_requests_running"); n != 1 {
			t.Errorf("%d series", n)
		}

		o.Hint.Version = "0.30.0"
		if again := s.Put(o); again != r || r.State().Hint.Version != "0.30.0" || s.Reader("a") != r {
			t.Error("an unchanged target got another reader")
		}
		o.URL = "http://h/elsewhere"
		moved := s.Put(o)
		if moved == r {
			t.Error("a changed target kept its reader")
		}
		b := o
		b.Target = "b"
		s.Put(b)
		time.Sleep(time.Second)
		if n := testutil.CollectAndCount(c, "llm_canary_engine_up"); n != 2 {
			t.Errorf("%d targets", n)
		}
		s.Remove("a")
		s.Remove("never there")
		if n := testutil.CollectAndCount(c, "llm_canary_engine_up"); n != 1 || s.Reader("a") != nil {
			t.Errorf("%d targets after one was removed", n)
		}
		s.Remove("b")
		if n := testutil.CollectAndCount(c); n != 0 {
			t.Errorf("%d series of removed targets", n)
		}
		s.Close()
		if s.Put(o) != nil {
			t.Error("a reader after Close")
		}
	})
}

// What is older than three reads is not shown, and neither is an engine that has not been asked for that long up.
func TestStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		code := 200
		s := NewSet()
		defer s.Close()
		s.Put(ReaderOptions{Target: "a", Base: "http://h", Hint: Hint{Engine: "vllm"}, Client: &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			return answer(code, vllmPage), nil
		})}})
		c := NewCollector(s)
		expect := func(up string, running int) {
			t.Helper()
			if err := testutil.CollectAndCompare(c, strings.NewReader("# HELP llm_canary_engine_up 1 if the engine's metrics page could be read and understood at the last try, 0 if not.\n"+
				"# TYPE llm_canary_engine_up gauge\nllm_canary_engine_up{target=\"a\"} "+up+"\n"), "llm_canary_engine_up"); err != nil {
				t.Error(err)
			}
			if n := testutil.CollectAndCount(c, "llm_canary_engine_requests_running"); n != running {
				t.Errorf("%d series of running requests, want %d", n, running)
			}
		}
		time.Sleep(time.Second)
		expect("1", 1)
		mu.Lock()
		code = 500
		mu.Unlock()
		time.Sleep(15 * time.Second)
		expect("0", 1) // one lost read: the figures are still young
		time.Sleep(31 * time.Second)
		expect("0", 0)
	})
}

// A scrape never waits for an engine.
func TestScrapeDuringSlowRead(t *testing.T) {
	hang := make(chan struct{})
	reached := sync.OnceFunc(func() { close(hang) })
	s := NewSet()
	defer s.Close()
	s.Put(ReaderOptions{Target: "a", Base: "http://h", Hint: Hint{Engine: "vllm"}, Client: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
		reached()
		<-r.Context().Done()
		return nil, r.Context().Err()
	})}})
	<-hang
	testutil.CollectAndCount(NewCollector(s)) // would hang until the read's deadline, and fail the test's
}

func TestEngineChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		asked := map[string]int{}
		r := NewReader(ReaderOptions{Base: "http://h", Client: &http.Client{Transport: transport(func(q *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			asked[q.URL.Path]++
			if q.URL.Path == "/metrics" {
				return answer(200, "[]"), nil
			}
			return answer(404, ""), nil
		})}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.Run(ctx)
		time.Sleep(time.Hour)
		mu.Lock()
		if asked["/metrics"] != 1 || asked["/prometheus/metrics"] < 10 {
			t.Errorf("asked %v", asked)
		}
		asked = map[string]int{}
		mu.Unlock()
		// Once the engine is known to be another one, its page is tried at once.
		r.SetHint(Hint{Engine: "vllm"})
		time.Sleep(time.Second)
		mu.Lock()
		if asked["/metrics"] != 1 {
			t.Errorf("asked %v", asked)
		}
		mu.Unlock()
	})
}

func TestConcurrentUse(t *testing.T) {
	s := NewSet()
	defer s.Close()
	c := NewCollector(s)
	o := ReaderOptions{Target: "a", Base: "http://h", Client: pageTransport(vllmPage), BoostCadence: time.Millisecond}
	s.Put(o)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 50 {
				x := o
				x.Hint.Engine = []string{"vllm", "sglang"}[i%2]
				r := s.Put(x)
				release := r.Boost()
				_, _ = r.ReadNow(t.Context())
				_, _, _ = r.Last()
				_, _ = r.Load()
				_ = r.KVPeak(time.Now().Add(-time.Second), time.Now())
				testutil.CollectAndCount(c)
				release()
			}
		})
	}
	all.Wait()
}

func BenchmarkCollect(b *testing.B) {
	page, err := os.ReadFile("testdata/pages/vllm_v1_0.25_dp2_spec.txt")
	if err != nil {
		b.Fatal(err)
	}
	p, _, err := Parse(page, "")
	if err != nil {
		b.Fatal(err)
	}
	n, err := Normalise(p, Hint{})
	if err != nil {
		b.Fatal(err)
	}
	var states fixed
	for i := range 100 {
		states = append(states, State{Target: strings.Repeat("t", i+1), Last: &Reading{Normalised: n}, Attempt: time.Now(), Fresh: true})
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(NewCollector(states))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := registry.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
