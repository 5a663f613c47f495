package main

import (
	"net"
	"net/url"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/nvml"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// gpuFlags set the sampling of this host's GPUs up.
type gpuFlags struct {
	enabled, processes bool
	interval           time.Duration
}

func (g *gpuFlags) register(app *kingpin.Application) {
	app.Flag("collector.gpu", "Read this host's GPUs through NVML (gpu_*, nvml_up). Without a GPU or driver nvml_up is 0 and everything else works.").Default("true").BoolVar(&g.enabled)
	app.Flag("collector.gpu.interval", "How often the GPUs are sampled, at least 100ms.").Default("1s").DurationVar(&g.interval)
	app.Flag("collector.gpu.processes", "Expose the GPU memory of each process (bounded, but its series churn).").BoolVar(&g.processes)
}

// newSampler returns the sampler of this host's GPUs, or nil if it is switched off.
func newSampler(g gpuFlags, logger log.Logger) (*nvml.Sampler, error) {
	if !g.enabled {
		return nil, nil
	}
	logger = log.With(logger, "collector", "gpu")
	source := nvml.NewLocal(nvml.LocalOptions{Logger: logger, Processes: g.processes})
	return nvml.NewSampler(source, nvml.SamplerOptions{Interval: g.interval, Name: "gpu", Logger: logger})
}

// windows tells the prober what the KV cache of a target did while a request ran, and this host's GPUs if they serve
// it. Either may be switched off.
type windows struct {
	sampler *nvml.Sampler
	engines *engineReaders
	config  func() *config.Config
}

// Window answers from the samples in memory.
func (g windows) Window(target string, from, to time.Time) result.Window {
	var w result.Window
	if g.engines != nil {
		w.KVCacheUsagePeakRatio = g.engines.kvPeak(target, from, to)
	}
	cfg := g.config()
	if cfg == nil || g.sampler == nil {
		return w
	}
	t := cfg.Target(target)
	if t == nil || !servedHere(*t) {
		return w
	}
	for _, x := range g.sampler.Window(from, to, t.GPUUUIDs...) {
		gw := result.GPUWindow{GPU: x.Label(), UUID: x.GPU.UUID}
		gw.MemoryUsedPeakBytes = figure(x.MemoryUsed.Peak)
		gw.MemoryUsedDelta = figure(x.MemoryUsed.Delta())
		gw.UtilizationMaxRatio = figure(x.Utilization.Peak)
		w.GPUs = append(w.GPUs, gw)
	}
	return w
}

func figure(v nvml.Value) *float64 {
	if f, ok := v.Get(); ok {
		return &f
	}
	return nil
}

// servedHere reports whether this host's GPUs serve a target: said so, or the target is on this host.
func servedHere(t config.Target) bool {
	switch t.GPU {
	case config.GPULocal:
		return true
	case config.GPUOff:
		return false
	}
	u, err := url.Parse(t.URL)
	if err != nil {
		return false
	}
	if u.Hostname() == "localhost" {
		return true
	}
	ip := net.ParseIP(u.Hostname())
	return ip != nil && ip.IsLoopback()
}
