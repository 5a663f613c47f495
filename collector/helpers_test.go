package collector

import (
	"bytes"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

var update = flag.Bool("update", false, "rewrite golden files and the generated docs")

// testClock is a clock that stands still until it is moved.
type testClock struct{ t time.Time }

func newTestClock() *testClock { return &testClock{time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *testClock) now() time.Time { return c.t }

func newTest(t testing.TB, o Options) (*Collector, *prometheus.Registry, *testClock) {
	t.Helper()
	clock := newTestClock()
	reg := prometheus.NewPedanticRegistry()
	o.Registerer = reg
	if o.Now == nil {
		o.Now = clock.now
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c, reg, clock
}

func chatPair(target string) result.Pair {
	return result.Pair{
		Target: target, Scenario: "chat", Type: "chat", Interval: 30 * time.Second,
		Variants: []string{"default"}, Checks: []result.CheckName{{Variant: "default", Name: "non_empty"}},
	}
}

func at(clock *testClock) time.Time { return clock.t.Add(-2 * time.Second) }

func chatSuccess(clock *testClock, target string) *result.Probe {
	return &result.Probe{
		Target: target, Scenario: "chat", Type: "chat", Outcome: result.Success, ID: "p1",
		StartTime: at(clock), DurationSeconds: 1.93, ScheduleLagSeconds: result.Ptr(0.0004),
		EngineRequestsRunning: result.Ptr(3.0), EngineRequestsWaiting: result.Ptr(0.0),
		Requests: []result.Request{{
			Variant: "default", Outcome: result.Success, HTTPStatus: 200, FinishReason: "length",
			StartTime: at(clock), Anomalies: []result.Anomaly{result.AnomalyMissingDone},
			PromptTokens: result.Ptr(213), CachedPromptTokens: result.Ptr(192), CompletionTokens: result.Ptr(4),
			TokenCountSource:        result.CountUsage,
			TimeToFirstTokenSeconds: result.Ptr(0.081), TimeToFirstContentSeconds: result.Ptr(0.081),
			TimePerOutputTokenSeconds: result.Ptr(0.0121), E2ELatencySeconds: result.Ptr(0.845),
			InterChunkLatenciesSeconds: []float64{0.012, 0.0105, 1.2},
			Phases: result.Phases{
				Connect: result.Ptr(0.0002), Send: result.Ptr(0.0001), Headers: result.Ptr(0.004),
			},
			ClientLagMax: result.Ptr(0.00004), Clock: "kernel", TraceID: "0af7651916cd43dd8448eb211c80319c",
			Window: result.Window{
				KVCacheUsagePeakRatio: result.Ptr(0.42),
				GPUs: []result.GPUWindow{{
					GPU: "0", UUID: "GPU-1", MemoryUsedPeakBytes: result.Ptr(4e10), MemoryUsedDelta: result.Ptr(1e6),
					UtilizationMaxRatio: result.Ptr(0.97),
				}},
			},
		}},
		Values: result.Values{{Metric: "output_tokens_per_second", Label: "default", Figure: 82.6}},
		Checks: []result.Check{{Variant: "default", Name: "non_empty", OK: true}},
	}
}

func chatFailure(clock *testClock, target string, reason result.Reason) *result.Probe {
	p := chatSuccess(clock, target)
	p.Outcome, p.Reason = result.Failure, reason
	p.Requests[0].Outcome, p.Requests[0].Reason = result.Failure, reason
	p.Checks = nil
	return p
}

func gather(t testing.TB, g prometheus.Gatherer) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*dto.MetricFamily{}
	for _, f := range families {
		out[f.GetName()] = f
	}
	return out
}

// find returns the metric of a family that has the labels, given as name, value, name, value, …
func find(f *dto.MetricFamily, labels ...string) *dto.Metric {
	for _, m := range f.GetMetric() {
		has := map[string]string{}
		for _, p := range m.GetLabel() {
			has[p.GetName()] = p.GetValue()
		}
		ok := true
		for i := 0; i < len(labels); i += 2 {
			ok = ok && has[labels[i]] == labels[i+1]
		}
		if ok {
			return m
		}
	}
	return nil
}

// value returns the value of a counter or gauge, and whether it is there.
func value(t testing.TB, g prometheus.Gatherer, name string, labels ...string) (float64, bool) {
	t.Helper()
	m := find(gather(t, g)[Namespace+name], labels...)
	switch {
	case m == nil:
		return 0, false
	case m.Counter != nil:
		return m.Counter.GetValue(), true
	case m.Gauge != nil:
		return m.Gauge.GetValue(), true
	case m.Histogram != nil:
		return float64(m.Histogram.GetSampleCount()), true
	}
	return 0, false
}

func wantValue(t testing.TB, g prometheus.Gatherer, want float64, name string, labels ...string) {
	t.Helper()
	if got, ok := value(t, g, name, labels...); !ok || got != want {
		t.Errorf("%s%v = %v (present: %v), want %v", name, labels, got, ok, want)
	}
}

func wantAbsent(t testing.TB, g prometheus.Gatherer, name string, labels ...string) {
	t.Helper()
	if got, ok := value(t, g, name, labels...); ok {
		t.Errorf("%s%v = %v, want it to be absent", name, labels, got)
	}
}

func encode(t testing.TB, g prometheus.Gatherer, format expfmt.FormatType) string {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	e := expfmt.NewEncoder(&b, expfmt.NewFormat(format))
	for _, f := range families {
		if err := e.Encode(f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what the code makes: run the test with -update and read the difference\n%s", path, firstDifference(got, string(want)))
	}
}

func firstDifference(got, want string) string {
	g, w := bytes.Split([]byte(got), []byte("\n")), bytes.Split([]byte(want), []byte("\n"))
	for i := range g {
		if i >= len(w) || !bytes.Equal(g[i], w[i]) {
			line := ""
			if i < len(w) {
				line = string(w[i])
			}
			return "got  " + string(g[i]) + "\nwant " + line
		}
	}
	return "got fewer lines"
}
