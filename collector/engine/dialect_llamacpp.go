package enginemetrics

// llamacpp is the dialect of llama.cpp's server. Its prompt counter leaves out what came from the cache, which has
// a counter of its own since August 2026: before that, neither hits nor the whole prompt are known, and the prompt
// figure is of the uncached tokens. The KV cache gauges are gone since May 2025.
func llamacpp() dialect {
	return dialect{
		name:     "llamacpp",
		prefixes: []string{"llamacpp:", "llamacpp_"},
		rows: []rule{
			figure(RequestsRunning, always, sum("requests_processing")),
			figure(RequestsWaiting, always, sum("requests_deferred")),
			figure(KVCacheUsage, nil, highest("kv_cache_usage_ratio")),
			prefixCache(has("prompt_tokens_cached"), tuple{both(sum("prompt_tokens"), sum("prompt_tokens_cached")), sum("prompt_tokens_cached")}),
			figure(SpeculativeDrafts, has("spec_decode_num_draft_tokens"), sum("spec_decode_num_drafts")),
			figure(SpeculativeDraftTokens, has("spec_decode_num_drafts"), sum("spec_decode_num_draft_tokens")),
			figure(SpeculativeAcceptedTokens, has("spec_decode_num_drafts"), sum("spec_decode_num_accepted_tokens")),
			figure(PromptTokens, always, plus(sum("prompt_tokens"), sum("prompt_tokens_cached"))),
			figure(GenerationTokens, always, sum("tokens_predicted")),
		},
	}
}
