//go:build linux && cgo

package nvml

import (
	"math"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// GPM answers with averages between two samples of counters. Two samples must be
// 100 ms apart, since that is how often the driver refreshes them; after a long gap
// an average says little about now.
const (
	gpmMinGap = 100 * time.Millisecond
	gpmMaxGap = 10 * time.Minute
)

// gpmMetrics lists what is asked for, in the order of gpmReader.apply.
var gpmMetrics = [...]gonvml.GpmMetricId{
	gonvml.GPM_METRIC_GRAPHICS_UTIL,
	gonvml.GPM_METRIC_SM_UTIL,
	gonvml.GPM_METRIC_SM_OCCUPANCY,
	gonvml.GPM_METRIC_ANY_TENSOR_UTIL,
	gonvml.GPM_METRIC_DRAM_BW_UTIL,
}

// gpmReader keeps the previous sample of a GPU or a GPU instance.
type gpmReader struct {
	c         *calls
	prev, cur gonvml.GpmSample
	at        time.Time // of prev; zero if there is none
	// uuid is that of the MIG device that it was made for: GPU instance ids are
	// used again for other instances.
	uuid string
	// single says that the answers to a batch cannot be trusted.
	single, verified bool
}

// readGPM fills the activity of the GPU, or of its GPU instances in MIG mode.
func (d *device) readGPM(s *Sample) {
	if !d.gpmSupported() {
		return
	}
	if !s.MIGEnabled {
		s.Activity = d.readActivity(whole, "")
		return
	}
	for i := range s.MIG {
		m := &s.MIG[i]
		uuid := ""
		if len(m.UUIDs) > 0 {
			uuid = m.UUIDs[0]
		}
		m.Activity = d.readActivity(m.GPUInstance, uuid)
	}
}

func (d *device) gpmSupported() bool {
	for _, sym := range []string{symGPMAlloc, symGPMFree, symGPMSample, symGPMMetrics} {
		if !d.c.has(sym) {
			return false
		}
	}
	if len(d.gpm) > 0 {
		return true
	}
	// The support query goes through V1: a version mismatch there means that this
	// driver cannot do it, like any other refusal.
	sup, ok := ask(d, "gpm", d.h.GpmQueryDeviceSupportV().V1, symGPMSupport)
	if ok && sup.IsSupportedDevice == 0 {
		d.never["gpm"] = true
	}
	return ok && sup.IsSupportedDevice != 0
}

func (d *device) readActivity(key int, uuid string) Activity {
	name := "gpm sample" + instanceSuffix(key)
	if d.gone() || d.never[name] {
		return Activity{}
	}
	g := d.gpm[key]
	if g != nil && g.uuid != uuid {
		g.close()
		g = nil
	}
	if g == nil {
		g = &gpmReader{c: d.c, uuid: uuid}
		d.gpm[key] = g
	}
	now := time.Now()
	if !g.at.IsZero() && now.Sub(g.at) < gpmMinGap {
		return Activity{}
	}
	if !g.alloc() {
		return Activity{}
	}
	sample := func() (struct{}, gonvml.Return) { return struct{}{}, d.h.GpmSampleGet(g.cur) }
	sym := symGPMSample
	if key != whole {
		sample = func() (struct{}, gonvml.Return) { return struct{}{}, d.h.GpmMigSampleGet(key, g.cur) }
		sym = symGPMMIGSample
	}
	if _, code := call(d.c, sample, sym); !d.book(name, code) {
		g.at = time.Time{} // what cur holds now is unknown
		return Activity{}
	}
	gap := now.Sub(g.at)
	seeded := !g.at.IsZero() && gap <= gpmMaxGap
	g.prev, g.cur, g.at = g.cur, g.prev, now
	if !seeded {
		return Activity{}
	}
	// After the swap prev is the newer one.
	return g.activity(g.cur, g.prev, gap)
}

func (g *gpmReader) alloc() bool {
	for _, p := range []*gonvml.GpmSample{&g.prev, &g.cur} {
		if *p != nil {
			continue
		}
		s, code := call(g.c, g.c.lib.GpmSampleAlloc, symGPMAlloc)
		if code != codeSuccess {
			return false
		}
		*p = s
	}
	return true
}

func (g *gpmReader) close() {
	for _, p := range []*gonvml.GpmSample{&g.prev, &g.cur} {
		if *p != nil && g.c.has(symGPMFree) {
			_ = (*p).Free()
		}
		*p = nil
	}
	g.at = time.Time{}
}

// activity computes the averages between two samples.
func (g *gpmReader) activity(older, newer gonvml.GpmSample, gap time.Duration) Activity {
	var v [len(gpmMetrics)]Value
	if !g.single {
		ok := false
		if v, ok = g.batch(older, newer); !ok {
			return Activity{}
		}
	}
	if g.single {
		for i, id := range gpmMetrics {
			v[i] = g.one(older, newer, id)
		}
	}
	return Activity{
		Graphics: v[0], SM: v[1], SMOccupancy: v[2], Tensor: v[3], DRAM: v[4],
		Seconds: gap.Seconds(),
	}
}

// batch asks for all metrics at once. The layout of the answer differed between
// versions of the binding and of the driver: the first batch is checked against
// single questions, and a mismatch makes the reader ask singly from then on.
func (g *gpmReader) batch(older, newer gonvml.GpmSample) (v [len(gpmMetrics)]Value, ok bool) {
	req := gonvml.GpmMetricsGetType{NumMetrics: uint32(len(gpmMetrics)), Sample1: older, Sample2: newer}
	for i, id := range gpmMetrics {
		req.Metrics[i].MetricId = uint32(id)
	}
	if g.get(&req) != codeSuccess {
		return v, false
	}
	for i, id := range gpmMetrics {
		if req.Metrics[i].MetricId != uint32(id) {
			g.single = true
			return v, true
		}
		v[i] = gpmRatio(&req.Metrics[i])
	}
	if !g.verified {
		g.verified = true
		for i, id := range gpmMetrics {
			if !same(v[i], g.one(older, newer, id)) {
				g.single = true
			}
		}
	}
	return v, true
}

func (g *gpmReader) one(older, newer gonvml.GpmSample, id gonvml.GpmMetricId) Value {
	req := gonvml.GpmMetricsGetType{NumMetrics: 1, Sample1: older, Sample2: newer}
	req.Metrics[0].MetricId = uint32(id)
	if g.get(&req) != codeSuccess {
		return Value{}
	}
	return gpmRatio(&req.Metrics[0])
}

func (g *gpmReader) get(req *gonvml.GpmMetricsGetType) Code {
	_, code := call(g.c, func() (struct{}, gonvml.Return) { return struct{}{}, g.c.lib.GpmMetricsGet(req) }, symGPMMetrics)
	return code
}

func gpmRatio(m *gonvml.GpmMetric) Value {
	if Code(m.NvmlReturn) != codeSuccess || math.IsNaN(m.Value) {
		return Value{}
	}
	return Of(m.Value / 100)
}

func same(a, b Value) bool {
	return a.ok == b.ok && math.Abs(a.v-b.v) < 1e-6
}

// dropStaleGPM frees the readers of GPU instances that are no more, and that of the
// whole GPU when it is divided.
func (d *device) dropStaleGPM() {
	for key, g := range d.gpm {
		keep := key == whole && len(d.mig) == 0
		for _, m := range d.mig {
			keep = keep || m.id == key
		}
		if !keep {
			g.close()
			delete(d.gpm, key)
		}
	}
}
