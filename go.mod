module github.com/llmcanary/llm_canary_exporter

go 1.26.0

require (
	github.com/NVIDIA/go-nvml v0.13.4-1
	github.com/go-kit/log v0.2.1
	go.uber.org/goleak v1.3.0
)

require github.com/go-logfmt/logfmt v0.5.1 // indirect
