package engine

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// event frames a typed event, as Anthropic and the Responses API send them.
func event(name, data string) string { return "event: " + name + "\ndata: " + data + "\n\n" }

// typed makes a stream of JSON objects whose type names the event.
func typed(objects ...string) []step {
	var events []string
	for _, o := range objects {
		var v struct{ Type string }
		_ = json.Unmarshal([]byte(o), &v)
		events = append(events, event(v.Type, o))
	}
	return spread(sse(events...))
}

// TestProtocols is what each protocol makes of its server's answers: success, an error before and inside of the
// stream, truncation, forms of usage, tool calls, reasoning. A new protocol is a few rows here.
func TestProtocols(t *testing.T) {
	protocol := func(name string) func(*config.Target) { return func(c *config.Target) { c.Protocol = name } }
	respUsage := `"usage":{"input_tokens":24,"input_tokens_details":{"cached_tokens":16},"output_tokens":3,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":27}`
	created := `{"type":"response.created","response":{"id":"r","model":"m","status":"in_progress","usage":null,"error":null}}`
	added := `{"type":"response.output_item.added","output_index":0,"item":{"type":"message","content":[]}}`
	textDelta := func(s string) string {
		return `{"type":"response.output_text.delta","output_index":0,"delta":"` + s + `"}`
	}
	start := `{"type":"message_start","message":{"model":"m","usage":{"input_tokens":8,"cache_read_input_tokens":16,"cache_creation_input_tokens":4,"output_tokens":1}}}`
	block := `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`
	anthropicText := func(s string) string {
		return `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"` + s + `"}}`
	}
	stop := func(reason string, n string) string {
		return `{"type":"message_delta","delta":{"stop_reason":"` + reason + `"},"usage":{"output_tokens":` + n + `}}`
	}
	sgl := func(text, n, finish string) string {
		return `{"text":"` + text + `","meta_info":{"id":"x","prompt_tokens":31,"completion_tokens":` + n + `,"cached_tokens":16,"finish_reason":` + finish + `}}`
	}
	tgi := func(text, tail string) string {
		return `{"index":1,"token":{"id":1,"text":"` + text + `","logprob":-0.1,"special":false},` + tail + `}`
	}
	tgiMore := `"generated_text":null,"details":null`
	tgiEnd := `"generated_text":"One two","details":{"finish_reason":"length","generated_tokens":2,"seed":null,"input_length":7}`
	timings := `"timings":{"cache_n":16,"prompt_n":8,"prompt_ms":41.0,"predicted_n":2,"predicted_ms":19.5,"draft_n":4,"draft_n_accepted":3}`
	ollamaDone := `"done":true,"done_reason":"stop","total_duration":812000000,"load_duration":512000000,"prompt_eval_count":24,"prompt_eval_duration":61000000,"eval_count":3,"eval_duration":19000000`
	ollamaTimings := ` timings={"load_seconds":0.512,"prefill_seconds":0.061,"decode_seconds":0.019,"total_seconds":0.812}`

	rows := []row{
		// openai_completions
		{name: "completions", target: protocol("openai_completions"), steps: spread(data(`{"choices":[{"index":0,"text":"One","finish_reason":""}]}`, `{"choices":[{"index":0,"text":" two","finish_reason":"eos_token"}],"usage":{"prompt_tokens":31,"completion_tokens":3,"total_tokens":34}}`, done)), want: `success text="One two" finish=stop in=31 out=3:usage [ttft ttfc tpot e2e 1gaps]`},
		{name: "completions truncated", target: protocol("openai_completions"), steps: spread(data(`{"choices":[{"index":0,"text":"One","finish_reason":null}]}`)), want: `failure truncated text="One" out=1:chunks [ttft ttfc]`, detail: "finish"},
		{name: "completions error inside", target: protocol("openai_completions"), steps: spread(data(`{"choices":[{"index":0,"text":"One"}]}`, `{"error":{"message":"gone"}}`)), want: `failure stream_error text="One" out=1:chunks [ttft ttfc]`, detail: "gone"},

		// chat dialects
		{name: "llama.cpp timings", steps: spread(data(delta(`"role":"assistant","content":null`), content("One"), content(" two"), `{"choices":[{"index":0,"delta":{},"finish_reason":"length"}],`+timings+`}`, done)), want: `success text="One two" finish=length in=24 cached=16 out=2:exact [ttft ttfc tpot e2e 1gaps] timings={"prefill_seconds":0.041,"decode_seconds":0.0195} spec={"draft_tokens":4,"accepted_tokens":3} ![usage_missing]`},
		{name: "vLLM per-request metrics", steps: spread(data(content("One"), content(" two"), finish("stop"), `{"choices":[],"usage":{"prompt_tokens":31,"completion_tokens":3,"total_tokens":34},"metrics":{"time_to_first_token_ms":70,"queue_time_ms":1,"generation_time_ms":750,"mean_itl_ms":9}}`, done)), want: `success text="One two" finish=stop in=31 out=3:usage [ttft ttfc tpot e2e 1gaps] timings={"queue_seconds":0.001,"prefill_seconds":0.07,"decode_seconds":0.75}`},
		{name: "Dynamo timing", steps: spread(data(content("One"), content(" two"), `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"nvext":{"timing":{"ttft_ms":80,"total_time_ms":250}}}`, usage(31, 3), done)), want: `success text="One two" finish=stop in=31 out=3:usage [ttft ttfc tpot e2e 1gaps] timings={"total_seconds":0.25}`},
		{name: "Mistral thinks in parts", steps: spread(data(`{"choices":[{"index":0,"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}}]}`, `{"choices":[{"index":0,"delta":{"content":[{"type":"text","text":"One"}]}}]}`, finish("stop"), usage(31, 3), done)), want: `success text="One" reasoning="hm" finish=stop in=31 out=3:usage [ttft ttfc tpot e2e 1gaps]`},

		// openai_responses
		{name: "responses", target: protocol("openai_responses"), steps: typed(created, added, `{"type":"response.content_part.added","part":{"type":"output_text","text":""}}`, textDelta("One"), textDelta(" two"), `{"type":"response.output_text.done","text":"One two"}`, `{"type":"response.completed","response":{"status":"completed","model":"m",`+respUsage+`}}`), want: `success text="One two" finish=stop in=24 cached=16 out=3:usage [ttft ttfc tpot e2e 1gaps]`},
		{name: "responses with [DONE]", target: protocol("openai_responses"), steps: spread(sse(event("response.output_text.delta", textDelta("One")), event("response.completed", `{"type":"response.completed","response":{"status":"completed",`+respUsage+`}}`), "data: [DONE]\n\n")), want: `success text="One" finish=stop in=24 cached=16 out=3:usage [ttft ttfc e2e]`},
		{name: "responses at the limit", target: protocol("openai_responses"), steps: typed(created, textDelta("One"), `{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},`+respUsage+`}}`), want: `success text="One" finish=length in=24 cached=16 out=3:usage [ttft ttfc e2e]`},
		{name: "responses failed", target: protocol("openai_responses"), steps: typed(created, textDelta("One"), `{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"broke"}}}`), want: `failure stream_error text="One" out=1:chunks [ttft ttfc]`, detail: "server_error: broke"},
		{name: "responses error event", target: protocol("openai_responses"), steps: typed(created, `{"type":"error","code":"server_error","message":"broke","param":null}`), want: `failure stream_error`, detail: "broke"},
		{name: "responses truncated", target: protocol("openai_responses"), steps: typed(created, added, textDelta("One")), want: `failure truncated text="One" out=1:chunks [ttft ttfc]`, detail: "finish"},
		{
			name: "responses reasoning and call", target: protocol("openai_responses"), steps: typed(created,
				`{"type":"response.reasoning_summary_text.delta","delta":"hm"}`, `{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","call_id":"c1","name":"get_weather","arguments":""}}`,
				`{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{\"city\":"}`, `{"type":"response.function_call_arguments.delta","output_index":1,"delta":"\"Paris\"}"}`,
				`{"type":"response.function_call_arguments.done","output_index":1,"arguments":"{\"city\":\"Paris\"}"}`, `{"type":"response.completed","response":{"status":"completed",`+respUsage+`}}`),
			want: `success reasoning="hm" call=get_weather({"city":"Paris"}) finish=tool_calls in=24 cached=16 out=3:usage [ttft tpot e2e 2gaps]`,
		},
		{name: "responses without deltas", target: protocol("openai_responses"), steps: typed(created, `{"type":"response.output_text.done","text":"One"}`, `{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}}`, `{"type":"response.completed","response":{"status":"completed",`+respUsage+`}}`), want: `success text="One" call=f({}) finish=tool_calls in=24 cached=16 out=3:usage [ttft ttfc tpot e2e 1gaps]`},
		{name: "responses 404", target: protocol("openai_responses"), steps: jsonReply(404, `{"detail":"Not Found"}`), want: "failure http_404", detail: "/v1/responses"},

		// anthropic_messages
		{name: "anthropic", target: protocol("anthropic_messages"), steps: typed(start, block, `{"type":"ping"}`, anthropicText("One"), anthropicText(" two"), `{"type":"content_block_stop","index":0}`, stop("max_tokens", "3"), `{"type":"message_stop"}`), want: `success text="One two" finish=length in=28 cached=16 out=3:usage [ttft ttfc tpot e2e 1gaps]`},
		{name: "anthropic clone with usage at the end alone", target: protocol("anthropic_messages"), steps: typed(`{"type":"message_start","message":{"usage":{"input_tokens":0,"output_tokens":0}}}`, block, anthropicText("One"), `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":24,"output_tokens":2}}`, `{"type":"message_stop"}`), want: `success text="One" finish=stop in=24 out=2:usage [ttft ttfc e2e]`},
		{name: "anthropic error inside", target: protocol("anthropic_messages"), steps: typed(start, anthropicText("One"), `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), want: `failure stream_error text="One" in=28 cached=16 out=1:chunks [ttft ttfc]`, detail: "overloaded_error: Overloaded"},
		{name: "anthropic truncated", target: protocol("anthropic_messages"), steps: typed(start, block, anthropicText("One")), want: `failure truncated text="One" in=28 cached=16 out=1:chunks [ttft ttfc]`, detail: "finish"},
		{name: "anthropic without message_stop", target: protocol("anthropic_messages"), steps: typed(start, anthropicText("One"), stop("end_turn", "2")), want: `success text="One" finish=stop in=28 cached=16 out=2:usage [ttft ttfc e2e] ![missing_done]`},
		{name: "anthropic thinks and calls", target: protocol("anthropic_messages"), steps: typed(start,
			`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}`, `{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"xyz"}}`,
			`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"get_weather","input":{}}}`,
			`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":""}}`, `{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"city\":\"Paris\"}"}}`,
			stop("tool_use", "9"), `{"type":"message_stop"}`), want: `success reasoning="hm" call=get_weather({"city":"Paris"}) finish=tool_calls in=28 cached=16 out=9:usage [ttft tpot e2e 1gaps]`},
		{name: "anthropic refuses the key", target: protocol("anthropic_messages"), steps: jsonReply(401, `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`), want: "failure http_401", detail: "authentication_error: invalid x-api-key"},

		// sglang_generate
		{name: "sglang cumulative", target: protocol("sglang_generate"), steps: spread(data(sgl("One", "1", "null"), sgl("One two", "3", "null"), sgl("One two", "3", `{"type":"length","length":3}`), done)), want: `success text="One two" finish=length in=31 cached=16 out=3:usage per_chunk=[1 2] [ttft ttfc tpot e2e 1gaps]`},
		{name: "sglang one token, repeated at the end", target: protocol("sglang_generate"), steps: spread(data(sgl("One", "1", "null"), sgl("One", "1", `{"type":"length","length":1}`), done)), want: `success text="One" finish=length in=31 cached=16 out=1:usage per_chunk=[1] [ttft ttfc e2e]`},
		{name: "sglang incremental", target: protocol("sglang_generate"), steps: spread(data(sgl("One", "1", "null"), sgl(" two", "2", "null"), sgl("", "2", `{"type":"stop","matched":2}`), done)), want: `success text="One two" finish=stop in=31 cached=16 out=2:usage per_chunk=[1 1] [ttft ttfc tpot e2e 1gaps]`},
		{name: "sglang speculation", target: protocol("sglang_generate"), steps: spread(data(sgl("One", "1", "null"), `{"text":"One two","meta_info":{"prompt_tokens":31,"completion_tokens":4,"finish_reason":{"type":"stop"},"e2e_latency":0.5,"spec_verify_ct":2,"spec_accepted_drafts":2,"spec_proposed_drafts":6}}`, done)), want: `success text="One two" finish=stop in=31 cached=16 out=4:usage per_chunk=[1 3] [ttft ttfc tpot e2e 1gaps] timings={"total_seconds":0.5} spec={"draft_tokens":6,"accepted_tokens":2,"verify_steps":2}`},
		{name: "sglang abort", target: protocol("sglang_generate"), steps: spread(data(sgl("One", "1", "null"), sgl("One", "1", `{"type":"abort","message":"out of memory"}`), done)), want: `failure stream_error text="One" in=31 cached=16 out=1:usage per_chunk=[1] [ttft ttfc]`, detail: "abort: out of memory"},
		{name: "sglang error inside", target: protocol("sglang_generate"), steps: spread(data(sgl("One", "1", "null"), `{"error":{"message":"bad"}}`, done)), want: `failure stream_error text="One" in=31 cached=16 out=1:usage per_chunk=[1] [ttft ttfc]`, detail: "bad"},
		{name: "sglang truncated", target: protocol("sglang_generate"), steps: spread(data(sgl("One", "1", "null"))), want: `failure truncated text="One" in=31 cached=16 out=1:usage per_chunk=[1] [ttft ttfc]`, detail: "finish"},
		{name: "sglang flat error", target: protocol("sglang_generate"), steps: jsonReply(400, `{"object":"error","message":"bad request","type":"Bad","code":400}`), want: "failure http_4xx", detail: "bad request"},

		// tgi_generate
		{name: "tgi", target: protocol("tgi_generate"), steps: spread(sse("data:"+tgi("One", tgiMore)+"\n\n", ":\n\n", "data:"+tgi(" two", tgiEnd)+"\n\n")), want: `success text="One two" finish=length in=7 out=2:usage per_chunk=[1 1] [ttft ttfc tpot e2e 1gaps]`},
		{name: "tgi special tokens are no output", target: protocol("tgi_generate"), steps: spread(data(`{"index":1,"token":{"id":0,"text":"<s>","special":true},`+tgiMore+`}`, tgi("One", tgiMore), `{"index":3,"token":{"id":2,"text":"</s>","special":true},"generated_text":"One","details":{"finish_reason":"eos_token","generated_tokens":3,"input_length":7}}`)), want: `success text="One" finish=stop in=7 out=3:usage per_chunk=[2] [ttft ttfc e2e]`},
		{name: "tgi without details", target: protocol("tgi_generate"), steps: spread(data(tgi("One", tgiMore), tgi(" two", `"generated_text":"One two","details":null`))), want: `success text="One two" out=2:exact per_chunk=[1 1] [ttft ttfc tpot e2e 1gaps] ![usage_missing]`},
		{name: "tgi error inside", target: protocol("tgi_generate"), steps: spread(data(tgi("One", tgiMore), `{"error":"Request failed during generation","error_type":"generation"}`)), want: `failure stream_error text="One" out=1:exact per_chunk=[1] [ttft ttfc]`, detail: "Request failed"},
		{name: "tgi truncated", target: protocol("tgi_generate"), steps: spread(data(tgi("One", tgiMore))), want: `failure truncated text="One" out=1:exact per_chunk=[1] [ttft ttfc]`, detail: "finish"},
		{name: "tgi overloaded", target: protocol("tgi_generate"), steps: jsonReply(429, `{"error":"Model is overloaded","error_type":"overloaded"}`), want: "failure http_429", detail: "Model is overloaded"},

		// triton_generate
		{name: "triton pieces", target: protocol("triton_generate"), steps: spread(data(`{"model_name":"m","model_version":"1","sequence_end":false,"text_output":"One"}`, `{"model_name":"m","text_output":" two"}`)), want: `success text="One two" out=2:chunks [ttft ttfc e2e 1gaps]`},
		{name: "triton cumulative", target: protocol("triton_generate"), steps: spread(data(`{"text_output":"One"}`, `{"text_output":"One two"}`, `{"text_output":"One two three"}`)), want: `success text="One two three" out=3:chunks [ttft ttfc e2e 2gaps]`},
		{name: "triton error inside", target: protocol("triton_generate"), steps: spread(data(`{"text_output":"One"}`, `{"error":"Executor failed"}`)), want: `failure stream_error text="One" out=1:chunks [ttft ttfc]`, detail: "Executor failed"},
		{name: "triton cut", target: protocol("triton_generate"), steps: []step{raw(sseHead), chunk(framed(`{"text_output":"One"}`)), fin()}, want: `failure truncated text="One" out=1:chunks [ttft ttfc]`, detail: "closed inside"},
		{name: "triton empty", target: protocol("triton_generate"), steps: sse(), want: "failure truncated", detail: "0 chunks"},
		{name: "triton unknown model", target: protocol("triton_generate"), steps: jsonReply(400, `{"error":"Request for unknown model: 'm' is not found"}`), want: "failure model_not_found", detail: "model"},

		// llamacpp_completion
		{name: "llama.cpp native", target: protocol("llamacpp_completion"), steps: spread(data(`{"index":0,"content":"One","tokens":[1],"stop":false}`, `{"index":0,"content":" two","tokens":[2],"stop":false}`, `{"index":0,"content":"","tokens":[],"stop":true,"stop_type":"limit","model":"m","tokens_predicted":2,"tokens_evaluated":24,"tokens_cached":25,`+timings+`}`)), want: `success text="One two" finish=length in=24 cached=16 out=2:usage per_chunk=[1 1] [ttft ttfc tpot e2e 1gaps] timings={"prefill_seconds":0.041,"decode_seconds":0.0195} spec={"draft_tokens":4,"accepted_tokens":3}`},
		{name: "llama.cpp native error inside", target: protocol("llamacpp_completion"), steps: spread(data(`{"content":"One","stop":false}`, `{"error":{"code":500,"message":"context shift failed","type":"server_error"}}`)), want: `failure stream_error text="One" out=1:chunks [ttft ttfc]`, detail: "context shift failed"},
		{name: "llama.cpp native truncated", target: protocol("llamacpp_completion"), steps: spread(data(`{"content":"One","stop":false}`)), want: `failure truncated text="One" out=1:chunks [ttft ttfc]`, detail: "finish"},
		{name: "llama.cpp native old end", target: protocol("llamacpp_completion"), steps: spread(data(`{"content":"One","stop":false}`, `{"content":"","stop":true,"stopped_limit":true,"tokens_predicted":1,"tokens_evaluated":9}`)), want: `success text="One" finish=length in=9 out=1:usage [ttft ttfc e2e]`},

		// ollama
		{name: "ollama chat", target: protocol("ollama_chat"), steps: spread(ndjson(`{"model":"m","message":{"role":"assistant","content":"","thinking":"hm"},"done":false}`, `{"model":"m","message":{"role":"assistant","content":"One"},"done":false}`, `{"model":"m","message":{"role":"assistant","content":""},`+ollamaDone+`}`)), want: `success text="One" reasoning="hm" finish=stop in=24 out=3:usage [ttft ttfc tpot e2e 1gaps]` + ollamaTimings},
		{name: "ollama tool call", target: protocol("ollama_chat"), steps: spread(ndjson(`{"message":{"role":"assistant","content":"","tool_calls":[{"function":{"name":"get_weather","arguments":{"city":"Paris"}}},{"function":{"name":"now","arguments":{}}}]},"done":false}`, `{"message":{"content":""},`+ollamaDone+`}`)), want: `success call=get_weather({"city":"Paris"}) call=now({}) finish=stop in=24 out=3:usage [ttft e2e]` + ollamaTimings},
		{name: "ollama cached", target: protocol("ollama_chat"), steps: spread(ndjson(`{"message":{"content":"One"},"done":false}`, `{"message":{"content":""},"done":true,"done_reason":"stop","prompt_eval_count":24,"prompt_eval_cached_count":16,"eval_count":2}`)), want: `success text="One" finish=stop in=24 cached=16 out=2:usage [ttft ttfc e2e]`},
		{name: "ollama prompt count left out", target: protocol("ollama_generate"), steps: spread(ndjson(`{"response":"One","done":false}`, `{"response":"","done":true,"done_reason":"length","eval_count":2}`)), want: `success text="One" finish=length out=2:usage [ttft ttfc e2e]`},
		{name: "ollama prompt count without the cached part", target: protocol("ollama_generate"), steps: spread(ndjson(`{"response":"One","done":false}`, `{"response":"","done":true,"done_reason":"length","prompt_eval_count":1,"eval_count":2}`)), want: `success text="One" finish=length out=2:usage [ttft ttfc e2e]`},
		{name: "ollama error inside", target: protocol("ollama_generate"), steps: spread(ndjson(`{"response":"One","done":false}`, `{"error":"llama runner process has terminated"}`)), want: `failure stream_error text="One" out=1:chunks [ttft ttfc]`, detail: "runner process"},
		{name: "ollama truncated", target: protocol("ollama_generate"), steps: spread(ndjson(`{"response":"One","done":false}`)), want: `failure truncated text="One" out=1:chunks [ttft ttfc]`, detail: "finish"},
		{name: "ollama busy", target: protocol("ollama_chat"), steps: jsonReply(503, `{"error":"server busy, please try again.  maximum pending requests exceeded"}`), want: "failure http_503", detail: "server busy"},
		{name: "ollama with another type", target: protocol("ollama_generate"), steps: spread(append([]step{raw(strings.Replace(ndjsonHead, "x-ndjson", "json", 1))}, ndjson(`{"response":"One","done":false}`, `{"response":"",`+ollamaDone+`}`)[1:]...)), want: `success text="One" finish=stop in=24 out=3:usage [ttft ttfc e2e]` + ollamaTimings},
	}
	for _, r := range rows {
		t.Run(r.name, r.run)
	}
}

// full is a request that asks for all that a scenario can ask for, short of media.
func full() Request {
	return Request{
		Messages:  []Message{{Role: System, Text: "Be brief."}, {Role: User, Text: "Weather?"}},
		MaxTokens: 8, Fixed: true, Seed: 7, CacheSalt: "pepper",
	}
}

// TestRequestForms is the body that each protocol sends, on each engine that has a form of its own.
func TestRequestForms(t *testing.T) {
	schema := &Constraint{Kind: JSONSchema, Name: "w", Schema: []byte(`{"type":"object"}`)}
	with := func(change func(*Request)) Request { r := full(); change(&r); return r }
	constrained := func(c *Constraint) Request {
		return Request{Messages: []Message{{Role: User, Text: "x"}}, MaxTokens: 8, Constraint: c}
	}
	tool := with(func(r *Request) {
		r.Fixed, r.CacheSalt, r.ToolChoice = false, "", "get_weather"
		r.Tools = []Tool{{Name: "get_weather", Description: "d", Parameters: []byte(`{"type":"object"}`)}}
	})
	png := []Message{{Role: User, Text: "What?", Media: []Media{{Kind: Image, MIMEType: "image/png", Data: []byte("PNG")}}}}
	wav := []Message{{Role: User, Text: "What?", Media: []Media{{Kind: Audio, MIMEType: "audio/wav", Data: []byte("WAV")}}}}
	media := func(m []Message) Request { return Request{Messages: m, MaxTokens: 8} }
	regex, choice, grammar := &Constraint{Kind: Regex, Text: "[a-z]+"}, &Constraint{Kind: Choice, Values: []string{"a.b", "c"}}, &Constraint{Kind: Grammar, Text: "root ::= \"x\""}
	tests := []struct {
		name, protocol string
		facts          Facts
		request        Request
		path           string
		want           string // a part of the body; "unsupported" if there is none
	}{
		{"vllm", "openai_chat", Facts{Engine: EngineVLLM}, full(), "/v1/chat/completions", `{"cache_salt":"pepper","ignore_eos":true,"max_tokens":8,"messages":[{"content":"Be brief.","role":"system"},{"content":"Weather?","role":"user"}],"min_tokens":8,"model":"m","seed":7,"stream":true,"stream_options":{"continuous_usage_stats":true,"include_usage":true},"temperature":0}`},
		{"openai", "openai_chat", Facts{Engine: EngineOpenAI}, full(), "/v1/chat/completions", `{"max_tokens":8,"messages":[{"content":"Be brief.","role":"system"},{"content":"Weather?","role":"user"}],"model":"m","seed":7,"stream":true,"stream_options":{"include_usage":true},"temperature":0}`},
		{"hosted", "openai_chat", Facts{Engine: EngineOpenAIHosted}, full(), "/v1/chat/completions", `{"max_completion_tokens":8,"messages"`},
		{"llamacpp", "openai_chat", Facts{Engine: EngineLlamaCPP}, full(), "/v1/chat/completions", `"timings_per_token":true`},
		{"litellm", "openai_chat", Facts{Engine: EngineLiteLLM}, full(), "/v1/chat/completions", `{"cache":{"no-cache":true,"no-store":true},"max_tokens":8`},
		{"dynamo", "openai_chat", Facts{Engine: EngineDynamo}, full(), "/v1/chat/completions", `"nvext":{"cache_salt":"pepper"}`},
		{"azure deployment", "openai_chat", Facts{Engine: EngineAzure, Model: "my dep"}, full(), "/openai/deployments/my%20dep/chat/completions?api-version=2024-10-21", `"model":"my dep"`},
		{"tools", "openai_chat", Facts{}, tool, "", `"tool_choice":{"function":{"name":"get_weather"},"type":"function"},"tools":[{"function":{"description":"d","name":"get_weather","parameters":{"type":"object"}},"type":"function"}]}`},
		{"image", "openai_chat", Facts{}, media(png), "", `"content":[{"image_url":{"url":"data:image/png;base64,UE5H"},"type":"image_url"},{"text":"What?","type":"text"}]`},
		{"audio", "openai_chat", Facts{}, media(wav), "", `{"input_audio":{"data":"V0FW","format":"wav"},"type":"input_audio"}`},
		{"audio sglang", "openai_chat", Facts{Engine: EngineSGLang}, media(wav), "", `{"audio_url":{"url":"data:audio/wav;base64,V0FW"},"type":"audio_url"}`},
		{"audio ollama", "openai_chat", Facts{Engine: EngineOllama}, media(wav), "", "unsupported"},

		{"schema", "openai_chat", Facts{}, constrained(schema), "", `"response_format":{"json_schema":{"name":"w","schema":{"type":"object"},"strict":true},"type":"json_schema"}`},
		{"schema tgi", "openai_chat", Facts{Engine: EngineTGI}, constrained(schema), "", `"response_format":{"type":"json","value":{"type":"object"}}`},
		{"regex vllm", "openai_chat", Facts{Engine: EngineVLLM, Version: "0.27.0"}, constrained(regex), "", `"structured_outputs":{"regex":"[a-z]+"}`},
		{"regex old vllm", "openai_chat", Facts{Engine: EngineVLLM, Version: "0.10.2"}, constrained(regex), "", `"guided_regex":"[a-z]+"`},
		{"choice vllm", "openai_chat", Facts{Engine: EngineVLLM}, constrained(choice), "", `"structured_outputs":{"choice":["a.b","c"]}`},
		{"grammar vllm", "openai_completions", Facts{Engine: EngineVLLM}, constrained(grammar), "/v1/completions", `"structured_outputs":{"grammar":"root ::= \"x\""}`},
		{"choice sglang", "openai_chat", Facts{Engine: EngineSGLang}, constrained(choice), "", `"regex":"(a\\.b|c)"`},
		{"grammar sglang", "openai_chat", Facts{Engine: EngineSGLang}, constrained(grammar), "", `"ebnf":"root ::= \"x\""`},
		{"regex trtllm", "openai_chat", Facts{Engine: EngineTRTLLM}, constrained(regex), "", `"response_format":{"regex":"[a-z]+","type":"regex"}`},
		{"grammar trtllm", "openai_chat", Facts{Engine: EngineTRTLLM}, constrained(grammar), "", `"response_format":{"ebnf":"root ::= \"x\"","type":"ebnf"}`},
		{"regex lmdeploy", "openai_chat", Facts{Engine: EngineLMDeploy}, constrained(regex), "", `"response_format":{"regex_schema":"[a-z]+","type":"regex_schema"}`},
		{"regex tgi", "openai_chat", Facts{Engine: EngineTGI}, constrained(regex), "", `"response_format":{"type":"regex","value":"[a-z]+"}`},
		{"choice llamacpp", "openai_chat", Facts{Engine: EngineLlamaCPP}, constrained(choice), "", `"grammar":"root ::= \"a.b\" | \"c\""`},
		{"regex llamacpp", "openai_chat", Facts{Engine: EngineLlamaCPP}, constrained(regex), "", "unsupported"},
		{"regex unknown engine", "openai_chat", Facts{Engine: EngineOpenAI}, constrained(regex), "", "unsupported"},
		{"tools completions", "openai_completions", Facts{}, tool, "", "unsupported"},

		{"responses", "openai_responses", Facts{}, with(func(r *Request) { r.Constraint = schema }), "/v1/responses", `{"input":[{"content":"Be brief.","role":"system"},{"content":"Weather?","role":"user"}],"max_output_tokens":8,"model":"m","store":false,"stream":true,"temperature":0,"text":{"format":{"name":"w","schema":{"type":"object"},"strict":true,"type":"json_schema"}}}`},
		{"responses tools", "openai_responses", Facts{}, tool, "", `"tool_choice":{"name":"get_weather","type":"function"},"tools":[{"description":"d","name":"get_weather","parameters":{"type":"object"},"type":"function"}]`},
		{"responses image", "openai_responses", Facts{}, media(png), "", `[{"image_url":"data:image/png;base64,UE5H","type":"input_image"},{"text":"What?","type":"input_text"}]`},
		{"anthropic", "anthropic_messages", Facts{}, full(), "/v1/messages", `{"max_tokens":8,"messages":[{"content":"Weather?","role":"user"}],"model":"m","stream":true,"system":"Be brief.","temperature":0}`},
		{"anthropic tools", "anthropic_messages", Facts{}, tool, "", `"tool_choice":{"name":"get_weather","type":"tool"},"tools":[{"description":"d","input_schema":{"type":"object"},"name":"get_weather"}]`},
		{"anthropic image", "anthropic_messages", Facts{}, media(png), "", `{"source":{"data":"UE5H","media_type":"image/png","type":"base64"},"type":"image"}`},
		{"sglang native", "sglang_generate", Facts{}, with(func(r *Request) { r.Constraint = schema }), "/generate", `{"sampling_params":{"ignore_eos":true,"json_schema":"{\"type\":\"object\"}","max_new_tokens":8,"min_new_tokens":8,"temperature":0},"stream":true,"text":"Be brief.\n\nWeather?"}`},
		{"sglang native image", "sglang_generate", Facts{}, media(png), "", `"image_data":["UE5H"]`},
		{"tgi native", "tgi_generate", Facts{}, full(), "/generate_stream", `{"inputs":"Be brief.\n\nWeather?","parameters":{"details":true,"do_sample":false,"max_new_tokens":8,"seed":7}}`},
		{"tgi native image", "tgi_generate", Facts{}, media(png), "", `"inputs":"![](data:image/png;base64,UE5H)What?"`},
		{"triton trtllm", "triton_generate", Facts{Model: "ensemble"}, full(), "/v2/models/ensemble/generate_stream", `{"bad_words":"","max_tokens":8,"min_length":8,"random_seed":7,"stop_words":"","stream":true,"temperature":0,"text_input":"Be brief.\n\nWeather?"}`},
		{"triton vllm", "triton_generate", Facts{Model: "vllm_model"}, full(), "/v2/models/vllm_model/generate_stream", `{"exclude_input_in_output":true,"sampling_parameters":"{\"ignore_eos\":true,\"max_tokens\":8,\"min_tokens\":8,\"seed\":7,\"temperature\":0}","stream":true,"text_input"`},
		{"llama.cpp native", "llamacpp_completion", Facts{}, full(), "/completion", `{"ignore_eos":true,"n_predict":8,"prompt":"Be brief.\n\nWeather?","seed":7,"stream":true,"temperature":0,"timings_per_token":true}`},
		{"ollama chat", "ollama_chat", Facts{}, with(func(r *Request) { r.Constraint = schema }), "/api/chat", `{"format":{"type":"object"},"messages":[{"content":"Be brief.","role":"system"},{"content":"Weather?","role":"user"}],"model":"m","options":{"num_predict":8,"seed":7,"temperature":0},"stream":true}`},
		{"ollama generate", "ollama_generate", Facts{}, media(png), "/api/generate", `{"images":["UE5H"],"model":"m","options":{"num_predict":8,"seed":0,"temperature":0},"prompt":"What?","stream":true}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, ok := LookupProtocol(tt.protocol)
			if !ok {
				t.Fatal("no such protocol")
			}
			w := Wire{Facts: tt.facts, APIVersion: "2024-10-21"}
			w.Model = orElse(w.Model, "m")
			b := newBody(nil)
			err := p.Encode(tt.request, w, b)
			if tt.want == "unsupported" {
				if !as[*UnsupportedError](err) {
					t.Fatalf("error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			payload, err := b.encode()
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(payload), tt.want) {
				t.Errorf("\n got %s\nwant %s", payload, tt.want)
			}
			if tt.path != "" && p.Path(w) != tt.path {
				t.Errorf("path %s, want %s", p.Path(w), tt.path)
			}
		})
	}
}

// The headers that some protocols and gateways want.
func TestProtocolHeaders(t *testing.T) {
	s := serve(t, always(jsonReply(500, `{}`)))
	newTarget(t, s.url(), func(c *config.Target) { c.Protocol = "anthropic_messages" }).Send(context.Background(), ask(), timeouts())
	newTarget(t, s.url(), func(c *config.Target) { c.Engine = EngineLiteLLM }).Send(context.Background(), ask(), timeouts())
	newTarget(t, s.url(), func(c *config.Target) { c.Protocol = "ollama_chat" }).Send(context.Background(), ask(), timeouts())
	for i, want := range []struct{ name, value string }{
		{"Anthropic-Version", "2023-06-01"}, {"X-Litellm-Num-Retries", "0"}, {"Accept", "application/x-ndjson"},
	} {
		if r, _ := s.seen(i); r.Header.Get(want.name) != want.value {
			t.Errorf("%s: %q, want %q", want.name, r.Header.Get(want.name), want.value)
		}
	}
}

// Once a target has told cached tokens, an answer that leaves them out had none: a cold request on SGLang.
func TestCachedTokensLearnt(t *testing.T) {
	s := serve(t, func(n int, _ *http.Request, _ []byte) []step {
		details := "null"
		if n == 1 {
			details = `{"cached_tokens":16}`
		}
		return data(content("x"), finish("stop"), `{"choices":[],"usage":{"prompt_tokens":31,"completion_tokens":1,"total_tokens":32,"prompt_tokens_details":`+details+`}}`, done)
	})
	target := newTarget(t, s.url(), nil)
	for i, want := range []string{"null", "16", "0"} {
		if a := target.Send(context.Background(), ask(), timeouts()); compact(a.CachedPromptTokens) != want || a.Outcome != result.Success {
			t.Errorf("answer %d: cached %s, want %s", i, compact(a.CachedPromptTokens), want)
		}
	}
	if f := target.Features(); !f.Seen[FeatureCachedTokens] {
		t.Error("not remembered")
	}
}
