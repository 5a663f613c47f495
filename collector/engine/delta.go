package enginemetrics

import (
	"math"
	"strings"
	"time"
)

// restarted reports whether an engine's counters began anew between two readings.
func restarted(before, after *Normalised) bool {
	if before.Dialect != after.Dialect {
		return true
	}
	if a, b := before.ProcessStart, after.ProcessStart; a != nil && b != nil && math.Abs(*a-*b) > 1 {
		return true
	}
	for _, f := range counters() {
		a, b := before.Get(f), after.Get(f)
		if a != nil && b != nil && before.Why[f] == after.Why[f] && *b < *a {
			return true
		}
	}
	return false
}

// Delta is what an engine's counters did between two readings. It includes everybody's requests, not only ours.
type Delta struct {
	Reset   bool          // the counters began anew in between: there is no difference
	Elapsed time.Duration // between the two readings
	dialect string
	values  map[Figure]float64
}

// Counters returns what the counters did between two readings of one Reader. A counter that one of the readings
// lacks, or that came from another name of the page, has no difference.
func Counters(before, after Reading) Delta {
	d := Delta{Elapsed: after.At.Sub(before.At), values: map[Figure]float64{}}
	if before.Normalised == nil || after.Normalised == nil {
		return d
	}
	d.dialect = after.Dialect
	if before.Epoch != after.Epoch || restarted(before.Normalised, after.Normalised) {
		d.Reset = true
		return d
	}
	for _, f := range counters() {
		a, b := before.Get(f), after.Get(f)
		if a == nil || b == nil || !sameSource(before, after, f) {
			continue
		}
		d.values[f] = *b - *a
	}
	return d
}

// sameSource: a counter that was declared before it first counted is no other one.
func sameSource(before, after Reading, f Figure) bool {
	a, _, _ := strings.Cut(before.Why[f], declaredOnly)
	b, _, _ := strings.Cut(after.Why[f], declaredOnly)
	return a == b
}

// Get returns what a counter grew by, nil if that is not known.
func (d Delta) Get(f Figure) *float64 {
	if x, ok := d.values[f]; ok {
		return &x
	}
	return nil
}

// PrefixHitRatio returns hits by queries of the prefix cache, 0 to 1; nil if nothing was looked up or it is not known.
func (d Delta) PrefixHitRatio() *float64 {
	return d.share(PrefixCacheHits, PrefixCacheQueries)
}

// AcceptanceRatio returns accepted by drafted tokens, 0 to 1; nil if nothing was drafted or it is not known.
func (d Delta) AcceptanceRatio() *float64 {
	return d.share(SpeculativeAcceptedTokens, SpeculativeDraftTokens)
}

// AcceptanceLength returns the mean number of tokens of a verify step, with the one that each step yields anyway:
// 1 + accepted ÷ steps. SGLang counts no accepted tokens; there it is generated tokens ÷ steps, which is blurred by
// requests that run over the edges of the interval, since SGLang counts tokens when a request finishes.
func (d Delta) AcceptanceLength() *float64 {
	steps, accepted := d.Get(SpeculativeDrafts), d.Get(SpeculativeAcceptedTokens)
	if steps == nil || *steps <= 0 {
		return nil
	}
	length := 0.0
	switch generated := d.Get(GenerationTokens); {
	case accepted != nil:
		length = 1 + *accepted / *steps
	case d.dialect == "sglang" && generated != nil && *generated >= *steps:
		length = *generated / *steps
	default:
		return nil
	}
	return &length
}

// share divides two counters of which the first counts some of what the second counts.
func (d Delta) share(part, whole Figure) *float64 {
	p, w := d.Get(part), d.Get(whole)
	if p == nil || w == nil || *w <= 0 || *p > *w {
		return nil
	}
	x := *p / *w
	return &x
}
