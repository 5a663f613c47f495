package engine

import (
	"bytes"
	"time"
	"unicode/utf8"

	"github.com/llmcanary/llm_canary_exporter/prober/measure"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// The bounds of what is kept of an answer.
const (
	maxTextBytes   = 1 << 20 // of text, reasoning and tool calls together
	maxToolCalls   = 128
	maxLabelBytes  = 256  // of a model's name, a finish reason, the name or id of a tool call
	maxChunksAhead = 1024 // of room made before the answer comes
)

// Unknown stands for a count or a duration that the server did not tell.
const Unknown = -1

// Usage is what a server counted. A count that it did not tell is Unknown.
type Usage struct {
	Prompt     int // cached ones included, whatever the server's convention
	Cached     int
	Completion int // reasoning included
	Reasoning  int
	Total      int
}

// NoUsage returns a usage of which nothing is known.
func NoUsage() Usage {
	return Usage{Prompt: Unknown, Cached: Unknown, Completion: Unknown, Reasoning: Unknown, Total: Unknown}
}

// Timings are durations that a server reports, in seconds, or Unknown.
type Timings struct{ Queue, Load, Prefill, Decode, Total float64 }

// NoTimings returns timings of which nothing is known.
func NoTimings() Timings {
	return Timings{Queue: Unknown, Load: Unknown, Prefill: Unknown, Decode: Unknown, Total: Unknown}
}

// Speculation is what a server reports of speculative decoding, or Unknown.
type Speculation struct{ Drafted, Accepted, Steps int }

// NoSpeculation returns a speculation of which nothing is known.
func NoSpeculation() Speculation {
	return Speculation{Drafted: Unknown, Accepted: Unknown, Steps: Unknown}
}

// Accumulator takes what a Parser finds in the events of one answer, classifies it and notes when it came. One
// event makes at most one chunk, however many pieces of output it holds. In steady state it allocates nothing per
// event. It is not safe for concurrent use.
type Accumulator struct {
	line      *measure.Timeline
	maxTokens int

	// Of the event that is being parsed.
	at          time.Duration
	kind        measure.Kind // of its output; 0 = none so far
	cumulative  int          // tokens of the answer up to and with this event, or Unknown
	delta       int          // tokens of this event, or Unknown
	hadFinished bool         // an earlier event brought a finish reason

	counted int // tokens that the chunks so far were said to hold
	pending int // tokens of events without output: they belong to the next chunk
	exact   int // tokens of the whole answer by the counts per event, or Unknown

	text, reasoning []byte
	calls           []toolCall
	room            int // bytes that may still be kept

	finish, model  string
	usage          Usage
	told           Usage // counts from elsewhere than a usage object
	timings        Timings
	spec           Speculation
	failure        string
	failed         bool
	done, tooLarge bool
	complete       bool // by the rules of a protocol that has no finish reason
	usageSaid      bool // a usage object came, even if all of it was zero
	anomalies      anomalies
}

type toolCall struct {
	index     int
	id, name  string
	arguments []byte
}

// NewAccumulator returns an accumulator for an answer of at most that many tokens.
func NewAccumulator(maxTokens int) *Accumulator {
	return &Accumulator{
		line:       measure.NewTimeline(min(2*max(maxTokens, 0)+64, maxChunksAhead)),
		maxTokens:  maxTokens,
		cumulative: Unknown, delta: Unknown, exact: Unknown,
		told:  NoUsage(),
		room:  maxTextBytes,
		usage: NoUsage(), timings: NoTimings(), spec: NoSpeculation(),
	}
}

// begin starts an event that arrived at that time since the request was issued.
func (a *Accumulator) begin(at time.Duration) {
	a.at, a.kind, a.cumulative, a.delta = at, 0, Unknown, Unknown
	a.hadFinished = a.finish != ""
}

// commit ends the event: if it held output, it is a chunk.
func (a *Accumulator) commit() {
	tokens := a.eventTokens()
	if a.kind == 0 {
		return
	}
	if a.hadFinished {
		a.anomalies |= outputAfterFinish
	}
	a.line.Add(a.at, a.kind, tokens)
	// A stop of our own bounds every answer, whatever the server ignores.
	if a.maxTokens > 0 && (a.counted > a.maxTokens || a.line.Len() > 2*a.maxTokens+64) {
		a.anomalies |= limitIgnored
		a.tooLarge = true
	}
}

// eventTokens returns how many tokens the chunk of this event holds, if that is known.
func (a *Accumulator) eventTokens() int {
	switch {
	case a.cumulative >= 0 && a.cumulative < a.counted: // a count that goes back counts nothing
		a.anomalies |= usageInconsistent
		return Unknown
	case a.cumulative >= 0 && a.kind == 0: // the next chunk's difference will hold them
		return Unknown
	case a.cumulative >= 0:
		n := a.cumulative - a.counted
		a.counted, a.pending = a.cumulative, 0
		return n
	case a.delta >= 0 && a.kind == 0:
		a.pending += a.delta
		return Unknown
	case a.delta >= 0:
		n := a.delta + a.pending
		a.counted += n
		a.pending = 0
		return n
	}
	return Unknown
}

// Output adds a piece of output. Empty pieces are no output.
func (a *Accumulator) Output(kind measure.Kind, piece []byte) {
	if len(piece) == 0 {
		return
	}
	a.kind |= kind
	switch kind {
	case measure.Content:
		a.text = a.keep(a.text, piece)
	case measure.Reasoning:
		a.reasoning = a.keep(a.reasoning, piece)
	}
}

func (a *Accumulator) keep(to, piece []byte) []byte {
	if len(piece) > a.room {
		a.tooLarge = true
		a.anomalies |= limitIgnored
		piece = piece[:a.room]
	}
	a.room -= len(piece)
	return append(to, piece...)
}

// ToolCall adds a piece of the tool call with that index. id and name come once, arguments in pieces. A piece
// without any of them is no output.
func (a *Accumulator) ToolCall(index int, id, name, arguments []byte) {
	if len(id) == 0 && len(name) == 0 && len(arguments) == 0 {
		return
	}
	a.kind |= measure.ToolCall
	c := a.call(index)
	if c == nil {
		return
	}
	if c.id == "" && len(id) > 0 {
		c.id = label(id)
	}
	if c.name == "" && len(name) > 0 {
		c.name = label(name)
	}
	c.arguments = a.keep(c.arguments, arguments)
}

func (a *Accumulator) call(index int) *toolCall {
	for i := range a.calls {
		if a.calls[i].index == index {
			return &a.calls[i]
		}
	}
	if len(a.calls) >= maxToolCalls {
		a.tooLarge = true
		a.anomalies |= limitIgnored
		return nil
	}
	a.calls = append(a.calls, toolCall{index: index})
	return &a.calls[len(a.calls)-1]
}

// NameToolCall says that the tool call with that index has begun, in a protocol that announces calls apart from
// their pieces. It is no output.
func (a *Accumulator) NameToolCall(index int, id, name []byte) {
	kind := a.kind
	a.ToolCall(index, id, name, nil)
	a.kind = kind
}

// Finish notes why the answer ended, in OpenAI's words. The first reason wins. Empty means that it did not end: some
// servers write an empty string into every chunk.
func (a *Accumulator) Finish(reason []byte) {
	if len(reason) == 0 {
		return
	}
	if a.finish != "" {
		a.anomalies |= duplicateFinish
		return
	}
	a.finish = finishReason(label(reason))
}

// finishReason returns a finish reason in OpenAI's words, which scenarios and dashboards know. Others stay.
func finishReason(reason string) string {
	switch reason {
	case "eos_token", "eos", "word", "stop_sequence", "end_turn", "completed", "none":
		return "stop"
	case "max_tokens", "limit", "max_output_tokens":
		return "length"
	case "tool_use":
		return "tool_calls"
	}
	return reason
}

// Usage takes what the server counted. It may come with any event and as often as it likes: for each count the
// last one that is not zero wins, and nothing is ever added up.
func (a *Accumulator) Usage(u Usage) {
	a.usageSaid = true
	last := func(to *int, v int) {
		if v > 0 || v == 0 && *to < 0 {
			*to = v
		}
	}
	last(&a.usage.Prompt, u.Prompt)
	last(&a.usage.Cached, u.Cached)
	last(&a.usage.Completion, u.Completion)
	last(&a.usage.Reasoning, u.Reasoning)
	last(&a.usage.Total, u.Total)
}

// serverCounts takes counts that the server gives elsewhere than in a usage object, which wins over them.
func (a *Accumulator) serverCounts(u Usage) { a.told = u }

// CumulativeTokens says how many tokens the answer has up to and with this event. Negative means unknown.
func (a *Accumulator) CumulativeTokens(n int) {
	a.cumulative = max(n, Unknown)
	a.exact = max(a.exact, n)
}

// EventTokens says how many tokens this event holds. CumulativeTokens of the same event wins.
func (a *Accumulator) EventTokens(n int) {
	a.delta = max(n, Unknown)
	if a.delta >= 0 && a.cumulative < 0 {
		a.exact = max(a.exact, a.counted+a.pending+n)
	}
}

// Timings takes durations that the server reports; what it does not tell leaves what is known.
func (a *Accumulator) Timings(t Timings) {
	last := func(to *float64, v float64) {
		if v >= 0 {
			*to = v
		}
	}
	last(&a.timings.Queue, t.Queue)
	last(&a.timings.Load, t.Load)
	last(&a.timings.Prefill, t.Prefill)
	last(&a.timings.Decode, t.Decode)
	last(&a.timings.Total, t.Total)
}

// Speculation takes what the server reports of speculative decoding.
func (a *Accumulator) Speculation(s Speculation) {
	a.spec.Drafted = max(a.spec.Drafted, s.Drafted)
	a.spec.Accepted = max(a.spec.Accepted, s.Accepted)
	a.spec.Steps = max(a.spec.Steps, s.Steps)
}

// Model notes the model that the answer names. The first name that is not empty wins.
func (a *Accumulator) Model(name []byte) {
	if a.model == "" && len(name) > 0 {
		a.model = label(name)
	}
}

// Done says that the stream said that it is complete.
func (a *Accumulator) Done() { a.done = true }

// Complete says that the answer is whole, in a protocol that gives no reason for its end.
func (a *Accumulator) Complete() { a.complete, a.done = true, true }

// Fail says that the server reported an error inside of the stream. The first one wins.
func (a *Accumulator) Fail(message string) {
	if !a.failed {
		a.failed, a.failure = true, message
	}
}

// Nonstandard says that the stream was readable, but not as its format says.
func (a *Accumulator) Nonstandard() { a.anomalies |= nonstandardFraming }

// Text returns the answer's content so far. It is valid until the next event.
func (a *Accumulator) Text() []byte { return a.text }

// HasOutput reports whether any output came.
func (a *Accumulator) HasOutput() bool { return a.line.Len() > 0 || a.kind != 0 }

// toolCalls returns the calls in the order in which they began.
func (a *Accumulator) toolCalls() []ToolCall {
	if len(a.calls) == 0 {
		return nil
	}
	calls := make([]ToolCall, len(a.calls))
	for i, c := range a.calls {
		calls[i] = ToolCall{ID: c.id, Name: c.name, Arguments: string(c.arguments)}
	}
	return calls
}

// textOdd reports whether the answer holds what is not UTF-8, or the sign that stands for it.
func (a *Accumulator) textOdd() bool {
	for _, b := range [][]byte{a.text, a.reasoning} {
		if !utf8.Valid(b) || bytes.Contains(b, []byte("\uFFFD")) {
			return true
		}
	}
	return false
}

// label returns a bounded copy of a name.
func label(b []byte) string { return string(b[:min(len(b), maxLabelBytes)]) }

// anomalies is a set of result.Anomaly, in the order of result.Anomalies.
type anomalies uint32

const (
	missingDone anomalies = 1 << iota
	unterminated
	duplicateFinish
	buffered
	compressed
	nonstandardFraming
	usageMissing
	usageInconsistent
	dirtyCold
	modelMismatch
	invalidUTF8
	fieldDropped
	retried
	noVisibleOutput
	outputAfterFinish
	limitIgnored
)

func (s anomalies) list() []result.Anomaly {
	var list []result.Anomaly
	for i, a := range result.Anomalies() {
		if s&(1<<i) != 0 {
			list = append(list, a)
		}
	}
	return list
}
