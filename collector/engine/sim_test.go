package enginemetrics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/llmcanary/llm_canary_exporter/sim"
)

// simulated serves a simulated engine whose metrics have the names of a dialect, at the path of its server.
func simulated(t *testing.T, dialect, path string) (*sim.Server, string) {
	t.Helper()
	c := sim.DefaultConfig()
	c.MetricsDialect = dialect
	c.StepBase, c.StepPerSeq, c.PrefillPerToken = 100*time.Microsecond, 0, 0
	c.Speculative.Enabled = true
	engine, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Close)
	mux := http.NewServeMux()
	mux.Handle(path, promhttp.HandlerFor(engine.Gatherer(), promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.HandleFunc("/metrics/", http.NotFound)
	mux.HandleFunc("/v1/metrics", http.NotFound)
	mux.Handle("/v1/", engine.Handler())
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return engine, server.URL
}

func ask(t *testing.T, c *http.Client, url, prompt string) {
	t.Helper()
	request, err := json.Marshal(map[string]any{
		"model": "sim-8b", "max_tokens": 40, "ignore_eos": true, "messages": []map[string]string{{"role": "user", "content": prompt}},
	})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Post(url+"/v1/chat/completions", "application/json", bytes.NewReader(request))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if answer, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%d %s %v", resp.StatusCode, answer, err)
	}
}

// Each dialect of the simulated engine is detected, and every figure that the dialect has equals what the engine
// recorded itself.
func TestSimulatedDialects(t *testing.T) {
	all := []Figure{RequestsRunning, RequestsWaiting, KVCacheUsage, PrefixCacheQueries, PrefixCacheHits, PromptTokens, GenerationTokens}
	spec := []Figure{SpeculativeDrafts, SpeculativeDraftTokens, SpeculativeAcceptedTokens}
	for _, c := range []struct {
		dialect, path string
		has           []Figure
	}{
		{"vllm", "/metrics", append(append([]Figure{Preemptions}, all...), spec...)},
		{"sglang", "/metrics", append([]Figure{Preemptions, SpeculativeDrafts}, all...)},
		{"lmdeploy", "/metrics", append(append([]Figure{}, all...), spec...)},
		{"trtllm", "/prometheus/metrics", append([]Figure{SpeculativeDraftTokens, SpeculativeAcceptedTokens}, all...)},
		{"llamacpp", "/metrics", append([]Figure{RequestsRunning, RequestsWaiting, PrefixCacheQueries, PrefixCacheHits, PromptTokens, GenerationTokens}, spec...)},
		{"tgi", "/metrics", []Figure{RequestsRunning, RequestsWaiting, SpeculativeDrafts, SpeculativeAcceptedTokens, PromptTokens, GenerationTokens}},
		{"triton", "/metrics", []Figure{RequestsRunning, RequestsWaiting, KVCacheUsage}},
		{"dynamo", "/metrics", all},
	} {
		for _, hint := range []string{c.dialect, ""} {
			t.Run(fmt.Sprintf("%s hint %q", c.dialect, hint), func(t *testing.T) {
				engine, url := simulated(t, c.dialect, c.path)
				h := client(t)
				r := NewReader(ReaderOptions{Target: "sim", Base: url, Client: h, Hint: Hint{Engine: hint, Model: "sim-8b"}})
				if hint == "triton" {
					// Its metrics are on a port of their own, which cannot be had here.
					r = NewReader(ReaderOptions{Target: "sim", URL: url + c.path, Base: url, Client: h, Hint: Hint{Engine: hint}})
				}
				before, err := r.ReadNow(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for i := range 3 {
					ask(t, h, url, strings.Repeat("All of this is shared by every request. ", 20)+fmt.Sprint(i))
				}
				after, err := r.ReadNow(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if after.Dialect != c.dialect || len(after.Missing) > 0 || len(after.Odd) > 0 {
					t.Errorf("dialect %s, missing %v, odd %v", after.Dialect, after.Missing, after.Odd)
				}
				compare(t, after, engine.Stats(), c.has)
				ratio := Counters(before, after).PrefixHitRatio()
				s := engine.Stats()
				if truth := float64(s.CachedTokens) / float64(s.PromptTokens); contains(c.has, PrefixCacheHits) && (ratio == nil || *ratio != truth || truth < 0.3) {
					t.Errorf("hit ratio %s, recorded %g", show(ratio), truth)
				}
			})
		}
	}
}

func contains(list []Figure, f Figure) bool {
	for _, x := range list {
		if x == f {
			return true
		}
	}
	return false
}

func compare(t *testing.T, got Reading, s sim.Stats, has []Figure) {
	t.Helper()
	truth := map[Figure]float64{
		RequestsRunning: float64(s.Running), RequestsWaiting: float64(s.Waiting), KVCacheUsage: float64(s.BlocksUsed) / float64(s.Blocks),
		PrefixCacheQueries: float64(s.PromptTokens), PrefixCacheHits: float64(s.CachedTokens), Preemptions: float64(s.Preemptions),
		PromptTokens: float64(s.PromptTokens), GenerationTokens: float64(s.GenerationTokens), SpeculativeDrafts: float64(s.Spec.Drafts),
		SpeculativeDraftTokens: float64(s.Spec.DraftTokens), SpeculativeAcceptedTokens: float64(s.Spec.AcceptedTokens),
	}
	if s.GenerationTokens != 120 || s.Spec.Drafts == 0 || s.CachedTokens == 0 {
		t.Errorf("the engine did not do what it was asked: %+v", s)
	}
	for _, f := range Figures() {
		v := got.Get(f)
		if (v != nil) != contains(has, f) || v != nil && *v != truth[f] {
			t.Errorf("%s is %s, recorded %g; the dialect has it: %v", f, show(v), truth[f], contains(has, f))
		}
	}
}
