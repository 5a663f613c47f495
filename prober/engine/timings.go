package engine

import (
	"github.com/valyala/fastjson"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// llamaTimings reads llama.cpp's timings object, which stands in the last chunk: milliseconds; prompt_n leaves
// cached tokens out, cache_n are those.
func llamaTimings(t *fastjson.Value, acc *Accumulator) {
	if t == nil || t.Type() != fastjson.TypeObject {
		return
	}
	s := acc.Timings()
	millis(t, &s.Prefill, "prompt_ms")
	millis(t, &s.Decode, "predicted_ms")
	prompt, cached, predicted := -1, -1, -1
	number(t, &prompt, "prompt_n")
	number(t, &cached, "cache_n")
	number(t, &predicted, "predicted_n")
	u := NoUsage()
	u.Completion = predicted
	if prompt >= 0 && cached >= 0 {
		u.Prompt, u.Cached = prompt+cached, cached
	}
	if acc.usage.Completion < 0 && predicted >= 0 { // usage itself comes first where both are there
		acc.Usage(u)
	}
	drafted, accepted := -1, -1
	number(t, &drafted, "draft_n")
	number(t, &accepted, "draft_n_accepted")
	if drafted >= 0 && accepted >= 0 {
		sp := acc.Speculation()
		sp.DraftTokens, sp.AcceptedTokens = result.Ptr(drafted), result.Ptr(accepted)
	}
}

// vllmMetrics reads the per-request metrics of vLLM's usage chunk (--enable-per-request-metrics and
// --per-request-spec-decode-metrics): milliseconds; time_to_first_token_ms leaves the queue out.
func vllmMetrics(m *fastjson.Value, acc *Accumulator) {
	if m == nil || m.Type() != fastjson.TypeObject {
		return
	}
	s := acc.Timings()
	millis(m, &s.Queue, "queue_time_ms")
	millis(m, &s.Prefill, "time_to_first_token_ms")
	millis(m, &s.Decode, "generation_time_ms")
	d := m.Get("speculative_decoding")
	if d == nil {
		return
	}
	for key, to := range map[string]**int{
		"num_draft_tokens":          &acc.Speculation().DraftTokens,
		"num_accepted_draft_tokens": &acc.Speculation().AcceptedTokens,
		"num_spec_steps":            &acc.Speculation().VerifySteps,
	} {
		n := -1
		if number(d, &n, key); n >= 0 {
			*to = result.Ptr(n)
		}
	}
}

// groqUsage reads the usage that Groq sends in an object of its own unless it was asked for, and its timings, which
// are in seconds.
func groqUsage(u *fastjson.Value, acc *Accumulator) {
	if u == nil || u.Type() != fastjson.TypeObject {
		return
	}
	acc.Usage(openAIUsage(u))
	s := acc.Timings()
	for key, to := range map[string]**float64{"queue_time": &s.Queue, "prompt_time": &s.Prefill, "completion_time": &s.Decode, "total_time": &s.Total} {
		if n := u.Get(key); n != nil && n.Type() == fastjson.TypeNumber {
			if f, err := n.Float64(); err == nil && f >= 0 {
				*to = result.Ptr(f)
			}
		}
	}
}

// millis reads milliseconds as seconds.
func millis(v *fastjson.Value, to **float64, key string) {
	if n := v.Get(key); n != nil && n.Type() == fastjson.TypeNumber {
		if f, err := n.Float64(); err == nil && f >= 0 {
			*to = result.Ptr(f / 1000)
		}
	}
}
