package engine

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRetryAfter bounds how long a target can keep us away.
const maxRetryAfter = time.Hour

// retryAfter reads how long the target asks to be left alone, in each form that servers use: Retry-After in seconds
// or as a date, retry-after-ms, and x-ratelimit-reset-* as a duration ("1m2s", "350ms") or in seconds. 0 means that
// nothing usable was said. A limit that resets only matters if nothing of it is left.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(strings.TrimSpace(h.Get("Retry-After-Ms")), 64); err == nil {
		return boundRetry(ms / 1000)
	}
	if v := strings.TrimSpace(h.Get("Retry-After")); v != "" {
		if s, err := strconv.ParseFloat(v, 64); err == nil {
			return boundRetry(s)
		}
		if at, err := http.ParseTime(v); err == nil {
			return boundRetry(at.Sub(now).Seconds())
		}
	}
	longest := time.Duration(0)
	for _, what := range []string{"Requests", "Tokens"} {
		if left := strings.TrimSpace(h.Get("X-Ratelimit-Remaining-" + what)); left != "" && left != "0" {
			continue
		}
		v := strings.TrimSpace(h.Get("X-Ratelimit-Reset-" + what))
		if d, err := time.ParseDuration(v); err == nil {
			longest = max(longest, boundRetry(d.Seconds()))
		} else if s, err := strconv.ParseFloat(v, 64); err == nil && s < 1e8 { // larger: a Unix time, which no server documents
			longest = max(longest, boundRetry(s))
		}
	}
	return longest
}

func boundRetry(seconds float64) time.Duration {
	if !(seconds > 0) {
		return 0
	}
	if seconds >= maxRetryAfter.Seconds() {
		return maxRetryAfter
	}
	return time.Duration(seconds * float64(time.Second))
}
