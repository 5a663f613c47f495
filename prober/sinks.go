package prober

import (
	"runtime/debug"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// sinks hands what was found to every sink. A sink that panics loses that call alone.
type sinks struct {
	list   []Sink
	logger log.Logger
}

func (s sinks) each(call string, f func(Sink)) {
	for _, sink := range s.list {
		s.one(call, sink, f)
	}
}

func (s sinks) one(call string, sink Sink, f func(Sink)) {
	defer func() {
		if r := recover(); r != nil {
			level.Error(s.logger).Log("msg", "a sink of results panicked; probing goes on", "call", call, "panic", r,
				"stack", string(debug.Stack()))
		}
	}()
	f(sink)
}

func (s sinks) pairAdded(p result.Pair) { s.each("PairAdded", func(k Sink) { k.PairAdded(p) }) }

func (s sinks) pairRemoved(target, scenario string) {
	s.each("PairRemoved", func(k Sink) { k.PairRemoved(target, scenario) })
}

func (s sinks) targetFound(t result.Target) { s.each("TargetFound", func(k Sink) { k.TargetFound(t) }) }

func (s sinks) targetRemoved(name string) {
	s.each("TargetRemoved", func(k Sink) { k.TargetRemoved(name) })
}

func (s sinks) started(target, scenario string) {
	s.each("ProbeStarted", func(k Sink) { k.ProbeStarted(target, scenario) })
}

func (s sinks) finished(p *result.Probe) {
	s.each("ProbeFinished", func(k Sink) { k.ProbeFinished(p) })
}

func (s sinks) skipped(x result.Skip) { s.each("ProbeSkipped", func(k Sink) { k.ProbeSkipped(x) }) }
