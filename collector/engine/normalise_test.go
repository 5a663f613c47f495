package enginemetrics

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func normaliseText(t *testing.T, page string, h Hint) *Normalised {
	t.Helper()
	p, _, err := Parse([]byte(page), "")
	if err != nil {
		t.Fatal(err)
	}
	n, err := Normalise(p, h)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestDetect(t *testing.T) {
	for _, c := range []struct{ page, want string }{
		{"vllm:num_requests_running 1\nnv_inference_count{model=\"m\"} 2\n", "vllm"},      // Triton's vLLM backend
		{"dynamo_component_requests_total 1\nsglang:num_running_reqs 2\n", "sglang"},      // a Dynamo worker
		{"dynamo_component_requests_total 1\ntrtllm_request_success_total 2\n", "trtllm"}, //
		{"nv_inference_count{model=\"m\"} 2\nnv_trt_llm_request_metrics{request_type=\"waiting\"} 1\n", "triton"},
		{"# TYPE sglang:num_running_reqs gauge\n", "sglang"}, // declared, nothing counted yet
		{"num_requests_running 1\nrequest_queue_time_seconds_count 2\n", "nim"},
		{"request_queue_time_seconds_count 2\n", "trtllm"},
		{"vllm_router_requests 2\n", ""},
		{"http_requests_total 2\n", ""},
	} {
		p, _, err := Parse([]byte(c.page), "")
		if err != nil {
			t.Fatal(err)
		}
		if got := Detect(p); got != c.want {
			t.Errorf("%q is %q, want %q", c.page, got, c.want)
		}
		if _, err := Normalise(p, Hint{}); errors.Is(err, ErrUnknownDialect) != (c.want == "") {
			t.Errorf("%q: %v", c.page, err)
		}
	}
}

func TestModelHint(t *testing.T) {
	page := "dynamo_frontend_inflight_requests{model=\"a\"} 3\ndynamo_frontend_inflight_requests{model=\"b\"} 4\n" +
		"dynamo_frontend_output_tokens_total{model=\"b\"} 9\ndynamo_frontend_disconnected_clients 5\n"
	for _, c := range []struct {
		hint            string
		running, tokens float64
		model           string
	}{{"", 7, 9, ""}, {"a", 3, -1, "a"}, {"b", 4, 9, "b"}, {"an alias", 7, 9, ""}} {
		n := normaliseText(t, page, Hint{Model: c.hint})
		if n.RequestsRunning == nil || *n.RequestsRunning != c.running || n.Model != c.model {
			t.Errorf("hint %q: running %s of model %q", c.hint, show(n.RequestsRunning), n.Model)
		}
		if (n.GenerationTokens != nil) != (c.tokens >= 0) || n.GenerationTokens != nil && *n.GenerationTokens != c.tokens {
			t.Errorf("hint %q: generated %s", c.hint, show(n.GenerationTokens))
		}
	}
	// The ensemble that clients ask for is not the model of the backend's own metrics.
	n := normaliseText(t, "nv_trt_llm_request_metrics{model=\"tensorrt_llm\",request_type=\"waiting\"} 2\nnv_inference_count{model=\"ensemble\"} 1\n", Hint{Model: "ensemble"})
	if n.RequestsWaiting == nil || *n.RequestsWaiting != 2 {
		t.Errorf("waiting %s", show(n.RequestsWaiting))
	}
	// One of two models of a Triton without a language model's own metrics.
	n = normaliseText(t, string(readPage(t, "testdata/pages/triton_two_models.txt")), Hint{Model: "chat"})
	if n.RequestsWaiting == nil || *n.RequestsWaiting != 3 {
		t.Errorf("waiting %s", show(n.RequestsWaiting))
	}
}

func TestFiguresThatCannotBe(t *testing.T) {
	n := normaliseText(t, `vllm:num_requests_running{engine="0"} 1
vllm:num_requests_running{engine="1"} NaN
vllm:num_requests_waiting -1
vllm:kv_cache_usage_perc 43
vllm:prompt_tokens_total +Inf
vllm:generation_tokens_total{engine="0"} 1e308
vllm:generation_tokens_total{engine="1"} 1e308
`, Hint{})
	for _, f := range []Figure{RequestsRunning, RequestsWaiting, KVCacheUsage, PromptTokens, GenerationTokens} {
		if n.Get(f) != nil || n.Odd[f] == "" {
			t.Errorf("%s: %s, odd %q", f, show(n.Get(f)), n.Odd[f])
		}
		if !strings.Contains(fmt.Sprint(n.Missing), string(f)) {
			t.Errorf("%s is not missing: %v", f, n.Missing)
		}
	}
	if n := normaliseText(t, "vllm:kv_cache_usage_perc 1.0000000000000002\n", Hint{}); n.KVCacheUsage == nil || *n.KVCacheUsage != 1 {
		t.Errorf("a full cache: %s", show(n.KVCacheUsage))
	}
}

// A renamed metric is missing, whichever it is, and never 0.
func TestRenamedMetricIsMissing(t *testing.T) {
	for _, c := range []struct {
		file, name string
		want       []Figure
	}{
		{"vllm_v1_0.25_dp2_spec", "vllm:num_requests_running", []Figure{RequestsRunning}},
		{"vllm_v1_0.25_dp2_spec", "vllm:num_requests_waiting", []Figure{RequestsWaiting}},
		{"vllm_v1_0.25_dp2_spec", "vllm:kv_cache_usage_perc", []Figure{KVCacheUsage}},
		{"vllm_v1_0.25_dp2_spec", "vllm:prefix_cache_hits", []Figure{PrefixCacheHits}},
		{"vllm_v1_0.25_dp2_spec", "vllm:prefix_cache_queries", []Figure{PrefixCacheQueries}},
		{"vllm_v1_0.25_dp2_spec", "vllm:num_preemptions", []Figure{Preemptions}},
		{"vllm_v1_0.25_dp2_spec", "vllm:prompt_tokens", []Figure{PromptTokens}},
		{"vllm_v1_0.25_dp2_spec", "vllm:generation_tokens", []Figure{GenerationTokens}},
		{"vllm_v1_0.25_dp2_spec", "vllm:spec_decode_num_drafts", []Figure{SpeculativeDrafts}},
		{"vllm_v1_0.25_dp2_spec", "vllm:spec_decode_num_draft_tokens", []Figure{SpeculativeDraftTokens}},
		{"vllm_v1_0.25_dp2_spec", "vllm:spec_decode_num_accepted_tokens_total", []Figure{SpeculativeAcceptedTokens}},
		{"sglang_0.5_ranks", "sglang:num_queue_reqs", []Figure{RequestsWaiting}},
		{"sglang_0.5_ranks", "sglang:cached_tokens", []Figure{PrefixCacheHits}},
		{"sglang_0.5_ranks", "sglang:prompt_tokens", []Figure{PromptTokens}},
		{"tgi_3.3_speculating", "tgi_queue_size", []Figure{RequestsWaiting}},
		{"llamacpp_2026-08_busy", "llamacpp:requests_deferred", []Figure{RequestsWaiting}},
		{"lmdeploy_0.16", "lmdeploy:gpu_cache_usage_perc", []Figure{KVCacheUsage}},
		{"trtllm_1.2_prefixed", "trtllm_kv_cache_utilization", []Figure{KVCacheUsage}},
		{"triton_trtllm_backend", "nv_trt_llm_kv_cache_block_metrics", []Figure{KVCacheUsage}},
		{"nim_1.x", "gpu_cache_usage_perc", []Figure{KVCacheUsage}},
		{"litellm_1.75", "litellm_input_tokens_metric", []Figure{PromptTokens}},
		{"dynamo_frontend_2026", "dynamo_frontend_cached_tokens_sum", []Figure{PrefixCacheHits}},
	} {
		page := string(readPage(t, "testdata/pages/"+c.file+".txt"))
		renamed := strings.ReplaceAll(page, c.name, strings.Replace(c.name, "_", "_new_", 1))
		if renamed == page {
			t.Fatalf("%s has no %s", c.file, c.name)
		}
		n := normaliseText(t, renamed, Hint{})
		if fmt.Sprint(n.Missing) != fmt.Sprint(c.want) || n.Get(c.want[0]) != nil {
			t.Errorf("%s without %s: missing %v, want %v", c.file, c.name, n.Missing, c.want)
		}
	}
}

func TestPairsStayTogether(t *testing.T) {
	// Hits in tokens are gone, both counters of blocks are there: never tokens of one and blocks of the other.
	n := normaliseText(t, string(readPage(t, "testdata/pages/trtllm_1.2_blocks_only.txt")), Hint{})
	if n.PrefixUnit != "blocks" || *n.PrefixCacheQueries != 626 || *n.PrefixCacheHits != 156 {
		t.Errorf("%s of %s %s", show(n.PrefixCacheHits), show(n.PrefixCacheQueries), n.PrefixUnit)
	}
	// SGLang builds that only have the live counters.
	n = normaliseText(t, `sglang:num_running_reqs 1
sglang:realtime_tokens_total{mode="prefill_compute",tp_rank="0"} 70
sglang:realtime_tokens_total{mode="prefill_cache",tp_rank="0"} 30
sglang:realtime_tokens_total{mode="prefill_cache",tp_rank="1"} 30
sglang:realtime_tokens_total{mode="decode",tp_rank="0"} 500
`, Hint{})
	if n.PrefixCacheQueries == nil || *n.PrefixCacheQueries != 100 || n.PrefixCacheHits == nil || *n.PrefixCacheHits != 30 {
		t.Errorf("%s of %s", show(n.PrefixCacheHits), show(n.PrefixCacheQueries))
	}
}

func TestCounters(t *testing.T) {
	at := time.Unix(1_790_000_000, 0)
	reading := func(page string, epoch uint64, after time.Duration) Reading {
		return Reading{Normalised: normaliseText(t, page, Hint{}), At: at.Add(after), Epoch: epoch}
	}
	vllm := func(queries, hits, drafts, drafted, accepted int) string {
		return fmt.Sprintf("vllm:prefix_cache_queries_total %d\nvllm:prefix_cache_hits_total %d\nvllm:spec_decode_num_drafts_total %d\n"+
			"vllm:spec_decode_num_draft_tokens_total %d\nvllm:spec_decode_num_accepted_tokens_total %d\nvllm:num_requests_running 1\n", queries, hits, drafts, drafted, accepted)
	}
	d := Counters(reading(vllm(100, 10, 5, 15, 10), 0, 0), reading(vllm(300, 160, 15, 45, 25), 0, 10*time.Second))
	if r := d.PrefixHitRatio(); d.Reset || r == nil || *r != 0.75 {
		t.Errorf("hit ratio %s", show(r))
	}
	if r := d.AcceptanceRatio(); r == nil || *r != 0.5 {
		t.Errorf("acceptance %s", show(r))
	}
	if r := d.AcceptanceLength(); r == nil || *r != 2.5 {
		t.Errorf("length %s", show(r))
	}
	if d.Elapsed != 10*time.Second || d.Get(RequestsRunning) != nil {
		t.Errorf("%+v", d)
	}

	nothing := Counters(reading(vllm(100, 10, 5, 15, 10), 0, 0), reading(vllm(100, 10, 5, 15, 10), 0, time.Second))
	if nothing.PrefixHitRatio() != nil || nothing.AcceptanceRatio() != nil || nothing.AcceptanceLength() != nil {
		t.Error("a ratio of nothing")
	}
	for name, after := range map[string]Reading{
		"a counter fell":             reading(vllm(300, 5, 15, 45, 25), 0, time.Second),
		"fell and grew past":         reading(vllm(300, 160, 15, 45, 25), 1, time.Second),
		"the process started anew":   reading(vllm(300, 160, 15, 45, 25)+"process_start_time_seconds 2000\n", 0, time.Second),
		"another engine took over":   reading("sglang:prompt_tokens_total 500\n", 0, time.Second),
		"there is no second reading": {},
	} {
		before := reading(vllm(100, 10, 5, 15, 10)+"process_start_time_seconds 1000\n", 0, 0)
		d := Counters(before, after)
		if d.PrefixHitRatio() != nil || d.Get(PrefixCacheQueries) != nil || (after.Normalised != nil) != d.Reset {
			t.Errorf("%s: %+v", name, d)
		}
	}
	// The same figure from another name is another counter.
	old := reading("vllm:gpu_prefix_cache_queries_total 50\nvllm:gpu_prefix_cache_hits_total 1\n", 0, 0)
	if d := Counters(old, reading(vllm(300, 160, 1, 1, 1), 0, time.Second)); d.Reset || d.Get(PrefixCacheQueries) != nil {
		t.Errorf("%+v", d)
	}
	// A counter that was declared before it first counted.
	cold := reading(string(readPage(t, "testdata/pages/sglang_0.5_no_hit_yet.txt")), 0, 0)
	warm := reading("sglang:prompt_tokens_total 124\nsglang:cached_tokens_total{cache_source=\"device\"} 80\nsglang:generation_tokens_total 38\nsglang:spec_verify_calls_total 10\n", 0, time.Second)
	if r := Counters(cold, warm).PrefixHitRatio(); r == nil || *r != 0.8 {
		t.Errorf("hit ratio %s", show(r))
	}
	steps := reading("sglang:generation_tokens_total 20\nsglang:spec_verify_calls_total 4\n", 0, 0)
	if r := Counters(steps, warm).AcceptanceLength(); r == nil || *r != 3 {
		t.Errorf("length %s", show(r))
	}
}
