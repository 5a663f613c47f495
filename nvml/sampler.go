package nvml

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
)

// MinInterval is the shortest sampling interval.
const MinInterval = 100 * time.Millisecond

// SamplerOptions says how a Source is sampled. The zero value is good.
type SamplerOptions struct {
	// Interval between two cycles; 0 means 1 s, the least is MinInterval.
	Interval time.Duration
	// Keep is how long samples are kept for windows; 0 means 10 min.
	Keep time.Duration
	// Timeout is how long a cycle may take before it is abandoned; 0 means 5 s.
	Timeout time.Duration
	// Name says in the log which Source it is, such as the URL of a page.
	Name string
	// Logger gets a line when the Source goes down, goes down for another
	// reason, or comes back.
	Logger log.Logger
}

func (o SamplerOptions) withDefaults() (SamplerOptions, error) {
	o.Interval = cmp.Or(o.Interval, time.Second)
	o.Keep = cmp.Or(o.Keep, 10*time.Minute)
	o.Timeout = cmp.Or(o.Timeout, 5*time.Second)
	o.Name = cmp.Or(o.Name, "nvml")
	if o.Logger == nil {
		o.Logger = log.NewNopLogger()
	}
	if o.Interval < MinInterval {
		return o, fmt.Errorf("GPU sampling interval %s is below the least, %s", o.Interval, MinInterval)
	}
	if o.Keep < o.Interval || o.Keep > time.Hour {
		return o, fmt.Errorf("GPU samples are to be kept for %s: it must be between the interval (%s) and 1h", o.Keep, o.Interval)
	}
	if o.Timeout < 0 {
		return o, fmt.Errorf("GPU sampling timeout %s is negative", o.Timeout)
	}
	return o, nil
}

// State is what a Sampler publishes after each cycle. It is immutable.
type State struct {
	// Up says that the last cycle succeeded. Otherwise Reason and Detail say why
	// it did not, and Snapshot holds no GPUs.
	Up     bool
	Reason Reason
	Detail string

	Snapshot Snapshot
	Totals   []Totals // one for each of Snapshot.GPUs

	LastSuccess  time.Time     // zero before the first success
	LastDuration time.Duration // of the last completed cycle
	Cycles       uint64        // cycles tried
	Failures     map[Reason]uint64
}

// Sampler drives one Source at a steady rate. All its methods are safe for
// concurrent use, and none but Run touches the Source.
type Sampler struct {
	src  Source
	o    SamplerOptions
	base time.Time

	state atomic.Pointer[State]

	mu        sync.Mutex // guards what follows
	tracks    map[trackKey]*track
	published chan struct{} // closed and replaced at each successful cycle
	lastAt    time.Duration // of the last successful cycle; negative before the first

	// Used by Run only.
	inside   chan outcome // of an abandoned cycle that has not returned
	since    time.Time    // when that one began
	backoff  time.Duration
	cycles   uint64
	failures map[Reason]uint64
}

type outcome struct {
	snap Snapshot
	err  error
	took time.Duration
}

// NewSampler returns a Sampler for src. Call Run to start it.
func NewSampler(src Source, o SamplerOptions) (*Sampler, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Sampler{
		src: src, o: o, base: time.Now(), tracks: map[trackKey]*track{},
		published: make(chan struct{}), lastAt: -1, failures: map[Reason]uint64{},
	}
	s.state.Store(&State{Detail: "no cycle was completed yet"})
	return s, nil
}

// State returns what the last cycle found. It never blocks.
func (s *Sampler) State() *State { return s.state.Load() }

// Interval returns the sampling interval.
func (s *Sampler) Interval() time.Duration { return s.o.Interval }

// Run samples until ctx ends and then closes the Source. If a driver call is still
// inside after two seconds, it leaves the Source open and says so in its error:
// closing a driver under a running call is undefined.
func (s *Sampler) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return s.shutdown()
		case <-timer.C:
			if ctx.Err() != nil {
				return s.shutdown()
			}
			began := time.Now()
			wait := s.cycle(ctx)
			timer.Reset(max(wait-time.Since(began), 0))
		}
	}
}

// cycle reads the Source once and returns how long after its begin the next is due.
func (s *Sampler) cycle(ctx context.Context) time.Duration {
	s.cycles++
	if s.inside != nil {
		select {
		case <-s.inside: // too late to be of use
			s.inside = nil
		default:
			s.fail(&DownError{
				Reason: ReasonTimeout,
				Detail: fmt.Sprintf("a cycle that began at %s has not returned", s.since.Format(time.RFC3339)),
				Hint:   "does nvidia-smi hang too? Look for Xid messages in the kernel log; reads go on when the call returns",
			}, 0)
			return s.o.Interval
		}
	}
	out, ok := s.read(ctx)
	switch {
	case ctx.Err() != nil:
		return 0
	case !ok:
		s.fail(&DownError{
			Reason: ReasonTimeout,
			Detail: fmt.Sprintf("a cycle did not return within %s", s.o.Timeout),
			Hint:   "does nvidia-smi hang too? Look for Xid messages in the kernel log; reads go on when the call returns",
		}, s.o.Timeout)
		return s.o.Interval
	case out.err != nil:
		s.fail(out.err, out.took)
		s.backoff = min(max(2*s.backoff, time.Second), 30*time.Second)
		return max(s.backoff, s.o.Interval)
	}
	s.backoff = 0
	s.publish(out)
	return s.o.Interval
}

// read runs one cycle of the Source in a goroutine of its own, because a call into a
// wedged driver cannot be interrupted. It reports false if the cycle was abandoned.
func (s *Sampler) read(ctx context.Context) (outcome, bool) {
	cctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	done := make(chan outcome, 1)
	began := time.Now()
	go func() {
		snap, err := s.src.Sample(cctx)
		done <- outcome{snap, err, time.Since(began)}
	}()
	select {
	case out := <-done:
		return out, true
	case <-cctx.Done():
	}
	// A Source that heeds its context returns now.
	grace := time.NewTimer(250 * time.Millisecond)
	defer grace.Stop()
	select {
	case out := <-done:
		return out, true
	case <-grace.C:
		s.inside, s.since = done, began
		return outcome{}, false
	}
}

// publish stores a good cycle.
func (s *Sampler) publish(out outcome) {
	clean(&out.snap)
	if was := s.State(); !was.Up && was.Cycles > 0 {
		level.Info(s.o.Logger).Log("msg", "GPU figures are back", "source", s.o.Name, "gpus", len(out.snap.GPUs))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Store(&State{
		Up: true, Snapshot: out.snap, Totals: s.track(&out.snap),
		LastSuccess: out.snap.Time, LastDuration: out.took, Cycles: s.cycles, Failures: s.failureCounts(),
	})
	s.lastAt = out.snap.Time.Sub(s.base)
	close(s.published)
	s.published = make(chan struct{})
}

// track adds a snapshot to the rings and returns the totals of its GPUs.
func (s *Sampler) track(snap *Snapshot) []Totals {
	at := snap.Time.Sub(s.base)
	totals := make([]Totals, len(snap.GPUs))
	for i := range snap.GPUs {
		g := &snap.GPUs[i]
		if g.Lost != "" {
			continue
		}
		t := s.trackOf(g.GPU, whole)
		t.add(at, 2*s.o.Interval, g)
		totals[i] = t.totals
		for j := range g.MIG {
			m := &g.MIG[j]
			t := s.trackOf(g.GPU, m.GPUInstance)
			t.migUUIDs = m.UUIDs
			t.add(at, 2*s.o.Interval, &Sample{GPU: g.GPU, Memory: m.Memory, Activity: m.Activity})
		}
	}
	return totals
}

// trackOf returns the track of a GPU or of a GPU instance, making it if need be.
func (s *Sampler) trackOf(g GPU, instance int) *track {
	key := trackKey{g.UUID, instance}
	t := s.tracks[key]
	if t == nil {
		s.forgetOldest()
		t = newTrack(g, instance, int(s.o.Keep/s.o.Interval)+1)
		s.tracks[key] = t
	}
	return t
}

type trackKey struct {
	uuid     string
	instance int
}

// maxTracks bounds what is kept: GPUs and GPU instances together.
const maxTracks = 4 * MaxGPUs

// forgetOldest makes room for one more track.
func (s *Sampler) forgetOldest() {
	if len(s.tracks) < maxTracks {
		return
	}
	var oldest trackKey
	var at time.Duration = math.MaxInt64
	for key, t := range s.tracks {
		if t.lastAt < at {
			oldest, at = key, t.lastAt
		}
	}
	delete(s.tracks, oldest)
}

// fail stores a failed cycle. It logs when that is news.
func (s *Sampler) fail(err error, took time.Duration) {
	reason := ReasonUnknown
	var down *DownError
	if errors.As(err, &down) {
		reason = down.Reason
	}
	s.failures[reason]++
	was := s.State()
	if was.Up || was.Reason != reason {
		level.Warn(s.o.Logger).Log("msg", "cannot read GPU figures", "source", s.o.Name, "reason", string(reason), "err", err)
	}
	next := &State{
		Reason: reason, Detail: err.Error(), LastSuccess: was.LastSuccess, LastDuration: took,
		Cycles: s.cycles, Failures: s.failureCounts(),
	}
	if took == 0 {
		next.LastDuration = was.LastDuration
	}
	s.state.Store(next)
}

func (s *Sampler) failureCounts() map[Reason]uint64 {
	m := make(map[Reason]uint64, len(s.failures))
	for r, n := range s.failures {
		m[r] = n
	}
	return m
}

// shutdown closes the Source unless someone is inside.
func (s *Sampler) shutdown() error {
	const limit = 2 * time.Second
	if s.inside != nil {
		select {
		case <-s.inside:
		case <-time.After(limit):
			return fmt.Errorf("closing %s: a call has not returned for %s, so it is left open", s.o.Name, time.Since(s.since).Round(time.Second))
		}
	}
	closed := make(chan error, 1)
	go func() { closed <- s.src.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			return fmt.Errorf("closing %s: %w", s.o.Name, err)
		}
		return nil
	case <-time.After(2 * limit):
		return fmt.Errorf("closing %s did not end within %s", s.o.Name, 2*limit)
	}
}
