package sim

import (
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"
)

// work is what the engine is asked to do; it does not change after submit.
type work struct {
	prompt  []uint32
	salt    string
	pieces  []piece
	finish  string // why the answer ends after the last piece
	arrived time.Time
	// prefillFactor multiplies the prefill time, encode is added to the first
	// step (media encoders), perStep to each step (grammar masks).
	prefillFactor   float64
	encode, perStep time.Duration
	rng             *rand.Rand
}

// emission is the outcome of one step for one sequence.
type emission struct {
	first, n int // pieces [first, first+n)
	at       time.Time
	finish   string // not empty on the last
}

type seqState int

const (
	seqWaiting seqState = iota
	seqRunning
	seqDone
)

// sequence is one request inside the engine.
type sequence struct {
	work

	// Guarded by engine.mu.
	state    seqState
	tokens   []uint32 // the prompt and what was produced
	hashes   []uint64 // of full blocks, computed on demand
	blocks   []int
	hashed   int // blocks made findable so far
	computed int // tokens whose KV is in blocks
	produced int // pieces emitted
	cached   int // prompt tokens found in the cache on first admission
	admitted bool
	timing   Timing
	last     time.Time
	spec     SpecCounts
	preempts int

	mu     sync.Mutex
	queue  []emission
	notify chan struct{}
}

// Timing holds the engine's own marks of one request.
type Timing struct {
	Scheduled  time.Time `json:"scheduled,omitzero"`
	FirstToken time.Time `json:"first_token,omitzero"`
	Finished   time.Time `json:"finished,omitzero"`
}

// SpecCounts counts speculative decoding, in drafts and tokens.
type SpecCounts struct {
	Drafts         int `json:"drafts"`
	DraftTokens    int `json:"draft_tokens"`
	AcceptedTokens int `json:"accepted_tokens"`
}

func newSequence(w work) *sequence {
	return &sequence{
		work:   w,
		tokens: append(make([]uint32, 0, len(w.prompt)+64), w.prompt...),
		notify: make(chan struct{}, 1),
	}
}

// pending is how many known tokens have no KV yet.
func (s *sequence) pending() int { return len(s.tokens) - s.computed }

// decoding is true when all but the last sampled token is computed.
func (s *sequence) decoding() bool { return s.produced > 0 && s.pending() == 1 }

// blockHash chains the hash of block i: parent, tokens, and the salt in the first.
func (s *sequence) blockHash(i, size int) uint64 {
	for len(s.hashes) <= i {
		h := fnv.New64a()
		n := len(s.hashes)
		if n == 0 {
			_, _ = h.Write([]byte(s.salt)) // a hash never fails
		} else {
			writeUint(h.Write, s.hashes[n-1])
		}
		for _, t := range s.tokens[n*size : (n+1)*size] {
			writeUint(h.Write, uint64(t))
		}
		s.hashes = append(s.hashes, h.Sum64())
	}
	return s.hashes[i]
}

func writeUint(write func([]byte) (int, error), v uint64) {
	b := [8]byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24), byte(v >> 32), byte(v >> 40), byte(v >> 48), byte(v >> 56)}
	_, _ = write(b[:])
}

// deliver hands an emission to the request's handler and never blocks.
func (s *sequence) deliver(em emission) {
	s.mu.Lock()
	s.queue = append(s.queue, em)
	s.mu.Unlock()
	select {
	case s.notify <- struct{}{}:
	default:
	}
}

// take moves the waiting emissions into dst, which it overwrites.
func (s *sequence) take(dst []emission) []emission {
	s.mu.Lock()
	defer s.mu.Unlock()
	dst = append(dst[:0], s.queue...)
	s.queue = s.queue[:0]
	return dst
}
