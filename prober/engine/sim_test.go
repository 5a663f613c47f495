package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
	"github.com/llmcanary/llm_canary_exporter/sim"
)

// simulated starts the simulated engine and returns it with a target that has been detected.
func simulated(t testing.TB, change func(*sim.Config)) (*sim.Server, *Target) {
	t.Helper()
	c := sim.DefaultConfig()
	c.StepBase, c.OutputTokensMean = 4*time.Millisecond, 64
	if change != nil {
		change(&c)
	}
	server, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l, err := server.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = l.Wait()
		server.Close()
	})
	target, err := NewTarget(config.Target{Name: "sim", URL: l.URL, Model: config.Auto, Protocol: config.Auto, Engine: config.Auto}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(target.Close)
	if f, err := target.Detect(context.Background()); err != nil || f.Engine != EngineVLLM || !f.Tokenizes {
		t.Fatalf("%+v, %v", f, err)
	}
	return server, target
}

// errors of arrivals: how far each lies outside of the time that its write took, by the server's own clock.
func arrivalErrors(t testing.TB, rec sim.Record, a Answer) []time.Duration {
	t.Helper()
	var tokens []sim.RecordEvent
	for _, e := range rec.Events {
		if e.Kind == sim.EventToken {
			tokens = append(tokens, e)
		}
	}
	if a.Outcome != result.Success || len(tokens) != len(a.InterChunkLatenciesSeconds)+1 {
		t.Fatalf("%s %s: %d chunks written", summary(a), a.Detail, len(tokens))
	}
	at := a.StartTime.Add(secondsOf(*a.TimeToFirstTokenSeconds))
	var errs []time.Duration
	for i, e := range tokens {
		if i > 0 {
			at = at.Add(secondsOf(a.InterChunkLatenciesSeconds[i-1]))
		}
		errs = append(errs, max(e.Before.Sub(at), at.Sub(e.After), 0))
	}
	return errs
}

func secondsOf(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// calm is up to which client lag a request is judged. A client that reads late gets several chunks in one read, with
// the stamp of the last of them, and cannot tell their arrivals apart: the server's steps are 4 ms, so a gap near 0
// shows that.
const calm = 300 * time.Microsecond

// accuracy sends n requests, a few at a time, and returns how far off the arrivals were, sorted, of those in which the
// client was not late by its own account.
func accuracy(t testing.TB, server *sim.Server, target *Target, n int) []time.Duration {
	t.Helper()
	var (
		mu   sync.Mutex
		errs []time.Duration
		wg   sync.WaitGroup
	)
	slots := make(chan struct{}, 4)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			r := Request{Messages: []Message{{Role: User, Text: fmt.Sprintf("%d tell me of the sea", i)}}, MaxTokens: 12, Fixed: true}
			a := target.Send(context.Background(), r, timeouts())
			rec, ok := server.Record(a.ID)
			if !ok {
				t.Errorf("no record of %s: %s", a.ID, summary(a))
				return
			}
			more := arrivalErrors(t, rec, a)
			if a.ClientLagMax == nil || secondsOf(*a.ClientLagMax) > calm || slices.Min(a.InterChunkLatenciesSeconds) < 1e-3 {
				return
			}
			mu.Lock()
			errs = append(errs, more...)
			mu.Unlock()
		})
	}
	wg.Wait()
	slices.Sort(errs)
	return errs
}

// TestAccuracy holds what was measured against the server's own write times: each arrival within 2 ms, p99 within
// 500 µs, in every request in which the client does not itself say that it was late. A client that measures wrong
// spoils all rounds, a busy machine at most some.
func TestAccuracy(t *testing.T) {
	server, target := simulated(t, nil)
	busy := 0
	for round := range 4 {
		errs := accuracy(t, server, target, 200)
		if len(errs) < 240 {
			t.Logf("round %d: the client was late in nearly all requests", round)
			busy++
			continue
		}
		p99, worst := errs[len(errs)*99/100], errs[len(errs)-1]
		t.Logf("round %d: %d arrivals, p50 %v, p99 %v, max %v off", round, len(errs), errs[len(errs)/2], p99, worst)
		if p99 <= 500*time.Microsecond && worst <= 2*time.Millisecond {
			return
		}
	}
	if busy > 0 {
		t.Skip("the machine is too busy, or gives no kernel stamps")
	}
	t.Error("no round was within 500 µs (p99) and 2 ms (max)")
}

// A role chunk 300 ms before the first token is no first token.
func TestRoleChunkAhead(t *testing.T) {
	server, target := simulated(t, func(c *sim.Config) { c.Faults = []sim.FaultRule{{Fault: "role_lead=300ms", Probability: 1}} })
	for range 3 {
		a := target.Send(context.Background(), ask(), timeouts())
		rec, _ := server.Record(a.ID)
		role := slices.IndexFunc(rec.Events, func(e sim.RecordEvent) bool { return e.Kind == sim.EventRole })
		token := slices.IndexFunc(rec.Events, func(e sim.RecordEvent) bool { return e.Kind == sim.EventToken })
		if lead := rec.Events[token].Before.Sub(rec.Events[role].Before); lead < 200*time.Millisecond {
			t.Fatalf("the role chunk led by %v", lead)
		}
		within(t, "TTFT", a.TimeToFirstTokenSeconds, rec.Events[token].Before.Sub(a.StartTime).Seconds())
	}
}

// What the simulated engine counts is what the answer says, exact counts per chunk included.
func TestSimulatedCounts(t *testing.T) {
	server, target := simulated(t, func(c *sim.Config) {
		c.Speculative = sim.Speculative{Enabled: true, NumTokens: 3, Acceptance: []float64{0.8}}
	})
	text := strings.Repeat("a prompt that is long enough to be kept in blocks ", 20)
	for i := range 2 {
		a := target.Send(context.Background(), Request{Messages: []Message{{Role: User, Text: text}}, MaxTokens: 40, Fixed: true, CacheSalt: "s"}, timeouts())
		rec, _ := server.Record(a.ID)
		want := fmt.Sprintf("in=%d cached=%d out=%d:usage", rec.PromptTokens, rec.CachedTokens, rec.CompletionTokens)
		if got := summary(a); !strings.Contains(got, want) || len(a.Anomalies) > 0 {
			t.Errorf("%s %s\nwant %s", got, a.Detail, want)
		}
		var perChunk []int
		for _, e := range rec.Events {
			if e.Kind == sim.EventToken {
				perChunk = append(perChunk, e.Tokens)
			}
		}
		if !slices.Equal(perChunk, a.ChunkTokens) {
			t.Errorf("per chunk %v, want %v", a.ChunkTokens, perChunk)
		}
		if i == 1 && rec.CachedTokens == 0 {
			t.Error("the second request hit nothing")
		}
	}
	if n, ok := target.CountTokens(context.Background(), "one two three"); !ok || n < 3 {
		t.Errorf("counted %d, %v", n, ok)
	}
}

// Each fault that the simulator knows and that matters to a client, by its header.
func TestSimulatedFaults(t *testing.T) {
	for fault, want := range map[string]string{
		"error_after=3": "failure stream_error", "error_raw=3": "failure stream_error", "error_event=3": "failure stream_error",
		"cut_eof=3": "failure truncated", "cut_close=3": "failure truncated", "cut_reset=3": "failure connection_reset",
		"malformed=3": "failure malformed_stream", "html": "failure not_a_stream", "empty": "failure empty_output",
		"no_finish": "failure truncated", "finish_reason=abort": "failure stream_error", "status=503": "failure http_503",
		"no_done": "success missing_done", "duplicate_finish": "success duplicate_finish", "gzip": "success compressed",
		"comment_data;comments=5ms;role_lead=30ms": "success nonstandard_framing",
		"crlf": "success", "cr": "success", "bom": "success", "no_space": "success", "multiline": "success",
		"prompt_filter": "success", "usage_every": "success", "usage_on_finish": "success", "separate_finish": "success",
		"usage_missing": "success usage_missing", "unterminated": "success unterminated", "model_name=other": "success model_mismatch",
		"reject=stream_options": "success field_dropped", "huge=200000": "success",
	} {
		t.Run(fault, func(t *testing.T) {
			_, target := simulated(t, func(c *sim.Config) { c.Faults = []sim.FaultRule{{Fault: fault, Probability: 1}} })
			a := target.Send(context.Background(), ask(), timeouts())
			got := []string{string(a.Outcome)}
			if a.Reason != "" {
				got = append(got, string(a.Reason))
			} else {
				for _, x := range a.Anomalies {
					got = append(got, string(x))
				}
				slices.Sort(got[1:])
			}
			if s := strings.Join(got, " "); s != want {
				t.Errorf("%s, want %s: %s %s", s, want, summary(a), a.Detail)
			}
		})
	}
}

// BenchmarkAccuracy reports how far off arrivals are, in microseconds.
func BenchmarkAccuracy(b *testing.B) {
	server, target := simulated(b, nil)
	for b.Loop() {
		errs := accuracy(b, server, target, 50)
		if len(errs) == 0 {
			b.Skip("the client was late in all requests")
		}
		b.ReportMetric(float64(errs[len(errs)/2].Microseconds()), "p50-µs")
		b.ReportMetric(float64(errs[len(errs)*99/100].Microseconds()), "p99-µs")
		b.ReportMetric(float64(errs[len(errs)-1].Microseconds()), "max-µs")
	}
}
