package sim

import (
	"slices"
	"sync"
	"time"
)

// maxCatchUp bounds how far the engine runs behind its own clock before it
// gives the lost time up (the machine slept, or has no CPU left for us).
const maxCatchUp = 250 * time.Millisecond

// engine steps a batch in real time with one goroutine.
type engine struct {
	cfg     Config
	metrics *metrics
	wake    chan struct{}
	stop    chan struct{}
	done    chan struct{}

	mu      sync.Mutex
	kv      *kvCache
	waiting []*sequence
	running []*sequence
	stats   Stats
}

// scheduled is the share of one sequence in a step.
type scheduled struct {
	seq     *sequence
	tokens  int
	prefill bool
}

func newEngine(cfg Config, m *metrics) *engine {
	e := &engine{
		cfg: cfg, metrics: m,
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
		kv: newKVCache(cfg.Blocks, cfg.BlockSize, cfg.PrefixCache),
	}
	e.stats.Blocks = cfg.Blocks
	e.stats.SpecAcceptedPerPosition = make([]int, cfg.drafts())
	e.stats.Finished = map[string]int{}
	go e.run()
	return e
}

func (e *engine) close() {
	close(e.stop)
	<-e.done
}

// submit queues a request, first come first served.
func (e *engine) submit(w work) *sequence {
	s := newSequence(w)
	e.mu.Lock()
	e.waiting = append(e.waiting, s)
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
	return s
}

// abort drops a request that is not finished and frees its blocks at once.
func (e *engine) abort(s *sequence) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.state == seqDone {
		return
	}
	e.drop(s)
	e.stats.Aborted++
}

// drop takes a sequence out of whatever list it is in.
func (e *engine) drop(s *sequence) {
	e.waiting = deleteSeq(e.waiting, s)
	e.running = deleteSeq(e.running, s)
	e.kv.release(s)
	s.state = seqDone
}

func deleteSeq(list []*sequence, s *sequence) []*sequence {
	if i := slices.Index(list, s); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// run is the engine's one goroutine. Each step ends at a time counted from the
// planned end of the step before, so that late timers do not add up. While
// there is nothing to do no timer runs.
func (e *engine) run() {
	defer close(e.done)
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	var end time.Time // planned end of the step before; zero after idling
	for {
		now := time.Now()
		batch, cost := e.schedule(now)
		if len(batch) == 0 {
			select {
			case <-e.wake:
				end = time.Time{}
				continue
			case <-e.stop:
				return
			}
		}
		if end.IsZero() || now.Sub(end) > maxCatchUp {
			end = now
		}
		end = end.Add(cost)
		timer.Reset(time.Until(end))
		select {
		case <-timer.C:
		case <-e.stop:
			return
		}
		e.complete(batch, end)
	}
}

// schedule fills one step: running sequences first, then waiting ones while
// the token budget, the sequence limit and the blocks allow.
func (e *engine) schedule(now time.Time) ([]scheduled, time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	budget := e.cfg.MaxBatchedTokens
	var batch []scheduled
	preempted := e.stats.Preemptions
	for i := 0; i < len(e.running) && budget > 0; i++ {
		s := e.running[i]
		n := s.pending()
		if s.decoding() {
			n += e.cfg.drafts()
		}
		n = min(n, budget)
		if !e.makeRoom(s, s.computed+n) {
			break // s itself, the youngest, was preempted
		}
		batch = append(batch, scheduled{s, n, !s.decoding()})
		budget -= n
	}
	if e.stats.Preemptions == preempted {
		batch = e.admit(batch, budget, now)
	}
	return batch, e.cost(batch)
}

// makeRoom grows the blocks of s, preempting the youngest running sequence as
// often as needed; false if that was s.
func (e *engine) makeRoom(s *sequence, tokens int) bool {
	for !e.kv.grow(s, tokens) {
		victim := e.running[len(e.running)-1]
		e.running = e.running[:len(e.running)-1]
		e.kv.release(victim)
		victim.state, victim.computed = seqWaiting, 0
		victim.preempts++
		e.stats.Preemptions++
		e.waiting = slices.Insert(e.waiting, 0, victim)
		if victim == s {
			return false
		}
	}
	return true
}

func (e *engine) admit(batch []scheduled, budget int, now time.Time) []scheduled {
	for len(e.waiting) > 0 && budget > 0 && len(e.running) < e.cfg.MaxNumSeqs {
		s := e.waiting[0]
		prefix := e.kv.lookup(s)
		hit := len(prefix) * e.cfg.BlockSize
		n := min(len(s.tokens)-hit, budget)
		if !e.kv.admit(s, prefix, hit+n) {
			break
		}
		e.waiting = slices.Delete(e.waiting, 0, 1)
		e.running = append(e.running, s)
		s.state, s.computed = seqRunning, hit
		if !s.admitted {
			s.admitted, s.cached, s.timing.Scheduled = true, hit, now
			e.stats.PrefixQueryTokens += len(s.prompt)
			e.stats.PrefixHitTokens += hit
			e.metrics.observe(histQueue, now.Sub(s.arrived).Seconds())
		}
		batch = append(batch, scheduled{s, n, true})
		budget -= n
	}
	return batch
}

// cost is how long a step lasts (see Config).
func (e *engine) cost(batch []scheduled) time.Duration {
	if len(batch) == 0 {
		return 0
	}
	d := e.cfg.StepBase + time.Duration(len(batch))*e.cfg.StepPerSeq
	drafts := 0
	for _, b := range batch {
		d += time.Duration(b.seq.computed+b.tokens)*e.cfg.StepPerContextToken + b.seq.perStep
		if !b.prefill {
			drafts = e.cfg.drafts()
			continue
		}
		d += time.Duration(float64(b.tokens) * float64(e.cfg.PrefillPerToken) * b.seq.prefillFactor)
		if b.seq.produced == 0 && b.seq.computed == b.seq.cached {
			d += b.seq.encode
		}
	}
	return d + time.Duration(drafts)*e.cfg.Speculative.DraftPerToken
}

// complete applies a finished step.
func (e *engine) complete(batch []scheduled, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	total := 0
	for _, b := range batch {
		total += b.tokens
		if b.seq.state != seqRunning {
			continue // aborted meanwhile
		}
		if b.prefill {
			b.seq.computed += b.tokens
			if b.seq.pending() > 0 {
				e.kv.commit(b.seq)
				continue
			}
			e.prefilled(b.seq, at)
			e.emit(b.seq, 1, at)
		} else {
			n := 1 + e.accept(b.seq, b.tokens-1)
			n = min(n, len(b.seq.pieces)-b.seq.produced)
			b.seq.computed += n
			e.emit(b.seq, n, at)
		}
	}
	e.metrics.observe(histIterationTokens, float64(total))
}

func (e *engine) prefilled(s *sequence, at time.Time) {
	if s.produced > 0 {
		return // a recomputation after preemption
	}
	s.timing.FirstToken, s.last = at, at
	e.stats.PromptTokens += len(s.prompt)
	e.stats.CachedTokens += s.cached
	e.metrics.observe(histTTFT, at.Sub(s.arrived).Seconds())
	e.metrics.observe(histPrefill, at.Sub(s.timing.Scheduled).Seconds())
}

// accept draws how many of the draft tokens hold. The counts are those before
// the answer's end cuts them, as the engine that verified them sees it.
func (e *engine) accept(s *sequence, drafts int) int {
	if drafts == 0 {
		return 0
	}
	n := 0
	for n < drafts && s.rng.Float64() < e.cfg.Speculative.acceptance(n) {
		e.stats.SpecAcceptedPerPosition[n]++
		n++
	}
	for _, c := range []*SpecCounts{&s.spec, &e.stats.Spec} {
		c.Drafts++
		c.DraftTokens += drafts
		c.AcceptedTokens += n
	}
	return n
}

// emit appends n produced tokens and hands them out.
func (e *engine) emit(s *sequence, n int, at time.Time) {
	em := emission{first: s.produced, n: n, at: at}
	for _, p := range s.pieces[s.produced : s.produced+n] {
		s.tokens = append(s.tokens, p.id())
	}
	if s.produced > 0 {
		e.metrics.observe(histITL, at.Sub(s.last).Seconds())
	}
	s.produced += n
	s.last = at
	e.stats.GenerationTokens += n
	e.kv.commit(s)
	if s.produced == len(s.pieces) {
		em.finish = s.finish
		s.timing.Finished = at
		e.finished(s, at)
		e.drop(s)
	}
	s.deliver(em)
}

func (e *engine) finished(s *sequence, at time.Time) {
	reason := s.finish
	if reason != finishLength {
		reason = finishStop // tool calls end with a stop token too
	}
	e.stats.Finished[reason]++
	decode := at.Sub(s.timing.FirstToken).Seconds()
	e.metrics.observe(histE2E, at.Sub(s.arrived).Seconds())
	e.metrics.observe(histDecode, decode)
	e.metrics.observe(histInference, at.Sub(s.timing.Scheduled).Seconds())
	e.metrics.observe(histPromptTokens, float64(len(s.prompt)))
	e.metrics.observe(histGenerationTokens, float64(s.produced))
	e.metrics.observe(histTPOT, decode/float64(max(1, s.produced-1)))
}

// Stats is a consistent view of the engine's counters, in tokens and requests.
type Stats struct {
	Running, Waiting        int
	Blocks, BlocksUsed      int
	PrefixQueryTokens       int
	PrefixHitTokens         int
	PromptTokens            int
	CachedTokens            int
	GenerationTokens        int
	Preemptions             int
	Aborted                 int
	Finished                map[string]int // by finish reason of the engine: stop, length
	Spec                    SpecCounts
	SpecAcceptedPerPosition []int
}

func (e *engine) snapshot() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Running, s.Waiting, s.BlocksUsed = len(e.running), len(e.waiting), e.kv.used()
	s.SpecAcceptedPerPosition = slices.Clone(s.SpecAcceptedPerPosition)
	s.Finished = map[string]int{}
	for k, v := range e.stats.Finished {
		s.Finished[k] = v
	}
	return s
}

// progress is what the record of a request takes from the engine.
func (e *engine) progress(s *sequence) (cached, preempts int, t Timing, spec SpecCounts) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return s.cached, s.preempts, s.timing, s.spec
}
