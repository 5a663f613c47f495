package engine

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	promconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newTestTarget(t *testing.T, url string, change func(*config.Target)) *Target {
	t.Helper()
	c := config.DefaultTarget()
	c.Name, c.URL, c.Model = "test", url, "m"
	if change != nil {
		change(&c)
	}
	target, err := NewTarget(c, Options{UserAgent: "test/1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(target.Close)
	return target
}

func testTimeouts() config.Timeouts {
	d := model.Duration(5 * time.Second)
	return config.Timeouts{Timeout: d, ConnectTimeout: d, FirstTokenTimeout: d, StallTimeout: d}
}

func testRequest() Request {
	return Request{Variant: "default", Messages: []Message{{Role: User, Text: "hi"}}, MaxTokens: 8, Seed: 1}
}

// serve answers every request with h.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// sse answers with pieces, each flushed on its own.
func sse(pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, p := range pieces {
			_, _ = io.WriteString(w, p)
			w.(http.Flusher).Flush()
		}
	}
}

func status(code int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// hang flushes pieces and then says nothing until the client leaves.
func hang(pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		sse(pieces...)(w, r)
		<-r.Context().Done()
	}
}

// cut flushes pieces and then closes the connection without ending the body.
func cut(pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		sse(pieces...)(w, r)
		c, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			c.Close()
		}
	}
}

// reset is cut with a RST.
func reset(pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		sse(pieces...)(w, r)
		time.Sleep(20 * time.Millisecond) // the client takes what was sent: a RST throws away what it has not
		c, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
	}
}

const (
	role   = `data: {"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n"
	one    = `data: {"model":"m","choices":[{"index":0,"delta":{"content":"One"},"finish_reason":null}]}` + "\n\n"
	two    = `data: {"model":"m","choices":[{"index":0,"delta":{"content":" two"},"finish_reason":null}]}` + "\n\n"
	finish = `data: {"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	usage  = `data: {"model":"m","choices":[],"usage":{"prompt_tokens":31,"completion_tokens":2,"total_tokens":33,"prompt_tokens_details":{"cached_tokens":16}}}` + "\n\n"
	done   = "data: [DONE]\n\n"
)

// Each row is one way in which a server has misled a client; the numbers are those of the list of bug reports in
// the project's notes on engines (rows of section 12).
func TestAnswers(t *testing.T) {
	ok, fail := result.Success, result.Failure
	tests := []struct {
		name      string
		handler   http.HandlerFunc
		outcome   result.Outcome
		reason    result.Reason
		anomalies []result.Anomaly
		text      string
		chunks    int // output-bearing ones
		tokens    int // completion tokens; 0 = absent
		source    result.TokenCountSource
		detail    string // part of it
	}{
		{name: "whole", handler: sse(role, one, two, finish, usage, done), outcome: ok, text: "One two", chunks: 2, tokens: 2, source: result.CountUsage},
		{name: "all in one segment", handler: sse(role + one + two + finish + usage + done), outcome: ok, text: "One two", chunks: 2, tokens: 2, source: result.CountUsage},
		{
			name: "1 line of 300 kB", outcome: ok, text: strings.Repeat("x", 300_000), chunks: 1, tokens: 2, source: result.CountUsage,
			handler: sse(`data: {"choices":[{"index":0,"delta":{"content":"`+strings.Repeat("x", 300_000)+`"}}]}`+"\n\n", finish, usage, done),
		},
		{name: "2 and 3 comments", handler: sse(": ping\n\n", role, ":\n\n", one, ": keep-alive\n\n", two, finish, usage, done), outcome: ok, text: "One two", chunks: 2, tokens: 2, source: result.CountUsage},
		{name: "4 comment in data", handler: sse("data: : keep-alive\n\n", one, two, finish, usage, done), outcome: ok, text: "One two", chunks: 2, tokens: 2, source: result.CountUsage, anomalies: []result.Anomaly{result.AnomalyNonstandardFraming}},
		{name: "5 no space after data:", handler: sse(strings.ReplaceAll(one+two+finish+usage+done, "data: ", "data:")), outcome: ok, text: "One two", chunks: 2, tokens: 2, source: result.CountUsage},
		{name: "6 no [DONE]", handler: sse(one, two, finish, usage), outcome: ok, text: "One two", chunks: 2, tokens: 2, source: result.CountUsage, anomalies: []result.Anomaly{result.AnomalyMissingDone}},
		{name: "7 what follows [DONE]", handler: sse(one, two, finish, usage, done, "data: rubbish\n\n"), outcome: ok, text: "One two", chunks: 2, tokens: 2, source: result.CountUsage},
		{name: "8 bare end", handler: sse(one, two), outcome: fail, reason: result.ReasonTruncated, text: "One two", chunks: 2, tokens: 2, source: result.CountChunks},
		{name: "8 [DONE] without finish", handler: sse(one, two, done), outcome: fail, reason: result.ReasonTruncated, text: "One two", chunks: 2, tokens: 2, source: result.CountChunks},
		{name: "8 connection closed", handler: cut(one, two), outcome: fail, reason: result.ReasonTruncated, text: "One two", chunks: 2, tokens: 2, source: result.CountChunks},
		{name: "closed after the finish", handler: cut(one, two, finish, usage), outcome: ok, text: "One two", chunks: 2, tokens: 2, source: result.CountUsage, anomalies: []result.Anomaly{result.AnomalyMissingDone}},
		{name: "reset in the middle", handler: reset(one, two), outcome: fail, reason: result.ReasonConnectionReset, text: "One two", chunks: 2, tokens: 2, source: result.CountChunks},
		{name: "9 last event without its blank line", handler: sse(one, two, finish, usage, "data: [DONE]"), outcome: ok, text: "One two", chunks: 2, tokens: 2, source: result.CountUsage, anomalies: []result.Anomaly{result.AnomalyUnterminated}},
		{name: "9 half an event at the end", handler: sse(one, `data: {"choices":[{"ind`), outcome: fail, reason: result.ReasonTruncated, text: "One", chunks: 1, tokens: 1, source: result.CountChunks, detail: "inside an event"},
		{name: "10 error event, then [DONE]", handler: sse(one, `data: {"error":{"message":"engine died","type":"InternalServerError","code":500}}`+"\n\n", done), outcome: fail, reason: result.ReasonStreamError, text: "One", chunks: 1, tokens: 1, source: result.CountChunks, detail: "engine died"},
		{name: "10 error event at once", handler: sse(`data: {"error":{"message":"engine died"}}`+"\n\n", done), outcome: fail, reason: result.ReasonStreamError, detail: "engine died"},
		{name: "error as text", handler: sse(`data: {"error":"boom"}` + "\n\n"), outcome: fail, reason: result.ReasonStreamError, detail: "boom"},
		{name: "error null is none", handler: sse(`data: {"error":null,"choices":[{"index":0,"delta":{"content":"One two"}}]}`+"\n\n", finish, usage, done), outcome: ok, text: "One two", chunks: 1, tokens: 2, source: result.CountUsage},
		{name: "11 bare JSON error", handler: sse(one, `{"error":{"message":"out of memory"}}`+"\n\n"), outcome: fail, reason: result.ReasonStreamError, text: "One", chunks: 1, tokens: 1, source: result.CountChunks, detail: "out of memory", anomalies: []result.Anomaly{result.AnomalyNonstandardFraming}},
		{name: "12 error event without data", handler: sse(one, "event: error\n: upstream worker vanished\n\n"), outcome: fail, reason: result.ReasonStreamError, text: "One", chunks: 1, tokens: 1, source: result.CountChunks, anomalies: []result.Anomaly{result.AnomalyNonstandardFraming}},
		{name: "13 empty choices first", handler: sse(`data: {"choices":[],"prompt_filter_results":[{}],"id":"","model":""}`+"\n\n", role, one, two, finish, usage, done), outcome: ok, text: "One two", chunks: 2, tokens: 2, source: result.CountUsage},
		{name: "14 nulls and absences", handler: sse(`data: {"choices":null}`+"\n\n", `data: {}`+"\n\n", `data: {"choices":[null]}`+"\n\n", `data: {"choices":[{"index":0}]}`+"\n\n", `data: {"choices":[{"index":0,"delta":null}],"usage":null}`+"\n\n", `data: {"choices":[{"index":0,"delta":{"content":null,"tool_calls":null,"reasoning_content":null}}]}`+"\n\n", one, two, finish, usage, done), outcome: ok, text: "One two", chunks: 2, tokens: 2, source: result.CountUsage},
		{name: "values of the wrong type", handler: sse(`data: {"choices":[{"index":0,"delta":{"content":5,"tool_calls":"x"},"finish_reason":7}],"usage":[1]}`+"\n\n", one, two, finish, usage, done), outcome: ok, text: "One two", chunks: 2, tokens: 2, source: result.CountUsage},
		{
			name: "15 usage on every chunk", outcome: ok, text: "abcd", chunks: 2, tokens: 4, source: result.CountUsage,
			handler: sse(
				`data: {"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":9,"completion_tokens":1}}`+"\n\n",
				`data: {"choices":[{"index":0,"delta":{"content":"bcd"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":4}}`+"\n\n", done),
		},
		{
			name: "15 zero usage last", outcome: ok, text: "One two", chunks: 2, tokens: 2, source: result.CountUsage,
			handler: sse(one, two, finish, usage, `data: {"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}`+"\n\n", done),
		},
		{
			name: "15 zero usage with the finish, the right one after it (Ollama)", outcome: ok, text: "One two", chunks: 2, tokens: 2, source: result.CountUsage,
			handler: sse(one, two, `data: {"choices":[{"index":0,"text":"","finish_reason":"length"}],"usage":{"prompt_tokens":0,"completion_tokens":0}}`+"\n\n", usage, done),
		},
		{name: "16 two finish reasons", handler: sse(one, two, finish, finish, usage, done), outcome: ok, text: "One two", chunks: 2, tokens: 2, source: result.CountUsage, anomalies: []result.Anomaly{result.AnomalyDuplicateFinish}},
		{name: "17 text with the finish", handler: sse(one, `data: {"choices":[{"index":0,"delta":{"content":" two"},"finish_reason":"length"}]}`+"\n\n", usage, done), outcome: ok, text: "One two", chunks: 2, tokens: 2, source: result.CountUsage},
		{name: "18 usage with choices", handler: sse(one, two, finish, `data: {"choices":[{"index":0,"delta":{}}],"usage":{"prompt_tokens":31,"completion_tokens":2}}`+"\n\n", done), outcome: ok, text: "One two", chunks: 2, tokens: 2, source: result.CountUsage},
		{name: "19 reasoning, both names", handler: sse(role, `data: {"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}`+"\n\n", `data: {"choices":[{"index":0,"delta":{"reasoning":"so"}}]}`+"\n\n", `data: {"choices":[{"index":0,"delta":{"content":"One two"},"finish_reason":"stop"}],"usage":{"completion_tokens":5}}`+"\n\n", done), outcome: ok, text: "One two", chunks: 3, tokens: 5, source: result.CountUsage},
		{name: "all reasoning, cut by length", handler: sse(role, `data: {"choices":[{"index":0,"delta":{"reasoning":"hm"}}]}`+"\n\n", `data: {"choices":[{"index":0,"delta":{"reasoning":" so"},"finish_reason":"length"}],"usage":{"completion_tokens":2}}`+"\n\n", done), outcome: ok, chunks: 2, tokens: 2, source: result.CountUsage},
		{name: "20 compressed", handler: compressed(one + two + finish + usage + done), outcome: ok, text: "One two", chunks: 2, tokens: 2, source: result.CountUsage, anomalies: []result.Anomaly{result.AnomalyCompressed}},
		{name: "20 compressed in a way that was never asked for", handler: status(200, "xx", "Content-Type", "text/event-stream", "Content-Encoding", "br"), outcome: fail, reason: result.ReasonNotAStream, detail: "Content-Encoding br"},
		{name: "24 UTF-8 cut between writes", handler: sse("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"日\xe6", "\x9c\xac\"},\"finish_reason\":\"stop\"}],\"usage\":{\"completion_tokens\":2}}\n\n", done), outcome: ok, text: "日本", chunks: 1, tokens: 2, source: result.CountUsage},
		{name: "25 replacement character", handler: sse(`data: {"choices":[{"index":0,"delta":{"content":"a\ufffd"},"finish_reason":"stop"}],"usage":{"completion_tokens":2}}`+"\n\n", done), outcome: ok, text: "a\ufffd", chunks: 1, tokens: 2, source: result.CountUsage, anomalies: []result.Anomaly{result.AnomalyInvalidUTF8}},
		{name: "26 CRLF", handler: sse(strings.ReplaceAll(role+one+two+finish+usage+done, "\n", "\r\n")), outcome: ok, text: "One two", chunks: 2, tokens: 2, source: result.CountUsage},
		{name: "27 HTML with status 200", handler: status(200, "<!DOCTYPE html><html>login</html>", "Content-Type", "text/html"), outcome: fail, reason: result.ReasonNotAStream, detail: "HTML"},
		{name: "27 HTML that calls itself a stream", handler: status(200, "<html>", "Content-Type", "text/event-stream"), outcome: fail, reason: result.ReasonNotAStream, detail: "HTML"},
		{name: "JSON error with status 200", handler: status(200, `{"error":{"message":"nope"}}`, "Content-Type", "application/json"), outcome: fail, reason: result.ReasonStreamError, detail: "nope"},
		{name: "answer that is not streamed", handler: status(200, `{"choices":[{"message":{"content":"hi"}}]}`, "Content-Type", "application/json"), outcome: fail, reason: result.ReasonNotAStream, detail: "stream:true"},
		{name: "plain text", handler: status(200, "it works", "Content-Type", "text/plain"), outcome: fail, reason: result.ReasonNotAStream},
		{name: "empty body", handler: status(200, "", "Content-Type", "text/event-stream"), outcome: fail, reason: result.ReasonEmptyOutput},
		{name: "33 several tokens in a chunk", handler: sse(`data: {"choices":[{"index":0,"delta":{"content":"a b c d"},"finish_reason":"stop"}],"usage":{"completion_tokens":4}}`+"\n\n", done), outcome: ok, text: "a b c d", chunks: 1, tokens: 4, source: result.CountUsage},
		{name: "token ids tell the tokens", handler: sse(`data: {"choices":[{"index":0,"delta":{"content":"ab"},"token_ids":[1,2]}]}`+"\n\n", `data: {"choices":[{"index":0,"delta":{"content":"c"},"token_ids":[3],"finish_reason":"stop"}]}`+"\n\n", done), outcome: ok, text: "abc", chunks: 2, tokens: 3, source: result.CountExact, anomalies: []result.Anomaly{result.AnomalyUsageMissing}},
		{name: "39 finish reason error", handler: sse(one, two, `data: {"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}`+"\n\n", usage, done), outcome: fail, reason: result.ReasonStreamError, text: "One two", chunks: 2, tokens: 2, source: result.CountUsage, detail: "error"},
		{name: "39 finish reason abort", handler: sse(one, two, `data: {"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}`+"\n\n", done), outcome: fail, reason: result.ReasonStreamError, text: "One two", chunks: 2, tokens: 2, source: result.CountChunks},
		{name: "40 empty finish reason", handler: sse(`data: {"choices":[{"index":0,"text":"One","finish_reason":""}]}`+"\n\n", `data: {"choices":[{"index":0,"text":" two","finish_reason":"eos_token"}],"usage":{"completion_tokens":2}}`+"\n\n", done), outcome: ok, text: "One two", chunks: 2, tokens: 2, source: result.CountUsage},
		{name: "empty answer", handler: sse(role, finish, `data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}`+"\n\n", done), outcome: fail, reason: result.ReasonEmptyOutput, tokens: 1, source: result.CountUsage},
		{name: "nothing but [DONE]", handler: sse(done), outcome: fail, reason: result.ReasonEmptyOutput},
		{name: "tokens without text (llama.cpp, half characters)", handler: sse(role, `data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}`+"\n\n", `data: {"choices":[],"usage":{"completion_tokens":8}}`+"\n\n", done), outcome: ok, tokens: 8, source: result.CountUsage, anomalies: []result.Anomaly{result.AnomalyNoVisibleOutput}},
		{name: "usage missing", handler: sse(one, two, finish, done), outcome: ok, text: "One two", chunks: 2, tokens: 2, source: result.CountChunks, anomalies: []result.Anomaly{result.AnomalyUsageMissing}},
		{name: "usage of fewer tokens than chunks", handler: sse(one, two, finish, `data: {"choices":[],"usage":{"completion_tokens":1}}`+"\n\n", done), outcome: ok, text: "One two", chunks: 2, tokens: 1, source: result.CountUsage, anomalies: []result.Anomaly{result.AnomalyUsageInconsistent}},
		{name: "another model answers", handler: sse(strings.ReplaceAll(one+two+finish+usage+done, `"model":"m"`, `"model":"other"`)), outcome: ok, text: "One two", chunks: 2, tokens: 2, source: result.CountUsage, anomalies: []result.Anomaly{result.AnomalyModelMismatch}},
		{name: "not JSON", handler: sse(one, "data: {\"choices\":[}\n\n", done), outcome: fail, reason: result.ReasonMalformedStream, text: "One", chunks: 1, tokens: 1, source: result.CountChunks},
		{name: "JSON that is no object", handler: sse("data: 5\n\n"), outcome: fail, reason: result.ReasonMalformedStream},
		{name: "the limit is ignored", handler: sse(strings.Repeat(one, 200), finish, done), outcome: fail, reason: result.ReasonResponseTooLarge, text: strings.Repeat("One", 81), chunks: 81, tokens: 81, source: result.CountChunks, anomalies: []result.Anomaly{result.AnomalyLimitIgnored}},
		{name: "HTTP 500", handler: status(500, `{"error":{"message":"oops"}}`), outcome: fail, reason: result.ReasonHTTP5xx, detail: "oops"},
		{name: "HTTP 503", handler: status(503, `{"error":"server busy"}`), outcome: fail, reason: result.ReasonHTTP503, detail: "server busy"},
		{name: "HTTP 529", handler: status(529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), outcome: fail, reason: result.ReasonHTTP503, detail: "Overloaded"},
		{name: "HTTP 401", handler: status(401, `{"error":"Unauthorized"}`), outcome: fail, reason: result.ReasonHTTP401, detail: "authorization"},
		{name: "HTTP 403", handler: status(403, "<html>forbidden"), outcome: fail, reason: result.ReasonHTTP401, detail: "authorization"},
		{name: "wrong path", handler: status(404, `{"detail":"Not Found"}`), outcome: fail, reason: result.ReasonHTTP404, detail: "Not Found"},
		{name: "wrong model", handler: status(404, "{\"error\":{\"message\":\"The model `x` does not exist.\",\"type\":\"NotFoundError\",\"code\":404}}"), outcome: fail, reason: result.ReasonModelNotFound, detail: "check the target's model"},
		{name: "old flat error", handler: status(400, `{"object":"error","message":"This model's maximum context length is 8 tokens","type":"BadRequestError","code":400}`), outcome: fail, reason: result.ReasonHTTP4xx, detail: "maximum context length"},
		{name: "validation error", handler: status(422, `{"detail":[{"loc":["body"],"msg":"field required"}]}`), outcome: fail, reason: result.ReasonHTTP4xx, detail: "field required"},
		{name: "HTTP 429", handler: status(429, "slow down"), outcome: fail, reason: result.ReasonHTTP429, detail: "slow down"},
		{name: "redirect", handler: status(302, "", "Location", "https://login.example.org/?token=SECRET"), outcome: fail, reason: result.ReasonNotAStream, detail: "login.example.org"},
		{name: "204", handler: status(204, ""), outcome: fail, reason: result.ReasonNotAStream},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := newTestTarget(t, serve(t, tt.handler), nil).Send(t.Context(), testRequest(), testTimeouts())
			if a.Outcome != tt.outcome || a.Reason != tt.reason {
				t.Fatalf("%s %s (%s), want %s %s", a.Outcome, a.Reason, a.Detail, tt.outcome, tt.reason)
			}
			if !strings.Contains(a.Detail, tt.detail) || strings.Contains(a.Detail, "SECRET") {
				t.Errorf("detail %q, want %q in it", a.Detail, tt.detail)
			}
			if a.Text != tt.text {
				t.Errorf("text %.80q, want %.80q", a.Text, tt.text)
			}
			checkFigures(t, a, tt.chunks, tt.tokens, tt.source)
			want := tt.anomalies
			if !slices.Equal(a.Anomalies, want) && len(a.Anomalies)+len(want) > 0 {
				t.Errorf("anomalies %v, want %v", a.Anomalies, want)
			}
		})
	}
}

// checkFigures compares the figures that follow from the number of chunks and tokens: what is not there is nil.
func checkFigures(t *testing.T, a Answer, chunks, tokens int, source result.TokenCountSource) {
	t.Helper()
	if (a.TimeToFirstTokenSeconds != nil) != (chunks > 0) || (a.E2ELatencySeconds != nil) != (chunks > 0) {
		t.Errorf("TTFT %v, E2E %v with %d chunks", a.TimeToFirstTokenSeconds, a.E2ELatencySeconds, chunks)
	}
	if n := len(a.InterChunkLatenciesSeconds); n != max(0, chunks-1) {
		t.Errorf("%d gaps with %d chunks", n, chunks)
	}
	if got := a.CompletionTokens; (got == nil) != (tokens == 0) || got != nil && *got != tokens || a.TokenCountSource != source {
		t.Errorf("completion tokens %v by %q, want %d by %q", got, a.TokenCountSource, tokens, source)
	}
	counted := source != result.CountChunks && tokens >= 2 && chunks >= 2
	if (a.TimePerOutputTokenSeconds != nil) != counted {
		t.Errorf("TPOT %v with %d tokens by %q in %d chunks", a.TimePerOutputTokenSeconds, tokens, source, chunks)
	}
}

func compressed(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if e := r.Header.Get("Accept-Encoding"); e != "identity" {
			http.Error(w, "asked for "+e, 500)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, body)
		_ = z.Close()
	}
}

// Each deadline has a reason of its own, and fires while its own condition holds, not another's.
func TestDeadlines(t *testing.T) {
	short := model.Duration(80 * time.Millisecond)
	drip := func(w http.ResponseWriter, r *http.Request) { // pings and no output
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, ": ping\n\n")
			w.(http.Flusher).Flush()
			time.Sleep(10 * time.Millisecond)
		}
	}
	slow := func(w http.ResponseWriter, r *http.Request) { // output that never stops long enough to stall
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for i := 0; r.Context().Err() == nil; i++ {
			_, _ = io.WriteString(w, one)
			w.(http.Flusher).Flush()
			time.Sleep(10 * time.Millisecond)
		}
	}
	pingsAfterOutput := func(w http.ResponseWriter, r *http.Request) { // alive by pings, longer than the stall deadline
		sse(one)(w, r)
		for range 20 {
			_, _ = io.WriteString(w, ": ping\n\n")
			w.(http.Flusher).Flush()
			time.Sleep(10 * time.Millisecond)
		}
		_, _ = io.WriteString(w, two+finish+usage+done)
	}
	tests := []struct {
		name    string
		handler http.HandlerFunc
		change  func(*config.Timeouts)
		want    result.Reason
	}{
		{"no headers", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() }, func(c *config.Timeouts) { c.FirstTokenTimeout = short }, result.ReasonTimeoutFirstToken},
		{"role chunk only", hang(role), func(c *config.Timeouts) { c.FirstTokenTimeout = short }, result.ReasonTimeoutFirstToken},
		{"pings do not put off the first token", drip, func(c *config.Timeouts) { c.FirstTokenTimeout = short }, result.ReasonTimeoutFirstToken},
		{"stall", hang(role, one), func(c *config.Timeouts) { c.StallTimeout = short }, result.ReasonTimeoutStall},
		{"a stall does not count before the first token", hang(role), func(c *config.Timeouts) {
			c.StallTimeout, c.FirstTokenTimeout = model.Duration(time.Millisecond), short
		}, result.ReasonTimeoutFirstToken},
		{"pings put a stall off", pingsAfterOutput, func(c *config.Timeouts) { c.StallTimeout = short }, result.ReasonNone},
		{"total", slow, func(c *config.Timeouts) { c.Timeout = short }, result.ReasonTimeoutTotal},
		{"a stall after the finish is none", hang(one, two, finish, usage), func(c *config.Timeouts) { c.StallTimeout = short }, result.ReasonNone},
		{"error body that never ends", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(500)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, func(c *config.Timeouts) { c.Timeout = short }, result.ReasonTimeoutTotal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			timeouts := testTimeouts()
			tt.change(&timeouts)
			r := testRequest()
			r.MaxTokens = 10_000
			a := newTestTarget(t, serve(t, tt.handler), nil).Send(t.Context(), r, timeouts)
			if a.Reason != tt.want {
				t.Fatalf("%s (%s), want %s", a.Reason, a.Detail, tt.want)
			}
		})
	}
}

// Errors below HTTP are told apart, with real ones.
func TestConnectionErrors(t *testing.T) {
	secure := httptest.NewTLSServer(sse(one, two, finish, usage, done))
	t.Cleanup(secure.Close)
	plain := serve(t, sse(one, two, finish, usage, done))
	closed := func() string { // a port that nobody listens on
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return "http://" + l.Addr().String()
	}()
	hangUp := rawServer(t, func(c net.Conn) { _, _ = bufio.NewReader(c).ReadString('\n') })
	silentTLS := rawServer(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	garbage := rawServer(t, func(c net.Conn) {
		_, _ = bufio.NewReader(c).ReadString('\n')
		_, _ = io.WriteString(c, "SSH-2.0-OpenSSH\r\n\r\n")
	})
	tests := []struct {
		name, url string
		change    func(*config.Target)
		want      result.Reason
	}{
		{"no such name", "http://no-such-name.invalid", nil, result.ReasonDNS},
		{"refused", closed, nil, result.ReasonConnect},
		{"unknown authority", secure.URL, nil, result.ReasonTLS},
		{"TLS to a plain port", "https" + strings.TrimPrefix(plain, "http"), nil, result.ReasonTLS},
		{"plain to a TLS port", "http" + strings.TrimPrefix(secure.URL, "https"), nil, result.ReasonHTTP4xx},
		{"closed without an answer", "http://" + hangUp, nil, result.ReasonConnectionReset},
		{"TLS handshake that hangs", "https://" + silentTLS, nil, result.ReasonTimeoutConnect},
		{"not HTTP", "http://" + garbage, nil, result.ReasonMalformedStream},
		{"TLS that is trusted", secure.URL, func(c *config.Target) {
			c.HTTPClient.TLSConfig = promconfig.TLSConfig{InsecureSkipVerify: true}
		}, result.ReasonNone},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			timeouts := testTimeouts()
			timeouts.ConnectTimeout = model.Duration(500 * time.Millisecond)
			a := newTestTarget(t, tt.url, tt.change).Send(t.Context(), testRequest(), timeouts)
			if a.Reason != tt.want {
				t.Fatalf("%s (%s), want %s", a.Reason, a.Detail, tt.want)
			}
			if tt.want != result.ReasonNone && (a.Detail == "" || a.TimeToFirstTokenSeconds != nil) {
				t.Errorf("detail %q, TTFT %v", a.Detail, a.TimeToFirstTokenSeconds)
			}
		})
	}
}

// rawServer accepts connections and hands each to f, then closes it.
func rawServer(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				f(c)
			}()
		}
	}()
	return l.Addr().String()
}

func TestCanceled(t *testing.T) {
	target := newTestTarget(t, serve(t, hang(one)), nil)
	ctx, cancel := contextWithCancel(t)
	time.AfterFunc(50*time.Millisecond, cancel)
	if a := target.Send(ctx, testRequest(), testTimeouts()); a.Reason != result.ReasonCanceled {
		t.Fatalf("%s (%s)", a.Reason, a.Detail)
	}
}

// The optional fields that a server refuses are left out, once and for all.
func TestRefusedFields(t *testing.T) {
	bodies := make(chan string, 20)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		bodies <- string(b)
		for _, f := range []string{"stream_options", "seed", "max_tokens"} {
			if strings.Contains(string(b), `"`+f+`"`) {
				w.WriteHeader(400)
				fmt.Fprintf(w, `{"error":{"message":"Unsupported parameter: '%s' is not supported with this model. Use 'max_completion_tokens' instead."}}`, f)
				return
			}
		}
		sse(one, two, finish, done)(w, r)
	})
	target := newTestTarget(t, url, nil)
	a := target.Send(t.Context(), testRequest(), testTimeouts())
	if a.Outcome != result.Success || !slices.Contains(a.Anomalies, result.AnomalyFieldDropped) {
		t.Fatalf("%s %s %v", a.Outcome, a.Detail, a.Anomalies)
	}
	if n := len(bodies); n != 4 {
		t.Errorf("%d requests, want 4", n)
	}
	for range 3 {
		<-bodies
	}
	if last := <-bodies; !strings.Contains(last, `"max_completion_tokens":8`) {
		t.Errorf("sent %s", last)
	}
	again := target.Send(t.Context(), testRequest(), testTimeouts())
	if again.Outcome != result.Success || slices.Contains(again.Anomalies, result.AnomalyFieldDropped) || len(bodies) != 1 {
		t.Errorf("second time: %s %v, %d requests", again.Outcome, again.Anomalies, len(bodies))
	}
}

// A prompt that is too long is no refusal of a field, though the message names one.
func TestTooLongIsNoRefusal(t *testing.T) {
	n := 0
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		n++
		w.WriteHeader(400)
		_, _ = io.WriteString(w, `{"error":{"message":"This model's maximum context length is 8 tokens. However, max_tokens is 8."}}`)
	})
	target := newTestTarget(t, url, nil)
	if a := target.Send(t.Context(), testRequest(), testTimeouts()); a.Reason != result.ReasonHTTP4xx || n != 1 {
		t.Fatalf("%s after %d requests", a.Reason, n)
	}
}

// With keep_alive a connection that the server closed meanwhile costs one marked retry; without it none happens.
func TestKeepAlive(t *testing.T) {
	calls := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		if calls == 2 { // the kept connection: closed before a byte of the answer
			c, _, _ := w.(http.Hijacker).Hijack()
			c.Close()
			return
		}
		sse(one, two, finish, usage, done)(w, r)
	}))
	t.Cleanup(s.Close)
	target := newTestTarget(t, s.URL, func(c *config.Target) { c.KeepAlive = true })
	first := target.Send(t.Context(), testRequest(), testTimeouts())
	second := target.Send(t.Context(), testRequest(), testTimeouts())
	if first.Outcome != result.Success || second.Outcome != result.Success {
		t.Fatalf("%s, then %s %s", first.Outcome, second.Outcome, second.Detail)
	}
	if *first.ConnectionReused || !slices.Contains(second.Anomalies, result.AnomalyRetried) || calls != 3 {
		t.Errorf("reused %v, anomalies %v, %d calls", *first.ConnectionReused, second.Anomalies, calls)
	}
}

func TestFreshConnections(t *testing.T) {
	target := newTestTarget(t, serve(t, sse(one, two, finish, usage, done)), nil)
	for range 3 {
		a := target.Send(t.Context(), testRequest(), testTimeouts())
		if a.ConnectionReused == nil || *a.ConnectionReused || a.Phases.Connect == nil || a.Phases.DNS != nil || a.Phases.TLS != nil || a.Phases.Send == nil || a.Phases.Headers == nil {
			t.Fatalf("reused %v, phases %+v", a.ConnectionReused, a.Phases)
		}
	}
	if n := len(target.conns.open); n != 0 {
		t.Errorf("%d connections are remembered after their end", n)
	}
}

// Cached tokens: absent is unknown, until the target has told some; from then on absent is none.
func TestCachedTokens(t *testing.T) {
	bare := strings.Replace(usage, `,"prompt_tokens_details":{"cached_tokens":16}`, "", 1)
	answers := []string{bare, usage, bare}
	n := 0
	target := newTestTarget(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		sse(one, two, finish, answers[n], done)(w, r)
		n++
	}), nil)
	want := []*int{nil, result.Ptr(16), result.Ptr(0)}
	for i, w := range want {
		a := target.Send(t.Context(), testRequest(), testTimeouts())
		if (a.CachedPromptTokens == nil) != (w == nil) || w != nil && *a.CachedPromptTokens != *w {
			t.Errorf("answer %d: %v, want %v", i, a.CachedPromptTokens, w)
		}
	}
}

// What is sent: the marks of the canary, no credential that was not configured.
func TestRequestHeaders(t *testing.T) {
	got := make(chan http.Header, 1)
	target := newTestTarget(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Clone()
		sse(one, two, finish, usage, done)(w, r)
	}), nil)
	a := target.Send(t.Context(), testRequest(), testTimeouts())
	h := <-got
	if id := h.Get("X-Request-Id"); !strings.HasPrefix(id, "llm-canary-") || id != a.ID {
		t.Errorf("X-Request-Id %q, in the answer %q", id, a.ID)
	}
	if p := h.Get("Traceparent"); !strings.HasPrefix(p, "00-"+a.TraceID+"-") || len(p) != 55 {
		t.Errorf("traceparent %q, trace %q", p, a.TraceID)
	}
	for k, want := range map[string]string{"Accept-Encoding": "identity", "User-Agent": "test/1", "Content-Type": "application/json", "Authorization": ""} {
		if g := h.Get(k); g != want {
			t.Errorf("%s: %q, want %q", k, g, want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	tests := []struct {
		name   string
		header []string
		want   time.Duration
	}{
		{"none", nil, 0},
		{"seconds", []string{"Retry-After", "7"}, 7 * time.Second},
		{"fraction", []string{"Retry-After", "0.5"}, 500 * time.Millisecond},
		{"date", []string{"Retry-After", "Fri, 02 Jan 2026 03:05:05 GMT"}, time.Minute},
		{"date of the past", []string{"Retry-After", "Fri, 02 Jan 2026 03:00:00 GMT"}, 0},
		{"milliseconds win", []string{"Retry-After", "7", "Retry-After-Ms", "350"}, 350 * time.Millisecond},
		{"reset of requests", []string{"X-Ratelimit-Reset-Requests", "1m2s"}, 62 * time.Second},
		{"reset of tokens", []string{"X-Ratelimit-Reset-Tokens", "350ms"}, 350 * time.Millisecond},
		{"the longer of two", []string{"X-Ratelimit-Reset-Requests", "1s", "X-Ratelimit-Reset-Tokens", "6m0s"}, 6 * time.Minute},
		{"only what is used up", []string{"X-Ratelimit-Remaining-Requests", "5", "X-Ratelimit-Reset-Requests", "1h", "X-Ratelimit-Remaining-Tokens", "0", "X-Ratelimit-Reset-Tokens", "2s"}, 2 * time.Second},
		{"bounded", []string{"Retry-After", "999999999999"}, time.Hour},
		{"negative", []string{"Retry-After", "-5"}, 0},
		{"no number", []string{"Retry-After", "soon"}, 0},
		{"not a number at all", []string{"Retry-After", "NaN"}, 0},
		{"infinite", []string{"Retry-After", "Inf"}, time.Hour},
	}
	for _, tt := range tests {
		h := http.Header{}
		for i := 0; i+1 < len(tt.header); i += 2 {
			h.Set(tt.header[i], tt.header[i+1])
		}
		if got := retryAfter(h, now); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestRetryAfterIsReported(t *testing.T) {
	target := newTestTarget(t, serve(t, status(429, "", "Retry-After", "3")), nil)
	if a := target.Send(t.Context(), testRequest(), testTimeouts()); a.RetryAfter != 3*time.Second {
		t.Fatalf("%v", a.RetryAfter)
	}
}

// A target whose list of models does not tell its context length tells it when a prompt is too long.
func TestContextLimitIsLearnt(t *testing.T) {
	tests := []struct {
		body string
		want int
	}{
		{`{"error":{"message":"This model's maximum context length is 1024 tokens. However, you requested 1025 tokens"}}`, 1024},
		{`{"error":{"code":400,"message":"request (6001 tokens) exceeds the available context size (2048 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":6001,"n_ctx":2048}}`, 2048},
		{`{"error":{"message":"the prompt is too long"}}`, 0},
		{`{"error":{"message":"no such thing as 4096"}}`, 0},
	}
	for _, tt := range tests {
		target := newTestTarget(t, serve(t, status(400, tt.body)), nil)
		target.Send(t.Context(), testRequest(), testTimeouts())
		if got := target.Facts().MaxModelLen; got != tt.want {
			t.Errorf("%s: %d, want %d", tt.body, got, tt.want)
		}
	}
}
