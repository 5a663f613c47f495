package enginemetrics

// sglang is the dialect of SGLang, 0.4 to now. It has metrics of the scheduler, with labels for ranks, and of the
// tokenizer manager, without.
//
// Every rank of a tensor- or pipeline-parallel group may report the same queue (--enable-metrics-for-all-schedulers),
// data-parallel ones each have their own. With priority scheduling the total stands beside a breakdown, under an
// empty priority.
func sglang() dialect {
	ranks := []string{"tp_rank", "pp_rank", "moe_ep_rank"}
	queue := func(name string) source { return sumOnce(name, ranks, match{"priority", ""}) }
	mode := func(name, mode string) source { return sumOnce(name, ranks, match{"mode", mode}) }
	return dialect{
		name:     "sglang",
		prefixes: []string{"sglang:", "sglang_"},
		models:   []string{"model_name"},
		rows: []rule{
			figure(RequestsRunning, always, queue("num_running_reqs")),
			figure(RequestsWaiting, always, plus(queue("num_queue_reqs"), queue("num_grammar_queue_reqs"))),
			figure(KVCacheUsage, always,
				highest("token_usage"), highest("full_token_usage"),
				ratio(highest("kv_used_tokens"), highest("max_total_num_tokens")),
				ratio(highest("num_used_tokens"), highest("max_total_num_tokens"))),
			// Both are counted when a request finishes. The hit rate gauge is of the last batch and is not used.
			prefixCache(has("prompt_tokens"),
				tuple{sum("prompt_tokens"), orZero("cached_tokens", sum("cached_tokens"))},
				tuple{
					both(mode("realtime_tokens", "prefill_compute"), mode("realtime_tokens", "prefill_cache")),
					mode("realtime_tokens", "prefill_cache"),
				},
				tuple{
					mode("prefill_effective_tokens", "input"),
					plus(mode("prefill_effective_tokens", "device_hit"), mode("prefill_effective_tokens", "host_hit"), mode("prefill_effective_tokens", "storage_hit")),
				},
			),
			figure(SpeculativeDrafts, nil, sumOnce("spec_verify_calls", ranks)),
			figure(Preemptions, nil, sumOnce("num_retracted_requests", ranks)),
			figure(PromptTokens, has("prompt_tokens", "generation_tokens", "e2e_request_latency_seconds"), sum("prompt_tokens")),
			figure(GenerationTokens, has("prompt_tokens", "generation_tokens", "e2e_request_latency_seconds"), sum("generation_tokens")),
		},
	}
}
