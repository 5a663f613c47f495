package scenario

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/dataset"
	"github.com/llmcanary/llm_canary_exporter/prober/engine"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// server is a target with known truth. Prompts are counted as template + perWord·words + perHan·characters.
type server struct {
	template, perWord, perHan float64

	cut       int                           // prompts are cut to that many tokens; 0 = never
	silent    bool                          // no usage
	tokenizes bool                          // lends its tokenizer
	rate      float64                       // prompt tokens per second
	base      float64                       // seconds to the first token of an empty prompt
	change    func(n int, a *engine.Answer) // what the n-th answer has of its own
	sent      []engine.Request
}

func (s *server) tokens(text string) float64 {
	han := 0
	for _, r := range text {
		if r > 0x2E80 {
			han++
		}
	}
	words := 0
	for _, f := range strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '\n' || r > 0x2E80 }) {
		if f != "" {
			words++
		}
	}
	return s.perWord*float64(words) + s.perHan*float64(han)
}

func (s *server) count(r engine.Request) int {
	n := s.template
	for _, m := range r.Messages {
		n += 4 + s.tokens(m.Text)
	}
	return int(math.Round(n))
}

func (s *server) CountTokens(_ context.Context, text string) (int, bool) {
	return int(math.Round(s.tokens(text))), s.tokenizes
}

func (s *server) Send(_ context.Context, r engine.Request) engine.Answer {
	n := len(s.sent)
	s.sent = append(s.sent, r)
	prompt := s.count(r)
	if s.cut > 0 {
		prompt = min(prompt, s.cut)
	}
	a := engine.Answer{Request: result.Request{
		Variant: r.Variant, Outcome: result.Success, FinishReason: "length", TokenCountSource: result.CountUsage,
		PromptTokens: result.Ptr(prompt), CompletionTokens: result.Ptr(r.MaxTokens),
		TimeToFirstTokenSeconds:   result.Ptr(s.base + float64(prompt)/s.rate + 0.030),
		TimePerOutputTokenSeconds: result.Ptr(0.02),
		Phases:                    result.Phases{DNS: result.Ptr(0.005), Connect: result.Ptr(0.010), TLS: result.Ptr(0.015), Headers: result.Ptr(0.5)},
	}}
	if s.silent {
		a.PromptTokens = nil
	}
	if s.change != nil {
		s.change(n, &a)
	}
	return a
}

func newServer(perWord float64) *server {
	return &server{template: 12, perWord: perWord, perHan: 0.8, rate: 10_000, base: 0.020}
}

// env is what the n-th probe of a process gets.
func env(s *server, process string, n uint64) *Env {
	return &Env{
		Sender: s, Tokens: s, Sizer: dataset.NewSizer(), Facts: engine.Facts{Engine: "vllm", Model: "m", Tokenizes: s.tokenizes},
		Rand: rand.New(rand.NewPCG(99, n)), Number: n, Nonce: fmt.Sprintf("%s-%d", process, n),
	}
}

func build(t *testing.T, c config.Scenario) Scenario {
	t.Helper()
	typ, known := Lookup(c.Type)
	if !known {
		t.Fatalf("no type %q", c.Type)
	}
	s, err := typ.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ofType(name string) config.Scenario { return config.Scenario{Name: name, Type: name} }

func TestTypes(t *testing.T) {
	for i, typ := range Types() {
		s := build(t, ofType(typ.Name))
		if typ.Summary == "" || typ.Interval <= 0 || len(s.Variants()) == 0 {
			t.Errorf("%s: %+v", typ.Name, typ)
		}
		for _, c := range s.Checks() {
			if !slices.Contains(s.Variants(), c.Variant) {
				t.Errorf("%s: check %s is about an unknown variant", typ.Name, c.Name)
			}
		}
		if b := Builtin()[i]; b.Name != typ.Name || b.Type != typ.Name {
			t.Errorf("built in as %+v", b)
		}
	}
	if _, known := Lookup("nothing"); known {
		t.Error("an unknown type was found")
	}
}

// What holds for every type, whatever the server's tokenizer.
func TestEveryType(t *testing.T) {
	for _, typ := range Types() {
		for _, perWord := range []float64{1.0, 1.3, 2.1, 2.9} {
			t.Run(fmt.Sprintf("%s/%v", typ.Name, perWord), func(t *testing.T) {
				s := build(t, ofType(typ.Name))
				fronts := map[string]bool{}
				salts := map[string]bool{}
				first, second := newServer(perWord), newServer(perWord)
				requests := 0
				for n := range uint64(50) {
					srv := newServer(perWord)
					e := env(srv, "p", n)
					rep := s.Run(context.Background(), e)
					promises(t, s, rep)
					within(t, s.Cost(e.Facts), srv)
					for _, r := range srv.sent {
						requests++
						front, _, _ := strings.Cut(r.Messages[0].Text, "\n")
						if len(front) != nonceDigits || strings.Trim(front, "0123456789") != "" {
							t.Fatalf("the first message begins with %q", front)
						}
						fronts[front[:9]] = true
						salts[r.CacheSalt] = true
						if r.MaxTokens <= 0 || r.Messages[len(r.Messages)-1].Role != engine.User {
							t.Fatalf("request %+v", r)
						}
					}
					if n == 3 {
						s.Run(context.Background(), env(first, "p", n))
						s.Run(context.Background(), env(second, "another process", n))
					}
				}
				if len(fronts) != requests || len(salts) != requests || salts[""] {
					t.Errorf("%d fronts and %d salts of %d requests", len(fronts), len(salts), requests)
				}
				for i := range first.sent {
					a, b := first.sent[i], second.sent[i]
					if a.CacheSalt == b.CacheSalt || a.Messages[0].Text == b.Messages[0].Text {
						t.Error("two processes sent the same nonce")
					}
					a.CacheSalt, b.CacheSalt = "", ""
					a.Messages, b.Messages = slices.Clone(a.Messages), slices.Clone(b.Messages)
					a.Messages[0].Text, b.Messages[0].Text = a.Messages[0].Text[nonceDigits:], b.Messages[0].Text[nonceDigits:]
					if !reflect.DeepEqual(a, b) {
						t.Error("two processes with one seed differ beyond the nonce")
					}
				}
			})
		}
	}
}

// promises checks that a report keeps within what the scenario announced.
func promises(t *testing.T, s Scenario, rep Report) {
	t.Helper()
	for _, r := range rep.Requests {
		if !slices.Contains(s.Variants(), r.Variant) {
			t.Errorf("unannounced variant %q", r.Variant)
		}
	}
	for _, c := range rep.Checks {
		if !c.OK || !slices.Contains(s.Checks(), result.CheckName{Variant: c.Variant, Name: c.Name}) {
			t.Errorf("check %+v", c)
		}
	}
}

// within checks that what was sent stays below the cost.
func within(t *testing.T, c Cost, s *server) {
	t.Helper()
	prompt, output := 0, 0
	for _, r := range s.sent {
		prompt += s.count(r)
		output += r.MaxTokens
	}
	if len(s.sent) > c.Requests || prompt > c.PromptTokens || output > c.OutputTokens || c.Concurrency < 1 {
		t.Errorf("sent %d requests, %d + %d tokens; the bound is %+v", len(s.sent), prompt, output, c)
	}
}

// What is expected is what is spent on average, within 5 % for types whose sizes are exact.
func TestExpectedCost(t *testing.T) {
	for name, tolerance := range map[string]float64{"chat": 0.15, "decode": 0.15, "prefill": 0.05} {
		s := build(t, ofType(name))
		srv := newServer(1.3)
		sizer := dataset.NewSizer()
		s.Run(context.Background(), env(srv, "warm", 0)) // calibration is not expected
		srv.sent = nil
		warm := env(srv, "p", 0)
		warm.Sizer = sizer
		s.Run(context.Background(), warm)
		srv.sent = nil
		const probes = 400
		for n := range uint64(probes) {
			e := env(srv, "p", n+1)
			e.Sizer = sizer
			s.Run(context.Background(), e)
		}
		prompt := 0
		for _, r := range srv.sent {
			prompt += srv.count(r)
		}
		want := s.(Forecaster).Expected(engine.Facts{})
		if got := float64(prompt) / probes; math.Abs(got-float64(want.PromptTokens)) > tolerance*got {
			t.Errorf("%s: %.0f prompt tokens a probe, %d are expected", name, got, want.PromptTokens)
		}
		if len(srv.sent) != probes*want.Requests {
			t.Errorf("%s: %d requests in %d probes, %d each are expected", name, len(srv.sent), probes, want.Requests)
		}
	}
}

func TestBadSettings(t *testing.T) {
	tests := []struct {
		typ   string
		c     config.Scenario
		field string
	}{
		{"chat", config.Scenario{MaxTokens: -1}, "max_tokens"},
		{"chat", config.Scenario{MaxTokens: 1 << 20}, "max_tokens"},
		{"chat", config.Scenario{Lengths: []int{1}}, "lengths"},
		{"decode", config.Scenario{MaxTokens: -1}, "max_tokens"},
		{"decode", config.Scenario{Lengths: []int{1}}, "lengths"},
		{"prefill", config.Scenario{MaxTokens: -1}, "max_tokens"},
		{"prefill", config.Scenario{Lengths: []int{128, 50}}, "lengths[1]"},
		{"prefill", config.Scenario{Lengths: []int{1024, 512}}, "lengths[1]"},
		{"prefill", config.Scenario{Lengths: []int{512, 512}}, "lengths[1]"},
		{"prefill", config.Scenario{Lengths: []int{1 << 30}}, "lengths[0]"},
		{"prefill", config.Scenario{Lengths: make([]int, 17)}, "lengths"},
	}
	for _, tt := range tests {
		tt.c.Type = tt.typ
		typ, _ := Lookup(tt.typ)
		_, err := typ.New(tt.c)
		var f *config.FieldError
		if !errors.As(err, &f) || f.Field != tt.field {
			t.Errorf("%s %+v: %v, want an error about %s", tt.typ, tt.c, err, tt.field)
		}
	}
}

func TestChatPrompts(t *testing.T) {
	s := build(t, ofType("chat"))
	var sizes []float64
	turns, chinese := map[int]int{}, 0
	const probes = 2000
	for n := range uint64(probes) {
		srv := newServer(1.3)
		rep := s.Run(context.Background(), env(srv, "p", n))
		r := srv.sent[0]
		sizes = append(sizes, float64(srv.count(r)))
		turns[len(r.Messages)]++
		if strings.ContainsRune(r.Messages[len(r.Messages)-1].Text, '。') {
			chinese++
		}
		if v, known := rep.Values.Get("output_tokens_per_second", "default"); !known || math.Abs(v-50) > 1e-9 {
			t.Fatalf("output_tokens_per_second %v, %v; TPOT is 20 ms", v, known)
		}
		if r.MaxTokens != 64 || r.Fixed {
			t.Fatalf("%+v", r)
		}
	}
	mean := 0.0
	for _, x := range sizes {
		mean += x / probes
	}
	if mean < 180 || mean > 260 {
		t.Errorf("%.0f prompt tokens on average, want about 200 and the template", mean)
	}
	for _, n := range []int{1, 3, 5} {
		if turns[n] < probes/4 {
			t.Errorf("%d of %d conversations have %d messages", turns[n], probes, n)
		}
	}
	if chinese < probes/5 || chinese > probes*3/10 {
		t.Errorf("%d of %d conversations are Chinese, want a quarter", chinese, probes)
	}
}

func TestFiguresOfFailuresAreAbsent(t *testing.T) {
	for _, name := range []string{"chat", "decode", "prefill"} {
		srv := newServer(1.3)
		srv.change = func(_ int, a *engine.Answer) { a.Outcome, a.Reason = result.Failure, result.ReasonTruncated }
		rep := build(t, ofType(name)).Run(context.Background(), env(srv, "p", 1))
		if len(rep.Values) != 0 || len(rep.Checks) != 0 || len(rep.Requests) != 1 {
			t.Errorf("%s: %+v", name, rep)
		}
	}
	srv := newServer(1.3)
	srv.change = func(_ int, a *engine.Answer) { a.TimePerOutputTokenSeconds = nil }
	if rep := build(t, ofType("chat")).Run(context.Background(), env(srv, "p", 1)); len(rep.Values) != 0 {
		t.Errorf("without TPOT: %+v", rep.Values)
	}
}

func TestDecodeLength(t *testing.T) {
	tests := []struct {
		name   string
		engine string
		change func(*engine.Answer)
		judged bool
		good   bool
	}{
		{"reached", "vllm", func(*engine.Answer) {}, true, true},
		{"95 %", "sglang", func(a *engine.Answer) { a.CompletionTokens = result.Ptr(122) }, true, true},
		{"less", "vllm", func(a *engine.Answer) { a.CompletionTokens = result.Ptr(121) }, true, false},
		{"an engine that cannot fix it", "tgi", func(a *engine.Answer) { a.CompletionTokens = result.Ptr(5) }, false, false},
		{"the field was refused", "vllm", func(a *engine.Answer) {
			a.CompletionTokens, a.Anomalies = result.Ptr(5), []result.Anomaly{result.AnomalyFieldDropped}
		}, false, false},
		{"chunks were counted", "vllm", func(a *engine.Answer) {
			a.CompletionTokens, a.TokenCountSource = result.Ptr(5), result.CountChunks
		}, false, false},
		{"not counted", "vllm", func(a *engine.Answer) { a.CompletionTokens = nil }, false, false},
		{"failed", "vllm", func(a *engine.Answer) { a.Outcome, a.CompletionTokens = result.Failure, result.Ptr(5) }, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv := newServer(1.3)
			srv.change = func(_ int, a *engine.Answer) { tt.change(a) }
			e := env(srv, "p", 1)
			e.Facts.Engine = tt.engine
			rep := build(t, ofType("decode")).Run(context.Background(), e)
			if (len(rep.Checks) == 1) != tt.judged || tt.judged && rep.Checks[0].OK != tt.good {
				t.Errorf("checks %+v", rep.Checks)
			}
			if r := srv.sent[0]; !r.Fixed || r.MaxTokens != 128 {
				t.Errorf("sent %+v", r)
			}
		})
	}
}
