package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// fakeBackend is a daemon with one target.
type fakeBackend struct {
	ready     bool
	reloadErr error
	reloads   int
	probe     func(ctx context.Context) (*result.Probe, error)
}

func (f *fakeBackend) Ready() bool                 { return f.ready }
func (f *fakeBackend) Reload() error               { f.reloads++; return f.reloadErr }
func (f *fakeBackend) ConfigYAML() ([]byte, error) { return []byte("targets: []\n"), nil }
func (f *fakeBackend) Scenarios(string) []string   { return []string{"chat", "decode"} }
func (f *fakeBackend) TargetDetails() []TargetDetail {
	return []TargetDetail{{
		Target: result.Target{Name: "prod", URL: "http://llm:8000", Engine: "vllm"}, Detected: true,
		Facts: []KV{{"engine", "vllm: <script>alert(1)</script>"}},
	}}
}

func (f *fakeBackend) ResolveTarget(p string) (string, error) {
	if p == "prod" {
		return "prod", nil
	}
	return "", fmt.Errorf("target %q is not configured", p)
}

func (f *fakeBackend) Probe(ctx context.Context, _, _ string) (*result.Probe, error) {
	return f.probe(ctx)
}

func probeResult(id string, at time.Time, o result.Outcome, r result.Reason) *result.Probe {
	req := result.Request{
		Variant: "default", StartTime: at, Outcome: o, Reason: r, HTTPStatus: 200,
		TimeToFirstTokenSeconds: result.Ptr(0.081), TimePerOutputTokenSeconds: result.Ptr(0.0121), E2ELatencySeconds: result.Ptr(0.845),
		PromptTokens: result.Ptr(213), CompletionTokens: result.Ptr(64), FinishReason: "length",
	}
	return &result.Probe{
		Target: "prod", Scenario: "chat", Type: "chat", Outcome: o, Reason: r, ID: id, StartTime: at, DurationSeconds: 0.9,
		Requests: []result.Request{req},
		Values:   result.Values{{Metric: "output_tokens_per_second", Label: "default", Figure: 82.5}},
		Checks:   []result.Check{{Variant: "default", Name: "non_empty", OK: o == result.Success, Detail: "<img src=x>"}},
	}
}

func newTestServer(t *testing.T, b *fakeBackend, change func(*Options)) (*httptest.Server, *History) {
	t.Helper()
	h := NewHistory(3)
	h.PairAdded(result.Pair{Target: "prod", Scenario: "chat", Type: "chat", Interval: 30 * time.Second})
	h.TargetFound(result.Target{Name: "prod", URL: "http://llm:8000", Engine: "vllm", Model: "<b>m</b>"})
	o := Options{
		Backend: b, History: h, MetricsPath: "/metrics", Version: "0.0.0-test",
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a_metric 1\n") }),
	}
	if change != nil {
		change(&o)
	}
	s := httptest.NewServer(NewHandler(o))
	t.Cleanup(s.Close)
	return s, h
}

func do(t *testing.T, method, url string, header http.Header) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body), resp.Header
}

func TestEndpoints(t *testing.T) {
	now := time.Now()
	ok := func(context.Context) (*result.Probe, error) {
		return probeResult("p1", now, result.Success, result.ReasonNone), nil
	}
	failed := func(context.Context) (*result.Probe, error) {
		return probeResult("p1", now, result.Failure, result.ReasonTimeoutStall), nil
	}
	tests := []struct {
		name         string
		backend      fakeBackend
		options      func(*Options)
		method, path string
		code         int
		want         []string
		reject       []string
	}{
		{name: "metrics", path: "/metrics", code: 200, want: []string{"a_metric 1"}},
		{name: "status", path: "/", code: 200, want: []string{"prod", "&lt;b&gt;m&lt;/b&gt;", "81 ms", "12.1 ms", "82.5"}, reject: []string{"<b>m</b>"}},
		{name: "no other path below root", path: "/nosuch", code: 404},
		{name: "targets", path: "/targets", code: 200, want: []string{"&lt;script&gt;"}, reject: []string{"<script>"}},
		{name: "targets as JSON", path: "/targets?format=json", code: 200, want: []string{`"engine": "vllm"`}},
		{name: "probes", path: "/probes", code: 200, want: []string{`href="/probes/kept"`}},
		{name: "probes of another target", path: "/probes?target=other", code: 200, want: []string{"nothing yet"}},
		{name: "failures only", path: "/probes?outcome=failure", code: 200, want: []string{"nothing yet"}},
		{name: "one probe", path: "/probes/kept", code: 200, want: []string{"213", "&lt;img src=x&gt;", "time_to_first_token_seconds"}, reject: []string{"<img"}},
		{name: "one probe as JSON", path: "/probes/kept?format=json", code: 200, want: []string{`"output_tokens_per_second": {`}},
		{name: "forgotten probe", path: "/probes/nosuch", code: 404, want: []string{"only the newest"}},
		{name: "config", path: "/config", code: 200, want: []string{"targets: []"}},
		{name: "healthy", path: "/-/healthy", code: 200},
		{name: "ready", backend: fakeBackend{ready: true}, path: "/-/ready", code: 200},
		{name: "not ready", path: "/-/ready", code: 503},
		{name: "reload is off", method: "POST", path: "/-/reload", code: 403, want: []string{"--web.enable-lifecycle"}},
		{name: "reload needs POST", path: "/-/reload", options: func(o *Options) { o.Lifecycle = true }, code: 405},
		{name: "reload", method: "POST", path: "/-/reload", options: func(o *Options) { o.Lifecycle = true }, code: 200},
		{
			name: "reload fails", method: "POST", path: "/-/reload", options: func(o *Options) { o.Lifecycle = true },
			backend: fakeBackend{reloadErr: errors.New("line 3: bad")}, code: 500, want: []string{"line 3: bad", "not changed"},
		},
		{name: "pprof is off", path: "/debug/pprof/", code: 404},
		{name: "pprof", path: "/debug/pprof/", options: func(o *Options) { o.Pprof = true }, code: 200, want: []string{"goroutine"}},
		{name: "probe without target", path: "/probe", code: 400, want: []string{`"target" is missing`}},
		{name: "probe of an unknown target", path: "/probe?target=http://169.254.169.254&scenario=chat", code: 400, want: []string{"not configured"}},
		{name: "probe without scenario", path: "/probe?target=prod", code: 400, want: []string{"one of chat, decode"}},
		{name: "probe of an unknown scenario", path: "/probe?target=prod&scenario=x", code: 400, want: []string{`no scenario "x"`}},
		{name: "repeated parameter", path: "/probe?target=prod&target=b&scenario=chat", code: 400, want: []string{"2 times"}},
		{name: "probe", backend: fakeBackend{probe: ok}, path: "/probe?target=prod&scenario=chat", code: 200, want: []string{"probe_success 1", "probe_duration_seconds 0.9"}, reject: []string{"probe_timeout_seconds"}},
		{name: "failed probe is 200", backend: fakeBackend{probe: failed}, path: "/probe?target=prod&scenario=chat", code: 200, want: []string{"probe_success 0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, h := newTestServer(t, &tt.backend, tt.options)
			h.ProbeFinished(probeResult("kept", now, result.Success, result.ReasonNone))
			method := tt.method
			if method == "" {
				method = http.MethodGet
			}
			code, body, header := do(t, method, s.URL+tt.path, nil)
			if code != tt.code {
				t.Fatalf("status %d, want %d; body %s", code, tt.code, body)
			}
			for _, w := range tt.want {
				if !strings.Contains(body, w) {
					t.Errorf("body lacks %q:\n%s", w, body)
				}
			}
			for _, w := range tt.reject {
				if strings.Contains(body, w) {
					t.Errorf("body has %q:\n%s", w, body)
				}
			}
			if header.Get("X-Content-Type-Options") != "nosniff" {
				t.Error("nosniff is missing")
			}
		})
	}
}

func TestProbeTimeoutHeader(t *testing.T) {
	tests := []struct {
		header string
		want   time.Duration
		ok     bool
	}{
		{"", 0, false},
		{"abc", 0, false},
		{"-5", 0, false},
		{"0", 0, false},
		{"NaN", 0, false},
		{"1e300", 0, false},
		{"10", 9500 * time.Millisecond, true},
		{"0.5", 250 * time.Millisecond, true}, // never negative, whatever the offset
	}
	for _, tt := range tests {
		if got, ok := scrapeTimeout(tt.header); got != tt.want || ok != tt.ok {
			t.Errorf("%q: %v, %v; want %v, %v", tt.header, got, ok, tt.want, tt.ok)
		}
	}
}

// A probe runs under the scrape's deadline, and its outcome is still a page.
func TestProbeDeadline(t *testing.T) {
	b := &fakeBackend{probe: func(ctx context.Context) (*result.Probe, error) {
		if _, ok := ctx.Deadline(); !ok {
			return nil, errors.New("no deadline")
		}
		return probeResult("x", time.Now(), result.Failure, result.ReasonCanceled), nil
	}}
	s, _ := newTestServer(t, b, nil)
	code, body, _ := do(t, "GET", s.URL+"/probe?target=prod&scenario=chat", http.Header{scrapeTimeoutHeader: {"10"}})
	if code != 200 || !strings.Contains(body, "probe_timeout_seconds 9.5") {
		t.Fatalf("%d %s", code, body)
	}
}

// More probes over HTTP than allowed get 503 at once instead of queueing.
func TestProbeLimit(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	b := &fakeBackend{probe: func(context.Context) (*result.Probe, error) {
		close(entered)
		<-release
		return probeResult("x", time.Now(), result.Success, result.ReasonNone), nil
	}}
	s, _ := newTestServer(t, b, func(o *Options) { o.MaxProbes = 1 })
	done := make(chan int)
	go func() {
		resp, err := http.Get(s.URL + "/probe?target=prod&scenario=chat")
		if err != nil {
			done <- 0
			return
		}
		resp.Body.Close()
		done <- resp.StatusCode
	}()
	<-entered
	code, _, _ := do(t, "GET", s.URL+"/probe?target=prod&scenario=chat", nil)
	close(release)
	if first := <-done; first != 200 || code != 503 {
		t.Fatalf("first %d, second %d; want 200, 503", first, code)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	h := NewHistory(3)
	h.PairAdded(result.Pair{Target: "prod", Scenario: "chat"})
	start := time.Now()
	h.ProbeFinished(probeResult("failed", start, result.Failure, result.ReasonDNS))
	for i := range 100 {
		h.ProbeFinished(probeResult(fmt.Sprint("ok", i), start.Add(time.Duration(i+1)*time.Second), result.Success, result.ReasonNone))
	}
	got := h.Results(Filter{})
	var ids []string
	for _, p := range got {
		ids = append(ids, p.ID)
	}
	// The three newest, and the failure that they did not push out.
	if want := "ok99 ok98 ok97 failed"; strings.Join(ids, " ") != want {
		t.Fatalf("kept %v, want %s", ids, want)
	}
	h.TargetRemoved("prod")
	h.ProbeFinished(probeResult("late", start, result.Success, result.ReasonNone))
	if n := len(h.Results(Filter{})); n != 0 {
		t.Fatalf("%d results of a removed target", n)
	}
}

func TestMetricsPath(t *testing.T) {
	for path, want := range map[string]bool{
		"/metrics": true, "/m/x": true, "": false, "/": false, "metrics": false, "/probe": false, "/probe/": false, "/-/ready": false,
		"/probes/1": false, "/debug/pprof/": false, "/{x}": false, "/a b": false, "/m?x=1": false, "/config": false,
	} {
		if got := CheckMetricsPath(path); got != want {
			t.Errorf("%q: %v, want %v", path, got, want)
		}
	}
}

func TestProbesJSONIsAList(t *testing.T) {
	s, _ := newTestServer(t, &fakeBackend{}, nil)
	_, body, _ := do(t, "GET", s.URL+"/probes?format=json", nil)
	var list []result.Probe
	if err := json.Unmarshal([]byte(body), &list); err != nil || list == nil {
		t.Fatalf("%v: %s", err, body)
	}
}
