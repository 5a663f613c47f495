package enginemetrics

import (
	"context"
	"slices"
	"strings"
	"sync"
)

// Set runs the readers of all targets. It may be used from any goroutine.
type Set struct {
	mu      sync.Mutex
	entries map[string]*entry
	running sync.WaitGroup
	closed  bool
}

type entry struct {
	reader *Reader
	cancel context.CancelFunc
}

// NewSet returns a Set without targets.
func NewSet() *Set { return &Set{entries: map[string]*entry{}} }

// Put starts to read a target's metrics and returns its reader. A target that is there already with the same page,
// client and cadence keeps its reader and all that it knows; only the hint is taken over. After Close it returns nil.
func (s *Set) Put(o ReaderOptions) *Reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if e, ok := s.entries[o.Target]; ok {
		if e.reader.reads(o) {
			e.reader.SetHint(o.Hint)
			return e.reader
		}
		e.cancel()
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &entry{reader: NewReader(o), cancel: cancel}
	s.entries[o.Target] = e
	s.running.Go(func() { e.reader.Run(ctx) })
	return e.reader
}

// reads reports whether the reader is what the options ask for, hint aside.
func (r *Reader) reads(o ReaderOptions) bool {
	o = o.withDefaults()
	return r.opts.URL == o.URL && r.opts.Base == o.Base && r.opts.Client == o.Client && r.opts.UserAgent == o.UserAgent &&
		r.opts.Cadence == o.Cadence && r.opts.BoostCadence == o.BoostCadence && r.opts.Timeout == o.Timeout
}

// Remove stops to read a target's metrics and forgets them.
func (s *Set) Remove(target string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.entries[target]; ok {
		e.cancel()
		delete(s.entries, target)
	}
}

// Reader returns the reader of a target, nil if there is none.
func (s *Set) Reader(target string) *Reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.entries[target]; ok {
		return e.reader
	}
	return nil
}

// States returns what is known of all targets, by name.
func (s *Set) States() []State {
	s.mu.Lock()
	readers := make([]*Reader, 0, len(s.entries))
	for _, e := range s.entries {
		readers = append(readers, e.reader)
	}
	s.mu.Unlock()
	states := make([]State, len(readers))
	for i, r := range readers {
		states[i] = r.State()
	}
	slices.SortFunc(states, func(a, b State) int { return strings.Compare(a.Target, b.Target) })
	return states
}

// Close stops all readers and waits for them.
func (s *Set) Close() {
	s.mu.Lock()
	s.closed = true
	for name, e := range s.entries {
		e.cancel()
		delete(s.entries, name)
	}
	s.mu.Unlock()
	s.running.Wait()
}
