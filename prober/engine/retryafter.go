package engine

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRetryAfter bounds how long a server can keep us away.
const maxRetryAfter = time.Hour

// retryAfter returns how long a server asks to be left alone, in any of the forms: Retry-After as seconds or as an
// HTTP date, retry-after-ms, and the x-ratelimit-reset-* headers of OpenAI-style services. 0 means that it does not
// ask, or asks for nonsense.
func retryAfter(h http.Header, now time.Time) time.Duration {
	for _, d := range []time.Duration{
		milliseconds(h.Get("Retry-After-Ms")),
		secondsOrDate(h.Get("Retry-After"), now),
		// The longer of the two, since both limits must have been reset.
		max(span(h.Get("X-Ratelimit-Reset-Requests")), span(h.Get("X-Ratelimit-Reset-Tokens"))),
	} {
		if d > 0 {
			return min(d, maxRetryAfter)
		}
	}
	return 0
}

func milliseconds(s string) time.Duration { return scaledDuration(s, time.Millisecond) }

func secondsOrDate(s string, now time.Time) time.Duration {
	if d := scaledDuration(s, time.Second); d > 0 {
		return d
	}
	if at, err := http.ParseTime(strings.TrimSpace(s)); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// span reads "1m2s", "350ms" and plain seconds.
func span(s string) time.Duration {
	if d, err := time.ParseDuration(strings.TrimSpace(s)); err == nil {
		return max(d, 0)
	}
	return scaledDuration(s, time.Second)
}

func scaledDuration(s string, unit time.Duration) time.Duration {
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || math.IsNaN(f) || f <= 0 {
		return 0
	}
	if f *= float64(unit); f >= float64(math.MaxInt64) {
		return maxRetryAfter
	}
	return time.Duration(f)
}
