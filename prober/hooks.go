package prober

import (
	"context"
	"time"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/engine"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// Sink receives what the prober finds. Calls come from several goroutines; they must not block. A sink that panics
// is logged and does not stop the probing.
//
// Calls about one target and scenario are ordered: PairAdded first, nothing after PairRemoved until it is added again.
// TargetRemoved comes after the PairRemoved of each of its scenarios, and nothing about that target comes after it.
type Sink interface {
	// PairAdded says that a scenario is probed from now on. It comes again when a reload changes its interval.
	PairAdded(result.Pair)
	// PairRemoved says that a scenario is no longer probed: its series must go.
	PairRemoved(target, scenario string)
	// TargetFound says what is known about a target: at first what is configured, then what was detected or changed.
	TargetFound(result.Target)
	// TargetRemoved says that a target is no longer configured.
	TargetRemoved(name string)
	// ProbeStarted comes before a probe of the cadence. ProbeFinished follows, except when the prober is shut down.
	ProbeStarted(target, scenario string)
	// ProbeFinished brings the result, which is not modified afterwards and must not be modified by sinks.
	ProbeFinished(*result.Probe)
	// ProbeSkipped tells of a tick that did not become a probe.
	ProbeSkipped(result.Skip)
}

// Engine is a target that can be spoken to; *engine.Target is one. Safe for concurrent use.
type Engine interface {
	// Detect finds out what the target is, without costing tokens.
	Detect(ctx context.Context) (engine.Facts, error)
	// Facts returns what is known: what was configured, until a detection worked.
	Facts() engine.Facts
	// Send sends one request and measures the answer.
	Send(ctx context.Context, r engine.Request, t config.Timeouts) engine.Answer
	// CountTokens counts with the target's tokenizer, and returns false where it does not lend it to us.
	CountTokens(ctx context.Context, text string) (int, bool)
	// Close closes idle connections. Requests in flight go on.
	Close()
}

// Load tells how busy a target's engine is by its own metrics. A figure that is unknown is nil. It must answer from
// memory, at once.
type Load interface {
	Load(target string) (running, waiting *float64)
}

// Windows tells what the GPUs and the KV cache of a target did in a span of time. It must answer from memory, at once.
type Windows interface {
	Window(target string, from, to time.Time) result.Window
}
