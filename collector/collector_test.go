package collector

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// fill feeds a set of results that touches every metric.
func fill(c *Collector, clock *testClock) {
	c.TargetFound(result.Target{Name: "a", URL: "http://a:8000", Engine: "vllm", Version: "0.11.0", Model: "m", Protocol: "openai_chat"})
	c.PairAdded(chatPair("a"))
	c.PairAdded(chatPair("b"))
	c.PairAdded(result.Pair{
		Target: "a", Scenario: "structured", Type: "structured_output", Interval: 5 * time.Minute,
		Variants: []string{"free", "json_schema"}, Checks: []result.CheckName{{Variant: "json_schema", Name: "json_schema"}},
	})
	c.PairAdded(result.Pair{Target: "b", Scenario: "nightly", Type: "ramp", Variants: []string{"default"}})
	c.ProbeStarted("a", "chat")
	c.ProbeFinished(chatSuccess(clock, "a"))
	c.ProbeFinished(chatFailure(clock, "a", result.ReasonTruncated))
	c.ProbeStarted("b", "chat")
	c.ProbeSkipped(result.Skip{Target: "b", Scenario: "chat", Reason: result.SkipOverlap})
	c.ProbeFinished(&result.Probe{
		Target: "a", Scenario: "structured", Outcome: result.Failure, Reason: result.ReasonWrongAnswer, StartTime: at(clock), DurationSeconds: 0.5,
		Requests: []result.Request{
			{Variant: "free", Outcome: result.Success, TimeToFirstTokenSeconds: result.Ptr(1.0), CompletionTokens: result.Ptr(3), TokenCountSource: result.CountChunks},
			{Variant: "json_schema", Outcome: result.Failure, Reason: result.ReasonWrongAnswer},
		},
		Checks: []result.Check{{Variant: "json_schema", Name: "json_schema", Detail: "no object"}},
		Values: result.Values{{Metric: "structured_output_overhead_ratio", Label: "json_schema", Figure: 1.25}},
	})
	var all result.Values
	for _, x := range figures() {
		label := ""
		if x.label != "" {
			label = "default"
			if x.allowed != nil {
				label = x.allowed[0]
			}
		}
		all = append(all, result.Value{Metric: x.name, Label: label, Figure: 1.5})
	}
	c.ProbeFinished(&result.Probe{
		Target: "b", Scenario: "nightly", Outcome: result.Success, StartTime: at(clock), DurationSeconds: 120, Values: all,
	})
}

func TestGolden(t *testing.T) {
	for _, mode := range []string{"classic", "native", "both"} {
		t.Run(mode, func(t *testing.T) {
			c, reg, clock := newTest(t, Options{Histograms: mode})
			fill(c, clock)
			golden(t, filepath.Join("testdata", mode+".prom"), encode(t, reg, expfmt.TypeTextPlain))
		})
	}
}

func TestEveryMetricOfTheTableIsExported(t *testing.T) {
	c, reg, clock := newTest(t, Options{})
	fill(c, clock)
	families := gather(t, reg)
	for _, m := range Metrics() {
		f := families[m.Name]
		if f == nil {
			t.Errorf("%s: nothing exported", m.Name)
			continue
		}
		if got := strings.ToLower(f.GetType().String()); got != string(m.Type) {
			t.Errorf("%s: type %s, want %s", m.Name, got, m.Type)
		}
		var got []string
		for _, p := range f.Metric[0].Label {
			got = append(got, p.GetName())
		}
		want := append([]string{}, m.Labels...)
		sort.Strings(want)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: labels %v, want %v", m.Name, got, want)
		}
		delete(families, m.Name)
	}
	for name := range families {
		t.Errorf("%s is exported, but is not in the table", name)
	}
}

func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range Metrics() {
		switch {
		case seen[m.Name]:
			t.Errorf("%s: twice in the table", m.Name)
		case m.Help == "" || !strings.HasSuffix(m.Help, "."):
			t.Errorf("%s: help %q is not a sentence", m.Name, m.Help)
		case m.Type == Counter != strings.HasSuffix(m.Name, "_total"):
			t.Errorf("%s: counters and only they end in _total", m.Name)
		case m.Type == Histogram != (len(m.Bounds) > 0):
			t.Errorf("%s: histograms and only they have bounds", m.Name)
		case m.Expires && m.Type != Gauge:
			t.Errorf("%s: only gauges expire", m.Name)
		}
		seen[m.Name] = true
	}
}

func TestLint(t *testing.T) {
	c, reg, clock := newTest(t, Options{})
	fill(c, clock)
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestDocsAreCurrent(t *testing.T) {
	path := filepath.Join("..", "docs", "metrics.md")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, path, Document())
}

func TestCountersExistFromTheStart(t *testing.T) {
	c, reg, _ := newTest(t, Options{})
	c.PairAdded(chatPair("a"))
	for _, r := range result.Reasons() {
		wantValue(t, reg, 0, "probe_failures_total", "target", "a", "scenario", "chat", "reason", string(r))
	}
	for _, r := range result.SkipReasons() {
		wantValue(t, reg, 0, "probe_skips_total", "reason", string(r))
	}
	for _, r := range variantReasons() {
		wantValue(t, reg, 0, "request_failures_total", "variant", "default", "reason", string(r))
	}
	wantValue(t, reg, 0, "probes_total")
	wantValue(t, reg, 0, "requests_total", "variant", "default")
	wantValue(t, reg, 0, "checks_total", "variant", "default", "check", "non_empty")
	wantValue(t, reg, 0, "check_failures_total", "variant", "default", "check", "non_empty")
	wantValue(t, reg, 0, "probe_running")
	wantValue(t, reg, 0, "probe_consecutive_failures")
	wantValue(t, reg, 30, "probe_interval_seconds")

	// What only a probe can tell is absent.
	for _, name := range []string{
		"probe_success", "probe_last_run_timestamp_seconds", "probe_last_success_timestamp_seconds", "target_info",
		"cached_prompt_tokens_total", "time_to_first_token_seconds", "output_tokens_per_second", "probe_duration_seconds",
	} {
		wantAbsent(t, reg, name)
	}
}

func TestFailuresNeverFeedHistogramsOfLatency(t *testing.T) {
	c, reg, clock := newTest(t, Options{})
	c.PairAdded(chatPair("a"))
	for _, r := range result.Reasons() {
		c.ProbeFinished(chatFailure(clock, "a", r))
	}
	unsupported := chatSuccess(clock, "a")
	unsupported.Outcome, unsupported.Requests[0].Outcome = result.Unsupported, result.Unsupported
	c.ProbeFinished(unsupported)

	lags := map[string]bool{"schedule_lag_seconds": true, "client_lag_seconds": true}
	for _, m := range Metrics() {
		name := strings.TrimPrefix(m.Name, Namespace)
		if m.Type == Histogram && !lags[name] {
			wantAbsent(t, reg, name)
		}
	}
	for _, r := range result.Reasons() {
		wantValue(t, reg, 1, "probe_failures_total", "reason", string(r))
		wantValue(t, reg, 1, "request_failures_total", "reason", string(r))
	}
	n := float64(len(result.Reasons()))
	wantValue(t, reg, n+1, "probes_total")
	wantValue(t, reg, n+1, "requests_total")
	wantValue(t, reg, (n+1)*213, "prompt_tokens_total") // what was spent was spent
}

func TestOutcomes(t *testing.T) {
	c, reg, clock := newTest(t, Options{})
	c.PairAdded(chatPair("a"))
	c.ProbeFinished(chatSuccess(clock, "a"))
	end := float64(at(clock).Add(1930*time.Millisecond).UnixMilli()) / 1e3
	wantValue(t, reg, 1, "probe_success")
	wantValue(t, reg, end, "probe_last_success_timestamp_seconds")

	clock.t = clock.t.Add(30 * time.Second)
	c.ProbeFinished(chatFailure(clock, "a", result.ReasonConnect))
	c.ProbeFinished(chatFailure(clock, "a", result.ReasonNone)) // a fault of ours: still a failure
	wantValue(t, reg, 0, "probe_success")
	wantValue(t, reg, 2, "probe_consecutive_failures")
	wantValue(t, reg, 1, "probe_failures_total", "reason", "internal")
	wantValue(t, reg, end, "probe_last_success_timestamp_seconds")
	wantValue(t, reg, end+30, "probe_last_run_timestamp_seconds")

	unsupported := chatSuccess(clock, "a")
	unsupported.Outcome = result.Unsupported
	c.ProbeFinished(unsupported)
	wantAbsent(t, reg, "probe_success") // neither right nor wrong
	wantValue(t, reg, 0, "probe_consecutive_failures")
	c.ProbeFinished(chatSuccess(clock, "a"))
	wantValue(t, reg, 1, "probe_success")

	c.ProbeStarted("a", "chat")
	c.ProbeStarted("a", "chat")
	c.ProbeFinished(chatSuccess(clock, "a"))
	wantValue(t, reg, 1, "probe_running")
	c.ProbeFinished(chatSuccess(clock, "a"))
	wantValue(t, reg, 0, "probe_running")
}

func TestStallsAndSources(t *testing.T) {
	c, reg, clock := newTest(t, Options{})
	c.PairAdded(chatPair("a"))
	c.ProbeFinished(chatSuccess(clock, "a"))
	wantValue(t, reg, 1, "stream_stalls_total")
	c.ProbeFinished(chatFailure(clock, "a", result.ReasonTimeoutStall))
	wantValue(t, reg, 3, "stream_stalls_total")
	wantValue(t, reg, 2, "request_token_counts_total", "source", "usage")
	wantValue(t, reg, 2, "stream_anomalies_total", "anomaly", "missing_done")
	wantValue(t, reg, 384, "cached_prompt_tokens_total")
	wantValue(t, reg, 1, "max_inter_token_latency_seconds")
	wantValue(t, reg, 3, "inter_token_latency_seconds")
	wantAbsent(t, reg, "request_phase_seconds", "phase", "tls")
	wantValue(t, reg, 1, "request_phase_seconds", "phase", "headers")
}

func TestRemovedLeaveNothing(t *testing.T) {
	c, reg, clock := newTest(t, Options{})
	before, err := testutil.GatherAndCount(reg)
	if err != nil {
		t.Fatal(err)
	}
	fill(c, clock)
	c.PairRemoved("a", "chat")
	for _, f := range gather(t, reg) {
		if m := find(f, "target", "a", "scenario", "chat"); m != nil {
			t.Errorf("%s: series of a removed pair: %v", f.GetName(), m)
		}
	}
	wantValue(t, reg, 1, "target_info", "target", "a")
	wantValue(t, reg, 1, "probes_total", "target", "a", "scenario", "structured")

	c.PairRemoved("a", "structured")
	c.TargetRemoved("a")
	c.TargetRemoved("b") // without PairRemoved
	c.TargetRemoved("never there")
	c.PairRemoved("never there", "chat")

	// Everything that was under way comes in late.
	c.ProbeStarted("a", "chat")
	c.ProbeFinished(chatSuccess(clock, "a"))
	c.ProbeFinished(chatFailure(clock, "b", result.ReasonCanceled))
	c.ProbeSkipped(result.Skip{Target: "a", Scenario: "chat", Reason: result.SkipShutdown})
	c.TargetFound(result.Target{Name: "a", Model: "m"})

	after, err := testutil.GatherAndCount(reg)
	if err != nil {
		t.Fatal(err)
	}
	if after != before {
		t.Errorf("%d series are left, want the %d of an empty exporter", after, before)
	}
	wantValue(t, reg, 2, "exporter_results_dropped_total")
}

func TestReloadKeepsCounts(t *testing.T) {
	c, reg, clock := newTest(t, Options{})
	pair := result.Pair{
		Target: "a", Scenario: "prefill", Type: "prefill", Interval: time.Minute, Variants: []string{"128", "4k"},
		Checks: []result.CheckName{{Variant: "128", Name: "prompt_tokens"}, {Variant: "4k", Name: "prompt_tokens"}},
	}
	c.PairAdded(pair)
	probe := &result.Probe{
		Target: "a", Scenario: "prefill", Outcome: result.Success, StartTime: at(clock),
		Requests: []result.Request{
			{Variant: "128", Outcome: result.Success, TimeToFirstTokenSeconds: result.Ptr(0.1)},
			{Variant: "4k", Outcome: result.Success, TimeToFirstTokenSeconds: result.Ptr(0.5)},
		},
		Values: result.Values{{Metric: "prefill_tokens_per_second", Label: "4k", Figure: 9000}},
		Checks: []result.Check{{Variant: "4k", Name: "prompt_tokens", OK: true}},
	}
	c.ProbeFinished(probe)
	before := encode(t, reg, expfmt.TypeTextPlain)
	c.PairAdded(pair)
	if after := encode(t, reg, expfmt.TypeTextPlain); after != before {
		t.Errorf("adding the same pair again changed something\n%s", firstDifference(after, before))
	}

	pair.Interval = 2 * time.Minute
	pair.Variants = []string{"128", "8k"}
	pair.Checks = []result.CheckName{{Variant: "128", Name: "prompt_tokens"}, {Variant: "8k", Name: "prompt_tokens"}}
	c.PairAdded(pair)
	wantValue(t, reg, 120, "probe_interval_seconds")
	wantValue(t, reg, 1, "probes_total")
	wantValue(t, reg, 1, "requests_total", "variant", "128")
	wantValue(t, reg, 0, "requests_total", "variant", "8k")
	for _, f := range gather(t, reg) {
		if m := find(f, "variant", "4k"); m != nil {
			t.Errorf("%s: series of a variant that is no more: %v", f.GetName(), m)
		}
	}

	pair.Interval = 0 // a cron schedule now
	c.PairAdded(pair)
	wantAbsent(t, reg, "probe_interval_seconds")
}

func TestTargetsFoundEarly(t *testing.T) {
	c, reg, _ := newTest(t, Options{})
	c.TargetFound(result.Target{Name: "a", Model: "early"})
	for i := range 2 * maxPending { // targets that never get a pair must not be remembered without bound
		c.TargetFound(result.Target{Name: fmt.Sprint(i)})
	}
	if len(c.pending) > maxPending {
		t.Errorf("%d targets are remembered, want at most %d", len(c.pending), maxPending)
	}
	wantAbsent(t, reg, "target_info")
	c.PairAdded(chatPair("a"))
	wantValue(t, reg, 1, "target_info", "target", "a", "model", "early")
}

func TestTargetInfo(t *testing.T) {
	c, reg, _ := newTest(t, Options{})
	c.PairAdded(chatPair("a"))
	for i := range 3 {
		c.TargetFound(result.Target{Name: "a", URL: "http://a", Engine: "vllm", Version: fmt.Sprint(i), Model: strings.Repeat("x", 1000) + "\xff"})
	}
	f := gather(t, reg)["llm_canary_target_info"]
	if len(f.GetMetric()) != 1 {
		t.Fatalf("%d series, want that of the last detection", len(f.GetMetric()))
	}
	wantValue(t, reg, 1, "target_info", "target", "a", "version", "2", "model", strings.Repeat("x", 256), "protocol", "")
	if n := len(c.targets["a"].scope.sets); n != 1 {
		t.Errorf("%d label sets are kept after three versions, want 1", n)
	}
}

func TestUnannouncedLabelValues(t *testing.T) {
	c, reg, clock := newTest(t, Options{})
	c.PairAdded(chatPair("a"))
	p := chatSuccess(clock, "a")
	p.Requests[0].Variant = "surprise"
	p.Requests[0].Anomalies = []result.Anomaly{"strange"}
	p.Checks[0] = result.Check{Variant: "default", Name: "surprise"}
	c.ProbeFinished(p)
	c.ProbeFinished(chatFailure(clock, "a", "mystery"))
	c.ProbeSkipped(result.Skip{Target: "a", Scenario: "chat", Reason: "mood"})

	wantValue(t, reg, 1, "requests_total", "variant", "other")
	wantValue(t, reg, 1, "time_to_first_token_seconds", "variant", "other")
	wantValue(t, reg, 1, "checks_total", "variant", "default", "check", "other")
	wantValue(t, reg, 1, "stream_anomalies_total", "anomaly", "other")
	wantValue(t, reg, 1, "probe_failures_total", "reason", "other")
	wantValue(t, reg, 1, "probe_skips_total", "reason", "other")
	for label, least := range map[string]float64{"variant": 1, "check": 1, "anomaly": 1, "reason": 2} {
		if n, _ := value(t, reg, "exporter_label_values_dropped_total", "label", label); n < least {
			t.Errorf("%v values of label %s were counted as dropped, want at least %v", n, label, least)
		}
	}
	// An empty variant is the only one there is.
	p = chatSuccess(clock, "a")
	p.Requests[0].Variant = ""
	c.ProbeFinished(p)
	wantValue(t, reg, 2, "requests_total", "variant", "default") // this and the failed one
}

func TestGPUsAreBounded(t *testing.T) {
	c, reg, clock := newTest(t, Options{})
	c.PairAdded(chatPair("a"))
	p := chatSuccess(clock, "a")
	p.Requests[0].Window.GPUs = nil
	for i := range maxGPUs + 10 {
		p.Requests[0].Window.GPUs = append(p.Requests[0].Window.GPUs, result.GPUWindow{GPU: fmt.Sprint(i), MemoryUsedPeakBytes: result.Ptr(1.0)})
	}
	c.ProbeFinished(p)
	if n := len(gather(t, reg)["llm_canary_probe_gpu_memory_used_peak_bytes"].GetMetric()); n != maxGPUs {
		t.Errorf("%d series, want %d", n, maxGPUs)
	}
	wantValue(t, reg, 10, "exporter_label_values_dropped_total", "label", "gpu")
}

func TestHighestOfAProbeCounts(t *testing.T) {
	c, reg, clock := newTest(t, Options{})
	c.PairAdded(chatPair("a"))
	probe := func(peaks ...float64) {
		clock.t = clock.t.Add(time.Second)
		p := chatSuccess(clock, "a")
		p.Requests = nil
		for _, x := range peaks {
			p.Requests = append(p.Requests, result.Request{Variant: "default", Window: result.Window{KVCacheUsagePeakRatio: result.Ptr(x)}})
		}
		c.ProbeFinished(p)
	}
	probe(0.2, 0.9, 0.5)
	wantValue(t, reg, 0.9, "probe_kv_cache_usage_peak_ratio")
	probe(0.3, 0.1)
	wantValue(t, reg, 0.3, "probe_kv_cache_usage_peak_ratio")
}

func TestImpossibleFigures(t *testing.T) {
	c, reg, clock := newTest(t, Options{})
	c.PairAdded(chatPair("a"))
	p := chatSuccess(clock, "a")
	q := &p.Requests[0]
	q.TimeToFirstTokenSeconds = result.Ptr(math.NaN())
	q.E2ELatencySeconds = result.Ptr(-1.0)
	q.TimePerOutputTokenSeconds = result.Ptr(math.Inf(1))
	q.PromptTokens = result.Ptr(-5)
	q.InterChunkLatenciesSeconds = nil
	p.Values = result.Values{
		{Metric: "output_tokens_per_second", Label: "default", Figure: math.Inf(1)},
		{Metric: "no_such_figure", Figure: 1},
		{Metric: "requests_per_second", Label: "x", Figure: 1},
		{Metric: "prefix_cache_hit_ratio", Label: "guess", Figure: 1},
		{Metric: "time_to_first_token_seconds", Figure: 1}, // exists, but is no figure of a scenario
	}
	c.ProbeFinished(p)
	for _, name := range []string{
		"time_to_first_token_seconds", "e2e_request_latency_seconds", "time_per_output_token_seconds", "inter_token_latency_seconds",
		"max_inter_token_latency_seconds", "output_tokens_per_second", "requests_per_second", "prefix_cache_hit_ratio",
	} {
		wantAbsent(t, reg, name)
	}
	wantValue(t, reg, 0, "prompt_tokens_total")
	wantValue(t, reg, 3, "exporter_figures_dropped_total", "reason", "not_finite")
	wantValue(t, reg, 2, "exporter_figures_dropped_total", "reason", "negative")
	wantValue(t, reg, 2, "exporter_figures_dropped_total", "reason", "unknown_metric")
	wantValue(t, reg, 1, "exporter_figures_dropped_total", "reason", "unknown_label")
	wantValue(t, reg, 1, "exporter_label_values_dropped_total", "label", "source")
}

// lines is a logger that counts.
type lines struct {
	mu sync.Mutex
	n  int
}

func (l *lines) Log(...any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	return nil
}

func TestProblemsAreLoggedOnce(t *testing.T) {
	logger := &lines{}
	c, reg, clock := newTest(t, Options{Logger: logger})
	c.PairAdded(chatPair("a"))
	for range 5 {
		p := chatSuccess(clock, "a")
		p.Values = result.Values{{Metric: "no_such_figure", Figure: 1}}
		c.ProbeFinished(p)
	}
	if logger.n != 1 {
		t.Errorf("%d lines, want 1", logger.n)
	}
	wantValue(t, reg, 5, "exporter_figures_dropped_total", "reason", "unknown_metric")
	for i := range 3 * maxLogged { // names that never repeat must not be remembered for ever
		p := chatSuccess(clock, "a")
		p.Values = result.Values{{Metric: fmt.Sprint("figure_", i), Figure: 1}}
		c.ProbeFinished(p)
	}
	if logger.n > maxLogged || len(c.logged) > maxLogged {
		t.Errorf("%d lines, %d kinds remembered, want at most %d", logger.n, len(c.logged), maxLogged)
	}
}

func TestNewRefusesBadOptions(t *testing.T) {
	for name, x := range map[string]struct {
		o    Options
		want string
	}{
		"mode":      {Options{Histograms: "fancy"}, `"fancy"`},
		"histogram": {Options{ExtraBounds: map[string][]float64{"no_such": {1}}}, `"no_such"`},
		"no histogram": {
			Options{ExtraBounds: map[string][]float64{"probe_success": {1}}}, `"probe_success"`,
		},
		"zero":     {Options{ExtraBounds: map[string][]float64{"client_lag_seconds": {0}}}, "client_lag_seconds"},
		"NaN":      {Options{ExtraBounds: map[string][]float64{"client_lag_seconds": {math.NaN()}}}, "NaN"},
		"infinite": {Options{ExtraBounds: map[string][]float64{"client_lag_seconds": {math.Inf(1)}}}, "+Inf"},
		"many":     {Options{ExtraBounds: map[string][]float64{"client_lag_seconds": make([]float64, 33)}}, "33"},
	} {
		if _, err := New(x.o); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: error %v, want one that names %s", name, err, x.want)
		}
	}
	_, reg, _ := newTest(t, Options{})
	if _, err := New(Options{Registerer: reg}); err == nil {
		t.Error("registering twice went unnoticed")
	}
}

// TestConcurrency runs everything at once; the race detector judges.
func TestConcurrency(t *testing.T) {
	c, reg, clock := newTest(t, Options{})
	var sinks, scrapes sync.WaitGroup
	stop := make(chan struct{})
	for i := range 4 {
		sinks.Go(func() {
			name := fmt.Sprint("t", i%2)
			for range 100 {
				c.PairAdded(chatPair(name))
				c.TargetFound(result.Target{Name: name})
				c.ProbeStarted(name, "chat")
				c.ProbeSkipped(result.Skip{Target: name, Scenario: "chat", Reason: result.SkipBudget})
				c.ProbeFinished(chatSuccess(clock, name))
				c.ProbeFinished(chatFailure(clock, name, "odd"))
				c.PairRemoved(name, "chat")
				c.TargetRemoved(name)
			}
		})
	}
	for range 2 {
		scrapes.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := reg.Gather(); err != nil {
					t.Error(err)
				}
				if err := c.WriteText(io.Discard, true); err != nil {
					t.Error(err)
				}
			}
		})
	}
	sinks.Wait()
	close(stop)
	scrapes.Wait()
	if n := len(gather(t, reg)["llm_canary_probes_total"].GetMetric()); n != 0 {
		t.Errorf("%d series are left", n)
	}
	observed, _ := value(t, reg, "exporter_results_observed_total")
	dropped, _ := value(t, reg, "exporter_results_dropped_total")
	if observed+dropped != 800 {
		t.Errorf("%v results observed and %v dropped, want 800 together", observed, dropped)
	}
}

var _ prometheus.Collector = (*Collector)(nil)

func TestForProbe(t *testing.T) {
	clock := newTestClock()
	p := chatSuccess(clock, "http://somewhere:8000")
	p.Requests[0].Variant = "surprise"
	p.Values = result.Values{{Metric: "prefill_tokens_per_second", Label: "4k", Figure: 7}}
	g, err := ForProbe(Options{Histograms: "classic"}, p)
	if err != nil {
		t.Fatal(err)
	}
	wantValue(t, g, 1, "probe_success", "target", "http://somewhere:8000", "scenario", "chat")
	wantValue(t, g, 1, "time_to_first_token_seconds", "variant", "surprise")
	wantValue(t, g, 7, "prefill_tokens_per_second", "variant", "4k")
	wantValue(t, g, 1, "checks_total", "check", "non_empty")
	wantValue(t, g, 0, "exporter_label_values_dropped_total", "label", "variant")
	if _, err := ForProbe(Options{Histograms: "fancy"}, p); err == nil {
		t.Error("bad options went unnoticed")
	}
}

func TestNamesThatOthersRelyOn(t *testing.T) {
	// Names that dashboards and alerts rely on.
	for _, name := range []string{
		"time_to_first_token_seconds", "time_to_first_content_seconds", "inter_token_latency_seconds", "time_per_output_token_seconds",
		"e2e_request_latency_seconds", "request_phase_seconds", "requests_total", "request_failures_total", "probes_total",
		"probe_failures_total", "probe_skips_total", "probe_success", "probe_last_run_timestamp_seconds", "probe_last_success_timestamp_seconds",
		"probe_interval_seconds", "probe_consecutive_failures", "probe_running", "max_inter_token_latency_seconds", "probe_duration_seconds",
		"schedule_lag_seconds", "client_lag_seconds", "checks_total", "check_failures_total", "prompt_tokens_total", "cached_prompt_tokens_total",
		"generation_tokens_total", "stream_anomalies_total", "stream_stalls_total", "output_tokens_per_second", "total_tokens_per_second",
		"requests_per_second", "prefix_cache_hit_ratio", "prefix_cache_ttft_speedup_ratio", "structured_output_overhead_ratio",
		"prefill_tokens_per_second", "long_context_interference_ratio", "ramp_saturation_requests_per_second", "ramp_max_requests_per_second",
		"ramp_stop_info", "speculative_acceptance_ratio", "speculative_acceptance_length", "speculative_tokens_per_chunk",
		"multimodal_encode_seconds", "probe_gpu_memory_used_peak_bytes", "probe_gpu_memory_used_delta_bytes", "probe_gpu_utilization_max_ratio",
		"probe_kv_cache_usage_peak_ratio", "target_info",
	} {
		found := false
		for _, m := range Metrics() {
			found = found || m.Name == Namespace+name
		}
		if !found {
			t.Errorf("%s is not in the table", name)
		}
	}
}
