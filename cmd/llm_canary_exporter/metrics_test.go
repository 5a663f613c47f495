package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/llmcanary/llm_canary_exporter/collector"
	enginemetrics "github.com/llmcanary/llm_canary_exporter/collector/engine"
	"github.com/llmcanary/llm_canary_exporter/collector/gpu"
	"github.com/llmcanary/llm_canary_exporter/config"
)

// ownFamilies are the metrics of the daemon itself: everything of ours that is not in the collector's table.
var ownFamilies = []string{
	"llm_canary_build_info",
	"llm_canary_config_last_reload_successful",
	"llm_canary_config_last_reload_success_timestamp_seconds",
}

// Two daemons in one process share nothing, and their pages hold what is documented, in good form.
func TestMetricsOfTwoDaemons(t *testing.T) {
	t.Parallel()
	documented := map[string]collector.Metric{}
	for _, m := range collector.Metrics() {
		documented[m.Name] = m
	}
	for _, m := range enginemetrics.Families() {
		documented[m.Name] = m
	}
	for _, f := range gpu.Families() {
		documented[f.Name] = collector.Metric{Name: f.Name, Type: collector.Type(f.Type), Help: f.Help}
	}
	_, urlA := simulated(t)
	_, urlB := simulated(t)
	a := startDaemon(t, file(t, "a.yml", quickScenarios+"targets:\n"+quickTarget("a", urlA, "")))
	b := startDaemon(t, file(t, "b.yml", quickScenarios+"targets:\n"+quickTarget("b", urlB, "")))
	for own, d := range map[string]*process{"a": a, "b": b} {
		for _, scenario := range []string{"chat", "prefill", "decode"} {
			d.awaitValue(1, "probe_success", "target", own, "scenario", scenario)
		}
		page := d.page("/metrics")
		families, err := parse(page)
		if err != nil {
			t.Fatal(err)
		}
		for name, f := range families {
			if !strings.HasPrefix(name, collector.Namespace) {
				if !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
					t.Errorf("%s: unknown metric %s", own, name)
				}
				continue
			}
			if m, known := documented[name]; known {
				if got := strings.ToLower(f.GetType().String()); got != string(m.Type) {
					t.Errorf("%s is a %s, documented as a %s", name, got, m.Type)
				}
				if f.GetHelp() != m.Help {
					t.Errorf("%s: help %q, documented %q", name, f.GetHelp(), m.Help)
				}
			} else if !slices.Contains(ownFamilies, name) {
				t.Errorf("%s: metric %s is not documented", own, name)
			}
			for _, m := range f.Metric {
				for _, l := range m.Label {
					if l.GetName() == "target" && l.GetValue() != own {
						t.Errorf("%s: a series of the other daemon: %s%v", own, name, m)
					}
				}
			}
		}
		for _, name := range ownFamilies {
			if families[name] == nil {
				t.Errorf("%s is missing; there are %v", name, slices.Sorted(maps.Keys(families)))
			}
		}
		problems, err := promlint.New(strings.NewReader(page)).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			if strings.HasPrefix(p.Metric, collector.Namespace) {
				t.Errorf("%s: %s", p.Metric, p.Text)
			}
		}
	}
}

// The same through a registry that checks every metric against its descriptor.
func TestMetricsPedantic(t *testing.T) {
	t.Parallel()
	_, url := simulated(t)
	for _, kind := range []config.Histograms{config.HistogramsClassic, config.HistogramsNative, config.HistogramsBoth} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			text := "global: {histograms: " + string(kind) + "}\n" + quickScenarios + "targets:\n" + quickTarget("t", url, "")
			load := func() (*config.Config, error) { return parseConfig("test", []byte(text)) }
			cfg, err := load()
			if err != nil {
				t.Fatal(err)
			}
			d, rest, err := newDaemon(cfg, &flags{}, log.NewNopLogger(), load)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- d.prober.Run(ctx) }()
			defer func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}()
			pedantic := prometheus.NewPedanticRegistry()
			if err := pedantic.Register(d.collector); err != nil {
				t.Fatal(err)
			}
			eventually(t, func() string {
				for _, p := range d.history.Pairs() {
					if p.Last == nil {
						return p.Scenario + " has no result"
					}
				}
				return ""
			})
			problems, err := testutil.GatherAndLint(pedantic)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range problems {
				t.Errorf("%s: %s", p.Metric, p.Text)
			}
			if n, err := testutil.GatherAndCount(pedantic, "llm_canary_time_to_first_token_seconds"); err != nil || n == 0 {
				t.Errorf("%d series of the time to the first token: %v", n, err)
			}
			if problems, err := testutil.GatherAndLint(rest); err != nil || len(problems) > 0 {
				t.Errorf("the daemon's own metrics: %v, %v", problems, err)
			}
		})
	}
}
