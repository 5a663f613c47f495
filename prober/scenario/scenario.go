// Package scenario says what is sent and what is a right answer: one file per scenario type, one table of them.
package scenario

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/prometheus/common/model"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/engine"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// Type is one row of the table of scenario types.
type Type struct {
	Name     string
	Summary  string        // one line for help and docs: what is sent and what it tells
	Interval time.Duration // the default cadence; 0 = off unless it is configured or asked for
	Poisson  bool          // arrivals are drawn around the cadence instead of being evenly spaced with jitter
	Heavy    bool          // guarded: does not start while the engine is busy

	// New checks the settings and makes an instance. Errors about a setting are *config.FieldError with the
	// field's name as in the file.
	New func(c config.Scenario) (Scenario, error)
}

// Scenario is a configured instance of a type. It holds no state of a target or of a probe: one instance serves
// all targets at once.
type Scenario interface {
	// Variants lists every variant that Run may report.
	Variants() []string
	// Checks lists every check that Run may report.
	Checks() []result.CheckName
	// Cost is the worst case of one probe against a target of which f is known. It is an upper bound.
	Cost(f engine.Facts) Cost
	// Run sends the requests and judges the answers. It returns when all is done or ctx ends.
	Run(ctx context.Context, env *Env) Report
}

// Cost is what one probe sends at the most.
type Cost struct {
	Requests     int
	PromptTokens int
	OutputTokens int
	Concurrency  int // requests at the same time
}

// Forecaster is implemented by scenarios whose probes usually cost less than their worst case.
type Forecaster interface {
	// Expected is what one probe usually sends to a target of which f is known.
	Expected(f engine.Facts) Cost
}

// Report is what a run of a scenario found. Failed requests make the probe fail by themselves; Failure is for
// what no single request or check tells.
type Report struct {
	Requests []result.Request
	Checks   []result.Check
	Values   result.Values

	Outcome result.Outcome // empty: derived from requests and checks
	Reason  result.Reason
	Detail  string
}

// Sender sends one request to the target and measures the answer. It never returns an error: a failure is in
// the answer.
type Sender interface {
	Send(ctx context.Context, r engine.Request) engine.Answer
}

// Sizer makes text of a wanted number of tokens, as the target's own tokenizer counts.
type Sizer interface {
	// Words returns how many words of filler text have about that many tokens, and whether that is known well
	// enough for a check of the size (within 5 %).
	Words(tokens int) (words int, calibrated bool)
	// Learn takes what the target counted for a text of that many filler words.
	Learn(words, tokens int)
}

// Tokenizer counts the tokens of a text, without a chat template, as the target's own tokenizer does.
type Tokenizer interface {
	// CountTokens returns the count, and false where the target does not count for us.
	CountTokens(ctx context.Context, text string) (int, bool)
}

// Env is what a run gets: the target, and what is fixed for this one probe.
type Env struct {
	Sender
	Facts  engine.Facts
	Sizer  Sizer      // of this scenario on this target: what it learns is about prompts of one frame
	Tokens Tokenizer  // nil where nobody counts
	Rand   *rand.Rand // a function of (seed, target, scenario, probe number) alone; not safe for concurrent use
	Number uint64     // of the probe on this target and scenario, from 0
	Nonce  string     // fresh for every probe and process: never repeats, whatever the seed
}

// Types returns the table of scenario types: a new type is one file and one line here.
func Types() []Type {
	return []Type{
		chatType(),
		prefillType(),
		decodeType(),
	}
}

// Lookup returns the type of that name.
func Lookup(name string) (Type, bool) {
	for _, t := range Types() {
		if t.Name == name {
			return t, true
		}
	}
	return Type{}, false
}

// Builtin returns the scenarios that exist without being configured: one for each type, under the type's name.
func Builtin() []config.Scenario {
	var out []config.Scenario
	for _, t := range Types() {
		out = append(out, config.Scenario{Name: t.Name, Type: t.Name, Interval: model.Duration(t.Interval)})
	}
	return out
}
