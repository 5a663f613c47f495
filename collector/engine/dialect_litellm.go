package enginemetrics

// litellm is the dialect of the LiteLLM proxy. It is a gateway: it knows tokens and requests in flight, and nothing
// of caches and queues of the engines behind it.
func litellm() dialect {
	served := has("proxy_total_requests_metric", "requests_metric")
	return dialect{
		name:     "litellm",
		prefixes: []string{"litellm_"},
		models:   []string{"requested_model", "model"},
		rows: []rule{
			figure(RequestsRunning, nil, sum("in_flight_requests")),
			figure(PromptTokens, served, sum("input_tokens_metric")),
			figure(GenerationTokens, served, sum("output_tokens_metric")),
		},
	}
}
