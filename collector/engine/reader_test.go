package enginemetrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/common/config"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const vllmPage = "vllm:num_requests_running 3\nvllm:num_requests_waiting 1\nvllm:kv_cache_usage_perc 0.5\n"

// site is a server of fixed pages that notes what it is asked.
type site struct {
	*httptest.Server
	mu    sync.Mutex
	paths []string
}

func newSite(t *testing.T, pages map[string]http.HandlerFunc) *site {
	t.Helper()
	s := &site{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.paths = append(s.paths, r.URL.Path)
		s.mu.Unlock()
		if h := pages[r.URL.Path]; h != nil {
			h(w, r)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *site) asked(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, p := range s.paths {
		if p == path {
			n++
		}
	}
	return n
}

func text(page string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = io.WriteString(w, page)
	}
}

func body(contentType, page string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, page)
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// client has connections of its own, which end with the test.
func client(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestReadNow(t *testing.T) {
	s := newSite(t, map[string]http.HandlerFunc{"/metrics": text(vllmPage + "oops{\n")})
	r := NewReader(ReaderOptions{Target: "a", Base: s.URL, Client: client(t), Hint: Hint{Engine: "vllm"}})
	if _, _, ok := r.Last(); ok {
		t.Error("a reading before the first read")
	}
	if _, err := r.Load(); err == nil {
		t.Error("a load before the first read")
	}
	before := time.Now()
	got, err := r.ReadNow(t.Context())
	if err != nil || *got.RequestsRunning != 3 || got.URL != s.URL+"/metrics" || got.Report.BadLines != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	load, err := r.Load()
	if err != nil || *load.Running != 3 || *load.Waiting != 1 {
		t.Errorf("%+v, %v", load, err)
	}
	if st := r.State(); !st.Fresh || st.BadLines != 1 || st.Err != nil || st.Target != "a" {
		t.Errorf("%+v", st)
	}
	if peak := r.KVPeak(before, time.Now()); peak == nil || *peak != 0.5 {
		t.Errorf("peak %s", show(peak))
	}
	if peak := r.KVPeak(before.Add(-time.Minute), before.Add(-time.Second)); peak != nil {
		t.Errorf("a peak where nothing was read: %v", *peak)
	}
}

func TestReasons(t *testing.T) {
	list := `[{"iter": 1}]`
	for _, c := range []struct {
		name string
		page http.HandlerFunc
		want Reason
	}{
		{"401", status(401), ReasonUnauthorized},
		{"403", status(403), ReasonUnauthorized},
		{"404", status(404), ReasonNotFound},
		{"501", status(501), ReasonNotImplemented},
		{"503", status(503), ReasonUnavailable},
		{"500", status(500), ReasonHTTPStatus},
		{"204", status(204), ReasonHTTPStatus},
		{"JSON list", body("application/json", list), ReasonJSON},
		{"JSON under text", body("text/plain", `{"status":"ok"}`), ReasonJSON},
		{"login page", body("text/html", "<html>"), ReasonHTML},
		{"empty", text(""), ReasonEmpty},
		{"prose", text("hello there\n"), ReasonMalformed},
		{"something else's metrics", text("up 1\n"), ReasonUnknownDialect},
		{"too large", func(w http.ResponseWriter, _ *http.Request) {
			line := []byte(strings.Repeat("# x", 1000) + "\n")
			for n := 0; n <= MaxPageBytes; n += len(line) {
				if _, err := w.Write(line); err != nil {
					return
				}
			}
		}, ReasonTooLarge},
		{"redirect to nowhere", status(302), ReasonRedirect},
		{"redirect to itself", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/metrics", 307) }, ReasonRedirect},
		{"redirect to another host", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://user:geheim@127.0.0.2:1/metrics?key=geheim", 302)
		}, ReasonRedirect},
		{"broken off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, vllmPage)
		}, ReasonConnect},
		{"slow headers", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, ReasonTimeout},
		{"slow body", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, vllmPage)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, ReasonTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t, map[string]http.HandlerFunc{"/metrics": c.page})
			timeout := DefaultTimeout
			if c.want == ReasonTimeout {
				timeout = 50 * time.Millisecond
			}
			r := NewReader(ReaderOptions{Base: s.URL, Client: client(t), Hint: Hint{Engine: "vllm"}, Timeout: timeout})
			_, err := r.ReadNow(t.Context())
			st := r.State()
			if err == nil || st.Reason != c.want || st.Failures[c.want] != 1 || st.Advice == "" || st.Err == nil {
				t.Errorf("%v: reason %q, %v, advice %q", err, st.Reason, st.Failures, st.Advice)
			}
			if strings.Contains(fmt.Sprint(err), "geheim") {
				t.Errorf("a secret in %v", err)
			}
			if _, err := r.Load(); err == nil {
				t.Error("a load in spite of the failure")
			}
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		s := httptest.NewServer(nil)
		s.Close()
		r := NewReader(ReaderOptions{Base: strings.Replace(s.URL, "//", "//me:geheim@", 1), Client: client(t), Hint: Hint{Engine: "vllm"}})
		_, err := r.ReadNow(t.Context())
		if st := r.State(); st.Reason != ReasonConnect || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%q: %v", st.Reason, err)
		}
	})
	t.Run("a certificate of nobody", func(t *testing.T) {
		s := httptest.NewTLSServer(text(vllmPage))
		s.Config.ErrorLog = nil
		defer s.Close()
		r := NewReader(ReaderOptions{Base: s.URL, Client: client(t), Hint: Hint{Engine: "vllm"}})
		_, err := r.ReadNow(t.Context())
		if st := r.State(); st.Reason != ReasonTLS {
			t.Errorf("%q: %v", st.Reason, err)
		}
	})
	t.Run("an engine without a page", func(t *testing.T) {
		s := newSite(t, nil)
		r := NewReader(ReaderOptions{Base: s.URL, Client: client(t), Hint: Hint{Engine: "ollama"}})
		_, _ = r.ReadNow(t.Context())
		if st := r.State(); st.Reason != ReasonUnsupported || len(s.paths) != 0 {
			t.Errorf("%q, asked %v", st.Reason, s.paths)
		}
	})
}

func TestAllReasonsHaveAdvice(t *testing.T) {
	for _, r := range Reasons() {
		if advice(r, "") == "" {
			t.Errorf("%s has none", r)
		}
	}
}

// Redirects within the host keep the client's credentials (LiteLLM answers 307 from /metrics to /metrics/).
func TestRedirectKeepsAuthorization(t *testing.T) {
	guarded := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer geheim" {
			w.WriteHeader(401)
			return
		}
		text(vllmPage)(w, r)
	}
	s := newSite(t, map[string]http.HandlerFunc{
		"/metrics": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/metrics/")
			w.WriteHeader(307)
		},
		"/metrics/": guarded,
	})
	c, err := config.NewClientFromConfig(config.HTTPClientConfig{BearerToken: "geheim"}, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	r := NewReader(ReaderOptions{Base: s.URL, Client: c, Hint: Hint{Engine: "litellm"}})
	if _, err := r.ReadNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.asked("/metrics/") != 1 {
		t.Errorf("asked %v", s.paths)
	}

	other := newSite(t, map[string]http.HandlerFunc{"/metrics": text(vllmPage)})
	away := newSite(t, map[string]http.HandlerFunc{"/metrics": func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, strings.Replace(other.URL, "127.0.0.1", "localhost", 1)+"/metrics", 302)
	}})
	r = NewReader(ReaderOptions{Base: away.URL, Client: c, Hint: Hint{Engine: "litellm"}})
	if _, err := r.ReadNow(t.Context()); reasonOf(err) != ReasonRedirect || len(other.paths) != 0 {
		t.Errorf("%v, the other host was asked %v", err, other.paths)
	}
}

func TestRedirectRules(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"http://h:1/metrics", "/metrics/", "http://h:1/metrics/"},
		{"http://me:pw@h:1/metrics", "/metrics/", "http://me:pw@h:1/metrics/"},
		{"http://h/metrics", "https://h/metrics", "https://h/metrics"},
		{"http://h/metrics", "http://H:80/m", "http://H:80/m"},
		{"https://h/metrics", "http://h/metrics", ""},
		{"http://h/metrics", "//other/metrics", ""},
		{"http://h:1/metrics", "http://h:2/metrics", ""},
		{"http://h/metrics", "file:///etc/passwd", ""},
		{"http://h/metrics", "", ""},
		{"http://h/metrics", "http://%zz", ""},
	} {
		from, err := url.Parse(c.from)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := redirect(from, c.to); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s to %s: %q, %v", c.from, c.to, got, err)
		}
	}
}

func TestCandidates(t *testing.T) {
	for _, c := range []struct {
		page, base, engine string
		want               []string
	}{
		{"", "http://h:8000", "vllm", []string{"http://h:8000/metrics"}},
		{"", "http://h:8000/v1/", "sglang", []string{"http://h:8000/metrics"}},
		{"", "https://gw.example/team/a", "tgi", []string{"https://gw.example/team/a/metrics"}},
		{"", "http://h:8000", "trtllm", []string{"http://h:8000/prometheus/metrics"}},
		{"", "http://[::1]:8000/x", "triton", []string{"http://[::1]:8002/metrics", "http://[::1]:8000/x/metrics"}},
		{"", "http://h:8000", "nim", []string{"http://h:8000/v1/metrics", "http://h:8000/metrics"}},
		{"", "http://h:8000", "", []string{"http://h:8000/prometheus/metrics", "http://h:8000/v1/metrics", "http://h:8000/metrics"}},
		{"", "http://h:8000", "openai", []string{"http://h:8000/prometheus/metrics", "http://h:8000/v1/metrics", "http://h:8000/metrics"}},
		{"", "http://h:11434", "ollama", nil},
		{"http://h:9000/m", "http://h:8000", "vllm", []string{"http://h:9000/m"}},
	} {
		var got []string
		for _, x := range candidates(c.page, c.base, c.engine) {
			got = append(got, x.url)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s %s %s: %v, want %v", c.page, c.base, c.engine, got, c.want)
		}
	}
}

// trtllm-serve's /metrics is a queue that every GET empties.
func TestDestructivePageIsNotRead(t *testing.T) {
	queue := body("application/json", "[]")
	models := body("application/json", `{"object":"list","data":[{"id":"m","object":"model","owned_by":"tensorrt_llm"}]}`)
	for _, c := range []struct {
		name, page string
		engine     string
		pages      map[string]http.HandlerFunc
		want       int // reads of /metrics
	}{
		{"known engine", "", "trtllm", map[string]http.HandlerFunc{"/metrics": queue}, 0},
		{"known engine, configured page", "/metrics", "trtllm", map[string]http.HandlerFunc{"/metrics": queue}, 0},
		{"unknown engine", "", "", map[string]http.HandlerFunc{"/metrics": queue, "/v1/models": models}, 0},
		{"unknown engine, configured page", "/metrics", "", map[string]http.HandlerFunc{"/metrics": queue, "/v1/models": models}, 0},
		{"unknown engine that hides its models", "", "", map[string]http.HandlerFunc{"/metrics": queue}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t, c.pages)
			o := ReaderOptions{Base: s.URL, Client: client(t), Hint: Hint{Engine: c.engine}}
			if c.page != "" {
				o.URL = s.URL + c.page
			}
			r := NewReader(o)
			for range 3 {
				if _, err := r.ReadNow(t.Context()); err == nil {
					t.Error("read")
				}
			}
			if got := s.asked("/metrics"); got != c.want {
				t.Errorf("read %d times, want %d: %v", got, c.want, s.paths)
			}
			if a := r.State().Advice; !strings.Contains(a, "engine_metrics") && !strings.Contains(a, "return_perf_metrics") {
				t.Errorf("advice %q", a)
			}
		})
	}
	t.Run("the other page is found", func(t *testing.T) {
		s := newSite(t, map[string]http.HandlerFunc{"/metrics": queue, "/prometheus/metrics": text(string(readPage(t, "testdata/pages/trtllm_1.2_prefixed.txt")))})
		for _, engine := range []string{"", "trtllm"} {
			r := NewReader(ReaderOptions{Base: s.URL, Client: client(t), Hint: Hint{Engine: engine}})
			got, err := r.ReadNow(t.Context())
			if err != nil || got.Dialect != "trtllm" || s.asked("/metrics") != 0 {
				t.Errorf("%v, %v, asked %v", got, err, s.paths)
			}
		}
	})
}

func TestFoundPageIsKept(t *testing.T) {
	s := newSite(t, map[string]http.HandlerFunc{"/metrics": text(vllmPage)})
	r := NewReader(ReaderOptions{Base: s.URL, Client: client(t)})
	for range 3 {
		if _, err := r.ReadNow(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if s.asked("/metrics") != 3 || s.asked("/prometheus/metrics") != 1 || s.asked("/v1/models") != 1 {
		t.Errorf("asked %v", s.paths)
	}
}

func TestResets(t *testing.T) {
	pages := make(chan string, 1)
	s := newSite(t, map[string]http.HandlerFunc{"/metrics": func(w http.ResponseWriter, r *http.Request) { text(<-pages)(w, r) }})
	r := NewReader(ReaderOptions{Base: s.URL, Client: client(t), Hint: Hint{Engine: "vllm"}})
	var readings []Reading
	for _, n := range []int{100, 200, 10, 300} {
		pages <- fmt.Sprintf("vllm:prompt_tokens_total %d\nvllm:num_requests_running 1\n", n)
		x, err := r.ReadNow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		readings = append(readings, x)
	}
	if got := r.State().Resets; got != 1 {
		t.Errorf("%d resets", got)
	}
	if d := Counters(readings[0], readings[1]); *d.Get(PromptTokens) != 100 {
		t.Errorf("%+v", d)
	}
	// Over the restart there is no difference, although the last figure is above the first.
	if d := Counters(readings[1], readings[3]); !d.Reset || d.Get(PromptTokens) != nil {
		t.Errorf("%+v", d)
	}
	if d := Counters(readings[2], readings[3]); *d.Get(PromptTokens) != 290 {
		t.Errorf("%+v", d)
	}
}

func TestReadNowIsShared(t *testing.T) {
	release := make(chan struct{})
	s := newSite(t, map[string]http.HandlerFunc{"/metrics": func(w http.ResponseWriter, r *http.Request) {
		<-release
		text(vllmPage)(w, r)
	}})
	r := NewReader(ReaderOptions{Base: s.URL, Client: client(t), Hint: Hint{Engine: "vllm"}})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			called := time.Now()
			got, err := r.ReadNow(t.Context())
			if err != nil || got.At.Before(called) {
				t.Errorf("read at %v for a call at %v: %v", got.At, called, err)
			}
		})
	}
	close(release)
	all.Wait()
	if n := s.asked("/metrics"); n > 20 {
		t.Errorf("%d reads", n)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.ReadNow(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if st := r.State(); st.Err != nil {
		t.Errorf("a caller's cancelled context counts as a failure: %v", st.Err)
	}
}

// transport answers without a network, so that time can be made up.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(code int, page string) *http.Response {
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(page)), Header: http.Header{}}
}

func TestCadence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		reads, code := 0, 200
		set := func(c int) { mu.Lock(); code, reads = c, 0; mu.Unlock() }
		count := func() int { mu.Lock(); defer mu.Unlock(); n := reads; reads = 0; return n }
		r := NewReader(ReaderOptions{Base: "http://h", Hint: Hint{Engine: "vllm"}, Client: &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			reads++
			return answer(code, vllmPage), nil
		})}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan struct{})
		go func() { r.Run(ctx); close(done) }()
		wait := func(d time.Duration) { time.Sleep(d); synctest.Wait() }

		wait(time.Second)
		if n := count(); n != 1 {
			t.Errorf("%d reads at once", n)
		}
		wait(60 * time.Second)
		if n := count(); n != 4 {
			t.Errorf("%d reads in a minute", n)
		}
		release := r.Boost()
		second := r.Boost()
		wait(10 * time.Second)
		if n := count(); n < 19 || n > 21 {
			t.Errorf("%d reads in ten boosted seconds", n)
		}
		release()
		release() // more than once is once
		wait(5 * time.Second)
		if n := count(); n < 9 || n > 11 {
			t.Errorf("%d reads in five seconds with one boost left", n)
		}
		second()
		wait(60 * time.Second)
		if n := count(); n != 4 {
			t.Errorf("%d reads in a minute after the boost", n)
		}

		// Failing: 15, 30, 60, 120 s apart, then at most that, boosted or not.
		set(503)
		defer r.Boost()()
		wait(16 * time.Minute)
		if n := count(); n < 9 || n > 12 {
			t.Errorf("%d reads in 16 minutes of failures", n)
		}
		if st := r.State(); st.Fresh || st.Last == nil || st.Reason != ReasonUnavailable {
			t.Errorf("fresh %v, %q", st.Fresh, st.Reason)
		}
		set(200)
		wait(3 * time.Minute)
		if st := r.State(); !st.Fresh || st.Err != nil {
			t.Errorf("not back: %v", st.Err)
		}
		cancel()
		<-done
	})
}

func TestKVPeakForgets(t *testing.T) {
	var w window
	start := time.Now()
	for i := range 100_000 {
		usage := float64(i%100) / 100
		w.add(start.Add(time.Duration(i)*500*time.Millisecond), &usage)
	}
	if n := len(w.points); n > 1201 {
		t.Errorf("%d points are kept", n)
	}
	end := start.Add(100_000 * 500 * time.Millisecond)
	if p := w.peak(end.Add(-time.Minute), end); p == nil || *p != 0.99 {
		t.Errorf("peak %s", show(p))
	}
	if p := w.peak(start, start.Add(time.Hour)); p != nil {
		t.Errorf("peak of what is forgotten: %v", *p)
	}
	w.add(end, nil)
	if p := w.peak(end, end); p != nil {
		t.Errorf("a reading without usage: %v", *p)
	}
}

// Each condition is logged when it begins, with what to change, and never with a secret.
func TestLog(t *testing.T) {
	var out strings.Builder
	code := 404
	page := vllmPage
	r := NewReader(ReaderOptions{
		Base: "http://me:geheim@h", Hint: Hint{Engine: "sglang"}, Logger: log.NewLogfmtLogger(&out),
		Client: &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) { return answer(code, page), nil })},
	})
	step := func(want string) {
		t.Helper()
		out.Reset()
		for range 3 {
			_, _ = r.ReadNow(t.Context())
		}
		if lines := strings.Count(out.String(), "\n"); lines != 1 || !strings.Contains(out.String(), want) || strings.Contains(out.String(), "geheim") {
			t.Errorf("logged %q, want %q once", out.String(), want)
		}
	}
	step("--enable-metrics")
	code = 200
	step("engine metrics found")
	page = "vllm:num_requests_running 3\n"
	step("engine_requests_waiting")
	code = 503
	step("HTTP status 503")
}
