package collector

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/protobuf/proto"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// sortedLines sorts the lines within each family; families stay in order.
func sortedLines(page string) string {
	var out []string
	for i, block := range strings.Split(page, "# HELP ") {
		lines := strings.Split(strings.TrimSuffix(block, "\n"), "\n")
		if i > 0 {
			lines[0] = "# HELP " + lines[0]
			slices.Sort(lines[2:])
		}
		out = append(out, lines...)
	}
	return strings.Join(out, "\n")
}

// TestTextIsLikeTheLibrarys compares the page, byte by byte but for the order within a family, with the one that the
// registry and the library's encoder make.
func TestTextIsLikeTheLibrarys(t *testing.T) {
	for _, mode := range []string{"classic", "native", "both"} {
		for format, openMetrics := range map[expfmt.FormatType]bool{expfmt.TypeTextPlain: false, expfmt.TypeOpenMetrics: true} {
			t.Run(fmt.Sprint(mode, openMetrics), func(t *testing.T) {
				c, reg, clock := newTest(t, Options{Histograms: mode, ExtraBounds: map[string][]float64{"time_to_first_token_seconds": {5}}})
				fill(c, clock)
				c.TargetFound(result.Target{Name: "a", Model: "a \"quoted\" \\ name\nof two lines"})
				odd := chatPair("x{y}=\"ü\"\n\\")
				c.PairAdded(odd)
				p := chatSuccess(clock, odd.Target)
				p.Requests[0].TimeToFirstTokenSeconds = result.Ptr(400.0)
				p.Requests[0].E2ELatencySeconds = result.Ptr(1e-9)
				p.Requests[0].PromptTokens = result.Ptr(123456789)
				p.Values = append(p.Values, result.Value{Metric: "requests_per_second", Figure: -1e300})
				c.ProbeFinished(p)
				var b strings.Builder
				if err := c.WriteText(&b, openMetrics); err != nil {
					t.Fatal(err)
				}
				got, want := sortedLines(b.String()), sortedLines(encode(t, reg, format))
				if got != want {
					t.Error(firstDifference(got, want))
				}
			})
		}
	}
}

// TestProtobufIsLikeTheLibrarys decodes what was written and compares it with what the registry gathers.
func TestProtobufIsLikeTheLibrarys(t *testing.T) {
	for _, mode := range []string{"classic", "native", "both"} {
		t.Run(mode, func(t *testing.T) {
			c, reg, clock := newTest(t, Options{Histograms: mode})
			fill(c, clock)
			p := chatSuccess(clock, "b")
			p.Requests[0].InterChunkLatenciesSeconds = []float64{0, 0, 1e-3, 400, 0.01, 0.011}
			p.Requests[0].E2ELatencySeconds = result.Ptr(400.0)
			c.ProbeFinished(p)
			var b bytes.Buffer
			if err := c.WriteProtobuf(&b); err != nil {
				t.Fatal(err)
			}
			want := gather(t, reg)
			d := expfmt.NewDecoder(&b, expfmt.NewFormat(expfmt.TypeProtoDelim))
			for {
				var f dto.MetricFamily
				if err := d.Decode(&f); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				w := want[f.GetName()]
				delete(want, f.GetName())
				if len(f.GetMetric()) != len(w.GetMetric()) {
					t.Errorf("%s: %d series, want %d", f.GetName(), len(f.GetMetric()), len(w.GetMetric()))
					continue
				}
				slices.SortFunc(f.Metric, compareLabels)
				slices.SortFunc(w.Metric, compareLabels)
				if !proto.Equal(&f, w) {
					t.Errorf("got\n%v\nwant\n%v", &f, w)
				}
			}
			for name := range want {
				t.Errorf("%s is missing", name)
			}
		})
	}
}

func compareLabels(a, b *dto.Metric) int {
	return cmp.Compare(fmt.Sprint(a.GetLabel()), fmt.Sprint(b.GetLabel()))
}

func TestExemplarsInOpenMetrics(t *testing.T) {
	c, reg, clock := newTest(t, Options{})
	c.PairAdded(chatPair("a"))
	c.ProbeFinished(chatSuccess(clock, "a"))
	page := encode(t, reg, expfmt.TypeOpenMetrics)
	want := `llm_canary_time_to_first_token_seconds_bucket{scenario="chat",target="a",variant="default",le="0.12"} 1 # {trace_id="0af7651916cd43dd8448eb211c80319c"} 0.081`
	if !strings.Contains(page, want) {
		t.Errorf("no line that begins with\n%s", want)
	}
	if n := strings.Count(page, "trace_id"); n < 6 {
		t.Errorf("%d exemplars, want one in every histogram of the request", n)
	}
	// The longest gap is the one to look at.
	if !strings.Contains(page, `inter_token_latency_seconds_bucket{scenario="chat",target="a",variant="default",le="2.048"} 3 # {trace_id=`) {
		t.Error("the longest gap has no exemplar")
	}
}

type failingWriter struct{ left int }

var errGone = errors.New("reader has gone")

func (w *failingWriter) Write(p []byte) (int, error) {
	w.left--
	if w.left < 0 {
		return 0, errGone
	}
	return len(p), nil
}

func TestWriteTextReportsErrors(t *testing.T) {
	c, _, clock := newTest(t, Options{})
	fill(c, clock)
	if err := c.WriteText(&failingWriter{}, false); !errors.Is(err, errGone) {
		t.Errorf("error %v, want %v", err, errGone)
	}
}

func get(t *testing.T, h http.Handler, target string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, target, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestHandler(t *testing.T) {
	clock := newTestClock()
	c, err := New(Options{Now: clock.now})
	if err != nil {
		t.Fatal(err)
	}
	fill(c, clock)
	rest := prometheus.NewRegistry()
	up := prometheus.NewGauge(prometheus.GaugeOpts{Name: "rest_up", Help: "The rest."})
	rest.MustRegister(up)
	h := c.Handler(HandlerOptions{Rest: rest})

	const openMetrics = "application/openmetrics-text;version=1.0.0"
	const protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
	for accept, contentType := range map[string]string{"": "text/plain", openMetrics: "application/openmetrics-text", protobuf: "application/vnd.google.protobuf"} {
		w := get(t, h, "/metrics", "Accept", accept)
		if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), contentType) {
			t.Errorf("Accept %q: status %d, type %s", accept, w.Code, w.Header().Get("Content-Type"))
		}
		page := w.Body.String()
		if !strings.Contains(page, "rest_up") || !strings.Contains(page, "llm_canary_probes_total") && !strings.Contains(page, "llm_canary_probes ") {
			t.Errorf("Accept %q: something is missing on the page", accept)
		}
		if end := strings.HasSuffix(page, "# EOF\n"); end != (accept == openMetrics) {
			t.Errorf("Accept %q: end mark of OpenMetrics: %v", accept, end)
		}
		if accept == protobuf {
			checkNativeInProtobuf(t, w)
		}
	}

	plain := get(t, h, "/metrics").Body.String()
	w := get(t, h, "/metrics", "Accept-Encoding", "br, gzip;q=0.8")
	if w.Header().Get("Content-Encoding") != "gzip" {
		t.Fatal("not compressed")
	}
	z, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := io.ReadAll(z)
	if err != nil || string(unpacked) != plain {
		t.Errorf("the compressed page differs (error %v)", err)
	}
	if w := get(t, h, "/metrics", "Accept-Encoding", "gzip;q=0"); w.Header().Get("Content-Encoding") != "" {
		t.Error("compressed against the reader's wish")
	}
	if page := get(t, h, "/metrics?name[]=rest_up").Body.String(); strings.Contains(page, "llm_canary_") || !strings.Contains(page, "rest_up") {
		t.Errorf("name[]= was not heeded: %s", page)
	}
}

func checkNativeInProtobuf(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	d := expfmt.NewDecoder(w.Body, expfmt.ResponseFormat(w.Header()))
	for {
		var f dto.MetricFamily
		if err := d.Decode(&f); err != nil {
			t.Fatalf("no such family (%v)", err)
		}
		if f.GetName() == "llm_canary_inter_token_latency_seconds" {
			h := f.Metric[0].Histogram
			if h.GetSchema() != nativeSchema || len(h.PositiveSpan) == 0 || len(h.Exemplars) == 0 || len(h.Bucket) == 0 {
				t.Errorf("no native buckets, exemplars or classic buckets: %v", h)
			}
			return
		}
	}
}

func TestHandlerWithBrokenRest(t *testing.T) {
	c, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	broken := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return nil, errGone })
	if w := get(t, c.Handler(HandlerOptions{Rest: broken}), "/metrics"); w.Code != 500 || !strings.Contains(w.Body.String(), errGone.Error()) {
		t.Errorf("status %d, body %s", w.Code, w.Body)
	}
	good := prometheus.NewRegistry()
	good.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "rest_up", Help: "The rest."}))
	if w := get(t, c.Handler(HandlerOptions{Rest: prometheus.Gatherers{good, broken}}), "/metrics"); w.Code != 200 || !strings.Contains(w.Body.String(), "rest_up") {
		t.Errorf("status %d, body %s", w.Code, w.Body)
	}
}

func TestHandlerIsLimited(t *testing.T) {
	c, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	inside, release := make(chan struct{}), make(chan struct{})
	slow := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		inside <- struct{}{}
		<-release
		return nil, nil
	})
	h := c.Handler(HandlerOptions{Rest: slow, MaxRequestsInFlight: 1})
	done := make(chan struct{})
	go func() {
		defer close(done)
		get(t, h, "/metrics")
	}()
	<-inside
	if w := get(t, h, "/metrics"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d, want 503", w.Code)
	}
	close(release)
	<-done
}

// TestSlowReaderDoesNotHoldUpProbes blocks a page in its first write and feeds a result.
func TestSlowReaderDoesNotHoldUpProbes(t *testing.T) {
	c, _, clock := newTest(t, Options{})
	for i := range 50 {
		c.PairAdded(chatPair(fmt.Sprint(i)))
		c.ProbeFinished(chatSuccess(clock, fmt.Sprint(i)))
	}
	reader, writer := io.Pipe()
	written := make(chan error, 1)
	go func() { written <- c.WriteText(writer, false) }()
	if _, err := reader.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		for i := range 50 {
			c.ProbeFinished(chatSuccess(clock, fmt.Sprint(i)))
		}
		c.TargetRemoved("0")
	}()
	select {
	case <-fed:
	case <-time.After(10 * time.Second):
		t.Error("results wait for the reader of a page")
	}
	reader.Close()
	if err := <-written; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("error %v, want %v", err, io.ErrClosedPipe)
	}
}

func TestAppendMillis(t *testing.T) {
	for _, ms := range []int64{0, 1, 999, -5, 1e12 - 1, 1e12, 1e12 + 1, 1772366400000, 1772366400120, 1772366400123, 2e12, 1e13 - 1, 1e13} {
		if got, want := string(appendMillis([]byte("x 100"), ms)), "x 100"+formatFloat(float64(ms)/1e3, true); got != want {
			t.Errorf("%d ms: %s, want %s", ms, got, want)
		}
	}
}

func FuzzAppendFloat(f *testing.F) {
	for _, v := range []float64{0, 1, -1, 0.1, 999999, 1e6, 1e21, 5, 1e-9} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v float64) {
		want := strconv.FormatFloat(v, 'g', -1, 64)
		if v == 0 {
			want = "0" // the library writes no sign
		}
		if got := formatFloat(v, false); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	})
}
