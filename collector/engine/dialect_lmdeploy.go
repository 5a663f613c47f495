package enginemetrics

// lmdeploy is the dialect of LMDeploy: vLLM-like names, hits of the prefix cache as cached prompt tokens. Its
// acceptance gauges include the token that a step yields anyway and are not used.
func lmdeploy() dialect {
	served := has("prompt_tokens", "generation_tokens")
	return dialect{
		name:     "lmdeploy",
		prefixes: []string{"lmdeploy:", "lmdeploy_"},
		models:   []string{"model_name"},
		rows: []rule{
			figure(RequestsRunning, always, sum("num_requests_running")),
			figure(RequestsWaiting, always, plus(sum("num_requests_waiting"), sum("num_api_requests_waiting"))),
			figure(KVCacheUsage, always, highest("gpu_cache_usage_perc"), highest("kv_cache_usage_perc")),
			prefixCache(has("cached_tokens", "prefix_cache_hit_rate"), tuple{sum("prompt_tokens"), orZero("cached_tokens", sum("cached_tokens"))}),
			figure(SpeculativeDrafts, has("spec_decode_num_draft_tokens"), sum("spec_decode_num_drafts")),
			figure(SpeculativeDraftTokens, has("spec_decode_num_drafts"), sum("spec_decode_num_draft_tokens")),
			figure(SpeculativeAcceptedTokens, has("spec_decode_num_drafts"), sum("spec_decode_num_accepted_tokens")),
			figure(PromptTokens, served, sum("prompt_tokens")),
			figure(GenerationTokens, served, sum("generation_tokens")),
		},
	}
}
