package enginemetrics

// tritonTRTLLM is what the TensorRT-LLM backend adds to Triton's page. The model of these metrics is the backend's
// (tensorrt_llm), not the ensemble that clients ask for.
func tritonTRTLLM() dialect {
	requests := func(kind string) source { return sum("request_metrics", match{"request_type", kind}) }
	blocks := func(kind string) source { return highest("kv_cache_block_metrics", match{"kv_cache_block_type", kind}) }
	return dialect{
		name:     "triton",
		prefixes: []string{"nv_trt_llm_"},
		models:   []string{"model"},
		rows: []rule{
			figure(RequestsRunning, always, requests("scheduled"), requests("active")),
			figure(RequestsWaiting, always, requests("waiting")),
			figure(KVCacheUsage, always, blocks("fraction"), ratio(blocks("used"), blocks("max"))),
		},
	}
}

// triton is Triton's page without a language model's own metrics on it. Of the many models that it may serve
// nothing says which the canary asks, unless the target's model is one of them or there is only one.
func triton() dialect {
	one := func(v *view) bool { return v.only != "" || v.model() != "" }
	return dialect{
		name:     "triton",
		prefixes: []string{"nv_inference_"},
		models:   []string{"model"},
		rows: []rule{
			figure(RequestsWaiting, nil, given(one, sum("pending_request_count"))),
		},
	}
}
