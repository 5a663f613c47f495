module github.com/llmcanary/llm_canary_exporter/dashboards/gen

go 1.26.0

require (
	github.com/grafana/grafana-foundation-sdk/go v0.0.22
	github.com/prometheus/prometheus v0.316.0
)
