package enginemetrics

// nim is the dialect of NVIDIA NIM 1.x: vLLM's names without a prefix. NIM 2.x passes on the page of the engine
// inside, which is read in that engine's dialect.
func nim() dialect {
	return dialect{
		name:     "nim",
		prefixes: []string{""},
		signs:    []string{"num_requests_running", "num_request_max", "gpu_cache_usage_perc"},
		models:   []string{"model_name"},
		rows: []rule{
			figure(RequestsRunning, always, sum("num_requests_running")),
			figure(RequestsWaiting, always, sum("num_requests_waiting")),
			figure(KVCacheUsage, always, highest("gpu_cache_usage_perc")),
			figure(PromptTokens, always, sum("prompt_tokens")),
			figure(GenerationTokens, always, sum("generation_tokens")),
		},
	}
}
