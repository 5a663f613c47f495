package collector

import (
	"time"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// windowGroup holds what the engine and the GPUs did when a probe ran.
func windowGroup() group {
	variant := []string{"target", "scenario", "variant"}
	gpu := []string{"target", "scenario", "variant", "gpu"}
	pairLabels := []string{"target", "scenario"}
	return group{
		title: "Engine and GPUs during a probe",
		intro: "Gauges of the last probe, failed ones included: how a server looked when it failed is what one wants to know. " +
			"The highest figure where a probe sends several requests of a variant. They vanish like the figures of scenarios.",
		metrics: []Metric{
			{
				Name: "probe_engine_requests_running", Type: Gauge, Labels: pairLabels, Expires: true,
				Help:   "Requests that the engine was working on when the last probe started.",
				Detail: "A probe of an idle engine and one among fifty requests are different measurements.",
			},
			{
				Name: "probe_engine_requests_waiting", Type: Gauge, Labels: pairLabels, Expires: true,
				Help: "Requests that waited in the engine's queue when the last probe started.",
			},
			{
				Name: "probe_kv_cache_usage_peak_ratio", Type: Gauge, Labels: variant, Unit: "ratio", Expires: true,
				Help: "Highest usage of the engine's KV cache while a request of the last probe ran.",
			},
			{
				Name: "probe_gpu_memory_used_peak_bytes", Type: Gauge, Labels: gpu, Unit: "bytes", Expires: true,
				Help:   "Highest memory use of a GPU while a request of the last probe ran.",
				Detail: "Flat for engines that allocate their KV cache at the start: see `probe_kv_cache_usage_peak_ratio`.",
			},
			{
				Name: "probe_gpu_memory_used_delta_bytes", Type: Gauge, Labels: gpu, Unit: "bytes", Expires: true,
				Help: "Highest memory use of a GPU while a request of the last probe ran, less that before it.",
			},
			{
				Name: "probe_gpu_utilization_max_ratio", Type: Gauge, Labels: gpu, Unit: "ratio", Expires: true,
				Help: "Highest utilization of a GPU while a request of the last probe ran.",
			},
		},
		finished: recordWindows,
	}
}

func recordWindows(p *pair, r *result.Probe) {
	now := p.collector.now()
	p.setIf("probe_engine_requests_running", r.EngineRequestsRunning, now)
	p.setIf("probe_engine_requests_waiting", r.EngineRequestsWaiting, now)
	for i := range r.Requests {
		w := r.Requests[i].Window
		if w.IsZero() {
			continue
		}
		variant := p.variant(r.Requests[i].Variant)
		p.setIf("probe_kv_cache_usage_peak_ratio", w.KVCacheUsagePeakRatio, now, variant)
		for _, g := range w.GPUs {
			if !p.knownGPU(g.GPU) {
				p.dropped("gpu", g.GPU)
				continue
			}
			p.setIf("probe_gpu_memory_used_peak_bytes", g.MemoryUsedPeakBytes, now, variant, g.GPU)
			p.setIf("probe_gpu_memory_used_delta_bytes", g.MemoryUsedDelta, now, variant, g.GPU)
			p.setIf("probe_gpu_utilization_max_ratio", g.UtilizationMaxRatio, now, variant, g.GPU)
		}
	}
}

// setIf sets a gauge to a figure that may not have been measured. Within one probe the highest figure counts.
func (p *pair) setIf(name string, v *float64, now time.Time, labels ...string) {
	f := p.family(name)
	if v == nil || !p.usable(f, *v) {
		return
	}
	x := p.scope.get(f, labels...)
	if x.at != now.UnixNano() || *v > x.value {
		x.value, x.at = *v, now.UnixNano()
	}
}

// maxGPUs bounds the values of the label gpu: they come from a page of another exporter or from a driver.
const maxGPUs = 64

// knownGPU says whether there is room for a value of the label gpu in this pair.
func (p *pair) knownGPU(gpu string) bool {
	seen := 0
	for _, x := range p.scope.names {
		if x.GetName() != "gpu" {
			continue
		}
		if x.GetValue() == labelValue(gpu) {
			return true
		}
		seen++
	}
	return seen < maxGPUs
}
