package main

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"

	"github.com/llmcanary/llm_canary_exporter/dashboards/gen/grafana"
)

// Series of one histogram in both forms, every 15 s. All classic observations lie between 1 and 2 seconds, all native ones
// between 4 and 8, so that a result tells which form it is from.
const (
	classic = "  " + `llm_canary_time_to_first_token_seconds_bucket{job="j",instance="i",target="t",scenario="s",variant="v",le="1.0"} 0+0x240
  llm_canary_time_to_first_token_seconds_bucket{job="j",instance="i",target="t",scenario="s",variant="v",le="2.0"} 0+10x240
  llm_canary_time_to_first_token_seconds_bucket{job="j",instance="i",target="t",scenario="s",variant="v",le="+Inf"} 0+10x240
  llm_canary_time_to_first_token_seconds_sum{job="j",instance="i",target="t",scenario="s",variant="v"} 0+15x240
  llm_canary_time_to_first_token_seconds_count{job="j",instance="i",target="t",scenario="s",variant="v"} 0+10x240
`
	native = "  " + `llm_canary_time_to_first_token_seconds{job="j",instance="i",target="t",scenario="s",variant="v"} {{schema:0 sum:60 count:10 offset:3 buckets:[10]}}+{{schema:0 sum:60 count:10 offset:3 buckets:[10]}}x240
`
)

func panelNamed(t *testing.T, file, title string) (grafana.Dashboard, grafana.Panel) {
	t.Helper()
	for _, d := range load(t) {
		for _, p := range d.All() {
			if d.File == file && p.Title == title {
				return d, p
			}
		}
	}
	t.Fatalf("no panel %s / %s", file, title)
	return grafana.Dashboard{}, grafana.Panel{}
}

// The same panel works for classic and for native histograms, and the variable chooses where there are both.
func TestHistogramsOfBothKinds(t *testing.T) {
	const auto, onlyClassic, onlyNative = ".+", ".*", "none"
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	for _, c := range []struct {
		stored, kind string
		want         string // of which form the figure is
	}{
		{classic, auto, "classic"},
		{classic, onlyClassic, "classic"},
		{classic, onlyNative, ""},
		{native, auto, "native"},
		{native, onlyClassic, ""},
		{native, onlyNative, "native"},
		{classic + native, auto, "classic"},
		{classic + native, onlyClassic, "classic"},
		{classic + native, onlyNative, "native"},
	} {
		form := map[string]string{classic: "classic", native: "native", classic + native: "both"}[c.stored]
		t.Run(form+" stored, "+c.kind+" chosen", func(t *testing.T) {
			storage := promqltest.LoadedStorage(t, "load 15s\n"+c.stored)
			eval := func(d grafana.Dashboard, expr string) promql.Vector {
				s := settings()
				s.Variables = map[string]string{"histogram": c.kind, "window": "30m"}
				filled, err := grafana.Fill(expr, d.Values(s))
				if err != nil {
					t.Fatal(err)
				}
				query, err := engine.NewInstantQuery(t.Context(), storage, nil, filled, time.Unix(3600, 0))
				if err != nil {
					t.Fatal(err)
				}
				defer query.Close()
				result := query.Exec(t.Context())
				v, err := result.Vector()
				if err != nil {
					t.Fatal(err)
				}
				return slices.Clone(v)
			}

			d, p := panelNamed(t, "latency.json", "Time to first token, quantiles")
			got := ""
			for _, sample := range eval(d, p.Targets[0].Expr) {
				switch {
				case sample.F > 1 && sample.F < 2:
					got += "classic"
				case sample.F > 4 && sample.F < 8:
					got += "native"
				default:
					got += fmt.Sprint(sample.F)
				}
			}
			if got != c.want {
				t.Errorf("the median is of %q, wanted %q", got, c.want)
			}

			d, p = panelNamed(t, "latency.json", "Time to first token, heatmap")
			forms := map[string]bool{}
			for _, sample := range eval(d, p.Targets[0].Expr) {
				forms[map[bool]string{true: "native", false: "classic"}[sample.H != nil]] = true
			}
			for _, sample := range eval(d, p.Targets[1].Expr) {
				forms[map[bool]string{true: "native", false: "native query with floats"}[sample.H != nil]] = true
			}
			wanted := map[string]bool{}
			if c.want != "" {
				wanted[c.want] = true
			}
			if !maps.Equal(forms, wanted) {
				t.Errorf("the heatmap is of %v, wanted %v", forms, wanted)
			}
		})
	}
}

// The first event of a counter that did not exist before is shown, once, and a constant counter is not.
func TestFirstEventsAreShown(t *testing.T) {
	d, p := panelNamed(t, "overview.json", "Oddities of streams")
	filled := fill(t, d, p.Targets[0].Expr)
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	storage := promqltest.LoadedStorage(t, `load 15s
  llm_canary_stream_anomalies_total{job="j",instance="i",target="t",scenario="s",anomaly="missing_done"} _x40 1x80
`)
	for _, c := range []struct {
		after time.Duration // the start; the event is seen after 10 min
		want  float64
	}{{9 * time.Minute, 0}, {10*time.Minute + 30*time.Second, 1}, {12 * time.Minute, 0}} {
		query, err := engine.NewInstantQuery(t.Context(), storage, nil, filled, time.Unix(0, 0).Add(c.after))
		if err != nil {
			t.Fatal(err)
		}
		v, err := query.Exec(t.Context()).Vector()
		if err != nil {
			t.Fatal(err)
		}
		var got float64
		for _, sample := range v {
			got += sample.F
		}
		if got != c.want {
			t.Errorf("after %v: %v events, wanted %v", c.after, got, c.want)
		}
		query.Close()
	}
}
