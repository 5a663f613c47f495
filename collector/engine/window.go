package enginemetrics

import "time"

// windowLength is how long readings of the KV cache are kept: as long as GPU samples.
const windowLength = 10 * time.Minute

// window keeps the KV cache usage of the last readings.
type window struct {
	points []point // oldest first
}

type point struct {
	at    time.Time
	usage float64
}

func (w *window) add(at time.Time, usage *float64) {
	old := 0
	for old < len(w.points) && at.Sub(w.points[old].at) > windowLength {
		old++
	}
	w.points = append(w.points[:0], w.points[old:]...)
	if usage != nil {
		w.points = append(w.points, point{at, *usage})
	}
}

func (w *window) peak(from, to time.Time) *float64 {
	var top *float64
	for _, p := range w.points {
		if p.at.Before(from) || p.at.After(to) {
			continue
		}
		if top == nil || p.usage > *top {
			top = &p.usage
		}
	}
	return top
}
