module github.com/llmcanary/llm_canary_exporter

go 1.26.0
