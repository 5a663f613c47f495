// Package measure turns the arrival times of an answer's chunks into figures. It is pure: no I/O, no clock.
//
// The definitions are those of vLLM's benchmark suite with its known faults left out: a chunk counts by the output
// that it bears, never by its position; the end is the last output, never the usage that follows it.
package measure

import "time"

// Kind is the kind of output that a chunk bears. A chunk may bear several.
type Kind uint8

// The kinds of output.
const (
	Content   Kind = 1 << iota // text of the answer
	Reasoning                  // thinking before the answer
	ToolCall                   // a piece of a tool call
)

// Chunk is one streamed event with output.
type Chunk struct {
	At     time.Duration // since the start of the request
	Tokens int           // in this chunk, where the server tells exactly; 0 = unknown
	Kind   Kind
}

// Timeline is the answer to one request: its output-bearing chunks in the order of their arrival.
type Timeline struct {
	Chunks []Chunk
}

// Add appends a chunk. An arrival before the one of the chunk before it, which a stepped clock can make, counts as
// that one: time does not run backwards within an answer.
func (t *Timeline) Add(c Chunk) {
	if n := len(t.Chunks); n > 0 && c.At < t.Chunks[n-1].At {
		c.At = t.Chunks[n-1].At
	}
	t.Chunks = append(t.Chunks, c)
}

// FirstToken is the time to the first output of any kind.
func (t *Timeline) FirstToken() (time.Duration, bool) {
	if len(t.Chunks) == 0 {
		return 0, false
	}
	return t.Chunks[0].At, true
}

// FirstContent is the time to the first piece of the answer itself: text or a tool call, not reasoning.
func (t *Timeline) FirstContent() (time.Duration, bool) {
	for _, c := range t.Chunks {
		if c.Kind&(Content|ToolCall) != 0 {
			return c.At, true
		}
	}
	return 0, false
}

// End is the time to the last output: the end-to-end latency.
func (t *Timeline) End() (time.Duration, bool) {
	n := len(t.Chunks)
	if n == 0 {
		return 0, false
	}
	return t.Chunks[n-1].At, true
}

// Gaps are the times between consecutive chunks, one for each pair: vLLM's inter-token latencies.
func (t *Timeline) Gaps() []time.Duration {
	if len(t.Chunks) < 2 {
		return nil
	}
	out := make([]time.Duration, len(t.Chunks)-1)
	for i := range out {
		out[i] = t.Chunks[i+1].At - t.Chunks[i].At
	}
	return out
}

// TimePerOutputToken is (end − first output) ÷ (completion tokens − 1), MLPerf's TPOT. It is not defined for fewer
// than two tokens, nor where all output came in one chunk: then nothing was seen of how fast tokens follow.
func (t *Timeline) TimePerOutputToken(completionTokens int) (time.Duration, bool) {
	if completionTokens < 2 || len(t.Chunks) < 2 {
		return 0, false
	}
	first, last := t.Chunks[0].At, t.Chunks[len(t.Chunks)-1].At
	return (last - first) / time.Duration(completionTokens-1), true
}

// ChunkTokens returns the tokens of every chunk, if the server told all of them.
func (t *Timeline) ChunkTokens() ([]int, bool) {
	if len(t.Chunks) == 0 {
		return nil, false
	}
	out := make([]int, len(t.Chunks))
	for i, c := range t.Chunks {
		if c.Tokens <= 0 {
			return nil, false
		}
		out[i] = c.Tokens
	}
	return out, true
}

const (
	bufferedChunks = 8                     // fewer chunks prove nothing
	bufferedSpan   = 10 * time.Millisecond // all output within this
	bufferedShare  = 0.05                  // and within this share of the time to the first output
)

// Buffered reports whether something between the model and us held the answer back: at least 8 chunks came within
// 10 ms, and that was less than a twentieth of the time that the first of them took. A server that computes 8 tokens
// in 10 ms needs no 200 ms for the first one, save for a long prompt; such an answer can be a false alarm, which is
// why it is an anomaly and not a failure.
func (t *Timeline) Buffered() bool {
	n := len(t.Chunks)
	if n < bufferedChunks {
		return false
	}
	first, span := t.Chunks[0].At, t.Chunks[n-1].At-t.Chunks[0].At
	return span <= bufferedSpan && float64(span) < bufferedShare*float64(first)
}
