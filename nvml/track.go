package nvml

import (
	"math"
	"slices"
	"time"
)

// point is what is kept of a Sample for later windows. NaN is absent. at is the time
// since the Sampler was made, on the monotonic clock.
type point struct {
	at                             time.Duration
	memory, util, memUtil, sm, pwr float64
}

func pointOf(at time.Duration, s *Sample) point {
	nan := math.NaN()
	return point{
		at: at, memory: s.Memory.Used.Or(nan), util: s.Utilization.Or(nan),
		memUtil: s.MemoryUtilization.Or(nan), sm: s.Activity.SM.Or(nan), pwr: s.PowerWatts.Or(nan),
	}
}

func (p point) value(f figure) Value {
	v := math.NaN()
	switch f {
	case figMemory:
		v = p.memory
	case figUtilization:
		v = p.util
	case figMemoryUtilization:
		v = p.memUtil
	case figSMActivity:
		v = p.sm
	case figPower:
		v = p.pwr
	}
	if math.IsNaN(v) {
		return Value{}
	}
	return Of(v)
}

// figure names one of the figures of a point.
type figure int

const (
	figMemory figure = iota
	figUtilization
	figMemoryUtilization
	figSMActivity
	figPower
)

// track is what a Sampler keeps of one GPU, or of one GPU instance: a ring of points
// and running totals.
type track struct {
	gpu      GPU
	instance int      // the GPU instance; whole for the GPU itself
	migUUIDs []string // of the MIG devices inside the instance
	ring     []point
	size     int // the most points in ring
	next     int // where the next point goes
	lastAt   time.Duration
	totals   Totals
}

// Totals only grow within the life of a Sampler, whoever reads them and however
// often; the maxima are those of the last minute. All are absent until there was
// something to count.
type Totals struct {
	// UtilizationSeconds is the integral of the utilization ratio over time,
	// MemoryUtilizationSeconds that of the memory utilization, and SampledSeconds
	// the time that both cover: rate(a)/rate(b) is the average.
	UtilizationSeconds, MemoryUtilizationSeconds, SampledSeconds Value
	// The same for GPM: integrals of the ratios of [Activity], and their time.
	GraphicsSeconds, SMSeconds, SMOccupancySeconds, TensorSeconds, DRAMSeconds Value
	ActivitySampledSeconds                                                     Value

	MemoryUsedMax, UtilizationMax, MemoryUtilizationMax, PowerMax Value
}

// MaxOver is the time that the maxima of [Totals] look back. It is fixed, so that two
// readers do not take maxima from each other.
const MaxOver = time.Minute

func newTrack(gpu GPU, instance, size int) *track {
	return &track{gpu: gpu, instance: instance, size: size, lastAt: -1}
}

// is reports whether uuid means this GPU, or a MIG device of this GPU instance.
func (t *track) is(uuid string) bool {
	if t.instance == whole {
		return sameUUID(uuid, t.gpu.UUID)
	}
	return slices.ContainsFunc(t.migUUIDs, func(m string) bool { return sameUUID(uuid, m) })
}

// add takes the next sample. A sample stands for the time since the one before it,
// but for no more than limit: what happened in a longer gap is not known.
func (t *track) add(at, limit time.Duration, s *Sample) {
	t.gpu = s.GPU
	if t.lastAt >= 0 {
		t.integrate(min(at-t.lastAt, limit).Seconds(), s)
	}
	t.lastAt = at
	p := pointOf(at, s)
	if len(t.ring) < t.size {
		t.ring = append(t.ring, p)
	} else {
		t.ring[t.next] = p
		t.next = (t.next + 1) % len(t.ring)
	}
	t.maxima(at)
}

func (t *track) integrate(seconds float64, s *Sample) {
	if s.Utilization.Valid() && s.MemoryUtilization.Valid() {
		grow(&t.totals.UtilizationSeconds, s.Utilization, seconds)
		grow(&t.totals.MemoryUtilizationSeconds, s.MemoryUtilization, seconds)
		grow(&t.totals.SampledSeconds, Of(1), seconds)
	}
	// GPM averages carry the time that they stand for.
	a := &s.Activity
	if a.SM.Valid() && a.Seconds > 0 {
		grow(&t.totals.GraphicsSeconds, a.Graphics, a.Seconds)
		grow(&t.totals.SMSeconds, a.SM, a.Seconds)
		grow(&t.totals.SMOccupancySeconds, a.SMOccupancy, a.Seconds)
		grow(&t.totals.TensorSeconds, a.Tensor, a.Seconds)
		grow(&t.totals.DRAMSeconds, a.DRAM, a.Seconds)
		grow(&t.totals.ActivitySampledSeconds, Of(1), a.Seconds)
	}
}

func grow(total *Value, ratio Value, seconds float64) {
	if v, ok := ratio.Get(); ok {
		*total = Of(total.Or(0) + v*seconds)
	}
}

// maxima computes the maxima of the last minute.
func (t *track) maxima(now time.Duration) {
	m := &t.totals
	m.MemoryUsedMax, m.UtilizationMax, m.MemoryUtilizationMax, m.PowerMax = Value{}, Value{}, Value{}, Value{}
	for i := t.len() - 1; i >= 0; i-- {
		p := t.at(i)
		if now-p.at > MaxOver {
			break
		}
		raise(&m.MemoryUsedMax, p.value(figMemory))
		raise(&m.UtilizationMax, p.value(figUtilization))
		raise(&m.MemoryUtilizationMax, p.value(figMemoryUtilization))
		raise(&m.PowerMax, p.value(figPower))
	}
}

// raise sets m to v if v is higher, or if m is absent.
func raise(m *Value, v Value) {
	if v.ok && (!m.ok || v.v > m.v) {
		*m = v
	}
}

func (t *track) len() int { return len(t.ring) }

// at returns the i-th oldest point.
func (t *track) at(i int) point { return t.ring[(t.next+i)%len(t.ring)] }
