package engine

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// E31 E32: a field that a target refuses is dropped, once and visibly, and remembered.
func TestRefusedFields(t *testing.T) {
	tests := []struct {
		name    string
		engine  string
		refuses string // a field that the body must not have
		status  int
		body    string
		field   string // as remembered
		then    string // a field that must be in the body instead
	}{
		{"OpenAI o-series", "", "max_tokens", 400, `{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","type":"invalid_request_error","param":"max_tokens","code":"unsupported_parameter"}}`, "max_tokens", "max_completion_tokens"},
		{"old Azure", "", "stream_options", 400, `{"error":{"message":"Unrecognized request argument supplied: stream_options","type":"invalid_request_error","param":null,"code":null}}`, "stream_options", ""},
		{"Databricks", "", "stream_options", 400, `{"error_code":"BAD_REQUEST","message":"{\"message\":\"json: unknown field \\\"stream_options\\\"\"}"}`, "stream_options", ""},
		{"pydantic", "", "seed", 422, `{"detail":[{"type":"extra_forbidden","loc":["body","seed"],"msg":"Extra inputs are not permitted","input":7}]}`, "seed", ""},
		{"trtllm-serve", "trtllm", "min_tokens", 400, `{"object":"error","message":"[{'type': 'extra_forbidden', 'loc': ('body', 'min_tokens'), 'msg': 'Extra inputs are not permitted', 'input': 64}]","type":"BadRequestError","param":null,"code":400}`, "min_tokens", ""},
		{"inner field", "vllm", "stream_options.continuous_usage_stats", 400, `{"object":"error","message":"[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options', 'continuous_usage_stats'), 'msg': 'Extra inputs are not permitted'}]","code":400}`, "stream_options.continuous_usage_stats", "stream_options"},
		{"fixed temperature", "", "temperature", 400, `{"error":{"message":"Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported.","param":"temperature","code":"unsupported_value"}}`, "temperature", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			has := func(body map[string]any, name string) bool {
				var v any = body
				for _, key := range strings.Split(name, ".") {
					m, _ := v.(map[string]any)
					if v = m[key]; v == nil {
						return false
					}
				}
				return true
			}
			var s *scripted
			s = serve(t, func(n int, _ *http.Request, _ []byte) []step {
				if _, body := s.seen(n); has(body, tt.refuses) {
					return jsonReply(tt.status, tt.body)
				}
				return wholeAnswer()
			})
			target := newTarget(t, s.url(), func(c *config.Target) { c.Engine = orElse(tt.engine, config.Auto) })
			r := ask()
			r.Fixed = true
			a := target.Send(context.Background(), r, timeouts())
			if a.Outcome != result.Success || compact(a.Anomalies) != `["field_dropped"]` {
				t.Errorf("%s %s", summary(a), a.Detail)
			}
			if f := target.Features(); len(f.Refused) != 1 || !f.Refused[tt.field] {
				t.Errorf("refused %v", f.Refused)
			}
			if why := target.Snapshot().Refused[tt.field]; why == "" {
				t.Error("nobody knows why")
			}
			_, body := s.seen(1)
			if tt.then != "" && !has(body, tt.then) {
				t.Errorf("%s is not in %s", tt.then, compact(body))
			}
			if a := target.Send(context.Background(), r, timeouts()); len(a.Anomalies) > 0 || s.count() != 3 {
				t.Errorf("second probe: %s, %d requests in all", summary(a), s.count())
			}
		})
	}
}

// What names a field without refusing it is left alone.
func TestNotRefused(t *testing.T) {
	for name, body := range map[string]string{
		"too large":  `{"error":{"message":"'max_tokens' or 'max_completion_tokens' is too large: 64. This model's maximum context length is 32 tokens, which is not supported","code":400}}`,
		"wrong type": `{"error":{"code":400,"message":"Field 'max_tokens': type must be number, but is string"}}`,
		"no field":   `{"error":{"message":"unsupported media"}}`,
		"a word":     `{"error":{"message":"unknown: the quota was exceeded and seeded"}}`,
	} {
		s := serve(t, always(jsonReply(400, body)))
		target := newTarget(t, s.url(), nil)
		wantReason(t, target.Send(context.Background(), ask(), timeouts()), result.ReasonHTTP4xx, "")
		if s.count() != 1 || len(target.Features().Refused) > 0 {
			t.Errorf("%s: %d requests, refused %v", name, s.count(), target.Features().Refused)
		}
	}
}

// A target that refuses one field after the other is given up on.
func TestRefusalsAreBounded(t *testing.T) {
	var s *scripted
	s = serve(t, func(n int, _ *http.Request, _ []byte) []step {
		_, body := s.seen(n)
		for name := range body {
			if name != "model" && name != "messages" && name != "stream" {
				return jsonReply(400, `{"error":{"message":"unknown field","param":"`+name+`"}}`)
			}
		}
		return jsonReply(400, `{"error":{"message":"unknown field model"}}`)
	})
	wantReason(t, newTarget(t, s.url(), func(c *config.Target) { c.Engine = "vllm" }).Send(context.Background(), Request{
		Messages: ask().Messages, MaxTokens: 8, Fixed: true, CacheSalt: "s",
	}, timeouts()), result.ReasonHTTP4xx, "unknown field")
	if n := s.count(); n != maxRefusals+1 {
		t.Errorf("%d requests, want %d", n, maxRefusals+1)
	}
}

// What a target cannot do is unsupported, not failed, and remembered.
func TestUnsupported(t *testing.T) {
	schema := &Constraint{Kind: JSONSchema, Name: "x", Schema: []byte(`{"type":"object"}`)}
	image := []Message{{Role: User, Text: "What is it?", Media: []Media{{Kind: Image, MIMEType: "image/png", Data: []byte("x")}}}}
	sound := []Message{{Role: User, Text: "What is it?", Media: []Media{{Kind: Audio, MIMEType: "audio/wav", Data: []byte("x")}}}}
	tools := []Tool{{Name: "f", Parameters: []byte(`{"type":"object"}`)}}
	tests := []struct {
		name    string
		request Request
		status  int
		body    string
		feature Feature
	}{
		{"vLLM tools", Request{Messages: ask().Messages, Tools: tools}, 400, `{"error":{"message":"\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set","code":400}}`, FeatureTools},
		{"vLLM image", Request{Messages: image}, 400, `{"error":{"message":"/m is not a multimodal model","code":400}}`, FeatureVision},
		{"vLLM image limit", Request{Messages: image}, 400, `{"error":{"message":"At most 0 image(s) may be provided in one prompt."}}`, FeatureVision},
		{"llama.cpp image", Request{Messages: image}, 500, `{"error":{"code":500,"message":"image input is not supported - hint: if this is unexpected, you may need to provide the mmproj","type":"server_error"}}`, FeatureVision},
		{"audio", Request{Messages: sound}, 400, `{"error":{"message":"audio input is not supported"}}`, FeatureAudio},
		{"schema", Request{Messages: ask().Messages, Constraint: schema}, 400, `{"error":{"message":"Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.","param":"response_format"}}`, FeatureStructuredOutput},
	}
	for _, tt := range tests {
		s := serve(t, always(jsonReply(tt.status, tt.body)))
		target := newTarget(t, s.url(), nil)
		tt.request.MaxTokens = 8
		a := target.Send(context.Background(), tt.request, timeouts())
		if a.Outcome != result.Unsupported || a.Reason != "" || a.Detail == "" {
			t.Errorf("%s: %s %s", tt.name, summary(a), a.Detail)
		}
		if works, known := target.knows(tt.feature); works || !known {
			t.Errorf("%s: works %v, known %v", tt.name, works, known)
		}
	}
	// A server that breaks on tools has failed.
	s := serve(t, always(jsonReply(500, `{"error":{"message":"tool parser: not supported state"}}`)))
	a := newTarget(t, s.url(), nil).Send(context.Background(), Request{Messages: ask().Messages, Tools: tools, MaxTokens: 8}, timeouts())
	wantReason(t, a, result.ReasonHTTP5xx, "tool parser")
	// What no form is known for is not sent at all.
	a = newTarget(t, s.url(), nil).Send(context.Background(), Request{Messages: ask().Messages, Constraint: &Constraint{Kind: Grammar, Text: "root ::= x"}, MaxTokens: 8}, timeouts())
	if a.Outcome != result.Unsupported || s.count() != 1 {
		t.Errorf("%s, %d requests", summary(a), s.count())
	}
}

// A model without a chat template is asked through /v1/completions, when the choice is ours.
func TestNoChatTemplate(t *testing.T) {
	s := serve(t, func(_ int, r *http.Request, _ []byte) []step {
		if r.URL.Path == "/v1/chat/completions" {
			return jsonReply(400, `{"error":{"message":"As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template if the tokenizer does not define one."}}`)
		}
		return data(`{"choices":[{"index":0,"text":"One two","finish_reason":"stop"}]}`, usage(9, 3), done)
	})
	target := newTarget(t, s.url(), func(c *config.Target) { c.Protocol = config.Auto })
	if a := target.Send(context.Background(), ask(), timeouts()); a.Outcome != result.Success || a.Text != "One two" {
		t.Errorf("%s %s", summary(a), a.Detail)
	}
	if f := target.Facts(); f.Protocol != "openai_completions" {
		t.Errorf("protocol %s", f.Protocol)
	}
	fixed := newTarget(t, s.url(), nil)
	wantReason(t, fixed.Send(context.Background(), ask(), timeouts()), result.ReasonHTTP4xx, "chat template")
}

// A target whose list of models does not tell its context length tells it when a prompt is too long.
func TestContextLimitIsLearnt(t *testing.T) {
	for body, want := range map[string]int{
		`{"error":{"message":"This model's maximum context length is 1024 tokens. However, you requested 1025 tokens"}}`:                                                                                      1024,
		`{"error":{"code":400,"message":"request (6001 tokens) exceeds the available context size (2048 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":6001,"n_ctx":2048}}`: 2048,
		`{"error":{"message":"the prompt is too long"}}`:     0,
		`{"error":{"message":"no such thing as 4096"}}`:      0,
		`{"error":{"message":"context length exceeded: 9"}}`: 0,
	} {
		s := serve(t, func(_ int, r *http.Request, _ []byte) []step {
			if r.Method == http.MethodGet && r.URL.Path == "/v1/models" {
				return jsonReply(200, models("me", "m"))
			}
			if r.Method == http.MethodGet {
				return jsonReply(404, "{}")
			}
			return jsonReply(400, body)
		})
		target := newTarget(t, s.url(), nil)
		target.Send(context.Background(), ask(), timeouts())
		if got := target.Facts().MaxModelLen; got != want {
			t.Errorf("%s: %d, want %d", body, got, want)
		}
		if f, err := target.Detect(context.Background()); err != nil || f.MaxModelLen != want {
			t.Errorf("%s: %d after a detection (%v), want %d", body, f.MaxModelLen, err, want)
		}
	}
}
