package enginemetrics

// trtllm is the dialect of trtllm-serve (/prometheus/metrics), and of a Dynamo worker that passes TensorRT-LLM's
// metrics on. Before the figures of its iterations were added it had histograms only.
func trtllm() dialect {
	iterations := has("kv_cache_utilization", "num_requests_running", "num_requests_waiting", "kv_cache_hit_rate", "kv_cache_reused_blocks", "prompt_tokens")
	return dialect{
		name:     "trtllm",
		prefixes: []string{"trtllm_", "trtllm:"},
		models:   []string{"model_name"},
		rows: append(trtllmRows(iterations),
			figure(SpeculativeDraftTokens, has("spec_decode_num_accepted_tokens"), sum("spec_decode_num_draft_tokens")),
			figure(SpeculativeAcceptedTokens, has("spec_decode_num_draft_tokens"), sum("spec_decode_num_accepted_tokens")),
		),
	}
}

// trtllmBare is the same server up to 1.1, whose names have no prefix. They are told from NIM's by the queue time.
func trtllmBare() dialect {
	return dialect{
		name:     "trtllm",
		prefixes: []string{""},
		signs:    []string{"request_queue_time_seconds"},
		models:   []string{"model_name"},
		rows:     trtllmRows(nil),
	}
}

func trtllmRows(expected func(*view) bool) []rule {
	return []rule{
		figure(RequestsRunning, expected, sum("num_requests_running")),
		figure(RequestsWaiting, expected, sum("num_requests_waiting")),
		figure(KVCacheUsage, expected, highest("kv_cache_utilization")),
		{
			figures: []Figure{PrefixCacheQueries, PrefixCacheHits}, expected: expected,
			from: []tuple{
				{sum("prompt_tokens"), sum("prompt_cached_tokens")},
				{both(sum("kv_cache_reused_blocks"), sum("kv_cache_missed_blocks")), sum("kv_cache_reused_blocks")},
			},
			unit: []string{"tokens", "blocks"},
		},
		figure(PromptTokens, expected, sum("prompt_tokens")),
		figure(GenerationTokens, expected, sum("generation_tokens")),
	}
}
