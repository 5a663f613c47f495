package nvml

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"strconv"
	"time"
)

// Change is what one figure did in a window.
type Change struct {
	// Before is the last reading at or before the window's start.
	Before Value
	// Peak is the highest reading inside the window. If no reading fell inside,
	// it is After when that was read at or after the end: utilization and power
	// are averages over the time before the reading, and memory rarely moves
	// faster than the sampling.
	Peak Value
	// After is the first reading at or after the window's end; while there is
	// none yet, the last one inside.
	After Value
}

// Delta returns Peak minus Before; absent if one of them is.
func (c Change) Delta() Value {
	if !c.Before.ok || !c.Peak.ok {
		return Value{}
	}
	return Of(c.Peak.v - c.Before.v)
}

// GPUWindow is what one GPU, or one GPU instance of it, did between two moments.
type GPUWindow struct {
	GPU GPU
	// GPUInstance is the id of the MIG GPU instance; -1 for the whole GPU.
	GPUInstance int
	// Samples is the number of readings inside the window.
	Samples int
	// MemoryUsed is in bytes, Utilization a ratio, Power in watts. A GPU instance
	// has memory and SM activity only.
	MemoryUsed, Utilization, Power Change
	// SMActivity is a ratio, on chips with GPM.
	SMActivity Change
}

// Label returns a short name that tells windows apart: the index of the GPU ("0"), with
// the GPU instance behind it for a part of a GPU ("0/3"). Without an index it is the UUID.
func (w GPUWindow) Label() string {
	name := w.GPU.UUID
	if w.GPU.Index >= 0 {
		name = strconv.Itoa(w.GPU.Index)
	}
	if w.GPUInstance == whole {
		return name
	}
	return name + "/" + strconv.Itoa(w.GPUInstance)
}

// Window returns what each GPU did from one moment to another, ordered by index.
// With uuids only those GPUs are returned (any case, with or without "GPU-"); the UUID
// of a MIG device asks for its GPU instance. Without, all whole GPUs are. GPUs of
// which there is no reading in or next to the window are left out. A reading next to
// it counts only if it is near: within five intervals, at least five seconds.
//
// Window never calls the driver and is safe for concurrent use. Right after the end
// of a request its After is the last reading inside; see [Sampler.WaitWindow].
func (s *Sampler) Window(from, to time.Time, uuids ...string) []GPUWindow {
	if to.Before(from) {
		from, to = to, from
	}
	a, b := from.Sub(s.base), to.Sub(s.base)
	near := max(5*s.o.Interval, 5*time.Second)
	var out []GPUWindow
	s.mu.Lock()
	for _, t := range s.tracks {
		if len(uuids) == 0 && t.instance != whole || len(uuids) > 0 && !slices.ContainsFunc(uuids, t.is) {
			continue
		}
		if w, ok := t.window(a, b, near); ok {
			out = append(out, w)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(out, func(x, y GPUWindow) int {
		return cmp.Or(cmp.Compare(x.GPU.Index, y.GPU.Index), cmp.Compare(x.GPU.UUID, y.GPU.UUID), cmp.Compare(x.GPUInstance, y.GPUInstance))
	})
	return out
}

// WaitWindow is Window once a cycle that began at or after to was completed; it waits for
// that at most two intervals, or until ctx ends.
func (s *Sampler) WaitWindow(ctx context.Context, from, to time.Time, uuids ...string) []GPUWindow {
	limit := time.NewTimer(2 * s.o.Interval)
	defer limit.Stop()
	for {
		s.mu.Lock()
		published, last := s.published, s.lastAt
		s.mu.Unlock()
		if last >= to.Sub(s.base) {
			break
		}
		select {
		case <-published:
			continue
		case <-limit.C:
		case <-ctx.Done():
		}
		break
	}
	return s.Window(from, to, uuids...)
}

// window computes the window of one GPU from a to b.
func (t *track) window(a, b, near time.Duration) (GPUWindow, bool) {
	w := GPUWindow{GPU: t.gpu, GPUInstance: t.instance}
	n := t.len()
	first := sort.Search(n, func(i int) bool { return t.at(i).at >= a }) // first inside
	past := sort.Search(n, func(i int) bool { return t.at(i).at >= b })  // first at or after the end
	before, after, end := first-1, past, past
	if first < n && t.at(first).at == a {
		before = first
	}
	if before >= 0 && a-t.at(before).at > near {
		before = -1
	}
	if after < n && t.at(after).at == b {
		end = after + 1
	}
	if after >= n || t.at(after).at-b > near {
		after = -1
	}
	w.Samples = max(end-first, 0)
	w.MemoryUsed = t.change(figMemory, before, first, end, after)
	w.Utilization = t.change(figUtilization, before, first, end, after)
	w.SMActivity = t.change(figSMActivity, before, first, end, after)
	w.Power = t.change(figPower, before, first, end, after)
	return w, before >= 0 || w.Samples > 0 || after >= 0
}

// change computes one figure from the points before, [first, end) and after; -1
// stands for none.
func (t *track) change(f figure, before, first, end, after int) Change {
	var c Change
	if before >= 0 {
		c.Before = t.at(before).value(f)
	}
	for i := first; i < end; i++ {
		v := t.at(i).value(f)
		raise(&c.Peak, v)
		if v.ok {
			c.After = v
		}
	}
	if after >= 0 {
		if v := t.at(after).value(f); v.ok {
			c.After = v
			if !c.Peak.ok {
				c.Peak = v
			}
		}
	}
	return c
}
