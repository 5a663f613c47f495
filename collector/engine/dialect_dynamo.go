package enginemetrics

// dynamo is the dialect of NVIDIA Dynamo: of its frontend, which sees requests and not the engine's cache, and of
// its workers. A worker that passes the metrics of its engine on is read in the engine's dialect.
//
// The frontend's running requests are all in flight, waiting ones included. Blocks are counted by worker, and the
// total is that of one worker: the fullest worker counts.
func dynamo() dialect {
	frontend := has("frontend_requests", "frontend_inflight_requests", "frontend_active_requests", "frontend_request_duration_seconds")
	// Nothing tells which model a worker serves: blocks and total belong together only where there is one model.
	oneModel := func(v *view) bool { return len(v.families.samples[v.prefix+"frontend_model_total_kv_blocks"]) == 1 }
	return dialect{
		name:     "dynamo",
		prefixes: []string{"dynamo_"},
		models:   []string{"model"},
		rows: []rule{
			figure(RequestsRunning, always,
				sum("frontend_active_requests"), sum("frontend_inflight_requests"), sum("component_inflight_requests")),
			figure(RequestsWaiting, frontend, sum("frontend_stage_requests"), sum("frontend_queued_requests")),
			figure(KVCacheUsage, nil,
				given(oneModel, ratio(highest("frontend_worker_active_decode_blocks"), highest("frontend_model_total_kv_blocks"))),
				highest("component_kvstats_gpu_cache_usage_percent"),
				ratio(highest("component_kvstats_active_blocks"), highest("component_kvstats_total_blocks"))),
			prefixCache(has("frontend_cached_tokens"),
				tuple{sum("frontend_input_sequence_tokens_sum"), sum("frontend_cached_tokens_sum")}),
			figure(PromptTokens, frontend, sum("frontend_input_sequence_tokens_sum")),
			figure(GenerationTokens, frontend, sum("frontend_output_tokens"), sum("frontend_output_sequence_tokens_sum")),
		},
	}
}
