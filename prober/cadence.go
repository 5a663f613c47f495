package prober

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// The rules of the cadence.
const (
	jitterFraction = 0.1  // of the interval: how much later than its even place a tick may be
	poissonCap     = 4    // intervals: no gap is longer
	poissonScale   = 1.02 // gaps are drawn with a mean longer by this, so that they have the right one after the cap
)

// cadence tells when ticks are due: absolute times, so that no delay adds up. It is a function of its seed: the same
// one gives the same ticks. Not safe for concurrent use.
type cadence interface {
	// next returns the first tick that was not returned yet. Ticks ascend strictly.
	next() time.Time
	// period is the mean time between ticks, 0 if there is none.
	period() time.Duration
}

// hash64 is a well-mixed function of its parts.
func hash64(parts ...string) uint64 {
	h := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return binary.BigEndian.Uint64(h[:8])
}

// phase returns the place of a target's scenario within its interval, so that many of them do not stampede.
func phase(target, scenario string, interval time.Duration) time.Duration {
	return time.Duration(hash64("phase", target, scenario) % uint64(interval))
}

// evenly ticks once an interval, at most a tenth of an interval late.
type evenly struct {
	base     time.Time // place of tick 0
	interval time.Duration
	rand     *rand.Rand
	n        int64
}

func newEvenly(base time.Time, interval time.Duration, r *rand.Rand) *evenly {
	return &evenly{base: base, interval: interval, rand: r}
}

func (e *evenly) next() time.Time {
	jitter := time.Duration(e.rand.Float64() * jitterFraction * float64(e.interval))
	t := e.base.Add(time.Duration(e.n)*e.interval + jitter)
	e.n++
	return t
}

func (e *evenly) period() time.Duration { return e.interval }

// poisson ticks at random with that mean interval: gaps are exponential, as those of many independent users are.
type poisson struct {
	at       time.Time
	interval time.Duration
	rand     *rand.Rand
}

func newPoisson(base time.Time, interval time.Duration, r *rand.Rand) *poisson {
	return &poisson{at: base, interval: interval, rand: r}
}

func (p *poisson) next() time.Time {
	t := p.at
	// The mean of min(X, c) for exponential X of mean s is s·(1 − exp(−c/s)); with s = 1.02 and c = 4 it is 1.000.
	gap := min(poissonScale*p.rand.ExpFloat64(), poissonCap)
	p.at = t.Add(max(time.Nanosecond, time.Duration(math.Round(gap*float64(p.interval)))))
	return t
}

func (p *poisson) period() time.Duration { return p.interval }

// crontab ticks as a cron expression says, in local wall-clock time.
type crontab struct {
	schedule cron.Schedule
	at       time.Time
}

func newCrontab(s cron.Schedule, from time.Time) *crontab {
	return &crontab{schedule: s, at: from.Round(0)}
}

func (c *crontab) next() time.Time {
	if c.at = c.schedule.Next(c.at); c.at.IsZero() {
		c.at = never() // such as 30 February
	}
	return c.at
}

func (c *crontab) period() time.Duration { return 0 }

func never() time.Time { return time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) }

// parseSchedule parses a cron expression of five fields or a descriptor such as @daily.
func parseSchedule(expr string) (cron.Schedule, error) {
	s, err := cron.ParseStandard(expr)
	if err != nil {
		return nil, fmt.Errorf("%q is not a cron expression (minute hour day month weekday, or @daily, @every 6h): %w", expr, err)
	}
	if s.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("%q never comes", expr)
	}
	return s, nil
}
