package main

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

// jsonProbe is what probe --output=json documents: the names are part of the interface.
type jsonProbe struct {
	Target                string                     `json:"target"`
	Scenario              string                     `json:"scenario"`
	Type                  string                     `json:"type"`
	Outcome               string                     `json:"outcome"`
	Reason                *string                    `json:"reason"`
	Detail                string                     `json:"detail"`
	ID                    string                     `json:"id"`
	StartTime             time.Time                  `json:"start_time"`
	DurationSeconds       float64                    `json:"duration_seconds"`
	Requests              []jsonRequest              `json:"requests"`
	Values                map[string]json.RawMessage `json:"values"`
	Checks                []jsonCheck                `json:"checks"`
	EngineRequestsRunning *float64                   `json:"engine_requests_running"`
	EngineRequestsWaiting *float64                   `json:"engine_requests_waiting"`
}

type jsonCheck struct {
	Variant string  `json:"variant"`
	Name    string  `json:"name"`
	OK      *bool   `json:"ok"`
	Detail  *string `json:"detail"`
}

type jsonRequest struct {
	Variant                    string             `json:"variant"`
	ID                         string             `json:"id"`
	StartTime                  time.Time          `json:"start_time"`
	Outcome                    string             `json:"outcome"`
	Reason                     *string            `json:"reason"`
	Detail                     string             `json:"detail"`
	HTTPStatus                 *int               `json:"http_status"`
	FinishReason               *string            `json:"finish_reason"`
	Model                      string             `json:"model"`
	Anomalies                  []string           `json:"anomalies"`
	PromptTokens               *int               `json:"prompt_tokens"`
	CachedPromptTokens         *int               `json:"cached_prompt_tokens"`
	CompletionTokens           *int               `json:"completion_tokens"`
	ReasoningTokens            *int               `json:"reasoning_tokens"`
	TokenCountSource           *string            `json:"token_count_source"`
	TimeToFirstTokenSeconds    *float64           `json:"time_to_first_token_seconds"`
	TimeToFirstContentSeconds  *float64           `json:"time_to_first_content_seconds"`
	TimePerOutputTokenSeconds  *float64           `json:"time_per_output_token_seconds"`
	E2ELatencySeconds          *float64           `json:"e2e_latency_seconds"`
	InterChunkLatenciesSeconds []float64          `json:"inter_chunk_latencies_seconds"`
	ChunkTokens                []int              `json:"chunk_tokens"`
	PhasesSeconds              map[string]float64 `json:"phases_seconds"`
	ConnectionReused           *bool              `json:"connection_reused"`
	ClientLagMaxSeconds        *float64           `json:"client_lag_max_seconds"`
	Clock                      string             `json:"clock"`
	TraceID                    string             `json:"trace_id"`
	ServerTimings              map[string]float64 `json:"server_timings"`
	Speculation                json.RawMessage    `json:"speculation"` // where the engine tells
	Window                     json.RawMessage    `json:"window"`      // where this host has GPUs
}

// jsonLines parses all of stdout: anything that is no documented object fails.
func jsonLines(t *testing.T, stdout string) []jsonProbe {
	t.Helper()
	var out []jsonProbe
	for line := range strings.Lines(stdout) {
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		var p jsonProbe
		if err := d.Decode(&p); err != nil {
			t.Fatalf("not an object of the documented form: %v\n%s", err, line)
		}
		if d.More() || !strings.HasSuffix(line, "\n") {
			t.Fatalf("not one object on a line: %q", line)
		}
		if p.Reason == nil || p.Requests == nil || p.ID == "" || p.StartTime.IsZero() || p.DurationSeconds < 0 {
			t.Fatalf("a field that is always there is missing: %s", line)
		}
		out = append(out, p)
	}
	return out
}

func TestProbeJSON(t *testing.T) {
	t.Parallel()
	_, url := simulated(t)
	code, stdout, stderr := command(t, "probe", "--target="+url, "--output=json")
	if code != exitOK {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	probes := jsonLines(t, stdout)
	seen := map[string]bool{}
	for _, p := range probes {
		seen[p.Scenario] = true
		if p.Target != strings.TrimPrefix(url, "http://") || p.Type != p.Scenario || p.Outcome != "success" || *p.Reason != "" {
			t.Errorf("target %q, type %q, outcome %q, reason %q", p.Target, p.Type, p.Outcome, *p.Reason)
		}
		for _, r := range p.Requests {
			checkGoodRequest(t, p, r)
		}
	}
	if len(probes) != 3 || !seen["chat"] || !seen["prefill"] || !seen["decode"] {
		t.Errorf("got %d probes of %v, want one each of chat, prefill and decode", len(probes), seen)
	}
	if strings.Contains(stderr, "\x1b") {
		t.Errorf("a progress line where there is no terminal: %q", stderr)
	}
}

func checkGoodRequest(t *testing.T, p jsonProbe, r jsonRequest) {
	t.Helper()
	if r.Outcome != "success" || r.Reason == nil || *r.Reason != "" || r.HTTPStatus == nil || *r.HTTPStatus != 200 || r.FinishReason == nil {
		t.Errorf("%s %s: outcome, status or finish reason is wrong: %+v", p.Scenario, r.Variant, r)
		return
	}
	if r.PromptTokens == nil || r.CompletionTokens == nil || r.TokenCountSource == nil || *r.TokenCountSource != "usage" {
		t.Errorf("%s %s: counts of the engine's usage are missing: %+v", p.Scenario, r.Variant, r)
		return
	}
	if r.TimeToFirstTokenSeconds == nil || r.E2ELatencySeconds == nil {
		t.Errorf("%s %s: latencies are missing: %+v", p.Scenario, r.Variant, r)
		return
	}
	ttft, e2e := *r.TimeToFirstTokenSeconds, *r.E2ELatencySeconds
	if !(ttft > 0) || e2e < ttft || p.DurationSeconds < e2e {
		t.Errorf("%s %s: first token %v, end %v and probe %v s are not in order", p.Scenario, r.Variant, ttft, e2e, p.DurationSeconds)
	}
	if n := *r.CompletionTokens; n > 1 {
		if r.TimePerOutputTokenSeconds == nil {
			t.Errorf("%s %s: no time per output token of %d tokens", p.Scenario, r.Variant, n)
		} else if x := *r.TimePerOutputTokenSeconds * float64(n-1); x > e2e-ttft+1e-6 {
			t.Errorf("%s %s: %d tokens took %v s, more than the %v s after the first", p.Scenario, r.Variant, n, x, e2e-ttft)
		}
	} else if r.TimePerOutputTokenSeconds != nil {
		t.Errorf("%s %s: a time per output token of a single token", p.Scenario, r.Variant)
	}
	if r.ConnectionReused == nil || *r.ConnectionReused {
		t.Errorf("%s %s: not on a fresh connection", p.Scenario, r.Variant)
	}
	for name, v := range r.PhasesSeconds {
		if math.IsNaN(v) || v < 0 || v > e2e {
			t.Errorf("%s %s: phase %s is %v s of %v s", p.Scenario, r.Variant, name, v, e2e)
		}
	}
	if _, tls := r.PhasesSeconds["tls"]; tls {
		t.Errorf("%s %s: a TLS phase of a plain connection", p.Scenario, r.Variant)
	}
}

func TestProbeTable(t *testing.T) {
	t.Parallel()
	_, url := simulated(t)
	code, stdout, stderr := command(t, "probe", "--target="+url, "--scenario=decode,chat", "--count=2")
	if code != exitOK {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	rows := map[string]int{}
	var headings int
	for line := range strings.Lines(stdout) {
		fields := strings.Fields(line)
		if strings.HasPrefix(line, "SCENARIO ") {
			headings++
		} else if !strings.HasPrefix(line, " ") {
			rows[fields[0]]++
			if len(fields) < 10 || fields[1] != "default" || fields[2] != "success" {
				t.Errorf("not a row of a good request: %q", line)
			}
		}
	}
	if headings != 1 || rows["chat"] != 2 || rows["decode"] != 2 || len(rows) != 2 {
		t.Errorf("%d headings, rows %v:\n%s", headings, rows, stdout)
	}
	if first, _, _ := strings.Cut(strings.SplitAfterN(stdout, "\n", 2)[1], " "); first != "decode" {
		t.Errorf("the scenarios do not come in the order of --scenario:\n%s", stdout)
	}
}

// What failed says why, and holds no figure in the place of one that was not measured.
func TestProbeFailures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault, reason string
		status        int // 0: absent
		measured      bool
	}{
		{fault: "status=500", reason: "http_5xx", status: 500},
		{fault: "status=429;retry_after=1", reason: "http_429", status: 429},
		{fault: "html", reason: "not_a_stream", status: 200},
		{fault: "empty", reason: "empty_output", status: 200},
		{fault: "cut_eof=3", reason: "truncated", status: 200, measured: true},
		{fault: "error_after=3", reason: "stream_error", status: 200, measured: true},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel()
			_, url := simulated(t, withFault(c.fault))
			code, stdout, stderr := command(t, "probe", "--target="+url, "--scenario=chat", "--output=json")
			probes := jsonLines(t, stdout)
			if code != exitFailed || len(probes) != 1 {
				t.Fatalf("exit code %d, %d probes\n%s%s", code, len(probes), stdout, stderr)
			}
			p := probes[0]
			if p.Outcome != "failure" || *p.Reason != c.reason || p.Detail == "" || len(p.Requests) != 1 {
				t.Fatalf("outcome %q, reason %q, detail %q: %s", p.Outcome, *p.Reason, p.Detail, stdout)
			}
			r := p.Requests[0]
			if r.Outcome != "failure" || r.Reason == nil || *r.Reason != c.reason || r.HTTPStatus == nil || *r.HTTPStatus != c.status {
				t.Errorf("the request: %s", stdout)
			}
			if len(p.Values) > 0 {
				t.Errorf("figures of a failed probe: %s", stdout)
			}
			if !c.measured && (r.TimeToFirstTokenSeconds != nil || r.TimeToFirstContentSeconds != nil || r.InterChunkLatenciesSeconds != nil) {
				t.Errorf("times of tokens that never came: %s", stdout)
			}
			if code, stdout, _ := command(t, "probe", "--target="+url, "--scenario=chat"); code != exitFailed || !strings.Contains(stdout, c.reason) || !strings.Contains(stdout, "failure: ") {
				t.Errorf("as a table: exit code %d\n%s", code, stdout)
			}
		})
	}
}

func TestProbeUnreachable(t *testing.T) {
	t.Parallel()
	code, stdout, _ := command(t, "probe", "--target=http://"+closedPort(t), "--scenario=chat", "--output=json")
	probes := jsonLines(t, stdout)
	if code != exitFailed || len(probes) != 1 || *probes[0].Reason != "connect" {
		t.Fatalf("exit code %d\n%s", code, stdout)
	}
	for _, r := range probes[0].Requests {
		if r.HTTPStatus != nil || r.PromptTokens != nil || r.TimeToFirstTokenSeconds != nil || r.ConnectionReused != nil {
			t.Errorf("figures without a connection: %s", stdout)
		}
	}
}

// One bad target of two decides about the exit code, whichever comes last.
func TestProbeOneOfTwoFails(t *testing.T) {
	t.Parallel()
	_, good := simulated(t)
	_, bad := simulated(t, withFault("status=500"))
	for _, order := range [][]string{{good, bad}, {bad, good}} {
		code, stdout, _ := command(t, "probe", "--target="+order[0], "--target="+order[1], "--scenario=chat", "--output=json")
		if probes := jsonLines(t, stdout); code != exitFailed || len(probes) != 2 || probes[0].Outcome == probes[1].Outcome {
			t.Errorf("exit code %d\n%s", code, stdout)
		}
	}
}

// A configuration without targets is fine with --target.
func TestProbeWithConfig(t *testing.T) {
	t.Parallel()
	_, url := simulated(t)
	config := file(t, "c.yml", "scenarios:\n  - {name: short, type: decode, max_tokens: 5}\n")
	code, stdout, stderr := command(t, "probe", "--config.file="+config, "--target="+url, "--scenario=short", "--output=json")
	probes := jsonLines(t, stdout)
	if code != exitOK || len(probes) != 1 || probes[0].Scenario != "short" || probes[0].Type != "decode" {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if n := probes[0].Requests[0].CompletionTokens; n == nil || *n != 5 {
		t.Errorf("the answer has not the configured length: %s", stdout)
	}
}

func TestProbeUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"probe"}, "no target"},
		{[]string{"probe", "--target=http://127.0.0.1:1", "--scenario=nonsense"}, `"nonsense"`},
		{[]string{"probe", "--target=http://127.0.0.1:1", "--scenario=chat,"}, `""`},
		{[]string{"probe", "--target=http://127.0.0.1:1", "--count=0"}, "--count=0"},
		{[]string{"probe", "--target=http://127.0.0.1:1", "--count=x"}, "x"},
		{[]string{"probe", "--target=http://127.0.0.1:1", "--output=xml"}, "xml"},
		{[]string{"probe", "--target=ftp://127.0.0.1"}, "http://"},
		{[]string{"probe", "--target=http://me:hunter2@127.0.0.1:1"}, "must not hold a user name"},
		{[]string{"probe", "--config.file=/does/not/exist.yml"}, "/does/not/exist.yml"},
	} {
		code, stdout, stderr := command(t, c.args...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, c.says) || !strings.HasPrefix(stderr, programName+": ") {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q, want %q in it", c.args, code, stdout, stderr, c.says)
		}
		if strings.Contains(stderr, "hunter2") {
			t.Errorf("%v: a password on stderr: %s", c.args, stderr)
		}
	}
}

func TestProbeInterrupted(t *testing.T) {
	t.Parallel()
	engine, url := simulated(t, withFault("hang"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			if len(engine.Records()) > 0 {
				cancel()
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	began := time.Now()
	code, stdout, stderr := commandUntil(t, ctx, "probe", "--target="+url, "--scenario=chat", "--count=3", "--output=json")
	if code != exitFailed || !strings.Contains(stderr, "interrupted after 1 of 3") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if took := time.Since(began); took > patience-time.Second {
		t.Errorf("took %s to stop: it waited for a timeout", took)
	}
	for _, p := range jsonLines(t, stdout) {
		if *p.Reason != "canceled" {
			t.Errorf("reason %q, want canceled", *p.Reason)
		}
	}
}

func TestProbeCannotWrite(t *testing.T) {
	t.Parallel()
	_, url := simulated(t)
	for _, format := range []string{"json", "table"} {
		var stderr output
		code := run(t.Context(), []string{"probe", "--target=" + url, "--scenario=chat", "--output=" + format}, options{stdout: fullDisk{}, stderr: &stderr})
		if code != exitFailed || !strings.Contains(stderr.String(), errWrite.Error()) {
			t.Errorf("%s: exit code %d, stderr %q", format, code, stderr.String())
		}
	}
}
