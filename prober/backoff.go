package prober

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/llmcanary/llm_canary_exporter/prober/engine"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// The rules of the back-off.
const (
	backoffFirst      = 5 * time.Second
	backoffMost       = 5 * time.Minute
	backoffJitter     = 0.2 // up to so much longer
	backoffMostAsked  = time.Hour
	redetectInterval  = 5 * time.Minute
	detectRetryFirst  = 2 * time.Second
	detectRetryMost   = time.Minute
	unsupportedRetry  = 24 * time.Hour
	missedTickGrace   = time.Second
	missedCronGrace   = 5 * time.Minute
	longestSleep      = time.Minute // on a cron schedule, so that a changed wall clock is noticed
	repeatedLogPeriod = 5 * time.Minute
)

// backoff is the pause that a target asked for with 429 or 503. Safe for concurrent use.
type backoff struct {
	mu    sync.Mutex
	until time.Time
	since time.Time // when the pause was set
	tries int       // answers in a row that asked for one
	why   string
}

// observe takes an answer to a request that was sent at that time.
func (b *backoff) observe(a engine.Answer, sent, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case a.Outcome == result.Success:
		// A success that began before the refusal says nothing about the time after it.
		if !sent.Before(b.since) {
			b.until, b.tries, b.why = time.Time{}, 0, ""
		}
	case a.HTTPStatus == http.StatusTooManyRequests || a.HTTPStatus == http.StatusServiceUnavailable,
		a.Reason == result.ReasonHTTP429 || a.Reason == result.ReasonHTTP503:
		b.refused(a, sent, now)
	}
}

func (b *backoff) refused(a engine.Answer, sent, now time.Time) {
	// Of several requests in flight at the refusal, only the first lengthens the pause of the next one.
	if b.tries == 0 || !sent.Before(b.since) {
		b.tries++
		b.since = now
	}
	pause := min(a.RetryAfter, backoffMostAsked)
	if pause <= 0 {
		pause = exponential(backoffFirst, backoffMost, b.tries-1)
	}
	if until := now.Add(pause); until.After(b.until) {
		b.until = until
		b.why = "the target answered " + string(a.Reason)
	}
}

// active reports whether the target is to be left alone now, and until when.
func (b *backoff) active(now time.Time) (until time.Time, why string, yes bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.until, b.why, now.Before(b.until)
}

// exponential returns first·2^n, at most most, and up to a fifth longer at random.
func exponential(first, most time.Duration, n int) time.Duration {
	d := most
	if n < 20 {
		d = min(first<<n, most)
	}
	return d + time.Duration(rand.Float64()*backoffJitter*float64(d))
}
