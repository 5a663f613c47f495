package engine

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/llmcanary/llm_canary_exporter/prober/measure"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

const (
	maxText      = 1 << 20 // bytes of an answer that are kept
	maxToolCalls = 64
	maxName      = 256 // bytes of names and reasons that the server gives
)

// Usage is what the server counted. Unknown counts are negative.
type Usage struct {
	Prompt, Cached, Completion, Reasoning int
}

// NoUsage is a Usage in which nothing is known.
func NoUsage() Usage { return Usage{Prompt: -1, Cached: -1, Completion: -1, Reasoning: -1} }

// Accumulator gathers one answer. A Parser tells it what an event holds; the event is one chunk of output if it
// held any. It is not safe for concurrent use.
type Accumulator struct {
	timeline measure.Timeline
	start    time.Time

	text, reasoning strings.Builder
	calls           []toolCall
	finish          string
	model           string
	usage           Usage
	usageSeen       bool
	timings         result.ServerTimings
	speculation     result.Speculation

	failed    bool
	failure   string
	refused   bool // the failure is about a field or a capability
	done      bool
	ended     bool // the protocol's own last event
	tokens    int  // exact tokens told so far
	told      bool // whether exact counts were told at all
	lagMax    time.Duration
	clock     stream.Clock
	anomalies map[result.Anomaly]bool

	// The event in progress.
	kind        measure.Kind
	eventTokens int
}

type toolCall struct {
	index     int
	id, name  string
	arguments strings.Builder
}

func newAccumulator(start time.Time, chunks int) *Accumulator {
	return &Accumulator{
		start: start, usage: NoUsage(), anomalies: map[result.Anomaly]bool{},
		timeline: measure.Timeline{Chunks: make([]measure.Chunk, 0, min(max(chunks, 16), 4096))},
	}
}

// begin starts an event.
func (a *Accumulator) begin() { a.kind, a.eventTokens = 0, 0 }

// end closes an event: it is a chunk if it bore output.
func (a *Accumulator) end(at time.Time, lag time.Duration, clock stream.Clock) (output bool) {
	if clock == stream.ClockKernel {
		a.lagMax = max(a.lagMax, lag)
	}
	if a.clock == "" || clock == stream.ClockUser { // the worst of all events stands for the answer
		a.clock = clock
	}
	if a.kind == 0 {
		return false
	}
	if a.finish != "" && a.done {
		a.Anomaly(result.AnomalyOutputAfterFinish)
	}
	a.timeline.Add(measure.Chunk{At: at.Sub(a.start), Tokens: a.eventTokens, Kind: a.kind})
	return true
}

// Content adds a piece of the answer's text. An empty piece is nothing.
func (a *Accumulator) Content(s []byte) {
	if len(s) > 0 {
		a.kind |= measure.Content
		keep(&a.text, s)
	}
}

// Reasoning adds a piece of the thinking before the answer.
func (a *Accumulator) Reasoning(s []byte) {
	if len(s) > 0 {
		a.kind |= measure.Reasoning
		keep(&a.reasoning, s)
	}
}

// ToolCall adds a piece of the tool call of that index; empty parts are nothing new.
func (a *Accumulator) ToolCall(index int, id, name, arguments []byte) {
	if len(id)+len(name)+len(arguments) == 0 {
		return
	}
	a.kind |= measure.ToolCall
	var c *toolCall
	for i := range a.calls {
		if a.calls[i].index == index {
			c = &a.calls[i]
		}
	}
	if c == nil {
		if len(a.calls) == maxToolCalls {
			return
		}
		a.calls = append(a.calls, toolCall{index: index})
		c = &a.calls[len(a.calls)-1]
	}
	if len(id) > 0 {
		c.id = clip(id)
	}
	if len(name) > 0 {
		c.name = clip(name)
	}
	keep(&c.arguments, arguments)
}

// Finish notes why the answer ended. The first reason counts; an empty one is none.
func (a *Accumulator) Finish(reason []byte) {
	if len(reason) == 0 {
		return
	}
	if a.finish != "" {
		a.Anomaly(result.AnomalyDuplicateFinish)
		return
	}
	a.finish = clip(reason)
}

// Usage takes the server's counts. They are totals, which may come several times: the last count that is not zero
// stands, they are never added.
func (a *Accumulator) Usage(u Usage) {
	a.usageSeen = true
	take := func(have *int, told int) {
		if told > 0 || (told == 0 && *have < 0) {
			*have = told
		}
	}
	take(&a.usage.Prompt, u.Prompt)
	take(&a.usage.Cached, u.Cached)
	take(&a.usage.Completion, u.Completion)
	take(&a.usage.Reasoning, u.Reasoning)
}

// CumulativeTokens tells exactly how many tokens were generated up to and including this event.
func (a *Accumulator) CumulativeTokens(n int) {
	if n >= a.tokens {
		a.eventTokens += n - a.tokens
		a.tokens, a.told = n, true
	}
}

// Tokens tells exactly how many tokens this event holds.
func (a *Accumulator) Tokens(n int) {
	if n > 0 {
		a.eventTokens += n
		a.tokens += n
		a.told = true
	}
}

// Model notes the model that the answer names.
func (a *Accumulator) Model(name []byte) {
	if a.model == "" && len(name) > 0 {
		a.model = clip(name)
	}
}

// Fail notes that the server says the request failed.
func (a *Accumulator) Fail(message string) {
	if !a.failed {
		a.failed, a.failure = true, message
	}
}

// End notes the event that ends an answer of protocols that have one of their own.
func (a *Accumulator) End() { a.ended = true }

// Anomaly notes something odd.
func (a *Accumulator) Anomaly(x result.Anomaly) { a.anomalies[x] = true }

// Timings gives access to the server's own timings.
func (a *Accumulator) Timings() *result.ServerTimings { return &a.timings }

// Speculation gives access to what the server says of speculative decoding.
func (a *Accumulator) Speculation() *result.Speculation { return &a.speculation }

func (a *Accumulator) toolCalls() []ToolCall {
	out := make([]ToolCall, 0, len(a.calls))
	for i := range a.calls {
		c := &a.calls[i]
		out = append(out, ToolCall{ID: c.id, Name: c.name, Arguments: c.arguments.String()})
	}
	return out
}

// tokensOrChunks is the best count of output so far: exact tokens, else chunks.
func (a *Accumulator) tokensOrChunks() int {
	if a.told {
		return max(a.tokens, len(a.timeline.Chunks))
	}
	return len(a.timeline.Chunks)
}

func keep(b *strings.Builder, s []byte) {
	if room := maxText - b.Len(); room > 0 {
		b.Write(s[:min(len(s), room)])
	}
}

// clip copies a short text of the server's, valid and bounded.
func clip(s []byte) string {
	if len(s) > maxName {
		s = s[:maxName]
	}
	if utf8.Valid(s) {
		return string(s)
	}
	return strings.ToValidUTF8(string(s), "\uFFFD")
}
