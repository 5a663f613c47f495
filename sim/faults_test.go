package sim

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fourTokens is a request whose good answer has the events
// headers role token token token token usage done.
func fourTokens() fields {
	return fields{"messages": user("Go"), "max_tokens": 4, "ignore_eos": true, "stream": true, "stream_options": fields{"include_usage": true}}
}

// Each row of the table of faults that shapes a stream.
func TestStreamFaults(t *testing.T) {
	s := start(t, quick())
	const good = "headers role token token token token usage done"
	tested := map[string]bool{}
	for i, c := range []struct {
		fault string
		kinds string
		check func(text string) bool
	}{
		{"", good, func(x string) bool { return strings.HasSuffix(x, "data: [DONE]\n\n") }},
		{"content_type=text/plain", good, nil},
		{"late_headers", good, nil},
		{"crlf", good, func(x string) bool { return strings.Count(x, "\r\n\r\n") == 7 && strings.Count(x, "\n") == 14 }},
		{"cr", good, func(x string) bool { return strings.Count(x, "\r\r") == 7 && !strings.Contains(x, "\n") }},
		{"bom", good, func(x string) bool { return strings.HasPrefix(x, "\ufeffdata: {") }},
		{"no_space", good, func(x string) bool { return strings.Count(x, "data:{") == 6 && strings.HasSuffix(x, "data:[DONE]\n\n") }},
		{"multiline", good, func(x string) bool { return strings.Count(x, "data: ") == 13 }},
		{"prompt_filter", "headers other role token token token token usage done", func(x string) bool { return strings.Contains(x, `"choices":[],"prompt_filter_results"`) }},
		{"error_after=2", "headers role token token error done", func(x string) bool {
			return strings.Contains(x, `data: {"error":{"code":500`) && strings.HasSuffix(x, "[DONE]\n\n")
		}},
		{"error_after=0", "headers role error done", nil},
		{"error_no_done=2", "headers role token token error", func(x string) bool { return !strings.Contains(x, "DONE") }},
		{"error_event=1", "headers role token error", func(x string) bool { return strings.HasSuffix(x, "event: error\n: simulated engine failure\n\n") }},
		{"error_raw=1", "headers role token error", func(x string) bool { return strings.Contains(x, "\n\n{\"error\":") }},
		{"cut_eof=3", "headers role token token token", func(x string) bool { return strings.HasSuffix(x, "\n\n") }},
		{"malformed=2", "headers role token token other token token usage done", func(x string) bool { return strings.Contains(x, "\"brok\n\n") || strings.Contains(x, "brok\n\n") }},
		{"invalid_utf8=1", "headers role token token token token token usage done", func(x string) bool { return strings.Contains(x, "\"\xe4\xbd\"") }},
		{"huge=100000", "headers role other token token token token usage done", func(x string) bool { return len(x) > 100000 }},
		{"empty", "headers role finish usage done", func(x string) bool {
			return strings.Contains(x, `"content":""},"logprobs":null,"finish_reason":"stop"`)
		}},
		{"no_finish", good, func(x string) bool { return !strings.Contains(x, `"finish_reason":"`) }},
		{"duplicate_finish", "headers role token token token token finish usage done", func(x string) bool { return strings.Count(x, `"finish_reason":"length"`) == 2 }},
		{"separate_finish", "headers role token token token token finish usage done", func(x string) bool { return strings.Count(x, `"finish_reason":"length"`) == 1 }},
		{"finish_reason=abort", good, func(x string) bool { return strings.Contains(x, `"finish_reason":"abort"`) }},
		{"no_done", "headers role token token token token usage", nil},
		{"unterminated", good, func(x string) bool { return strings.HasSuffix(x, "data: [DONE]") }},
		{"unterminated;no_done", "headers role token token token token usage", func(x string) bool { return strings.HasSuffix(x, "}}}") }},
		{"unterminated;no_done;usage_missing", "headers role token token token token", func(x string) bool { return strings.HasSuffix(x, "}]}") }},
		{"usage_missing", "headers role token token token token done", func(x string) bool { return !strings.Contains(x, "usage") }},
		{"usage_every", good, func(x string) bool {
			return strings.Count(x, `"usage"`) == 6 && strings.Contains(x, `"completion_tokens":3}`)
		}},
		{"usage_on_finish", "headers role token token token token done", func(x string) bool { return strings.Count(x, `"completion_tokens":4,`) == 1 }},
		{"usage_off=-2", good, func(x string) bool { return strings.Contains(x, `"completion_tokens":2`) }},
		{"reasoning=2", good, func(x string) bool { return strings.Count(x, `"delta":{"reasoning":"`) == 2 }},
		{"reasoning=1;reasoning_field=reasoning_content", good, func(x string) bool { return strings.Count(x, `"delta":{"reasoning_content":"`) == 1 }},
		{"length=6", "headers role token token token token token token usage done", func(x string) bool { return strings.Contains(x, `"finish_reason":"stop"`) }},
		{"model_name=other", good, func(x string) bool { return strings.Count(x, `"model":"other"`) == 7-1 }},
		{"buffered", strings.TrimPrefix(good, "headers "), nil},
	} {
		for part := range strings.SplitSeq(c.fault, ";") {
			name, _, _ := strings.Cut(part, "=")
			tested[name] = true
		}
		id := fmt.Sprint("f", i)
		_, _, text, err := s.post("/v1/chat/completions", id, c.fault, fourTokens())
		if err != nil {
			t.Errorf("%s: %v", c.fault, err)
		}
		rec := s.ended(id)
		if got := kinds(rec); got != c.kinds {
			t.Errorf("%s: events %q, want %q", c.fault, got, c.kinds)
		}
		if c.check != nil && !c.check(text) {
			t.Errorf("%s: wrong bytes:\n%s", c.fault, text)
		}
	}
	for _, f := range Faults() {
		if !tested[f.Name] && !testedElsewhere()[f.Name] {
			t.Errorf("fault %s has no test", f.Name)
		}
	}
}

// testedElsewhere names the faults that the other tests of the package cover.
func testedElsewhere() map[string]bool {
	out := map[string]bool{}
	for _, n := range strings.Fields(`status body retry_after retry_after_date retry_after_ms ratelimit_reset redirect hang html reject
		gzip drip comments comment_data role_lead slow_prefill stall cut_close cut_reset`) {
		out[n] = true
	}
	return out
}

func TestRefusals(t *testing.T) {
	s := start(t, quick())
	for fault, c := range map[string]struct {
		status int
		header string
		value  string
		body   string
	}{
		"status=503":                                        {503, "", "", `"code":503`},
		"status=429;retry_after=7":                          {429, "Retry-After", "7", `"error"`},
		"status=429;retry_after_ms=150":                     {429, "Retry-After-Ms", "150", ""},
		"status=429;ratelimit_reset=1m2s;body=slow%3B down": {429, "X-Ratelimit-Reset-Tokens", "1m2s", "slow; down"},
		"status=429;retry_after_date=1h":                    {429, "Retry-After", time.Now().Add(time.Hour).UTC().Format("Mon, 02 Jan 2006 15:"), ""},
		"redirect=http://127.0.0.1:1/":                      {307, "Location", "http://127.0.0.1:1/", ""},
		"html":                                              {200, "Content-Type", "text/html", "<html>"},
		"reject=logit_bias,stream_options":                  {400, "", "", "Unrecognized request argument supplied: stream_options"},
		"reject=logit_bias":                                 {200, "Content-Type", "text/event-stream", "[DONE]"},
		"status=1000":                                       {400, "", "", "outside"},
		"nonsense":                                          {400, "", "", `unknown fault \"nonsense\"`},
		"stall=x":                                           {400, "", "", "want n:duration"},
	} {
		status, h, body, err := s.post("/v1/chat/completions", "x", fault, fourTokens())
		if err != nil || status != c.status || !strings.HasPrefix(h.Get(c.header), c.value) || !strings.Contains(body, c.body) {
			t.Errorf("%s: status %d, %s %q, body %s, error %v", fault, status, c.header, h.Get(c.header), body, err)
		}
		if rec := s.ended("x"); rec.Status != c.status {
			t.Errorf("%s: recorded status %d", fault, rec.Status)
		}
	}
}

func TestHangEndsWithTheClient(t *testing.T) {
	s := start(t, quick())
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/chat/completions", strings.NewReader(`{"messages":[{"role":"user","content":"Go"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Request-Id", "h")
	req.Header.Set(FaultHeader, "hang")
	got := make(chan error, 1)
	go func() {
		res, err := s.client.Do(req)
		if err == nil {
			res.Body.Close()
		}
		got <- err
	}()
	waitFor(t, "the request", func() bool { rec, _ := s.Record("h"); return rec.Faults == "hang" })
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	s.ended("h")
}

func TestCuts(t *testing.T) {
	s := start(t, quick())
	for fault, want := range map[string]error{"cut_close=2": io.ErrUnexpectedEOF, "cut_reset=2": syscall.ECONNRESET} {
		_, _, text, err := s.post("/v1/chat/completions", fault, fault, fourTokens())
		if !errors.Is(err, want) {
			t.Errorf("%s: reading ended with %v, want %v", fault, err, want)
		}
		if got := kinds(s.ended(fault)); got != "headers role token token" {
			t.Errorf("%s: events %q", fault, got)
		}
		// After a reset the client may have lost what it had not read yet.
		if fault == "cut_close=2" && len(events(text)) != 3 {
			t.Errorf("%s: body %s", fault, text)
		}
		if st := s.Stats(); st.BlocksUsed != 0 {
			t.Errorf("%s: %d blocks still in use", fault, st.BlocksUsed)
		}
	}
}

func TestGzip(t *testing.T) {
	s := start(t, quick())
	_, h, text, err := s.post("/v1/chat/completions", "x", "gzip", fourTokens())
	if err != nil || h.Get("Content-Encoding") != "gzip" {
		t.Fatalf("encoding %q, error %v", h.Get("Content-Encoding"), err)
	}
	z, err := gzip.NewReader(bytes.NewReader([]byte(text)))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil || len(events(string(plain))) != 7 {
		t.Errorf("unzipped to %d events, error %v", len(events(string(plain))), err)
	}
}

// Times of faults, all from the records.
func TestFaultTimes(t *testing.T) {
	cfg := quick()
	cfg.PrefillPerToken = 4 * time.Millisecond // the prompt of 7 tokens takes 28 ms
	s := start(t, cfg)
	tokens := func(r Record) (out []RecordEvent) {
		for _, ev := range r.Events {
			if ev.Kind == EventToken {
				out = append(out, ev)
			}
		}
		return out
	}
	stall, _ := s.chat("stall", "stall=2:60ms", fourTokens())
	if ev := tokens(stall); ev[2].Before.Sub(ev[1].After) < 60*time.Millisecond || ev[1].Before.Sub(ev[0].After) > 55*time.Millisecond {
		t.Errorf("stall=2:60ms: gaps %s and %s", ev[1].Before.Sub(ev[0].After), ev[2].Before.Sub(ev[1].After))
	}
	lead, _ := s.chat("lead", "role_lead=50ms", fourTokens())
	if ev := tokens(lead); lead.Events[1].Kind != EventRole || ev[0].Before.Sub(lead.Timing.FirstToken) < 50*time.Millisecond || lead.Events[1].Before.Sub(lead.Timing.FirstToken) > 45*time.Millisecond {
		t.Errorf("role_lead=50ms: events %+v, first token made at %s", lead.Events[:3], lead.Timing.FirstToken)
	}
	drip, _ := s.chat("drip", "drip=1ms", fourTokens())
	for i, ev := range tokens(drip) {
		if d := ev.After.Sub(ev.Before); d < 8*time.Millisecond {
			t.Errorf("drip=1ms: event %d of more than 128 bytes took %s", i, d)
		}
	}
	body := fourTokens()
	body["cache_salt"] = "fresh"
	comments, _ := s.chat("comments", "comments=3ms", body)
	if got := kinds(comments); !strings.HasPrefix(got, "headers comment comment ") || !strings.HasSuffix(got, " comment role token token token token usage done") {
		t.Errorf("comments=3ms during 28ms of prefill: %s", got)
	}
	_, _, text, err := s.post("/v1/chat/completions", "", "comments=3ms;comment_data", fourTokens())
	if err != nil || !strings.Contains(text, "data: : keep-alive\n\n") {
		t.Errorf("comment_data: %v\n%s", err, text)
	}
}

func TestRoleChunkDelay(t *testing.T) {
	cfg := quick()
	cfg.PrefillPerToken, cfg.RoleChunkDelay = 10*time.Millisecond, 0
	s := start(t, cfg)
	rec, _ := s.chat("x", "", fourTokens())
	if rec.Events[1].Kind != EventRole || rec.Events[2].Before.Sub(rec.Events[1].After) < 20*time.Millisecond {
		t.Errorf("role chunk at once, then 70ms of prefill: %+v", rec.Events[:3])
	}
}

func TestFaultRules(t *testing.T) {
	s := start(t, quick())
	failed := func() (n int) {
		for range 200 {
			status, _, _, err := s.post("/v1/completions", "", "", fields{"prompt": "Go", "max_tokens": 1})
			if err != nil {
				t.Fatal(err)
			}
			if status == 500 {
				n++
			}
		}
		return n
	}
	set := func(body any) int {
		status, _, _, err := s.post("/sim/faults", "", "", body)
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
	if n := failed(); n != 0 {
		t.Errorf("%d of 200 failed without faults", n)
	}
	if set([]fields{{"fault": "status=500", "probability": 0.3}}) != 200 {
		t.Fatal("rule refused")
	}
	if n := failed(); n < 35 || n > 85 {
		t.Errorf("%d of 200 failed with probability 0.3", n)
	}
	if set([]fields{{"fault": "status=500"}}) != 200 || failed() != 200 {
		t.Error("a rule without probability does not always strike")
	}
	for _, bad := range []any{[]fields{{"fault": "x"}}, []fields{{"fault": "html", "probability": 7}}, fields{}} {
		if set(bad) != 400 {
			t.Errorf("%v accepted", bad)
		}
	}
	if rules := s.FaultRules(); len(rules) != 1 || rules[0] != (FaultRule{"status=500", 1}) {
		t.Errorf("a bad rule changed the rules to %v", rules)
	}
	if set([]fields{}) != 200 || failed() != 0 {
		t.Error("faults do not end")
	}
}

func TestFaultsWithoutStream(t *testing.T) {
	s := start(t, quick())
	for fault, want := range map[string]string{
		"finish_reason=error": `"finish_reason":"error"`,
		"no_finish":           `"finish_reason":null`,
		"reasoning=1":         `"reasoning":"`,
		"empty":               `"content":""`,
	} {
		_, _, text, err := s.post("/v1/chat/completions", "", fault, fields{"messages": user("Go"), "max_tokens": 3})
		if err != nil || !strings.Contains(text, want) || !json.Valid([]byte(text)) {
			t.Errorf("%s: %v, %s", fault, err, text)
		}
	}
	_, _, text, err := s.post("/v1/chat/completions", "", "malformed=0", fields{"messages": user("Go"), "max_tokens": 3})
	if err != nil || json.Valid([]byte(text)) {
		t.Errorf("malformed: %v, %s", err, text)
	}
	if _, _, _, err = s.post("/v1/completions", "", "cut_close=0", fields{"prompt": "Go"}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut_close: %v", err)
	}
}

func FuzzParseFaults(f *testing.F) {
	for _, s := range []string{"", "status=429;retry_after=1", "stall=1:2s", "drip", "=;", "body=%zz", "slow_prefill=NaN"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseFaults(s)
		if err == nil && (got.slowPrefill <= 0 || got.drip < 0) {
			t.Errorf("%q gives %+v", s, got)
		}
	})
}
