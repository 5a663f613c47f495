package nvml

// wraps continues counters of the driver across their wraps and resets, so that
// what is published only grows within the life of this process.
type wraps map[wrapKey]*wrap

type wrapKey struct {
	uuid  string
	field uint32
}

type wrap struct {
	last, total uint64
}

// add takes the next reading of a counter of the given width and returns the count
// so far. The count starts at the first reading.
//
// A 32-bit (or narrower) counter that went back has wrapped: the difference modulo its width
// is what was added, provided that it did not wrap twice between two readings. A
// 64-bit counter that went back was reset unless it stood in its last half: then
// what it shows now is what is known to have been added.
func (w wraps) add(k wrapKey, now uint64, bits int) Value {
	c := w[k]
	if c == nil {
		w[k] = &wrap{last: now, total: now}
		return Of(float64(now))
	}
	delta := now - c.last // modulo 2^64
	switch {
	case now >= c.last:
	case bits < 64:
		delta &= 1<<bits - 1
	case c.last < 1<<63:
		delta = now
	}
	c.last = now
	c.total += delta
	return Of(float64(c.total))
}
