package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// deadlineError is the cause of a request that one of its deadlines ended.
type deadlineError struct {
	reason result.Reason
	limit  time.Duration
}

func (e *deadlineError) Error() string {
	switch e.reason {
	case result.ReasonTimeoutConnect:
		return fmt.Sprintf("no connection within connect_timeout (%s)", e.limit)
	case result.ReasonTimeoutFirstToken:
		return fmt.Sprintf("no output within first_token_timeout (%s)", e.limit)
	case result.ReasonTimeoutStall:
		return fmt.Sprintf("output began, then nothing came for stall_timeout (%s)", e.limit)
	}
	return fmt.Sprintf("not finished within timeout (%s)", e.limit)
}

// watchdog ends a request at its deadlines, each with its own cause:
//
//   - connect: until a connection is ready, name lookup and TLS included;
//   - first token: until the first output, whatever else comes before it;
//   - stall: from the first output on, between two signs of life, which comments and empty events are too;
//   - total.
//
// A sign of life costs one atomic store. It is safe for concurrent use.
type watchdog struct {
	cancel context.CancelCauseFunc
	start  time.Time
	stall  time.Duration
	last   atomic.Int64 // newest sign of life, since start

	mu      sync.Mutex
	stopped bool
	connect *time.Timer
	first   *time.Timer
	silence *time.Timer
	total   *time.Timer
}

// newWatchdog starts the watch. total is what is left of the whole request's time; a deadline of 0 is none.
func newWatchdog(cancel context.CancelCauseFunc, start time.Time, t config.Timeouts, total time.Duration) *watchdog {
	w := &watchdog{cancel: cancel, start: start, stall: time.Duration(t.StallTimeout)}
	after := func(limit, left time.Duration, reason result.Reason) *time.Timer {
		if limit <= 0 {
			return nil
		}
		return time.AfterFunc(left, func() { cancel(&deadlineError{reason, limit}) })
	}
	w.connect = after(time.Duration(t.ConnectTimeout), time.Duration(t.ConnectTimeout), result.ReasonTimeoutConnect)
	w.first = after(time.Duration(t.FirstTokenTimeout), time.Duration(t.FirstTokenTimeout), result.ReasonTimeoutFirstToken)
	w.total = after(time.Duration(t.Timeout), max(total, 0), result.ReasonTimeoutTotal)
	return w
}

// connected says that a connection is ready.
func (w *watchdog) connected() {
	w.mu.Lock()
	defer w.mu.Unlock()
	stop(w.connect)
}

// output says that the first output came at that time since the start.
func (w *watchdog) output(at time.Duration) {
	w.alive(at)
	w.mu.Lock()
	defer w.mu.Unlock()
	stop(w.connect)
	stop(w.first)
	if w.stall > 0 && w.silence == nil && !w.stopped {
		w.silence = time.AfterFunc(w.stall, w.checkSilence)
	}
}

// alive says that something came at that time since the start.
func (w *watchdog) alive(at time.Duration) { w.last.Store(int64(at)) }

// checkSilence ends the request if nothing came for too long, and else looks again when that may be so.
func (w *watchdog) checkSilence() {
	silent := time.Since(w.start) - time.Duration(w.last.Load())
	if silent >= w.stall {
		w.cancel(&deadlineError{result.ReasonTimeoutStall, w.stall})
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.silence.Reset(w.stall - silent)
	}
}

// stop ends the watch.
func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	for _, t := range []*time.Timer{w.connect, w.first, w.silence, w.total} {
		stop(t)
	}
}

func stop(t *time.Timer) {
	if t != nil {
		t.Stop()
	}
}
