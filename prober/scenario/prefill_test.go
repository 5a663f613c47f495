package scenario

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/engine"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

func variants(rs []result.Request) (out []string) {
	for _, r := range rs {
		out = append(out, r.Variant)
	}
	return out
}

func TestPrefillSizes(t *testing.T) {
	for _, perWord := range []float64{1.0, 1.3, 2.1} {
		for _, template := range []float64{4, 30, 100} {
			for _, tokenizes := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v a word, %v of template, tokenizes %v", perWord, template, tokenizes), func(t *testing.T) {
					srv := newServer(perWord)
					srv.template, srv.tokenizes = template, tokenizes
					s := build(t, config.Scenario{Type: "prefill", Lengths: []int{160, 1024, 4096, 32768}})
					e := env(srv, "p", 1)
					rep := s.Run(context.Background(), e)
					want := []string{"minimal", "calibration", "160", "1k", "4k", "32k", "minimal"}
					if tokenizes {
						want = slices.Delete(want, 1, 2)
					}
					if got := variants(rep.Requests); !slices.Equal(got, want) {
						t.Fatalf("sent %q, want %q", got, want)
					}
					if len(rep.Checks) != 4 {
						t.Errorf("%d sizes were judged", len(rep.Checks))
					}
					for _, c := range rep.Checks {
						if !c.OK {
							t.Errorf("%s: %s", c.Variant, c.Detail)
						}
					}
					again := s.Run(context.Background(), e)
					if got := variants(again.Requests); slices.Contains(got, "calibration") || len(got) != 6 {
						t.Errorf("the second run sent %q", got)
					}
				})
			}
		}
	}
}

func TestPrefillRate(t *testing.T) {
	srv := newServer(1.3)
	rep := build(t, ofType("prefill")).Run(context.Background(), env(srv, "p", 1))
	for _, v := range []string{"1k", "4k"} {
		if got, known := rep.Values.Get(metricPrefill, v); !known || math.Abs(got-10_000) > 10 {
			t.Errorf("%s: %v tokens/s, %v; the server does 10000", v, got, known)
		}
	}
	if _, known := rep.Values.Get(metricPrefill, variantMinimal); known {
		t.Error("the minimal prompt has a rate")
	}
}

func TestPrefillRateIsAbsentWhereItMeansNothing(t *testing.T) {
	tests := map[string]func(s *server) func(n int, a *engine.Answer){
		"a server faster than the noise": func(s *server) func(int, *engine.Answer) { s.rate = 1e8; return nil },
		"minimal prompts that differ by more than the ladder": func(s *server) func(int, *engine.Answer) {
			return func(n int, a *engine.Answer) {
				if n == 0 {
					*a.TimeToFirstTokenSeconds += 5
				}
			}
		},
		"a negative difference": func(s *server) func(int, *engine.Answer) {
			return func(_ int, a *engine.Answer) {
				if a.Variant != variantMinimal {
					*a.TimeToFirstTokenSeconds = 0.031
				}
			}
		},
		"everything was cached": func(s *server) func(int, *engine.Answer) {
			return func(_ int, a *engine.Answer) { a.CachedPromptTokens = result.Ptr(*a.PromptTokens) }
		},
		"no usage": func(s *server) func(int, *engine.Answer) { s.silent = true; return nil },
		"no time": func(s *server) func(int, *engine.Answer) {
			return func(_ int, a *engine.Answer) { a.TimeToFirstTokenSeconds = nil }
		},
	}
	for name, f := range tests {
		t.Run(name, func(t *testing.T) {
			srv := newServer(1.3)
			srv.change = f(srv)
			rep := build(t, ofType("prefill")).Run(context.Background(), env(srv, "p", 1))
			if len(rep.Values) != 0 {
				t.Errorf("%+v", rep.Values)
			}
			if len(rep.Requests) < 5 {
				t.Errorf("sent %q", variants(rep.Requests))
			}
		})
	}
}

func TestCachedTokensDoNotCountAsPrefill(t *testing.T) {
	srv := newServer(1.3)
	srv.change = func(_ int, a *engine.Answer) {
		if a.Variant == "4k" {
			a.CachedPromptTokens = result.Ptr(2048)
			*a.TimeToFirstTokenSeconds -= 2048 / srv.rate
		}
	}
	rep := build(t, ofType("prefill")).Run(context.Background(), env(srv, "p", 1))
	if got, known := rep.Values.Get(metricPrefill, "4k"); !known || math.Abs(got-10_000) > 10 {
		t.Errorf("%v tokens/s, %v; the server does 10000", got, known)
	}
}

func TestServerThatCutsPromptsFails(t *testing.T) {
	srv := newServer(1.3)
	s := build(t, ofType("prefill"))
	e := env(srv, "p", 1)
	s.Run(context.Background(), e)
	srv.cut = 2048
	for range 20 {
		rep := s.Run(context.Background(), e)
		bad := slices.DeleteFunc(rep.Checks, func(c result.Check) bool { return c.OK })
		if len(bad) != 1 || bad[0].Variant != "4k" || bad[0].Detail == "" {
			t.Fatalf("failed checks: %+v", bad)
		}
	}
}

func TestPrefillStopsAtTheFirstFailure(t *testing.T) {
	for fails, want := range [][]string{
		{"minimal"}, {"minimal", "calibration"}, {"minimal", "calibration", "128"}, {"minimal", "calibration", "128", "1k"},
	} {
		srv := newServer(1.3)
		srv.change = func(n int, a *engine.Answer) {
			if n == fails {
				a.Outcome, a.Reason = result.Failure, result.ReasonHTTP5xx
			}
		}
		rep := build(t, ofType("prefill")).Run(context.Background(), env(srv, "p", 1))
		if got := variants(rep.Requests); !slices.Equal(got, want) || len(rep.Values) != 0 {
			t.Errorf("request %d failed: sent %q, values %v", fails, got, rep.Values)
		}
	}
}

func TestLadderIsCutToTheModelsLimit(t *testing.T) {
	tests := []struct {
		limit int
		want  []string
	}{
		{0, []string{"128", "1k", "4k"}},
		{8192, []string{"128", "1k", "4k"}},
		{2048, []string{"128", "1k", "4k"}},
		{1100, []string{"128", "1k"}},
		{512, []string{"128", "1k"}},
		{300, []string{"128", "1k"}},
		{140, nil},
		{60, nil},
	}
	for _, tt := range tests {
		srv := newServer(1.3)
		e := env(srv, "p", 1)
		e.Facts.MaxModelLen = tt.limit
		s := build(t, ofType("prefill"))
		rep := s.Run(context.Background(), e)
		got := slices.DeleteFunc(variants(rep.Requests), func(v string) bool { return v == variantMinimal || v == variantCalibration })
		if !slices.Equal(got, tt.want) {
			t.Errorf("limit %d: sent %q, want %q", tt.limit, got, tt.want)
		}
		for _, r := range srv.sent {
			if n := srv.count(r) + r.MaxTokens; tt.limit > 0 && n > tt.limit {
				t.Errorf("limit %d: %s has %d tokens", tt.limit, r.Variant, n)
			}
		}
		for _, c := range rep.Checks {
			if !c.OK {
				t.Errorf("limit %d: %+v", tt.limit, c)
			}
		}
		within(t, s.Cost(e.Facts), srv)
	}
}

func TestServerWithoutUsageIsNotJudgedNorCalibrated(t *testing.T) {
	srv := newServer(1.3)
	srv.silent = true
	s := build(t, ofType("prefill"))
	e := env(srv, "p", 1)
	for range 3 {
		rep := s.Run(context.Background(), e)
		if got := variants(rep.Requests); !slices.Equal(got, []string{"minimal", "128", "1k", "4k", "minimal"}) || len(rep.Checks) != 0 {
			t.Errorf("sent %q, checks %v", got, rep.Checks)
		}
		within(t, s.Cost(e.Facts), srv)
		srv.sent = nil
	}
}

func TestSizesBelowTheTemplateAreLeftOut(t *testing.T) {
	srv := newServer(1.3)
	srv.template = 150
	rep := build(t, ofType("prefill")).Run(context.Background(), env(srv, "p", 1))
	if got := variants(rep.Requests); !slices.Equal(got, []string{"minimal", "calibration", "1k", "4k", "minimal"}) {
		t.Errorf("sent %q", got)
	}
	for _, c := range rep.Checks {
		if !c.OK {
			t.Errorf("%+v", c)
		}
	}
}

func TestConnectionTimeDoesNotCountAsPrefill(t *testing.T) {
	srv := newServer(1.3)
	srv.change = func(n int, a *engine.Answer) {
		slow := 0.1 * float64(n)
		*a.TimeToFirstTokenSeconds += slow
		*a.Phases.Connect += slow / 2
		*a.Phases.TLS += slow / 2
	}
	rep := build(t, ofType("prefill")).Run(context.Background(), env(srv, "p", 1))
	for _, v := range []string{"1k", "4k"} {
		if got, known := rep.Values.Get(metricPrefill, v); !known || math.Abs(got-10_000) > 10 {
			t.Errorf("%s: %v tokens/s, %v; the server does 10000", v, got, known)
		}
	}
}
