package main

import (
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/go-kit/log"
	promconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/version"

	enginemetrics "github.com/llmcanary/llm_canary_exporter/collector/engine"
	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// engineReaders read the targets' own metrics pages, each with the target's credentials. It is a sink of the prober,
// which tells what a target was found to be.
type engineReaders struct {
	set    *enginemetrics.Set
	logger log.Logger

	mu      sync.Mutex
	targets map[string]*engineReader
}

type engineReader struct {
	config config.Target
	client *http.Client
	hint   enginemetrics.Hint
}

func newEngineReaders(logger log.Logger) *engineReaders {
	return &engineReaders{set: enginemetrics.NewSet(), logger: log.With(logger, "collector", "engine"), targets: map[string]*engineReader{}}
}

// apply reads what cfg says from now on. Targets that did not change keep their reader. A client that cannot be made
// would have been refused with the target already.
func (e *engineReaders) apply(cfg *config.Config) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name := range e.targets {
		if t := cfg.Target(name); t == nil || t.EngineMetrics == config.EngineMetricsOff {
			e.remove(name)
		}
	}
	for _, t := range cfg.Targets {
		if t.EngineMetrics == config.EngineMetricsOff {
			continue
		}
		r := e.targets[t.Name]
		if r == nil || !samePage(r.config, t) {
			client, err := promconfig.NewClientFromConfig(t.HTTPClient, "engine_metrics", promconfig.WithIdleConnTimeout(time.Minute))
			if err != nil {
				continue
			}
			if r != nil {
				r.client.CloseIdleConnections()
			}
			hint := enginemetrics.Hint{}
			if t.Engine != config.Auto {
				hint.Engine = t.Engine
			}
			r = &engineReader{client: client, hint: hint}
			e.targets[t.Name] = r
		}
		r.config = t
		e.put(r)
	}
}

// samePage reports whether the page of a target is read in the same way as before.
func samePage(a, b config.Target) bool {
	return a.URL == b.URL && a.EngineMetrics == b.EngineMetrics && reflect.DeepEqual(a.HTTPClient, b.HTTPClient)
}

func (e *engineReaders) put(r *engineReader) {
	o := enginemetrics.ReaderOptions{
		Target: r.config.Name, Base: r.config.URL, Hint: r.hint, Client: r.client,
		UserAgent: programName + "/" + version.Version, Logger: log.With(e.logger, "target", r.config.Name),
	}
	if u := r.config.EngineMetrics; u != config.Auto {
		o.URL = u
	}
	e.set.Put(o)
}

func (e *engineReaders) remove(name string) {
	e.set.Remove(name)
	e.targets[name].client.CloseIdleConnections()
	delete(e.targets, name)
}

// close stops all reading.
func (e *engineReaders) close() {
	e.set.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.targets {
		r.client.CloseIdleConnections()
	}
}

// Load tells the prober how busy an engine was at the last read.
func (e *engineReaders) Load(target string) (running, waiting *float64) {
	r := e.set.Reader(target)
	if r == nil {
		return nil, nil
	}
	l, err := r.Load()
	if err != nil {
		return nil, nil
	}
	return l.Running, l.Waiting
}

// kvPeak is the highest KV cache usage that was read in a span of time; nil if none was.
func (e *engineReaders) kvPeak(target string, from, to time.Time) *float64 {
	if r := e.set.Reader(target); r != nil {
		return r.KVPeak(from, to)
	}
	return nil
}

// TargetFound tells the reader what the target is.
func (e *engineReaders) TargetFound(t result.Target) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r := e.targets[t.Name]; r != nil {
		r.hint = enginemetrics.Hint{Engine: t.Engine, Version: t.Version, Model: t.Model}
		e.put(r)
	}
}

// The other calls of a sink say nothing about engines.

func (e *engineReaders) PairAdded(result.Pair)       {}
func (e *engineReaders) PairRemoved(string, string)  {}
func (e *engineReaders) TargetRemoved(string)        {}
func (e *engineReaders) ProbeStarted(string, string) {}
func (e *engineReaders) ProbeFinished(*result.Probe) {}
func (e *engineReaders) ProbeSkipped(result.Skip)    {}
