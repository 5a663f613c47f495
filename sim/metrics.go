package sim

import (
	"maps"
	"slices"
	"strconv"
	"strings"

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
	model := func(c Config) prometheus.Labels { return prometheus.Labels{"model_name": c.Model} }
	engine := func(c Config) prometheus.Labels { return prometheus.Labels{"model_name": c.Model, "engine": "0"} }
	bare := func(Config) prometheus.Labels { return nil }
	return map[string]dialect{
		"vllm":     {labels: engine, rows: vllmRows, histograms: vllmHistograms()},
		"sglang":   {labels: model, rows: sglangRows, histograms: latencyHistograms("sglang:", histTTFT, histITL, histE2E)},
		"lmdeploy": {labels: engine, rows: lmdeployRows, histograms: latencyHistograms("lmdeploy:", histTTFT, histE2E, histQueue)},
		"trtllm":   {labels: model, rows: trtllmRows, histograms: latencyHistograms("trtllm_", histTTFT, histE2E, histQueue)},
		"tgi":      {labels: bare, rows: tgiRows, histograms: tgiHistograms()},
		"llamacpp": {labels: bare, rows: llamacppRows},
		"triton": {
			labels: func(Config) prometheus.Labels { return prometheus.Labels{"model": "tensorrt_llm", "version": "1"} },
			rows:   tritonRows,
		},
		"dynamo": {
			labels:     func(c Config) prometheus.Labels { return prometheus.Labels{"model": c.Model} },
			rows:       dynamoRows,
			histograms: dynamoHistograms(),
		},
	}
}

// What dialects name: figures of the engine.
func running(s Stats) float64          { return float64(s.Running) }
func waiting(s Stats) float64          { return float64(s.Waiting) }
func kvUsage(s Stats) float64          { return float64(s.BlocksUsed) / float64(s.Blocks) }
func promptTokens(s Stats) float64     { return float64(s.PromptTokens) }
func cachedTokens(s Stats) float64     { return float64(s.CachedTokens) }
func computedTokens(s Stats) float64   { return float64(s.PromptTokens - s.CachedTokens) }
func generationTokens(s Stats) float64 { return float64(s.GenerationTokens) }
func preemptions(s Stats) float64      { return float64(s.Preemptions) }
func drafts(s Stats) float64           { return float64(s.Spec.Drafts) }
func draftTokens(s Stats) float64      { return float64(s.Spec.DraftTokens) }
func acceptedTokens(s Stats) float64   { return float64(s.Spec.AcceptedTokens) }

// none is what a simulated engine never has any of.
func none(Stats) float64 { return 0 }

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

// labels makes a set of labels of names and values in turn.
func labels(kv ...string) prometheus.Labels {
	out := prometheus.Labels{}
	for i := 0; i < len(kv); i += 2 {
		out[kv[i]] = kv[i+1]
	}
	return out
}

// sglangRows are the names of SGLang 0.5 with one scheduler, which has labels of its own.
func sglangRows(c Config) []metricRow {
	rank := labels("engine_type", "unified", "tp_rank", "0", "pp_rank", "0", "moe_ep_rank", "0")
	rows := []metricRow{
		{"sglang:num_running_reqs", "Requests in the batch.", gauge, rank, running},
		{"sglang:num_queue_reqs", "Requests in the queue.", gauge, rank, waiting},
		{"sglang:num_grammar_queue_reqs", "Requests that wait for a grammar.", gauge, rank, none},
		{"sglang:token_usage", "Share of the token pool in use.", gauge, rank, kvUsage},
		{"sglang:cache_hit_rate", "Hit rate of the last batch.", gauge, rank, none},
		{"sglang:num_retracted_requests_total", "Retracted requests.", counter, rank, preemptions},
		{"sglang:prompt_tokens_total", "Prompt tokens, cached ones included.", counter, nil, promptTokens},
		{"sglang:cached_tokens_total", "Cached prompt tokens.", counter, labels("cache_source", "device"), cachedTokens},
		{"sglang:generation_tokens_total", "Tokens generated.", counter, nil, generationTokens},
	}
	if c.drafts() > 0 {
		rows = append(rows, metricRow{"sglang:spec_verify_calls_total", "Verify steps.", counter, rank, drafts})
	}
	return rows
}

// lmdeployRows are the names of LMDeploy 0.16.
func lmdeployRows(c Config) []metricRow {
	rows := []metricRow{
		{"lmdeploy:num_requests_running", "Requests in the batch.", gauge, nil, running},
		{"lmdeploy:num_requests_waiting", "Requests in the queue.", gauge, nil, waiting},
		{"lmdeploy:num_api_requests_waiting", "Requests that wait in the API server.", gauge, nil, none},
		{"lmdeploy:gpu_cache_usage_perc", "Share of the KV blocks in use.", gauge, nil, kvUsage},
		{"lmdeploy:prompt_tokens_total", "Prompt tokens, cached ones included.", counter, nil, promptTokens},
		{"lmdeploy:cached_tokens_total", "Cached prompt tokens.", counter, nil, cachedTokens},
		{"lmdeploy:generation_tokens_total", "Tokens generated.", counter, nil, generationTokens},
	}
	return append(rows, speculation(c, "lmdeploy:")...)
}

// trtllmRows are the names of trtllm-serve since its metrics have a prefix.
func trtllmRows(c Config) []metricRow {
	rows := []metricRow{
		{"trtllm_num_requests_running", "Requests in the batch.", gauge, nil, running},
		{"trtllm_num_requests_waiting", "Requests in the queue.", gauge, nil, waiting},
		{"trtllm_kv_cache_utilization", "Share of the KV blocks in use.", gauge, nil, kvUsage},
		{"trtllm_prompt_tokens_total", "Prompt tokens, cached ones included.", counter, nil, promptTokens},
		{"trtllm_prompt_cached_tokens_total", "Cached prompt tokens.", counter, nil, cachedTokens},
		{"trtllm_generation_tokens_total", "Tokens generated.", counter, nil, generationTokens},
	}
	if c.drafts() > 0 {
		rows = append(rows,
			metricRow{"trtllm_spec_decode_num_draft_tokens_total", "Draft tokens verified.", counter, nil, draftTokens},
			metricRow{"trtllm_spec_decode_num_accepted_tokens_total", "Draft tokens accepted.", counter, nil, acceptedTokens},
		)
	}
	return rows
}

// llamacppRows are the names of llama-server of August 2026, which tells speculation even where there is none.
func llamacppRows(Config) []metricRow {
	return []metricRow{
		{"llamacpp:requests_processing", "Requests in slots.", gauge, nil, running},
		{"llamacpp:requests_deferred", "Requests without a slot.", gauge, nil, waiting},
		{"llamacpp:prompt_tokens_total", "Prompt tokens computed.", counter, nil, computedTokens},
		{"llamacpp:prompt_tokens_cached_total", "Prompt tokens taken from the cache.", counter, nil, cachedTokens},
		{"llamacpp:tokens_predicted_total", "Tokens generated.", counter, nil, generationTokens},
		{"llamacpp:spec_decode_num_drafts_total", "Drafts verified.", counter, nil, drafts},
		{"llamacpp:spec_decode_num_draft_tokens_total", "Draft tokens verified.", counter, nil, draftTokens},
		{"llamacpp:spec_decode_num_accepted_tokens_total", "Draft tokens accepted.", counter, nil, acceptedTokens},
	}
}

// tgiRows are the names of Text Generation Inference; the tokens are sums of histograms.
func tgiRows(c Config) []metricRow {
	rows := []metricRow{
		{"tgi_batch_current_size", "Requests in the batch.", gauge, nil, running},
		{"tgi_queue_size", "Requests in the queue.", gauge, nil, waiting},
		{"tgi_request_success", "Requests that succeeded.", counter, nil, func(s Stats) float64 { return float64(s.Finished["stop"] + s.Finished["length"]) }},
	}
	if c.drafts() > 0 {
		rows = append(rows,
			metricRow{"tgi_request_skipped_tokens_sum", "Extra tokens of decode steps.", counter, nil, acceptedTokens},
			metricRow{"tgi_request_skipped_tokens_count", "Decode steps.", counter, nil, drafts},
		)
	}
	return rows
}

// tritonRows are the names of Triton's TensorRT-LLM backend.
func tritonRows(Config) []metricRow {
	const requests, blocks = "nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics"
	request := func(kind string) prometheus.Labels { return labels("request_type", kind) }
	block := func(kind string) prometheus.Labels { return labels("kv_cache_block_type", kind) }
	return []metricRow{
		{requests, "Requests by state.", gauge, request("scheduled"), running},
		{requests, "Requests by state.", gauge, request("waiting"), waiting},
		{requests, "Requests by state.", gauge, request("active"), func(s Stats) float64 { return running(s) + waiting(s) }},
		{blocks, "KV blocks by state.", gauge, block("fraction"), kvUsage},
		{blocks, "KV blocks by state.", gauge, block("used"), func(s Stats) float64 { return float64(s.BlocksUsed) }},
		{blocks, "KV blocks by state.", gauge, block("max"), func(s Stats) float64 { return float64(s.Blocks) }},
		{"nv_inference_pending_request_count", "Requests before execution.", gauge, nil, waiting},
	}
}

// dynamoRows are the names of Dynamo's frontend with one worker.
func dynamoRows(Config) []metricRow {
	return []metricRow{
		{"dynamo_frontend_active_requests", "Requests in flight.", gauge, nil, func(s Stats) float64 { return running(s) + waiting(s) }},
		{"dynamo_frontend_queued_requests", "Requests before their first token.", gauge, nil, waiting},
		{"dynamo_frontend_output_tokens_total", "Tokens generated.", counter, nil, generationTokens},
		{"dynamo_frontend_cached_tokens_sum", "Cached prompt tokens.", counter, nil, cachedTokens},
		{"dynamo_frontend_model_total_kv_blocks", "KV blocks of a worker.", gauge, nil, func(s Stats) float64 { return float64(s.Blocks) }},
		{"dynamo_frontend_worker_active_decode_blocks", "KV blocks in use.", gauge, labels("worker_id", "1", "dp_rank", "0"), func(s Stats) float64 { return float64(s.BlocksUsed) }},
	}
}

// speculation are the rows that vLLM and its relatives have while they speculate.
func speculation(c Config, prefix string) []metricRow {
	if c.drafts() == 0 {
		return nil
	}
	rows := []metricRow{
		{prefix + "spec_decode_num_drafts_total", "Drafts verified.", counter, nil, drafts},
		{prefix + "spec_decode_num_draft_tokens_total", "Draft tokens verified.", counter, nil, draftTokens},
		{prefix + "spec_decode_num_accepted_tokens_total", "Draft tokens accepted.", counter, nil, acceptedTokens},
	}
	for i := range c.drafts() {
		rows = append(rows, metricRow{
			prefix + "spec_decode_num_accepted_tokens_per_pos_total", "Draft tokens accepted by position.", counter,
			labels("position", strconv.Itoa(i)), func(s Stats) float64 { return float64(s.SpecAcceptedPerPosition[i]) },
		})
	}
	return rows
}

// vllmRows are the names of vLLM's V1 engine as exposed (with _total).
func vllmRows(c Config) []metricRow {
	finished := func(reason string) func(Stats) float64 {
		return func(s Stats) float64 { return float64(s.Finished[reason]) }
	}
	rows := []metricRow{
		{"vllm:num_requests_running", "Requests in the batch.", gauge, nil, running},
		{"vllm:num_requests_waiting", "Requests waiting for the batch.", gauge, nil, waiting},
		{"vllm:kv_cache_usage_perc", "Share of the KV blocks in use, 1 is all.", gauge, nil, kvUsage},
		{"vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", counter, nil, func(s Stats) float64 { return float64(s.PrefixQueryTokens) }},
		{"vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", counter, nil, func(s Stats) float64 { return float64(s.PrefixHitTokens) }},
		{"vllm:prompt_tokens_total", "Prompt tokens of prefilled requests, cached ones included.", counter, nil, promptTokens},
		{"vllm:prompt_tokens_cached_total", "Prompt tokens of prefilled requests that came from a cache.", counter, nil, cachedTokens},
		{"vllm:prompt_tokens_by_source_total", "Prompt tokens by where they came from.", counter, labels("source", "local_compute"), computedTokens},
		{"vllm:prompt_tokens_by_source_total", "Prompt tokens by where they came from.", counter, labels("source", "local_cache_hit"), cachedTokens},
		{"vllm:prompt_tokens_by_source_total", "Prompt tokens by where they came from.", counter, labels("source", "external_kv_transfer"), none},
		{"vllm:generation_tokens_total", "Tokens generated.", counter, nil, generationTokens},
		{"vllm:num_preemptions_total", "Preempted requests.", counter, nil, preemptions},
	}
	for _, reason := range []string{"stop", "length", "abort", "error", "repetition"} {
		rows = append(rows, metricRow{"vllm:request_success_total", "Finished requests.", counter, labels("finished_reason", reason), finished(reason)})
	}
	rows = append(rows, metricRow{
		"vllm:cache_config_info", "Configuration of the KV cache.", gauge,
		labels("block_size", strconv.Itoa(c.BlockSize), "num_gpu_blocks", strconv.Itoa(c.Blocks), "cache_dtype", "auto",
			"enable_prefix_caching", map[bool]string{true: "True", false: "False"}[c.PrefixCache], "gpu_memory_utilization", "0.9"),
		func(Stats) float64 { return 1 },
	})
	return append(rows, speculation(c, "vllm:")...)
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

// latencyHistograms are what vLLM's relatives call the same histograms.
func latencyHistograms(prefix string, keys ...histogramKey) []histogramRow {
	var out []histogramRow
	for _, h := range vllmHistograms() {
		if slices.Contains(keys, h.key) {
			h.name = prefix + strings.TrimPrefix(h.name, "vllm:")
			out = append(out, h)
		}
	}
	return out
}

func tgiHistograms() []histogramRow {
	buckets := prometheus.ExponentialBuckets(0.00015, 1.5, 35)
	tokens := []float64{20, 100, 512, 1024, 4096}
	return []histogramRow{
		{histE2E, "tgi_request_duration", "Arrival to finish, in seconds.", buckets},
		{histQueue, "tgi_request_queue_duration", "Arrival to first scheduling, in seconds.", buckets},
		{histPromptTokens, "tgi_request_input_length", "Prompt tokens of a request.", tokens},
		{histGenerationTokens, "tgi_request_generated_tokens", "Tokens generated for a request.", tokens},
	}
}

func dynamoHistograms() []histogramRow {
	tokens := []float64{0, 50, 100, 500, 1000, 5000, 10000}
	return append(latencyHistograms("dynamo_frontend_", histTTFT, histITL),
		histogramRow{histPromptTokens, "dynamo_frontend_input_sequence_tokens", "Prompt tokens of a request.", tokens},
		histogramRow{histGenerationTokens, "dynamo_frontend_output_sequence_tokens", "Tokens generated for a request.", tokens},
	)
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
