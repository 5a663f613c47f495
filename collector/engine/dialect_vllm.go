package enginemetrics

// vllm is the dialect of vLLM, V0 and V1, and of the many servers that took its names over. Ray Serve puts its own
// prefix in front and, in newer releases, cannot keep the colon.
//
// All samples of a name are of data-parallel engines (label engine) or of replicas, which share nothing: counters
// and queues are added up; of the KV usage the fullest engine counts.
func vllm() dialect {
	return dialect{
		name:     "vllm",
		prefixes: []string{"vllm:", "ray_vllm:", "ray_vllm_", "vllm_"},
		signs: []string{
			"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "gpu_cache_usage_perc",
			"prompt_tokens", "generation_tokens", "request_success", "cache_config_info", "time_to_first_token_seconds",
			"e2e_request_latency_seconds", "num_preemptions", "prefix_cache_queries", "gpu_prefix_cache_queries",
			"gpu_prefix_cache_hit_rate", "spec_decode_num_draft_tokens",
		},
		models:  []string{"model_name"},
		variant: vllmVariant,
		rows: []rule{
			figure(RequestsRunning, always, sum("num_requests_running")),
			figure(RequestsWaiting, always, sum("num_requests_waiting")),
			figure(KVCacheUsage, always, highest("kv_cache_usage_perc"), highest("gpu_cache_usage_perc")),
			prefixCache(
				func(v *view) bool { return vllmVariant(v) == "v1" && vllmServed(v) },
				tuple{sum("prefix_cache_queries"), sum("prefix_cache_hits")},
				tuple{sum("gpu_prefix_cache_queries"), sum("gpu_prefix_cache_hits")},
			),
			figure(SpeculativeDrafts, has("spec_decode_num_accepted_tokens_per_pos"), sum("spec_decode_num_drafts")),
			figure(SpeculativeDraftTokens, has("spec_decode_num_drafts"), sum("spec_decode_num_draft_tokens")),
			figure(SpeculativeAcceptedTokens, has("spec_decode_num_drafts"), sum("spec_decode_num_accepted_tokens")),
			figure(Preemptions, has("iteration_tokens_total"), sum("num_preemptions")),
			figure(PromptTokens, vllmServed, sum("prompt_tokens")),
			figure(GenerationTokens, vllmServed, sum("generation_tokens")),
		},
	}
}

// vllmVariant tells V0 by the gauges that only it has.
func vllmVariant(v *view) string {
	if v.declares("num_requests_swapped", "cpu_cache_usage_perc", "gpu_prefix_cache_hit_rate", "cpu_prefix_cache_hit_rate", "time_in_queue_requests") {
		return "v0"
	}
	return "v1"
}

// vllmServed: servers that are not vLLM make their counters with the first request.
func vllmServed(v *view) bool {
	return v.declares("prompt_tokens", "generation_tokens", "request_success", "e2e_request_latency_seconds", "time_to_first_token_seconds")
}
