package engine

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// summary is what an answer says beside its times, in one line. What is absent does not appear.
func summary(a Answer) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", a.Outcome)
	put := func(name string, v *int) {
		if v != nil {
			fmt.Fprintf(&b, " %s=%d", name, *v)
		}
	}
	if a.Reason != "" {
		fmt.Fprintf(&b, " %s", a.Reason)
	}
	if a.Text != "" {
		fmt.Fprintf(&b, " text=%q", short200(a.Text))
	}
	if a.Reasoning != "" {
		fmt.Fprintf(&b, " reasoning=%q", short200(a.Reasoning))
	}
	for _, c := range a.ToolCalls {
		fmt.Fprintf(&b, " call=%s(%s)", c.Name, c.Arguments)
	}
	if a.FinishReason != "" {
		fmt.Fprintf(&b, " finish=%s", a.FinishReason)
	}
	put("in", a.PromptTokens)
	put("cached", a.CachedPromptTokens)
	put("out", a.CompletionTokens)
	if a.TokenCountSource != "" {
		fmt.Fprintf(&b, ":%s", a.TokenCountSource)
	}
	put("thought", a.ReasoningTokens)
	if a.ChunkTokens != nil {
		fmt.Fprintf(&b, " per_chunk=%v", a.ChunkTokens)
	}
	var figures []string
	for _, f := range []struct {
		name string
		has  bool
	}{
		{"ttft", a.TimeToFirstTokenSeconds != nil},
		{"ttfc", a.TimeToFirstContentSeconds != nil},
		{"tpot", hasTPOT(a)},
		{"e2e", a.E2ELatencySeconds != nil},
	} {
		if f.has {
			figures = append(figures, f.name)
		}
	}
	if len(a.InterChunkLatenciesSeconds) > 0 {
		figures = append(figures, fmt.Sprintf("%dgaps", len(a.InterChunkLatenciesSeconds)))
	}
	if len(figures) > 0 {
		fmt.Fprintf(&b, " [%s]", strings.Join(figures, " "))
	}
	if t := compact(a.ServerTimings); t != "{}" {
		fmt.Fprintf(&b, " timings=%s", t)
	}
	if s := compact(a.Speculation); s != "{}" {
		fmt.Fprintf(&b, " spec=%s", s)
	}
	if len(a.Anomalies) > 0 {
		fmt.Fprintf(&b, " !%v", a.Anomalies)
	}
	return b.String()
}

// hasTPOT reports whether an answer has a TPOT, given that its chunks came apart: on a busy machine they may come in
// one read, and then there is none, which checkTPOT checks.
func hasTPOT(a Answer) bool {
	return a.Outcome == result.Success && len(a.InterChunkLatenciesSeconds) > 0 && a.CompletionTokens != nil &&
		*a.CompletionTokens >= 2 && a.TokenCountSource != result.CountChunks
}

func checkTPOT(t *testing.T, a Answer) {
	t.Helper()
	var span float64
	for _, g := range a.InterChunkLatenciesSeconds {
		span += g
	}
	want := hasTPOT(a) && span > 0
	if got := a.TimePerOutputTokenSeconds; (got != nil) != want {
		t.Errorf("TPOT %s of a span of %v s in %s", compact(got), span, summary(a))
	} else if want && math.Abs(*got-span/float64(*a.CompletionTokens-1)) > 1e-9 {
		t.Errorf("TPOT %v of a span of %v s in %s", *got, span, summary(a))
	}
}

func short200(s string) string {
	if len(s) > 200 {
		return s[:200] + fmt.Sprintf("…(%d)", len(s))
	}
	return s
}

// spread puts a little time between events, so that figures that need time exist.
func spread(steps []step) []step {
	var out []step
	for i, s := range steps {
		if i > 1 {
			out = append(out, wait(2*time.Millisecond))
		}
		out = append(out, s)
	}
	return out
}

// row is one thing that a server does, and what is right.
type row struct {
	name    string
	steps   []step
	target  func(*config.Target)
	request func(*Request)
	times   func(*config.Timeouts)
	want    string // summary
	detail  string // pattern; the detail of a success is empty
}

func (r row) run(t *testing.T) {
	s := serve(t, always(r.steps))
	req, limits := ask(), timeouts()
	if r.request != nil {
		r.request(&req)
	}
	if r.times != nil {
		r.times(&limits)
	}
	a := newTarget(t, s.url(), r.target).Send(context.Background(), req, limits)
	checkTPOT(t, a)
	if got := summary(a); got != r.want {
		t.Errorf("\n got %s\nwant %s\ndetail %s", got, r.want, a.Detail)
	}
	if !regexp.MustCompile(orElse(r.detail, "^$")).MatchString(a.Detail) {
		t.Errorf("detail %q does not match %s", a.Detail, r.detail)
	}
}

// TestStreams holds what servers do inside of a stream. The numbers are rows of the tables of bug reports in our
// notes: E of streaming clients, V of benchmark clients.
func TestStreams(t *testing.T) {
	one, two := content("One"), content(" two")
	ok := `success text="One two" finish=stop in=31 out=3:usage [ttft ttfc tpot e2e 1gaps]`
	rows := []row{
		{name: "E1 V10 an event of 3 MiB", steps: spread(data(role, one, two, `{"choices":[],"x":"`+strings.Repeat("y", 3<<20)+`"}`, finish("stop"), usage(31, 3), done)), want: ok},
		{name: "E1 an event beyond the cap", steps: data(`{"choices":[],"x":"` + strings.Repeat("y", 17<<20) + `"}`), want: "failure response_too_large", detail: "event too large"},
		{name: "E2 E3 V9 comments dispatch nothing", steps: spread(sse(":\n\n", ": ping\n\n", "data: "+one+"\n\n", ": keep-alive\n\n", "data: "+two+"\n\n", "data: "+finish("stop")+"\n\n", ":\n\n", "data: "+usage(31, 3)+"\n\n", "data: [DONE]\n\n")), want: ok},
		{name: "E4 a comment wrapped into data", steps: spread(data(": keep-alive", one, two, finish("stop"), usage(31, 3), done)), want: ok + " ![nonstandard_framing]"},
		{name: "E5 no space after data:", steps: spread(sse("data:"+one+"\n\n", "data:"+two+"\n\n", "data:"+finish("stop")+"\n\n", "data:"+usage(31, 3)+"\n\n", "data:[DONE]\n\n")), want: ok},
		{name: "E6 no [DONE]", steps: spread(data(one, two, finish("stop"), usage(31, 3))), want: ok + " ![missing_done]"},
		{name: "E7 [DONE] within spaces, and something behind it", steps: spread(sse("data: "+one+"\n\n", "data: "+two+"\n\n", "data: "+finish("stop")+"\n\n", "data: "+usage(31, 3)+"\n\n", "data:  [DONE] \n\n", "data: rubbish\n\n")), want: ok},
		{name: "E8 an end without finish reason", steps: spread(data(one, two)), want: `failure truncated text="One two" out=2:chunks [ttft ttfc 1gaps]`, detail: "2 chunks without a finish reason"},
		{name: "E8 [DONE] without finish reason", steps: spread(data(one, done)), want: `failure truncated text="One" out=1:chunks [ttft ttfc]`, detail: `\[DONE\] came without`},
		{name: "E8 the connection is closed inside of the body", steps: []step{raw(sseHead), chunk("data: " + one + "\n\n"), wait(20 * time.Millisecond), fin()}, want: `failure truncated text="One" out=1:chunks [ttft ttfc]`, detail: "closed inside"},
		{name: "E8 the connection is reset inside of the body", steps: []step{raw(sseHead), chunk("data: " + one + "\n\n"), wait(20 * time.Millisecond), rst()}, want: `failure connection_reset text="One" out=1:chunks [ttft ttfc]`, detail: "after 1 chunks"},
		{name: "E9 the last event is not terminated", steps: spread(sse("data: "+one+"\n\n", "data: "+two+"\n\n", "data: "+usage(31, 3)+"\n\n", "data: "+finish("stop"))), want: ok + " ![missing_done unterminated]"},
		{name: "E9 [DONE] is not terminated", steps: spread(sse("data: "+one+"\n\n", "data: "+two+"\n\n", "data: "+finish("stop")+"\n\n", "data: "+usage(31, 3)+"\n\n", "data: [DONE]")), want: ok + " ![unterminated]"},
		{name: "E9 cut inside of an event", steps: spread(sse("data: "+one+"\n\n", `data: {"choices":[{"ind`)), want: `failure truncated text="One" out=1:chunks [ttft ttfc] ![unterminated]`, detail: "without a finish"},
		{name: "E10 V4 an error event, then [DONE]", steps: spread(data(role, `{"error":{"message":"CUDA error","type":"InternalServerError","code":500}}`, done)), want: "failure stream_error", detail: "InternalServerError 500: CUDA error"},
		{name: "E10 an error event after output", steps: spread(data(one, `{"error":{"message":"engine died","code":500}}`, done)), want: `failure stream_error text="One" out=1:chunks [ttft ttfc]`, detail: "engine died"},
		{name: "an error of the old flat form", steps: data(`{"object":"error","message":"too bad","type":"X","code":400}`), want: "failure stream_error", detail: "too bad"},
		{name: "an error that is a string", steps: data(`{"error":"overloaded","error_type":"overloaded"}`), want: "failure stream_error", detail: "overloaded"},
		{name: "error: null is none", steps: spread(data(`{"error":null,"choices":[{"index":0,"delta":{"content":"One two"},"finish_reason":"stop"}]}`, done)), want: `success text="One two" finish=stop out=1:chunks [ttft ttfc e2e] ![usage_missing]`},
		{name: "E11 a bare error", steps: spread(sse("data: "+one+"\n\n", "{\"error\":{\"message\":\"worker gone\"}}\n")), want: `failure stream_error text="One" out=1:chunks [ttft ttfc] ![nonstandard_framing]`, detail: "worker gone"},
		{name: "E12 event: error with a comment and no data", steps: spread(sse("data: "+one+"\n\n", "event: error\n: upstream worker vanished\n\n")), want: `failure stream_error text="One" out=1:chunks [ttft ttfc] ![nonstandard_framing]`, detail: "error event without data"},
		{name: "E13 V33 choices empty first (Azure) and last", steps: spread(data(`{"choices":[],"created":0,"id":"","model":"","prompt_filter_results":[{"prompt_index":0}]}`, role, one, two, finish("stop"), usage(31, 3), done)), want: ok},
		{name: "E14 nulls everywhere", steps: spread(data(`{"choices":null,"usage":null}`, `{}`, `{"choices":[{}]}`, `{"choices":[{"index":0,"delta":null,"finish_reason":null}]}`, `{"choices":[{"index":0,"delta":{"role":null,"content":null,"reasoning_content":null,"tool_calls":null}}],"usage":null}`, one, two, finish("stop"), usage(31, 3), done)), want: ok},
		{name: "E14 a number, a list and a string as events", steps: spread(data("1", "[]", `"x"`, one, two, finish("stop"), usage(31, 3), done)), want: ok + " ![nonstandard_framing]"},
		{
			name: "E15 V8 continuous usage is not added up", steps: spread(data(
				`{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"usage":{"prompt_tokens":31,"completion_tokens":0,"total_tokens":31}}`,
				`{"choices":[{"index":0,"delta":{"content":"One"}}],"usage":{"prompt_tokens":31,"completion_tokens":1,"total_tokens":32}}`,
				`{"choices":[{"index":0,"delta":{"content":" two"}}],"usage":{"prompt_tokens":31,"completion_tokens":5,"total_tokens":36}}`,
				`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":31,"completion_tokens":6,"total_tokens":37}}`,
				usage(31, 6), done)),
			want: `success text="One two" finish=stop in=31 out=6:usage per_chunk=[1 4] [ttft ttfc tpot e2e 1gaps]`,
		},
		{
			name: "V13 token ids count exactly, tokens without text belong to the next chunk", steps: spread(data(
				`{"choices":[{"index":0,"delta":{"content":"One"},"token_ids":[7]}]}`, `{"choices":[{"index":0,"delta":{"content":""},"token_ids":[1,2]}]}`,
				`{"choices":[{"index":0,"delta":{"content":" two"},"token_ids":[8,9]}]}`, finish("stop"), done)),
			want: `success text="One two" finish=stop out=5:exact per_chunk=[1 4] [ttft ttfc tpot e2e 1gaps] ![usage_missing]`,
		},
		{name: "a count that goes back", steps: spread(data(`{"choices":[{"index":0,"delta":{"content":"One"}}],"usage":{"completion_tokens":9}}`, `{"choices":[{"index":0,"delta":{"content":" two"}}],"usage":{"completion_tokens":3}}`, finish("stop"), done)), want: `success text="One two" finish=stop out=3:usage [ttft ttfc tpot e2e 1gaps] ![usage_inconsistent]`},
		{name: "E15 Ollama's zero usage before the right one", steps: spread(data(`{"choices":[{"index":0,"delta":{"content":"One two"},"finish_reason":"stop"}],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`, usage(31, 3), done)), want: `success text="One two" finish=stop in=31 out=3:usage [ttft ttfc e2e]`},
		{name: "E16 finish twice", steps: spread(data(one, two, finish("stop"), finish("length"), usage(31, 3), done)), want: ok + " ![duplicate_finish]"},
		{name: "E17 V5 text and usage in the finish chunk", steps: spread(data(one, `{"choices":[{"index":0,"delta":{"content":" two"},"finish_reason":"stop"}],"usage":{"prompt_tokens":31,"completion_tokens":3,"total_tokens":34}}`, done)), want: ok},
		{name: "E18 usage on a chunk with an empty choice", steps: spread(data(one, two, finish("stop"), `{"choices":[{"index":0,"delta":{}}],"usage":{"prompt_tokens":31,"completion_tokens":3,"total_tokens":34}}`, done)), want: ok},
		{name: "E19 V31 reasoning under both names is one piece", steps: spread(data(delta(`"reasoning_content":"hm","reasoning":"hm"`), delta(`"reasoning":"!"`), one, two, finish("stop"), usage(31, 5), done)), want: `success text="One two" reasoning="hm!" finish=stop in=31 out=5:usage [ttft ttfc tpot e2e 3gaps]`},
		{name: "E19 reasoning alone up to the limit is no empty answer", steps: spread(data(delta(`"reasoning":"hm"`), delta(`"reasoning":" so"`), finish("length"), usage(31, 2), done)), want: `success reasoning="hm so" finish=length in=31 out=2:usage [ttft tpot e2e 1gaps]`},
		{name: "V1 V2 V3 no output is no sample", steps: spread(data(role, finish("stop"), usage(31, 1), done)), want: "failure empty_output finish=stop in=31 out=1:usage", detail: "without any output"},
		{name: "twenty tokens of incomplete UTF-8", steps: spread(data(role, finish("length"), usage(33, 20), done)), want: "success finish=length in=33 out=20:usage ![no_visible_output]"},
		{name: "E25 U+FFFD does not fail", steps: spread(data(content("a\uFFFD"), finish("stop"), usage(9, 1), done)), want: "success text=\"a\uFFFD\" finish=stop in=9 out=1:usage [ttft ttfc e2e] ![invalid_utf8]"},
		{name: "E24 a character split over two writes", steps: []step{raw(sseHead), chunk("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\xe6\x8f"), wait(5 * time.Millisecond), chunk("\x90\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"), raw(endOfBody)}, want: `success text="提" finish=stop out=1:chunks [ttft ttfc e2e] ![usage_missing]`},
		{name: "E26 CRLF", steps: spread(sse("data: "+one+"\r\n\r\n", "data: "+two+"\r\n\r\n", "data: "+finish("stop")+"\r\n\r", "\ndata: "+usage(31, 3)+"\r\n\r\n", "data: [DONE]\r\n\r\n")), want: ok},
		{name: "V12 white space at the edges of reads stays", steps: spread(sse("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" a ", " \"}}]}\n\n", "data: "+finish("stop")+"\n\n", "data: [DONE]\n\n")), want: `success text=" a  " finish=stop out=1:chunks [ttft ttfc e2e] ![usage_missing]`},
		{name: "E39 finish reason error", steps: spread(data(one, finish("error"), done)), want: `failure stream_error text="One" finish=error out=1:chunks [ttft ttfc]`, detail: `finish reason "error"`},
		{name: "E39 finish reason abort", steps: spread(data(one, finish("abort"), done)), want: `failure stream_error text="One" finish=abort out=1:chunks [ttft ttfc]`, detail: `abort`},
		{name: "content_filter is an end like others", steps: spread(data(one, finish("content_filter"), usage(31, 1), done)), want: `success text="One" finish=content_filter in=31 out=1:usage [ttft ttfc e2e]`},
		{name: "E40 finish reason empty on each chunk", steps: spread(data(`{"choices":[{"index":0,"delta":{"content":"One"},"finish_reason":""}]}`, `{"choices":[{"index":0,"delta":{"content":" two"},"finish_reason":""}]}`, finish("stop"), usage(31, 3), done)), want: ok},
		{name: "malformed JSON", steps: spread(data(one, `{"choices":[{"index":0,"delta":{"content":`, finish("stop"), done)), want: `failure malformed_stream text="One" out=1:chunks [ttft ttfc]`, detail: "not JSON"},
		{name: "malformed JSON behind the finish", steps: spread(data(one, two, usage(31, 3), finish("stop"), `{"x`)), want: ok + " ![missing_done nonstandard_framing]"},
		{name: "output behind the finish", steps: spread(data(one, finish("stop"), two, usage(31, 3), done)), want: ok + " ![output_after_finish]"},
		{name: "a second choice is another answer", steps: spread(data(one, `{"choices":[{"index":1,"delta":{"content":"X"},"finish_reason":"stop"}]}`, two, finish("stop"), usage(31, 3), done)), want: ok},
		{name: "usage was asked for and did not come", steps: spread(data(one, two, finish("stop"), done)), want: `success text="One two" finish=stop out=2:chunks [ttft ttfc e2e 1gaps] ![usage_missing]`},
		{name: "usage with fewer tokens than pieces", steps: spread(data(one, two, content(" three"), finish("stop"), usage(31, 1), done)), want: `success text="One two three" finish=stop in=31 out=1:usage [ttft ttfc e2e 2gaps] ![usage_inconsistent]`},
		{name: "cached tokens", steps: spread(data(one, two, finish("stop"), `{"choices":[],"usage":{"prompt_tokens":31,"completion_tokens":3,"total_tokens":34,"prompt_tokens_details":{"cached_tokens":16}}}`, done)), want: `success text="One two" finish=stop in=31 cached=16 out=3:usage [ttft ttfc tpot e2e 1gaps]`},
		{name: "E34 cached details null are unknown", steps: spread(data(one, two, finish("stop"), `{"choices":[],"usage":{"prompt_tokens":31,"completion_tokens":3,"total_tokens":34,"prompt_tokens_details":null}}`, done)), want: ok},
		{name: "reasoning tokens on top of the completion (xAI)", steps: spread(data(delta(`"reasoning_content":"hm"`), one, finish("stop"), `{"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":1,"total_tokens":303,"completion_tokens_details":{"reasoning_tokens":290}}}`, done)), request: func(r *Request) { r.MaxTokens = 400 }, want: `success text="One" reasoning="hm" finish=stop in=12 out=291:usage thought=290 [ttft ttfc tpot e2e 1gaps]`},
		{
			name: "tool call in pieces", steps: spread(data(role,
				delta(`"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"get_weather","arguments":""}}]`),
				delta(`"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":"}}]`), delta(`"tool_calls":[{"index":0,"function":{"arguments":"\"Paris\"}"}}]`),
				delta(`"tool_calls":[{"index":1,"id":"c2","function":{"name":"now","arguments":"{}"}}]`), finish("tool_calls"), usage(60, 20), done)),
			want: `success call=get_weather({"city":"Paris"}) call=now({}) finish=tool_calls in=60 out=20:usage [ttft tpot e2e 3gaps]`,
		},
		{name: "tool calls as an object (old TGI) with arguments as an object", steps: spread(data(delta(`"tool_calls":{"index":0,"id":"","type":"function","function":{"name":"f","arguments":{"a":1}}}`), finish("tool_calls"), usage(60, 20), done)), want: `success call=f({"a":1}) finish=tool_calls in=60 out=20:usage [ttft e2e]`},
		{name: "model mismatch", steps: spread(data(`{"model":"other","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}`, usage(1, 1), done)), want: `success text="x" finish=stop in=1 out=1:usage [ttft ttfc e2e] ![model_mismatch]`},
		{name: "E32 the limit is ignored: chunks", steps: data(many(200)...), request: func(r *Request) { r.MaxTokens = 8 }, want: `failure response_too_large text="` + strings.Repeat("x", 81) + `" out=81:chunks [ttft ttfc 80gaps] ![output_limit_ignored]`, detail: `max_tokens \(8\)`},
		{name: "E32 the limit is ignored: exact tokens", steps: spread(data(`{"choices":[{"index":0,"delta":{"content":"x"}}],"usage":{"completion_tokens":8}}`, `{"choices":[{"index":0,"delta":{"content":"x"}}],"usage":{"completion_tokens":9}}`)), request: func(r *Request) { r.MaxTokens = 8 }, want: `failure response_too_large text="xx" out=9:usage per_chunk=[8 1] [ttft ttfc 1gaps] ![output_limit_ignored]`, detail: "ignores the limit"},
		{name: "the limit is ignored: bytes", steps: data(content(strings.Repeat("z", 1<<20+1))), want: `failure response_too_large text="` + strings.Repeat("z", 200) + `…(1048576)" out=1:chunks [ttft ttfc] ![output_limit_ignored]`, detail: "ignores the limit"},
		{name: "E21 E22 everything at once after a long wait", steps: []step{raw(sseHead), wait(400 * time.Millisecond), chunk(framed(append(many(20), finish("stop"), usage(31, 20), done)...)), raw(endOfBody)}, want: `success text="` + strings.Repeat("x", 20) + `" finish=stop in=31 out=20:usage [ttft ttfc tpot e2e 19gaps] ![buffered]`},
	}
	for _, r := range rows {
		t.Run(r.name, r.run)
	}
}

func many(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = content("x")
	}
	return out
}

func framed(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString("data: " + e + "\n\n")
	}
	return b.String()
}

func shortLimit(set func(*config.Timeouts, model.Duration)) func(*config.Timeouts) {
	return func(t *config.Timeouts) { set(t, model.Duration(150*time.Millisecond)) }
}

// TestFailures holds what goes wrong before a stream, or with its time.
func TestFailures(t *testing.T) {
	long := strings.Repeat("w", 100)
	rows := []row{
		{name: "401", steps: jsonReply(401, `{"error":"Unauthorized"}`), want: "failure http_401", detail: "authorization.*Unauthorized"},
		{name: "403", steps: jsonReply(403, `{"error":{"message":"forbidden"}}`), want: "failure http_401", detail: "authorization"},
		{name: "404 path (FastAPI)", steps: jsonReply(404, `{"detail":"Not Found"}`), want: "failure http_404", detail: "no /v1/chat/completions.*url"},
		{name: "404 path (llama.cpp)", steps: jsonReply(404, `{"error":{"message":"File Not Found","type":"not_found_error","code":404}}`), want: "failure http_404", detail: "url"},
		{name: "404 path (nginx)", steps: plain(404, "text/html", "<html><title>404 Not Found</title></html>"), want: "failure http_404", detail: "404 Not Found"},
		{name: "404 model (vLLM)", steps: jsonReply(404, `{"error":{"message":"The model `+"`m`"+` does not exist.","type":"NotFoundError","param":"model","code":404}}`), want: "failure model_not_found", detail: `model "m".*model: auto`},
		{name: "404 model (Ollama)", steps: jsonReply(404, `{"error":"model 'm' not found"}`), want: "failure model_not_found", detail: "model"},
		{name: "404 deployment (Azure)", steps: jsonReply(404, `{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does not exist."}}`), want: "failure model_not_found", detail: "model"},
		{name: "400 model (LiteLLM)", steps: jsonReply(400, `{"error":{"message":"/chat/completions: Invalid model name passed in model=m. Call /v1/models","code":"400"}}`), want: "failure model_not_found", detail: "model"},
		{name: "400", steps: jsonReply(400, `{"object":"error","message":"This model's maximum context length is 8192 tokens. However, you requested 9006 tokens (max_tokens too large)","type":"BadRequestError","param":null,"code":400}`), want: "failure http_4xx", detail: "maximum context length"},
		{name: "422 TGI", steps: jsonReply(422, `{"error":"Input validation error: max_new_tokens too big","error_type":"validation"}`), want: "failure http_4xx", detail: "Input validation"},
		{name: "429", steps: jsonReply(429, `{"error":{"message":"Rate limit reached","type":"RateLimitError","code":429}}`), want: "failure http_429", detail: "rate limited"},
		{name: "429 quota", steps: jsonReply(429, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`), want: "failure http_429", detail: "no waiting heals"},
		{name: "500", steps: jsonReply(500, `{"error":{"code":500,"message":"out of memory","type":"server_error"}}`), want: "failure http_5xx", detail: "out of memory"},
		{name: "503 loading", steps: jsonReply(503, `{"error":{"message":"Loading model","type":"unavailable_error","code":503}}`), want: "failure http_503", detail: "Loading model"},
		{name: "529 Anthropic", steps: jsonReply(529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), want: "failure http_5xx", detail: "overloaded_error: Overloaded"},
		{name: "redirect", steps: plain(307, "text/plain", "", "Location: https://login.example.org/x?token=1"), want: "failure not_a_stream", detail: `redirects to https://login\.example\.org: set`},
		{name: "E27 HTML", steps: plain(200, "text/html", "<!doctype html><title>Sign in</title><form>password</form>"), want: "failure not_a_stream", detail: "looks like a login page.*Sign in"},
		{name: "E27 HTML that claims to be a stream", steps: plain(200, "text/event-stream", "<html>"), want: "failure not_a_stream", detail: "HTML page"},
		{name: "JSON instead of a stream", steps: jsonReply(200, `{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}`), want: "failure not_a_stream", detail: "ignores stream: true"},
		{name: "an error with status 200", steps: jsonReply(200, `{"error":{"message":"backend gone"}}`), want: "failure stream_error", detail: "backend gone"},
		{name: "204", steps: []step{raw("HTTP/1.1 204 No Content\r\n\r\n"), fin()}, want: "failure not_a_stream", detail: "empty body"},
		{name: "an empty stream", steps: sse(), want: "failure truncated", detail: "after 0 chunks"},
		{name: "E20 gzip", steps: plain(200, "text/event-stream", gzipped(framed(content("One"), finish("stop"), usage(3, 1), done)), "Content-Encoding: gzip"), want: `success text="One" finish=stop in=3 out=1:usage [ttft ttfc e2e] ![compressed]`},
		{name: "E20 a coding that we do not know", steps: plain(200, "text/event-stream", "xxxx", "Content-Encoding: br"), want: "failure not_a_stream ![compressed]", detail: `Content-Encoding "br"`},
		{name: "gzip that is none", steps: plain(200, "text/event-stream", "data: not zipped at all", "Content-Encoding: gzip"), want: "failure malformed_stream ![compressed]", detail: "gzip"},
		{name: "closed without an answer", steps: []step{fin()}, want: "failure connection_reset", detail: "without an answer"},
		{name: "reset without an answer", steps: []step{wait(10 * time.Millisecond), rst()}, want: "failure connection_reset", detail: "connection broke"},
		{name: "no HTTP", steps: []step{raw("SSH-2.0-OpenSSH_9.2\r\n"), wait(50 * time.Millisecond), fin()}, want: "failure not_a_stream", detail: "does not speak HTTP"},
		{name: "plain HTTP to a TLS port: alert", steps: []step{raw("\x15\x03\x01\x00\x02\x02\x46"), wait(50 * time.Millisecond), fin()}, want: "failure tls", detail: "write https://"},
		{name: "plain HTTP to a TLS port: page", steps: plain(400, "text/html", "<html>400 The plain HTTP request was sent to HTTPS port</html>"), want: "failure tls", detail: "write https://"},
		{name: "broken chunks", steps: []step{raw(sseHead), raw("zz\r\n"), wait(20 * time.Millisecond), fin()}, want: "failure malformed_stream", detail: "chunked"},

		{name: "first token: nothing at all", steps: []step{hang()}, times: shortLimit(func(t *config.Timeouts, d model.Duration) { t.FirstTokenTimeout = d }), want: "failure timeout_first_token", detail: "first_token_timeout"},
		{name: "first token: headers, role and pings do not extend it", steps: []step{raw(sseHead), chunk("data: " + role + "\n\n"), wait(60 * time.Millisecond), chunk(":\n\n"), wait(60 * time.Millisecond), chunk(": ping\n\n"), hang()}, times: shortLimit(func(t *config.Timeouts, d model.Duration) { t.FirstTokenTimeout = d }), want: "failure timeout_first_token", detail: "first_token_timeout"},
		{name: "stall", steps: []step{raw(sseHead), chunk("data: " + content("One") + "\n\n"), hang()}, times: shortLimit(func(t *config.Timeouts, d model.Duration) { t.StallTimeout = d }), want: `failure timeout_stall text="One" out=1:chunks [ttft ttfc]`, detail: "stall_timeout.*after 1 chunks"},
		{name: "total", steps: []step{raw(sseHead), chunk("data: " + content("One") + "\n\n"), hang()}, times: shortLimit(func(t *config.Timeouts, d model.Duration) { t.Timeout = d }), want: `failure timeout_total text="One" out=1:chunks [ttft ttfc]`, detail: "within timeout"},
		{name: "E3 pings reset the stall, and a slow answer is no failure", steps: []step{
			raw(sseHead), chunk("data: " + content("One") + "\n\n"), wait(400 * time.Millisecond), chunk(":\n\n"), wait(400 * time.Millisecond), chunk(":\n\n"), wait(400 * time.Millisecond),
			chunk(framed(content(" two"), finish("stop"), usage(31, 3), done)), raw(endOfBody),
		}, times: func(t *config.Timeouts) { t.StallTimeout = model.Duration(time.Second) }, want: `success text="One two" finish=stop in=31 out=3:usage [ttft ttfc tpot e2e 1gaps]`},
		{name: "a stall behind the finish reason is no failure", steps: []step{raw(sseHead), chunk(framed(content("One"), finish("stop"), usage(31, 2))), hang()}, times: shortLimit(func(t *config.Timeouts, d model.Duration) { t.StallTimeout = d }), want: `success text="One" finish=stop in=31 out=2:usage [ttft ttfc e2e] ![missing_done]`},
		{name: "no deadline at all is none", steps: data(content("One"), finish("stop"), usage(31, 1), done), times: func(t *config.Timeouts) { *t = config.Timeouts{} }, want: `success text="One" finish=stop in=31 out=1:usage [ttft ttfc e2e]`},

		{name: "an endless error body", steps: []step{raw("HTTP/1.1 500 X\r\nContent-Type: text/plain\r\nContent-Length: 900000\r\n\r\n" + strings.Repeat("e ", 450000))}, want: "failure http_5xx", detail: "^.{1,400}$"},
		{name: "no limit is never sent", steps: nil, request: func(r *Request) { r.MaxTokens = 0 }, want: "failure internal", detail: "output limit"},
		{name: "secrets and prompts do not come back", steps: jsonReply(400, `{"error":{"message":"bad key sk-abcdefgh12345678 in Bearer hunter2hunter2 for 'Count to two, please, and then say nothing more.' `+long+`"}}`), want: "failure http_4xx", detail: `bad key <secret> in Bearer <secret> for '<prompt>' <secret>$`},
	}
	for _, r := range rows {
		t.Run(r.name, r.run)
	}
}

// The credentials that go out are taken out of what comes back, wherever they stand.
func TestConfiguredSecretsAreRedacted(t *testing.T) {
	s := serve(t, func(_ int, r *http.Request, _ []byte) []step {
		return jsonReply(401, compact(map[string]any{"error": "wrong " + r.Header.Get("Authorization") + " / " + r.Header.Get("X-Key")}))
	})
	a := send(t, s, func(c *config.Target) {
		c.HTTPClient.Authorization = authorization("tiny-key")
		c.HTTPClient.HTTPHeaders = secretHeader("X-Key", "open sesame")
	})
	if strings.Contains(a.Detail, "tiny-key") || strings.Contains(a.Detail, "sesame") || a.Reason != result.ReasonHTTP401 {
		t.Errorf("%s: %s", a.Reason, a.Detail)
	}
}
