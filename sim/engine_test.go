package sim

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"
)

// chatOverhead are the template's tokens around one user message.
const chatOverhead = 6

func TestPrefixCacheHits(t *testing.T) {
	for _, words := range []int{9, 10, 11, 26, 100, 1000} {
		s := start(t, quick())
		n := words + chatOverhead
		body := func() fields { return fields{"messages": user(prompt(words, "Start")), "max_tokens": 1} }
		cold, _ := s.chat("cold", "", body())
		warm, _ := s.chat("warm", "", body())
		if cold.PromptTokens != n || cold.CachedTokens != 0 {
			t.Errorf("%d words: cold request has %d prompt tokens, %d cached, want %d and 0", words, cold.PromptTokens, cold.CachedTokens, n)
		}
		if want := (n - 1) / 16 * 16; warm.CachedTokens != want {
			t.Errorf("%d words: warm request has %d cached tokens, want %d", words, warm.CachedTokens, want)
		}
		st := s.Stats()
		if st.PrefixQueryTokens != 2*n || st.PrefixHitTokens != warm.CachedTokens {
			t.Errorf("%d words: %d queried and %d hit tokens, want %d and %d", words, st.PrefixQueryTokens, st.PrefixHitTokens, 2*n, warm.CachedTokens)
		}
	}
}

func TestPrefixCacheSharedPrefixAndSalt(t *testing.T) {
	s := start(t, quick())
	shared := prompt(200, "Start")
	ask := func(id, tail string, salt any) int {
		body := fields{"messages": user(shared + " " + tail), "max_tokens": 1}
		if salt != nil {
			body["cache_salt"] = salt
		}
		rec, _ := s.chat(id, "", body)
		return rec.CachedTokens
	}
	// Three template tokens stand in front of the shared words.
	const want = 203 / 16 * 16
	for _, c := range []struct {
		id, tail string
		salt     any
		want     int
	}{
		{"a", "one", nil, 0},
		{"b", "two", nil, want},
		{"c", "three", "x", 0},
		{"d", "four", "x", want},
		{"e", "five", "y", 0},
	} {
		if got := ask(c.id, c.tail, c.salt); got != c.want {
			t.Errorf("request %s with salt %v has %d cached tokens, want %d", c.id, c.salt, got, c.want)
		}
	}
}

func TestPrefixCacheOff(t *testing.T) {
	cfg := quick()
	cfg.PrefixCache = false
	s := start(t, cfg)
	for _, id := range []string{"a", "b"} {
		if rec, _ := s.chat(id, "", fields{"messages": user(prompt(100, "Start")), "max_tokens": 1}); rec.CachedTokens != 0 {
			t.Errorf("request %s has %d cached tokens", id, rec.CachedTokens)
		}
	}
}

// A conversation's next turn finds the answer of the turn before in the cache.
func TestPrefixCacheHoldsAnswers(t *testing.T) {
	s := start(t, quick())
	first := s.mustJSON("/v1/chat/completions", "one", fields{"messages": user("Tell me"), "max_tokens": 200, "ignore_eos": true})
	answer := first["choices"].([]any)[0].(map[string]any)["message"].(map[string]any)["content"].(string)
	msgs := append(user("Tell me"), fields{"role": "assistant", "content": answer}, fields{"role": "user", "content": "More"})
	s.mustJSON("/v1/chat/completions", "two", fields{"messages": msgs, "max_tokens": 1})
	// The last token of the first answer was never computed.
	if rec := s.ended("two"); rec.CachedTokens != (8+199)/16*16 {
		t.Errorf("second turn has %d cached tokens, want %d", rec.CachedTokens, (8+199)/16*16)
	}
}

func TestPrefixCacheEvictsLeastRecentlyUsed(t *testing.T) {
	cfg := quick()
	cfg.MaxModelLen, cfg.Blocks = 160, 16
	s := start(t, cfg)
	ask := func(id, first string) int {
		rec, _ := s.chat(id, "", fields{"messages": user(prompt(122, first)), "max_tokens": 1})
		return rec.CachedTokens
	}
	const hit = 127 / 16 * 16 // two prompts of 8 blocks fill the cache
	ask("a1", "Alpha")
	ask("b1", "Beta")
	if got := ask("a2", "Alpha"); got != hit {
		t.Fatalf("a repeat has %d cached tokens, want %d", got, hit)
	}
	ask("c1", "Gamma") // takes what was used longest ago: Beta
	if got := ask("a3", "Alpha"); got != hit {
		t.Errorf("the recently used prompt has %d cached tokens, want %d", got, hit)
	}
	if got := ask("b2", "Beta"); got != 0 {
		t.Errorf("the evicted prompt has %d cached tokens, want 0", got)
	}
}

func TestPreemptionUnderTinyKV(t *testing.T) {
	cfg := quick()
	cfg.MaxModelLen, cfg.Blocks = 320, 20
	s := start(t, cfg)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			s.mustJSON("/v1/chat/completions", fmt.Sprint("p", i), fields{
				"messages": user(prompt(40, fmt.Sprint("Start", i))), "max_tokens": 150, "ignore_eos": true,
			})
		})
	}
	wg.Wait()
	preempts := 0
	for _, rec := range s.Records() {
		preempts += s.ended(rec.ID).Preemptions
		if rec.CompletionTokens != 150 || rec.FinishReason != "length" {
			t.Errorf("request %s got %d tokens and finish %q, want 150 and length", rec.ID, rec.CompletionTokens, rec.FinishReason)
		}
	}
	st := s.Stats()
	if st.Preemptions == 0 || st.Preemptions != preempts {
		t.Errorf("%d preemptions counted, %d in the records, want the same above 0", st.Preemptions, preempts)
	}
	if st.BlocksUsed != 0 || st.Running != 0 || st.Waiting != 0 {
		t.Errorf("the idle engine holds %d blocks, %d running, %d waiting", st.BlocksUsed, st.Running, st.Waiting)
	}
	if want := 6 * 150; st.GenerationTokens != want {
		t.Errorf("%d tokens generated, want %d: a recomputed token counts once", st.GenerationTokens, want)
	}
}

func TestSpeculativeAcceptance(t *testing.T) {
	for _, acceptance := range [][]float64{{0.7}, {0.9, 0.5, 0.2}, {0}, {1}} {
		cfg := quick()
		cfg.Speculative = Speculative{Enabled: true, NumTokens: 3, Acceptance: acceptance}
		s := start(t, cfg)
		rec, _ := s.chat("x", "", fields{"messages": user("Go"), "max_tokens": 4000, "ignore_eos": true})
		st := s.Stats()
		if rec.Spec != st.Spec || rec.CompletionTokens != 4000 {
			t.Errorf("%v: record says %+v and %d tokens, engine %+v", acceptance, rec.Spec, rec.CompletionTokens, st.Spec)
		}
		p, sum := 1.0, 0
		for i, n := range st.SpecAcceptedPerPosition {
			p *= cfg.Speculative.acceptance(i)
			sum += n
			if got := float64(n) / float64(st.Spec.Drafts); math.Abs(got-p) > 0.05 {
				t.Errorf("%v: position %d accepted in %.3f of the drafts, want %.3f", acceptance, i, got, p)
			}
		}
		if sum != st.Spec.AcceptedTokens || st.Spec.DraftTokens != 3*st.Spec.Drafts {
			t.Errorf("%v: counts do not add up: %+v, by position %d", acceptance, st.Spec, sum)
		}
		// One token by prefill, then 1 + accepted a step; the last step may be cut.
		produced := 1 + st.Spec.Drafts + st.Spec.AcceptedTokens
		if produced < 4000 || produced > 4003 {
			t.Errorf("%v: drafts and accepted tokens make %d tokens, want 4000 and at most 3 cut", acceptance, produced)
		}
	}
}

// Throughput must stop growing at MaxNumSeqs, at the rate that Config says.
func TestThroughputSaturates(t *testing.T) {
	cfg := DefaultConfig()
	cfg.StepBase, cfg.StepPerSeq, cfg.StepPerContextToken, cfg.PrefillPerToken = 4*time.Millisecond, 0, 0, 0
	cfg.MaxNumSeqs = 4
	s := start(t, cfg)
	const requests, tokens = 12, 40
	var wg sync.WaitGroup
	for i := range requests {
		wg.Go(func() {
			s.mustJSON("/v1/chat/completions", fmt.Sprint("r", i), fields{"messages": user("Go"), "max_tokens": tokens, "ignore_eos": true})
		})
	}
	wg.Wait()
	var first, last time.Time
	queued := 0
	for _, rec := range s.Records() {
		rec = s.ended(rec.ID)
		if first.IsZero() || rec.Timing.Scheduled.Before(first) {
			first = rec.Timing.Scheduled
		}
		if rec.Timing.Finished.After(last) {
			last = rec.Timing.Finished
		}
		if rec.Timing.Scheduled.Sub(rec.Received) > 40*4*time.Millisecond {
			queued++
		}
	}
	// Three full batches of 40 steps, plus the ramp of the first arrivals.
	steps := float64(last.Sub(first)) / float64(cfg.StepBase)
	if steps < 120-1 || steps > 120+30 {
		t.Errorf("12 requests of 40 tokens, 4 at a time, took %.1f steps, want 120 to 150", steps)
	}
	if queued < 4 {
		t.Errorf("%d requests waited for a whole batch, want at least 4", queued)
	}
}

func TestChunkedPrefillTakesItsTime(t *testing.T) {
	cfg := quick()
	cfg.StepBase, cfg.PrefillPerToken, cfg.MaxBatchedTokens = time.Millisecond, 20*time.Microsecond, 512
	s := start(t, cfg)
	rec, _ := s.chat("x", "", fields{"messages": user(prompt(2000, "Start")), "max_tokens": 1})
	want := 4*time.Millisecond + 2006*20*time.Microsecond
	if got := rec.Timing.FirstToken.Sub(rec.Timing.Scheduled); got < want || got > want+5*time.Millisecond {
		t.Errorf("prefill of 2006 tokens in chunks of 512 took %s, want %s", got, want)
	}
	slow, _ := s.chat("y", "slow_prefill=3", fields{"messages": user(prompt(2000, "Other")), "max_tokens": 1})
	want = 4*time.Millisecond + 3*2006*20*time.Microsecond
	if got := slow.Timing.FirstToken.Sub(slow.Timing.Scheduled); got < want || got > want+5*time.Millisecond {
		t.Errorf("prefill three times slower took %s, want %s", got, want)
	}
}

// The gaps on the wire follow the configured step, and no error adds up.
func TestStepsArePacedByAbsoluteTime(t *testing.T) {
	cfg := DefaultConfig()
	cfg.StepBase, cfg.StepPerSeq, cfg.StepPerContextToken = 5*time.Millisecond, 0, 0
	s := start(t, cfg)
	const tokens = 60
	rec, _ := s.chat("x", "", fields{"messages": user("Go"), "max_tokens": tokens, "ignore_eos": true})
	if got := rec.Timing.Finished.Sub(rec.Timing.FirstToken); got != (tokens-1)*5*time.Millisecond {
		t.Errorf("%d steps of 5ms lasted %s by plan", tokens-1, got)
	}
	var gaps []time.Duration
	var before time.Time
	for _, ev := range rec.Events {
		if ev.Kind != EventToken {
			continue
		}
		if !before.IsZero() {
			gaps = append(gaps, ev.Before.Sub(before))
		}
		before = ev.Before
	}
	slices.Sort(gaps)
	if median := gaps[len(gaps)/2]; median < 4*time.Millisecond || median > 6*time.Millisecond {
		t.Errorf("the median gap on the wire is %s, want about 5ms", median)
	}
}

func TestSameSeedSameAnswer(t *testing.T) {
	answer := func(seed uint64) (string, int) {
		cfg := quick()
		cfg.Seed = seed
		cfg.Speculative.Enabled = true
		s := start(t, cfg)
		out := s.mustJSON("/v1/chat/completions", "x", fields{"messages": user("Go on")})
		return fmt.Sprint(out["choices"]), s.ended("x").Spec.AcceptedTokens
	}
	a1, n1 := answer(1)
	a2, n2 := answer(1)
	b, _ := answer(2)
	if a1 != a2 || n1 != n2 {
		t.Errorf("the same seed gave two answers (%d and %d accepted)", n1, n2)
	}
	if a1 == b {
		t.Error("another seed gave the same answer")
	}
}

func TestClientLeavesAndBlocksAreFreed(t *testing.T) {
	cfg := DefaultConfig()
	s := start(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	res := s.do(ctx, "/v1/chat/completions", "x", "", fields{"messages": user(prompt(500, "Start")), "max_tokens": 20000, "ignore_eos": true, "stream": true})
	defer res.Body.Close()
	waitFor(t, "blocks in use", func() bool { return s.Stats().BlocksUsed > 30 })
	cancel()
	waitFor(t, "the engine to be empty", func() bool { st := s.Stats(); return st.BlocksUsed == 0 && st.Running == 0 && st.Aborted == 1 })
	if rec := s.ended("x"); !rec.Aborted || rec.FinishReason != "" {
		t.Errorf("record says aborted %v, finish %q", rec.Aborted, rec.FinishReason)
	}
}

func TestCloseEndsOpenAnswers(t *testing.T) {
	s, err := New(DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l, err := s.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ts := &testServer{s, l.URL, newClient(), t}
	defer ts.client.CloseIdleConnections()
	res := ts.do(t.Context(), "/v1/chat/completions", "x", "", fields{"messages": user("Go"), "max_tokens": 20000, "ignore_eos": true, "stream": true})
	defer res.Body.Close()
	waitFor(t, "the request to run", func() bool { return s.Stats().Running == 1 })
	s.Close()
	if rec := ts.ended("x"); !rec.Aborted {
		t.Error("the open answer is not recorded as aborted")
	}
	cancel()
	if err := l.Wait(); err != nil {
		t.Errorf("listener ended with %v", err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"zero":        func(c *Config) { *c = Config{} },
		"small cache": func(c *Config) { c.Blocks = 10 },
		"acceptance":  func(c *Config) { c.Speculative = Speculative{Enabled: true, NumTokens: 2, Acceptance: []float64{1.5}} },
		"positions":   func(c *Config) { c.Speculative = Speculative{Enabled: true, NumTokens: 3, Acceptance: []float64{1, 1}} },
		"dialect":     func(c *Config) { c.MetricsDialect = "none" },
		"fault":       func(c *Config) { c.Faults = []FaultRule{{"nonsense", 1}} },
		"probability": func(c *Config) { c.Faults = []FaultRule{{"no_done", 2}} },
		"step":        func(c *Config) { c.StepBase = 0 },
	} {
		cfg := DefaultConfig()
		change(&cfg)
		if s, err := New(cfg); err == nil {
			s.Close()
			t.Errorf("%s: accepted", name)
		}
	}
}
