package collector

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// fleetScenario is what one of the eleven scenario types looks like to the collector.
type fleetScenario struct {
	name     string
	variants []string
	checks   []string
	tokens   int // output tokens of each request
	values   []string
}

func fleetScenarios() []fleetScenario {
	return []fleetScenario{
		{"chat", []string{"default"}, []string{"non_empty"}, 64, []string{"output_tokens_per_second"}},
		{"burst", []string{"burst"}, []string{"finished"}, 64, []string{"output_tokens_per_second", "total_tokens_per_second", "requests_per_second"}},
		{"prefill", []string{"minimal", "128", "1k", "4k"}, []string{"prompt_tokens"}, 1, []string{"prefill_tokens_per_second"}},
		{"decode", []string{"default"}, []string{"length"}, 128, []string{"output_tokens_per_second"}},
		{"prefix_cache", []string{"cold", "warm"}, []string{"cache_hit"}, 16, []string{"prefix_cache_hit_ratio", "prefix_cache_ttft_speedup_ratio"}},
		{"structured_output", []string{"free", "json_schema", "json_schema_unique", "regex", "choice", "grammar"}, []string{"valid"}, 64, []string{"structured_output_overhead_ratio"}},
		{"long_context", []string{"8k", "32k", "bystander", "bystander_idle"}, []string{"needle"}, 32, []string{"long_context_interference_ratio", "prefill_tokens_per_second"}},
		{"ramp", []string{"default"}, nil, 32, []string{"ramp_max_requests_per_second", "ramp_stop_info"}},
		{"speculative", []string{"coding", "math", "writing", "reasoning", "summarization", "translation"}, []string{"finished"}, 128, []string{"speculative_acceptance_ratio", "speculative_tokens_per_chunk"}},
		{"multimodal", []string{"text", "image", "images", "audio"}, []string{"content"}, 32, []string{"multimodal_encode_seconds"}},
		{"tool_call", []string{"simple", "multiple", "parallel", "irrelevance", "named"}, []string{"tool_ast"}, 48, nil},
	}
}

func (s fleetScenario) pair(target string) result.Pair {
	p := result.Pair{Target: target, Scenario: s.name, Type: s.name, Interval: 5 * time.Minute, Variants: s.variants}
	for _, v := range s.variants {
		for _, c := range s.checks {
			p.Checks = append(p.Checks, result.CheckName{Variant: v, Name: c})
		}
	}
	return p
}

func (s fleetScenario) probe(target string, random *rand.Rand) *result.Probe {
	r := &result.Probe{
		Target: target, Scenario: s.name, Type: s.name, Outcome: result.Success, StartTime: time.Now(),
		DurationSeconds: 1 + random.Float64(), ScheduleLagSeconds: result.Ptr(0.001 * random.Float64()),
		EngineRequestsRunning: result.Ptr(4.0), EngineRequestsWaiting: result.Ptr(0.0),
	}
	for i, v := range s.variants {
		q := result.Request{
			Variant: v, Outcome: result.Success, TraceID: fmt.Sprintf("%032x", random.Uint64()),
			PromptTokens: result.Ptr(200), CachedPromptTokens: result.Ptr(16), CompletionTokens: result.Ptr(s.tokens), TokenCountSource: result.CountUsage,
			TimeToFirstTokenSeconds: result.Ptr(0.08 * (1 + random.ExpFloat64())), TimeToFirstContentSeconds: result.Ptr(0.08 * (1 + random.ExpFloat64())),
			E2ELatencySeconds: result.Ptr(1 + random.ExpFloat64()),
			Phases:            result.Phases{DNS: result.Ptr(0.001), Connect: result.Ptr(0.002), TLS: result.Ptr(0.01), Send: result.Ptr(0.0001), Headers: result.Ptr(0.05)},
			ClientLagMax:      result.Ptr(0.00005 * random.ExpFloat64()),
			Window: result.Window{KVCacheUsagePeakRatio: result.Ptr(0.5), GPUs: []result.GPUWindow{
				{GPU: "0", MemoryUsedPeakBytes: result.Ptr(7e10), MemoryUsedDelta: result.Ptr(0.0), UtilizationMaxRatio: result.Ptr(1.0)},
			}},
		}
		if s.tokens > 1 {
			q.TimePerOutputTokenSeconds = result.Ptr(0.012 * (1 + random.ExpFloat64()))
			for range s.tokens - 1 {
				q.InterChunkLatenciesSeconds = append(q.InterChunkLatenciesSeconds, 0.01*(1+random.ExpFloat64()))
			}
		}
		for _, c := range s.checks {
			r.Checks = append(r.Checks, result.Check{Variant: v, Name: c, OK: true})
		}
		r.Requests = append(r.Requests, q)
		for _, x := range s.values {
			if label, ok := benchLabel(x, v, i); ok {
				r.Values = append(r.Values, result.Value{Metric: x, Label: label, Figure: random.Float64()})
			}
		}
	}
	return r
}

// benchLabel returns the label of a figure for the i-th variant.
func benchLabel(metric, variant string, i int) (string, bool) {
	for _, x := range figures() {
		switch {
		case x.name != metric:
		case x.label == "":
			return "", i == 0
		case x.allowed == nil:
			return variant, true
		default:
			return x.allowed[min(i, len(x.allowed)-1)], i < len(x.allowed)
		}
	}
	return "", false
}

// fleet makes a Collector of targets with all scenarios, each probed several times.
func fleet(b *testing.B, histograms string, targets, probes int) *Collector {
	b.Helper()
	c, err := New(Options{Histograms: histograms})
	if err != nil {
		b.Fatal(err)
	}
	random := rand.New(rand.NewPCG(5, 6))
	for i := range targets {
		target := fmt.Sprintf("chat-prod-%03d", i)
		c.TargetFound(result.Target{Name: target, URL: "https://llm.example.org:8000", Engine: "vllm", Version: "0.11.0", Model: "meta-llama/Llama-3.1-8B-Instruct", Protocol: "openai_chat"})
		for _, s := range fleetScenarios() {
			c.PairAdded(s.pair(target))
			for range probes {
				c.ProbeFinished(s.probe(target, random))
			}
		}
	}
	return c
}

func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// countWriter counts what is written.
type countWriter struct{ bytes int64 }

func (w *countWriter) Write(p []byte) (int, error) {
	w.bytes += int64(len(p))
	return len(p), nil
}

// BenchmarkPage measures the page of 100 targets with all eleven scenarios: the design wants at most 50 ms and
// 64 MiB of live heap. text, openmetrics and protobuf are what Handler serves; registry is the way of every other exporter.
func BenchmarkPage(b *testing.B) {
	for _, mode := range []string{"both", "classic", "native"} {
		before := liveHeap()
		c := fleet(b, mode, 100, 20)
		heap := float64(liveHeap()-before) / (1 << 20)
		reg := prometheus.NewRegistry()
		reg.MustRegister(c)
		for _, way := range []struct {
			name  string
			write func(io.Writer) error
		}{
			{"text", func(w io.Writer) error { return c.WriteText(w, false) }},
			{"openmetrics", func(w io.Writer) error { return c.WriteText(w, true) }},
			{"protobuf", c.WriteProtobuf},
			{"registry", func(w io.Writer) error { return encodeAll(w, reg, expfmt.TypeTextPlain) }},
			{"registry-protobuf", func(w io.Writer) error { return encodeAll(w, reg, expfmt.TypeProtoDelim) }},
		} {
			b.Run(mode+"/"+way.name, func(b *testing.B) {
				b.ReportAllocs()
				w := &countWriter{}
				for b.Loop() {
					w.bytes = 0
					if err := way.write(w); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(w.bytes)/(1<<20), "MiB/page")
				b.ReportMetric(heap, "MiB-heap")
			})
		}
		runtime.KeepAlive(c)
	}
}

func encodeAll(w io.Writer, g prometheus.Gatherer, format expfmt.FormatType) error {
	families, err := g.Gather()
	if err != nil {
		return err
	}
	e := expfmt.NewEncoder(w, expfmt.NewFormat(format))
	for _, f := range families {
		if err := e.Encode(f); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkHandler measures whole answers over the handler for ten targets, compressed and not.
func BenchmarkHandler(b *testing.B) {
	c := fleet(b, "both", 10, 20)
	h := c.Handler(HandlerOptions{})
	for _, encoding := range []string{"identity", "gzip"} {
		b.Run(encoding, func(b *testing.B) {
			for b.Loop() {
				r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
				r.Header.Set("Accept-Encoding", encoding)
				h.ServeHTTP(discard{http.Header{}}, r)
			}
		})
	}
}

type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

// BenchmarkProbeFinished measures what taking over a result costs the prober.
func BenchmarkProbeFinished(b *testing.B) {
	c := fleet(b, "both", 1, 1)
	random := rand.New(rand.NewPCG(7, 8))
	for _, s := range fleetScenarios() {
		probe := s.probe("chat-prod-000", random)
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.ProbeFinished(probe)
			}
		})
	}
}
