package prober

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

var day1 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func source(n uint64) *rand.Rand { return rand.New(rand.NewPCG(1, n)) }

func TestEvenTicksAreAbsoluteWithBoundedJitter(t *testing.T) {
	const interval = 30 * time.Second
	c := newEvenly(day1, interval, source(1))
	seen := map[time.Duration]bool{}
	for i := range 100_000 {
		late := c.next().Sub(day1.Add(time.Duration(i) * interval))
		if late < 0 || late >= interval/10 {
			t.Fatalf("tick %d is %s from its place", i, late)
		}
		seen[late] = true
	}
	if len(seen) < 50_000 {
		t.Errorf("only %d different jitters", len(seen))
	}
}

func TestPoissonTicks(t *testing.T) {
	const interval = 30 * time.Second
	const n = 200_000
	c := newPoisson(day1, interval, source(1))
	before := c.next()
	if !before.Equal(day1) {
		t.Errorf("the first tick is at %s, want %s", before, day1)
	}
	var sum, squares float64
	for i := range n {
		at := c.next()
		gap := at.Sub(before)
		if gap <= 0 || gap > 4*interval {
			t.Fatalf("gap %d is %s", i, gap)
		}
		x := gap.Seconds() / interval.Seconds()
		sum += x
		squares += x * x
		before = at
	}
	mean := sum / n
	if math.Abs(mean-1) > 0.01 {
		t.Errorf("mean gap is %.4f intervals, want 1 ± 0.01", mean)
	}
	// An exponential distribution has a coefficient of variation of 1; the cap takes a little of it.
	if cv := math.Sqrt(squares/n-mean*mean) / mean; cv < 0.88 || cv > 1.0 {
		t.Errorf("coefficient of variation is %.3f", cv)
	}
}

func TestCadencesAreDeterministic(t *testing.T) {
	kinds := map[string]func(seed uint64) cadence{
		"evenly":  func(s uint64) cadence { return newEvenly(day1, time.Minute, source(s)) },
		"poisson": func(s uint64) cadence { return newPoisson(day1, time.Minute, source(s)) },
	}
	for name, f := range kinds {
		t.Run(name, func(t *testing.T) {
			a, b, other := f(1), f(1), f(2)
			differ := false
			for range 100 {
				x := a.next()
				if y := b.next(); !x.Equal(y) {
					t.Fatalf("the same seed gives %s and %s", x, y)
				}
				differ = differ || !x.Equal(other.next())
			}
			if !differ {
				t.Error("another seed gives the same ticks")
			}
		})
	}
}

func TestPhasesSpread(t *testing.T) {
	const interval = 10 * time.Minute
	var tenths [10]int
	for i := range 1000 {
		p := phase(fmt.Sprintf("target-%d", i/10), fmt.Sprintf("scenario-%d", i%10), interval)
		if p < 0 || p >= interval {
			t.Fatalf("phase is %s", p)
		}
		tenths[p*10/interval]++
	}
	for i, n := range tenths {
		if n < 60 || n > 140 {
			t.Errorf("tenth %d of the interval has %d of 1000 pairs", i, n)
		}
	}
}

func TestSchedules(t *testing.T) {
	s, err := parseSchedule("0 3 * * *")
	if err != nil {
		t.Fatal(err)
	}
	c := newCrontab(s, day1)
	for i := range 3 {
		want := time.Date(2026, 3, 2+i, 3, 0, 0, 0, time.UTC)
		if got := c.next(); !got.Equal(want) {
			t.Errorf("tick %d is at %s, want %s", i, got, want)
		}
	}
	for _, bad := range []string{"", "tomorrow", "0 3 * *", "61 * * * *", "0 0 30 2 *"} {
		if _, err := parseSchedule(bad); err == nil {
			t.Errorf("schedule %q was taken", bad)
		}
	}
}

// listed ticks at given times.
type listed struct{ at []time.Time }

func (l *listed) next() time.Time {
	t := l.at[0]
	l.at = l.at[1:]
	return t
}

func TestMissedTicksAreCountedOnceAndNotCaughtUp(t *testing.T) {
	every := func(d time.Duration, n int) []time.Time {
		var out []time.Time
		for i := range n {
			out = append(out, day1.Add(time.Duration(i)*d))
		}
		return out
	}
	tests := []struct {
		name   string
		ticks  []time.Time
		wall   bool
		now    time.Duration // after the first tick
		due    time.Duration // -1: none
		missed int
	}{
		{"in time", every(time.Minute, 9), false, 0, 0, 0},
		{"a little late", every(time.Minute, 9), false, 20 * time.Second, 0, 0},
		{"suspended for seven ticks", every(time.Minute, 9), false, 7*time.Minute + time.Second, 7 * time.Minute, 7},
		{"dense ticks, one of which is a little late", every(100*time.Millisecond, 9), false, 150 * time.Millisecond, 0, 0},
		{"a nightly schedule in the morning", every(24*time.Hour, 9), true, 5 * time.Hour, -1, 1},
		{"a nightly schedule after three days", every(24*time.Hour, 9), true, 77 * time.Hour, -1, 4},
		{"a nightly schedule in time after three days", every(24*time.Hour, 9), true, 72*time.Hour + time.Second, 72 * time.Hour, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &pairState{cadence: fixed{&listed{at: tt.ticks}, tt.wall}}
			s.tick()
			due, missed := s.due(day1.Add(tt.now))
			got := time.Duration(-1)
			if !due.IsZero() {
				got = due.Sub(day1)
			}
			if got != tt.due || missed != tt.missed {
				t.Errorf("runs the tick at %s and missed %d, want %s and %d", got, missed, tt.due, tt.missed)
			}
			if next := s.tick(); !next.After(day1.Add(tt.now)) && tt.name != "dense ticks, one of which is a little late" {
				t.Errorf("the next tick, %s, is in the past", next)
			}
		})
	}
}

// fixed makes a cadence of a list.
type fixed struct {
	*listed
	wall bool
}

func (f fixed) period() time.Duration {
	if f.wall {
		return 0
	}
	return time.Minute
}
