package enginemetrics

// tgi is the dialect of Text Generation Inference. It has no labels, no KV cache and no prefix cache figures. A
// summary tells the extra tokens of each decode step, with or without speculation: it says something about
// speculation only once there were any.
func tgi() dialect {
	speculates := func(v *view) bool {
		r := sum("request_skipped_tokens_sum")(v)
		return r.ok && r.value > 0
	}
	served := has("request_success", "request_duration")
	return dialect{
		name:     "tgi",
		prefixes: []string{"tgi_"},
		rows: []rule{
			figure(RequestsRunning, served, sum("batch_current_size")),
			figure(RequestsWaiting, served, sum("queue_size")),
			figure(SpeculativeDrafts, nil, given(speculates, sum("request_skipped_tokens_count"))),
			figure(SpeculativeAcceptedTokens, nil, given(speculates, sum("request_skipped_tokens_sum"))),
			figure(PromptTokens, served, sum("request_input_length_sum")),
			figure(GenerationTokens, served, sum("request_generated_tokens_sum")),
		},
	}
}
