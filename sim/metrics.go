package sim

import (
	"maps"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// histogramKey names what the engine observes, whatever a dialect calls it.
type histogramKey int

const (
	histTTFT histogramKey = iota
	histITL
	histTPOT
	histE2E
	histQueue
	histPrefill
	histDecode
	histInference
	histPromptTokens
	histGenerationTokens
	histIterationTokens
	histCount
)

// metricRow is one series of a dialect: a counter or gauge read from Stats.
type metricRow struct {
	name, help string
	kind       prometheus.ValueType
	labels     prometheus.Labels
	value      func(Stats) float64
}

// histogramRow is one histogram of a dialect.
type histogramRow struct {
	key        histogramKey
	name, help string
	buckets    []float64
}

// dialect is what one kind of server calls its metrics.
type dialect struct {
	labels     func(Config) prometheus.Labels
	rows       func(Config) []metricRow
	histograms []histogramRow
}

// dialects is the table of metric names; another server's is one more row.
func dialects() map[string]dialect {
	return map[string]dialect{
		"vllm": {
			labels:     func(c Config) prometheus.Labels { return prometheus.Labels{"model_name": c.Model, "engine": "0"} },
			rows:       vllmRows,
			histograms: vllmHistograms(),
		},
	}
}

// vllmRows are the names of vLLM's V1 engine as exposed (with _total).
func vllmRows(c Config) []metricRow {
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	l := func(kv ...string) prometheus.Labels {
		out := prometheus.Labels{}
		for i := 0; i < len(kv); i += 2 {
			out[kv[i]] = kv[i+1]
		}
		return out
	}
	count := func(f func(Stats) int) func(Stats) float64 {
		return func(s Stats) float64 { return float64(f(s)) }
	}
	finished := func(reason string) func(Stats) float64 {
		return func(s Stats) float64 { return float64(s.Finished[reason]) }
	}
	rows := []metricRow{
		{"vllm:num_requests_running", "Requests in the batch.", gauge, nil, count(func(s Stats) int { return s.Running })},
		{"vllm:num_requests_waiting", "Requests waiting for the batch.", gauge, nil, count(func(s Stats) int { return s.Waiting })},
		{"vllm:kv_cache_usage_perc", "Share of the KV blocks in use, 1 is all.", gauge, nil, func(s Stats) float64 { return float64(s.BlocksUsed) / float64(s.Blocks) }},
		{"vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", counter, nil, count(func(s Stats) int { return s.PrefixQueryTokens })},
		{"vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", counter, nil, count(func(s Stats) int { return s.PrefixHitTokens })},
		{"vllm:prompt_tokens_total", "Prompt tokens of prefilled requests, cached ones included.", counter, nil, count(func(s Stats) int { return s.PromptTokens })},
		{"vllm:prompt_tokens_cached_total", "Prompt tokens of prefilled requests that came from a cache.", counter, nil, count(func(s Stats) int { return s.CachedTokens })},
		{"vllm:prompt_tokens_by_source_total", "Prompt tokens by where they came from.", counter, l("source", "local_compute"), count(func(s Stats) int { return s.PromptTokens - s.CachedTokens })},
		{"vllm:prompt_tokens_by_source_total", "Prompt tokens by where they came from.", counter, l("source", "local_cache_hit"), count(func(s Stats) int { return s.CachedTokens })},
		{"vllm:prompt_tokens_by_source_total", "Prompt tokens by where they came from.", counter, l("source", "external_kv_transfer"), func(Stats) float64 { return 0 }},
		{"vllm:generation_tokens_total", "Tokens generated.", counter, nil, count(func(s Stats) int { return s.GenerationTokens })},
		{"vllm:num_preemptions_total", "Preempted requests.", counter, nil, count(func(s Stats) int { return s.Preemptions })},
	}
	for _, reason := range []string{"stop", "length", "abort", "error", "repetition"} {
		rows = append(rows, metricRow{"vllm:request_success_total", "Finished requests.", counter, l("finished_reason", reason), finished(reason)})
	}
	rows = append(rows, metricRow{
		"vllm:cache_config_info", "Configuration of the KV cache.", gauge,
		l("block_size", strconv.Itoa(c.BlockSize), "num_gpu_blocks", strconv.Itoa(c.Blocks), "cache_dtype", "auto",
			"enable_prefix_caching", map[bool]string{true: "True", false: "False"}[c.PrefixCache], "gpu_memory_utilization", "0.9"),
		func(Stats) float64 { return 1 },
	})
	if c.drafts() == 0 {
		return rows
	}
	rows = append(rows,
		metricRow{"vllm:spec_decode_num_drafts_total", "Drafts verified.", counter, nil, count(func(s Stats) int { return s.Spec.Drafts })},
		metricRow{"vllm:spec_decode_num_draft_tokens_total", "Draft tokens verified.", counter, nil, count(func(s Stats) int { return s.Spec.DraftTokens })},
		metricRow{"vllm:spec_decode_num_accepted_tokens_total", "Draft tokens accepted.", counter, nil, count(func(s Stats) int { return s.Spec.AcceptedTokens })},
	)
	for i := range c.drafts() {
		rows = append(rows, metricRow{
			"vllm:spec_decode_num_accepted_tokens_per_pos_total", "Draft tokens accepted by position.", counter,
			l("position", strconv.Itoa(i)), count(func(s Stats) int { return s.SpecAcceptedPerPosition[i] }),
		})
	}
	return rows
}

func vllmHistograms() []histogramRow {
	ttft := []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	itl := []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	request := []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	tokens := []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000}
	iteration := []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
	return []histogramRow{
		{histTTFT, "vllm:time_to_first_token_seconds", "Arrival to first token.", ttft},
		{histITL, "vllm:inter_token_latency_seconds", "Time between outputs of a request.", itl},
		{histTPOT, "vllm:request_time_per_output_token_seconds", "Decode time per output token of a request.", itl},
		{histE2E, "vllm:e2e_request_latency_seconds", "Arrival to finish.", request},
		{histQueue, "vllm:request_queue_time_seconds", "Arrival to first scheduling.", request},
		{histPrefill, "vllm:request_prefill_time_seconds", "First scheduling to first token.", request},
		{histDecode, "vllm:request_decode_time_seconds", "First to last token.", request},
		{histInference, "vllm:request_inference_time_seconds", "First scheduling to last token.", request},
		{histPromptTokens, "vllm:request_prompt_tokens", "Prompt tokens of a request.", tokens},
		{histGenerationTokens, "vllm:request_generation_tokens", "Tokens generated for a request.", tokens},
		{histIterationTokens, "vllm:iteration_tokens_total", "Tokens of one step.", iteration},
	}
}

// metrics exposes one dialect; it is a prometheus.Collector whose counters and
// gauges all come from one snapshot of the engine.
type metrics struct {
	rows       []metricRow
	labels     prometheus.Labels
	histograms [histCount]prometheus.Histogram
	stats      func() Stats // set once before the first scrape
}

func newMetrics(cfg Config) *metrics {
	d := dialects()[cfg.MetricsDialect]
	m := &metrics{rows: d.rows(cfg), labels: d.labels(cfg)}
	for _, h := range d.histograms {
		m.histograms[h.key] = prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: h.name, Help: h.help, Buckets: h.buckets, ConstLabels: m.labels,
		})
	}
	return m
}

func (m *metrics) observe(key histogramKey, v float64) {
	if h := m.histograms[key]; h != nil {
		h.Observe(v)
	}
}

func (r metricRow) desc(common prometheus.Labels) *prometheus.Desc {
	labels := maps.Clone(common)
	maps.Copy(labels, r.labels)
	return prometheus.NewDesc(r.name, r.help, nil, labels)
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, r := range m.rows {
		ch <- r.desc(m.labels)
	}
	for _, h := range m.histograms {
		if h != nil {
			h.Describe(ch)
		}
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	s := m.stats()
	for _, r := range m.rows {
		ch <- prometheus.MustNewConstMetric(r.desc(m.labels), r.kind, r.value(s))
	}
	for _, h := range m.histograms {
		if h != nil {
			h.Collect(ch)
		}
	}
}
