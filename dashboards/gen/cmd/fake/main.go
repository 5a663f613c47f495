// Command fake serves a metrics page that has every metric that a dashboard may ask for, with figures that are made
// up and move. It stands in for what a machine without GPUs, a fleet or a fault cannot show, so that every
// expression of the dashboards can be proved to give data; it proves nothing about the exporter.
//
//	fake [-listen 127.0.0.1:9878] [-native]
package main

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/llmcanary/llm_canary_exporter/dashboards/gen/internal/tables"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9878", "address")
	native := flag.Bool("native", false, "native histograms only")
	flag.Parse()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	f := newFake(registry, *native)
	go func() {
		for {
			f.step(time.Now())
			time.Sleep(time.Second)
		}
	}()
	server := &http.Server{
		Addr: *listen, ReadHeaderTimeout: 5 * time.Second,
		Handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}),
	}
	if err := server.ListenAndServe(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// fake holds the metrics; step moves them.
type fake struct {
	random *rand.Rand
	moves  []func(now time.Time)
}

func newFake(registry prometheus.Registerer, native bool) *fake {
	f := &fake{random: rand.New(rand.NewPCG(1, 2))}
	all := tables.Pending()
	maps.Copy(all, tables.Exported())
	for _, table := range []map[string]tables.Metric{all, tables.Daemon()} {
		for name, m := range table {
			f.add(registry, name, m, native)
		}
	}
	return f
}

func (f *fake) step(now time.Time) {
	for _, move := range f.moves {
		move(now)
	}
}

// add registers a metric with some series.
func (f *fake) add(registry prometheus.Registerer, name string, m tables.Metric, native bool) {
	sets := labelSets(name, m.Labels)
	switch m.Kind {
	case tables.Counter:
		vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: "made up"}, m.Labels)
		registry.MustRegister(vec)
		for _, set := range sets {
			c, perSecond := vec.WithLabelValues(set...), rateOf(name, set)
			phase, swing := f.random.Float64()*2*math.Pi, 0.4
			if strings.Contains(name, "sampled_seconds") {
				swing = 0 // it is time
			}
			f.moves = append(f.moves, func(now time.Time) { c.Add(perSecond * (1 + swing*math.Sin(float64(now.Unix())/50+phase))) })
		}
	case tables.Histogram:
		opts := prometheus.HistogramOpts{Name: name, Help: "made up", NativeHistogramBucketFactor: 1.1}
		if !native {
			opts.Buckets = prometheus.ExponentialBuckets(0.0005, 1.6, 24)
		}
		vec := prometheus.NewHistogramVec(opts, m.Labels)
		registry.MustRegister(vec)
		for i, set := range sets {
			h, middle := vec.WithLabelValues(set...), middleOf(name)*(1+0.2*float64(i%7))
			f.moves = append(f.moves, func(time.Time) {
				h.(prometheus.ExemplarObserver).ObserveWithExemplar(middle*math.Exp(f.random.NormFloat64()/3), prometheus.Labels{"trace_id": fmt.Sprintf("%032x", f.random.Uint64())})
			})
		}
	case tables.Gauge:
		vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: "made up"}, m.Labels)
		registry.MustRegister(vec)
		for i, set := range sets {
			g, value := vec.WithLabelValues(set...), gaugeOf(name, set, i)
			f.moves = append(f.moves, func(now time.Time) { g.Set(value(now, f.random)) })
		}
	}
}

// labelSets are the label values of the series of a metric.
func labelSets(name string, labels []string) [][]string {
	sets := [][]string{{}}
	for _, label := range labels {
		var next [][]string
		for _, set := range sets {
			for _, v := range valuesOf(name, label, set) {
				next = append(next, append(slices.Clone(set), v))
			}
		}
		sets = next
	}
	return sets
}

func valuesOf(name, label string, before []string) []string {
	scenario := ""
	if len(before) > 1 {
		scenario = before[1]
	}
	switch label {
	case "target":
		return []string{"chat-prod", "chat-new"}
	case "scenario":
		return scenariosOf(name)
	case "variant":
		if strings.Contains(name, "interference") {
			return []string{"ttft", "itl"}
		}
		return variantsOf(scenario)
	case "check":
		return map[string][]string{
			"structured_output": {"json_schema"}, "long_context": {"needle"}, "tool_call": {"tool_ast"}, "multimodal": {"image"},
		}[scenario]
	}
	if v, ok := map[string][]string{
		"reason": {"wrong_answer", "truncated", "timeout_first_token"}, "phase": {"dns", "connect", "tls", "send", "headers"},
		"gpu": {"0", "1"}, "uuid": {"GPU-of-" + last(before)}, "slo": {"ttft", "content_ttft", "tpot", "itl_max", "e2e", "availability"},
		"window": {"hour", "day"}, "source": {"usage"}, "anomaly": {"missing_done"}, "to": {"chat-old"},
		"figure": {"ttft", "tpot", "e2e"}, "benchmark": {"serve"}, "engine": {"vllm"}, "model": {"an-8b-model"},
		"version": {"0.1.0"}, "url": {"http://127.0.0.1:8000"}, "protocol": {"openai_chat"}, "xid": {"31"}, "type": {"corrected"},
	}[label]; ok {
		return v
	}
	return []string{"a"}
}

func last(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[len(s)-1]
}

// scenariosOf are the scenarios that give a metric.
func scenariosOf(name string) []string {
	for part, scenario := range map[string]string{
		"prefix_cache_": "prefix_cache", "structured_": "structured_output", "speculative_": "speculative", "multimodal_": "multimodal",
		"ramp_": "ramp", "interference": "long_context", "prefill_tokens": "long_context", "total_tokens_per": "burst", "canary_requests_per": "burst",
	} {
		if strings.Contains(name, part) {
			return []string{scenario}
		}
	}
	return []string{"chat", "prefill", "prefix_cache", "structured_output", "long_context", "tool_call", "speculative", "multimodal"}
}

func variantsOf(scenario string) []string {
	if v, ok := map[string][]string{
		"prefill": {"128", "1k", "4k"}, "prefix_cache": {"cold", "warm"}, "structured_output": {"free", "json_schema", "regex"},
		"long_context": {"8k", "32k", "bystander"}, "tool_call": {"simple", "parallel"}, "speculative": {"coding", "writing"},
		"multimodal": {"text", "image"},
	}[scenario]; ok {
		return v
	}
	return []string{"default"}
}

// rateOf is how fast a counter grows.
func rateOf(name string, set []string) float64 {
	switch {
	case strings.Contains(name, "failures"), strings.Contains(name, "bad_"), strings.Contains(name, "anomalies"), strings.Contains(name, "stalls"), strings.Contains(name, "skips"), strings.Contains(name, "xid"), strings.Contains(name, "ecc"):
		return 0.00008
	case strings.Contains(name, "utilization_seconds"), strings.Contains(name, "activity_seconds"), strings.Contains(name, "occupancy_seconds"):
		return 0.6
	case strings.Contains(name, "sampled_seconds"):
		return 1
	case strings.Contains(name, "hits"):
		return 40
	case strings.Contains(name, "bytes"):
		return 3e8
	case strings.Contains(name, "tokens"), strings.Contains(name, "queries"):
		return 60 + 10*float64(len(last(set)))
	}
	return 0.05
}

// middleOf is about what a histogram observes.
func middleOf(name string) float64 {
	switch {
	case strings.Contains(name, "lag"):
		return 0.00003
	case strings.Contains(name, "inter_token"), strings.Contains(name, "per_output"):
		return 0.012
	case strings.Contains(name, "phase"):
		return 0.002
	case strings.Contains(name, "e2e"), strings.Contains(name, "duration"):
		return 1.5
	}
	return 0.2
}

// gaugeOf is how a gauge moves.
func gaugeOf(name string, set []string, i int) func(time.Time, *rand.Rand) float64 {
	around := func(v float64) func(time.Time, *rand.Rand) float64 {
		return func(now time.Time, _ *rand.Rand) float64 {
			return v * (1 + 0.08*math.Sin(float64(now.Unix())/60+float64(i)*1.7))
		}
	}
	fixed := func(v float64) func(time.Time, *rand.Rand) float64 {
		return func(time.Time, *rand.Rand) float64 { return v }
	}
	switch {
	case strings.HasSuffix(name, "timestamp_seconds"):
		return func(now time.Time, _ *rand.Rand) float64 { return float64(now.Unix() - int64(i%30)) }
	case strings.HasSuffix(name, "probe_running"):
		return func(now time.Time, _ *rand.Rand) float64 {
			return float64(map[bool]int{true: 1}[(now.Unix()+int64(i)*7)%60 < 12])
		}
	case strings.HasSuffix(name, "_info"), strings.HasSuffix(name, "probe_success"), strings.HasSuffix(name, "successful"), strings.HasSuffix(name, "_up"), strings.HasSuffix(name, "reason"):
		return fixed(1)
	case strings.HasSuffix(name, "consecutive_failures"):
		return fixed(float64(i % 2))
	case strings.HasSuffix(name, "interval_seconds"):
		return fixed(300)
	case strings.HasSuffix(name, "objective_ratio"):
		return fixed(0.99)
	case strings.HasSuffix(name, "threshold_seconds"):
		return fixed(map[string]float64{"ttft": 0.5, "content_ttft": 0.6, "tpot": 0.03, "itl_max": 0.2, "e2e": 4}[last(set)])
	case strings.HasSuffix(name, "tokens_limit"):
		return fixed(200000)
	case strings.HasSuffix(name, "tokens_used"):
		return around(90000)
	}
	return measured(name, around, fixed)
}

// measured is how the gauges of measurements move.
func measured(name string, around, fixed func(float64) func(time.Time, *rand.Rand) float64) func(time.Time, *rand.Rand) float64 {
	switch {
	case strings.Contains(name, "remapped"):
		return fixed(0)
	case strings.Contains(name, "memory_total"):
		return fixed(150e9)
	case strings.HasSuffix(name, "bytes"):
		return around(120e9)
	case strings.HasSuffix(name, "hertz"):
		return around(1.7e9)
	case strings.HasSuffix(name, "watts"):
		return around(500)
	case strings.HasSuffix(name, "celsius"):
		return around(60)
	case strings.Contains(name, "tokens_per_second"):
		return around(80)
	case strings.HasSuffix(name, "overhead_ratio"), strings.HasSuffix(name, "interference_ratio"), strings.HasSuffix(name, "comparison_ratio"):
		return around(1.2)
	case strings.HasSuffix(name, "speedup_ratio"):
		return around(6)
	case strings.HasSuffix(name, "ratio"):
		return around(0.7)
	case strings.Contains(name, "per_second"), strings.Contains(name, "running"), strings.Contains(name, "waiting"):
		return around(8)
	}
	return around(2)
}
