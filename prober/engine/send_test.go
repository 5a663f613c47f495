package engine

import (
	"math"
	"regexp"
	"testing"
	"time"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// A whole, ordinary answer: every figure against what the server knows of it.
func TestMeasuresAnAnswer(t *testing.T) {
	const gap = 80 * time.Millisecond
	s := serve(t, always([]step{
		raw(sseHead), chunk("data: " + role + "\n\n"), wait(300 * time.Millisecond), // a role chunk 300 ms early
		chunk("data: " + content("One") + "\n\n"), wait(gap), chunk("data: " + content(" two") + "\n\n"), wait(gap),
		chunk("data: " + delta(`"content":"."`) + "\n\n"), wait(gap),
		chunk("data: " + finish("stop") + "\n\n"), wait(gap), chunk("data: " + usage(31, 4) + "\n\n"), chunk("data: [DONE]\n\n"), raw(endOfBody),
	}))
	a := send(t, s, nil)
	if a.Outcome != result.Success || a.Reason != "" || a.Detail != "" {
		t.Fatalf("outcome %s, reason %s: %s", a.Outcome, a.Reason, a.Detail)
	}
	if len(a.Anomalies) > 0 {
		t.Errorf("anomalies %v", a.Anomalies)
	}
	if a.Text != "One two." || a.FinishReason != "stop" || a.HTTPStatus != 200 || a.Model != "m" {
		t.Errorf("text %q, finish %q, status %d, model %q", a.Text, a.FinishReason, a.HTTPStatus, a.Model)
	}
	if compact(a.PromptTokens) != "31" || compact(a.CompletionTokens) != "4" || a.TokenCountSource != result.CountUsage {
		t.Errorf("tokens %s in, %s out by %s", compact(a.PromptTokens), compact(a.CompletionTokens), a.TokenCountSource)
	}
	if a.CachedPromptTokens != nil || a.ChunkTokens != nil {
		t.Errorf("cached %v, chunk tokens %v although nobody told", a.CachedPromptTokens, a.ChunkTokens)
	}
	// wrote: head, role, One, two, ., finish, usage, DONE, end
	at := func(i int) float64 { return s.written(i).Sub(a.StartTime).Seconds() }
	within(t, "TTFT", a.TimeToFirstTokenSeconds, at(2))
	within(t, "TTFT (content)", a.TimeToFirstContentSeconds, at(2))
	within(t, "E2E", a.E2ELatencySeconds, at(4))
	within(t, "TPOT", a.TimePerOutputTokenSeconds, (at(4)-at(2))/3)
	if len(a.InterChunkLatenciesSeconds) != 2 {
		t.Fatalf("gaps %v", a.InterChunkLatenciesSeconds)
	}
	within(t, "gap 0", &a.InterChunkLatenciesSeconds[0], at(3)-at(2))
	within(t, "gap 1", &a.InterChunkLatenciesSeconds[1], at(4)-at(3))

	p := a.Phases
	if p.DNS != nil || p.TLS != nil || p.Connect == nil || p.Send == nil || p.Headers == nil {
		t.Errorf("phases %s", compact(p))
	}
	if compact(a.ConnectionReused) != "false" {
		t.Errorf("reused %s", compact(a.ConnectionReused))
	}
	if a.Clock == "kernel" && a.ClientLagMax == nil || a.Clock == "user" && a.ClientLagMax != nil || a.Clock == "" {
		t.Errorf("clock %q, lag %v", a.Clock, a.ClientLagMax)
	}
}

// within allows 20 ms: these tests run on loaded machines, and are about definitions. TestAccuracy is about the rest.
func within(t *testing.T, what string, got *float64, want float64) {
	t.Helper()
	if got == nil {
		t.Errorf("%s is absent, want %.4f s", what, want)
		return
	}
	if math.Abs(*got-want) > 0.02 {
		t.Errorf("%s = %.4f s, want %.4f s", what, *got, want)
	}
}

func TestHeaders(t *testing.T) {
	s := serve(t, always(data(content("x"), finish("stop"), done)))
	a := send(t, s, nil)
	r, body := s.seen(0)
	for name, want := range map[string]string{
		"Content-Type": `^application/json$`, "Accept": `^text/event-stream$`, "Accept-Encoding": `^identity$`,
		"X-Request-Id": `^llm-canary-[0-9a-f]{16}$`, "Traceparent": `^00-[0-9a-f]{32}-[0-9a-f]{16}-01$`,
		"User-Agent": `^llm_canary_exporter/test$`, "Authorization": `^$`,
	} {
		if got := r.Header.Get(name); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s: %q does not match %s", name, got, want)
		}
	}
	if r.Header.Get("X-Request-Id") != a.ID || r.Header.Get("Traceparent")[3:35] != a.TraceID {
		t.Error("the answer names other ids than were sent")
	}
	if r.ContentLength <= 0 || r.Proto != "HTTP/1.1" || !r.Close {
		t.Errorf("length %d, %s, close %v", r.ContentLength, r.Proto, r.Close)
	}
	if r.Method != "POST" || r.URL.Path != "/v1/chat/completions" {
		t.Errorf("%s %s", r.Method, r.URL)
	}
	want := `{"max_tokens":64,"messages":[{"content":"Count to two, please, and then say nothing more.","role":"user"}],"model":"m","seed":7,"stream":true,"stream_options":{"include_usage":true},"temperature":0}`
	if got := compact(body); got != want {
		t.Errorf("body\n got %s\nwant %s", got, want)
	}
}
