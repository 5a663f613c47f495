// Package measure turns the arrivals of an answer's chunks into the figures that are exported. It is arithmetic
// alone: no clock, no I/O, no knowledge of protocols. What cannot be known is reported as such, never as 0.
package measure

import "time"

// Kind says what output a chunk carries. A chunk may carry several kinds at once.
type Kind uint8

// The kinds of output.
const (
	Content   Kind = 1 << iota // the answer's text
	Reasoning                  // text of the model's thinking
	ToolCall                   // a piece of a tool call
)

// Unknown is the token count of a chunk whose tokens nobody counted.
const Unknown = -1

// Chunk is one event of a stream that carried output.
type Chunk struct {
	At     time.Duration // arrival, since the request was issued
	Tokens int           // exact count of its tokens, or Unknown
	Kind   Kind
}

// Timeline holds the output-bearing chunks of one answer in the order of their arrival. Events without output
// (role, ping, progress, usage) must not be added. It is not safe for concurrent use.
type Timeline struct {
	chunks    []Chunk
	uncounted int
	content   int // index of the first chunk with content, plus 1
}

// NewTimeline returns a timeline with room for that many chunks; further ones make it grow.
func NewTimeline(room int) *Timeline { return &Timeline{chunks: make([]Chunk, 0, max(room, 0))} }

// Add notes a chunk. Chunks that came in one read share their arrival. An arrival before the one of the chunk
// before it (a clock was stepped) is raised to it: gaps are never negative.
func (t *Timeline) Add(at time.Duration, kind Kind, tokens int) {
	if n := len(t.chunks); n > 0 {
		at = max(at, t.chunks[n-1].At)
	}
	if tokens < 0 {
		tokens = Unknown
		t.uncounted++
	}
	t.chunks = append(t.chunks, Chunk{At: max(at, 0), Tokens: tokens, Kind: kind})
	if t.content == 0 && kind&Content != 0 {
		t.content = len(t.chunks)
	}
}

// Len returns the number of chunks.
func (t *Timeline) Len() int { return len(t.chunks) }

// FirstToken returns the time to first token: the arrival of the first chunk with output of any kind.
func (t *Timeline) FirstToken() (time.Duration, bool) {
	if len(t.chunks) == 0 {
		return 0, false
	}
	return t.chunks[0].At, true
}

// FirstContent returns the arrival of the first chunk of the answer itself. It is later than FirstToken where a
// model thinks first, and absent where it only thought or called tools.
func (t *Timeline) FirstContent() (time.Duration, bool) {
	if t.content == 0 {
		return 0, false
	}
	return t.chunks[t.content-1].At, true
}

// End returns the end-to-end latency: the arrival of the last chunk with output. Usage and [DONE] do not extend it.
func (t *Timeline) End() (time.Duration, bool) {
	if len(t.chunks) == 0 {
		return 0, false
	}
	return t.chunks[len(t.chunks)-1].At, true
}

// Span returns the time from the first chunk to the last.
func (t *Timeline) Span() time.Duration {
	if len(t.chunks) == 0 {
		return 0
	}
	return t.chunks[len(t.chunks)-1].At - t.chunks[0].At
}

// Gaps returns the gaps between chunks that follow each other, in seconds: vLLM's ITL. There is one for each chunk
// but the first; chunks of one read have a gap of 0, which is a sample like any other.
func (t *Timeline) Gaps() []float64 {
	if len(t.chunks) < 2 {
		return nil
	}
	gaps := make([]float64, len(t.chunks)-1)
	for i := range gaps {
		gaps[i] = (t.chunks[i+1].At - t.chunks[i].At).Seconds()
	}
	return gaps
}

// TimePerOutputToken returns (end − first output) ÷ (tokens − 1) in seconds. tokens is what the server counted for
// the whole answer.
//
// It is absent for fewer than two tokens, and where no time passed between the first output and the last (an answer
// of one chunk, or of one read): the time between its tokens was then not seen, and 0 would be a lie.
func (t *Timeline) TimePerOutputToken(tokens int) (float64, bool) {
	span := t.Span()
	if tokens < 2 || span <= 0 {
		return 0, false
	}
	return span.Seconds() / float64(tokens-1), true
}

// Exact reports whether the tokens of every chunk were counted.
func (t *Timeline) Exact() bool { return len(t.chunks) > 0 && t.uncounted == 0 }

// Tokens returns the exact token count of each chunk, or nil unless all are known. A count may be 0: text that an
// earlier step held back.
func (t *Timeline) Tokens() []int {
	if !t.Exact() {
		return nil
	}
	tokens := make([]int, len(t.chunks))
	for i, c := range t.chunks {
		tokens[i] = c.Tokens
	}
	return tokens
}

// TokenGap is the per-token latency of one chunk: Seconds is the gap before it divided by its tokens, Tokens the
// weight of this sample.
type TokenGap struct {
	Seconds float64
	Tokens  int
}

// TokenGaps returns the per-token latencies, only where all counts are exact. The first chunk has no gap before it.
// The time before a chunk that counts no token of its own is added to the next one's, so that no time is lost.
func (t *Timeline) TokenGaps() []TokenGap {
	if !t.Exact() || len(t.chunks) < 2 {
		return nil
	}
	gaps := make([]TokenGap, 0, len(t.chunks)-1)
	from := t.chunks[0].At
	for _, c := range t.chunks[1:] {
		if c.Tokens == 0 {
			continue
		}
		gaps = append(gaps, TokenGap{Seconds: (c.At - from).Seconds() / float64(c.Tokens), Tokens: c.Tokens})
		from = c.At
	}
	return gaps
}

// The bounds of Buffered.
const (
	bufferedMinTokens    = 16                     // one step of a speculative decoder may give up to about ten
	bufferedSpan         = 5 * time.Millisecond   // within which all output came
	bufferedSpanPerToken = 20 * time.Microsecond  // what transport and parsing of one more token may add to it
	bufferedWaitPerToken = 500 * time.Microsecond // 2,000 tokens/s: no server decodes one stream much faster
	bufferedWaitToSpan   = 20
)

// Buffered reports whether something held the answer back and let go of it at once: a gateway, a compressor, a tool
// parser. wait is how long the first output took after the request was sent, tokens is what the server counted (or
// the number of chunks). It holds when all of these do:
//
//   - there are at least 16 tokens;
//   - all chunks came within 5 ms + 20 µs per token;
//   - the wait was at least 20 times that span, and at least 0.5 ms per token: long enough to have computed them all.
//
// So a short answer, one step of speculative decoding, or a mock server that answers at once raises no alarm.
func (t *Timeline) Buffered(wait time.Duration, tokens int) bool {
	tokens = max(tokens, len(t.chunks))
	if len(t.chunks) == 0 || tokens < bufferedMinTokens {
		return false
	}
	span, n := t.Span(), time.Duration(tokens)
	return span <= bufferedSpan+n*bufferedSpanPerToken && wait >= bufferedWaitToSpan*span && wait >= n*bufferedWaitPerToken
}
