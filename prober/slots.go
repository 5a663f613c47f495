package prober

import (
	"context"
	"sync"
)

// slots bounds how many probes run at once. Waiters are served in the order in which they came; the limit can be
// changed while it is in use. Safe for concurrent use.
type slots struct {
	mu      sync.Mutex
	limit   int
	used    int
	waiting []chan struct{}
}

func newSlots(limit int) *slots { return &slots{limit: limit} }

// acquire takes a slot, and waits for one until ctx ends.
func (s *slots) acquire(ctx context.Context) error {
	s.mu.Lock()
	if s.used < s.limit && len(s.waiting) == 0 {
		s.used++
		s.mu.Unlock()
		return nil
	}
	w := make(chan struct{})
	s.waiting = append(s.waiting, w)
	s.mu.Unlock()
	select {
	case <-w:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, x := range s.waiting {
		if x == w {
			s.waiting = append(s.waiting[:i], s.waiting[i+1:]...)
			return ctx.Err()
		}
	}
	// It was granted in the meantime: it goes to the next.
	s.used--
	s.grant()
	return ctx.Err()
}

// release gives a slot back.
func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	s.grant()
}

// resize changes the limit. Slots beyond a smaller one are not taken away.
func (s *slots) resize(limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = limit
	s.grant()
}

// grant serves waiters while there are free slots. The caller holds the lock.
func (s *slots) grant() {
	for s.used < s.limit && len(s.waiting) > 0 {
		close(s.waiting[0])
		s.waiting = s.waiting[1:]
		s.used++
	}
}
