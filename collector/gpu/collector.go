// Package gpu exposes what a GPU sampler last found as Prometheus metrics.
package gpu

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmcanary/llm_canary_exporter/nvml"
)

// Source is what the Collector reads; [nvml.Sampler] is one. State must return at
// once: a scrape never calls a driver.
type Source interface {
	State() *nvml.State
}

// Options says what a Collector exposes.
type Options struct {
	// MaxProcesses is how many processes of each GPU get a series, those with the
	// most memory; 0 means 10. Without per-process figures in the source there
	// are none.
	MaxProcesses int
}

// Collector is a [prometheus.Collector]. Its metrics are made anew for each scrape,
// so a GPU that is gone leaves nothing behind. It may be scraped concurrently.
type Collector struct {
	src          Source
	maxProcesses int

	health []desc[healthFamily]
	gpus   []desc[gpuFamily]
	lists  []desc[listFamily]
	migs   []desc[migFamily]
}

// desc is a family with its description for the registry.
type desc[F any] struct {
	family F
	desc   *prometheus.Desc
	typ    prometheus.ValueType
}

// New returns a Collector of what src found.
func New(src Source, o Options) *Collector {
	if o.MaxProcesses <= 0 {
		o.MaxProcesses = 10
	}
	return &Collector{
		src: src, maxProcesses: o.MaxProcesses,
		health: describe(healthFamilies(), func(f healthFamily) Family { return f.Family }),
		gpus:   describe(gpuFamilies(), func(f gpuFamily) Family { return f.Family }),
		lists:  describe(listFamilies(), func(f listFamily) Family { return f.Family }),
		migs:   describe(migFamilies(), func(f migFamily) Family { return f.Family }),
	}
}

func describe[F any](families []F, of func(F) Family) []desc[F] {
	out := make([]desc[F], 0, len(families))
	for _, f := range families {
		d := of(f)
		typ := prometheus.GaugeValue
		if d.Type == Counter {
			typ = prometheus.CounterValue
		}
		out = append(out, desc[F]{f, prometheus.NewDesc(d.Name, d.Help, d.Labels, nil), typ})
	}
	return out
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.health {
		ch <- d.desc
	}
	for _, d := range c.gpus {
		ch <- d.desc
	}
	for _, d := range c.lists {
		ch <- d.desc
	}
	for _, d := range c.migs {
		ch <- d.desc
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s := c.src.State()
	for i := range c.health {
		d := &c.health[i]
		d.family.collect(s, d.emitter(ch))
	}
	if !s.Up {
		return
	}
	for i := range s.Snapshot.GPUs {
		c.collectGPU(ch, s, i)
	}
}

// collectGPU exposes one GPU. Of a lost one that is its identity, gpu_up 0 and its Xid
// events, which often say why: it has nothing else.
func (c *Collector) collectGPU(ch chan<- prometheus.Metric, s *nvml.State, i int) {
	g := &s.Snapshot.GPUs[i]
	labels := []string{index(g.Index), g.UUID}
	var totals nvml.Totals
	if i < len(s.Totals) {
		totals = s.Totals[i]
	}
	for i := range c.gpus {
		d := &c.gpus[i]
		if v, ok := d.family.value(g, &totals).Get(); ok {
			d.emitter(ch, labels...)(v)
		}
	}
	for i := range c.lists {
		d := &c.lists[i]
		d.family.collect(c, &s.Snapshot.Driver, g, d.emitter(ch, labels...))
	}
	for j := range g.MIG {
		m := &g.MIG[j]
		mig := append(labels[:2:2], strconv.Itoa(m.GPUInstance))
		for i := range c.migs {
			d := &c.migs[i]
			d.family.collect(m, d.emitter(ch, mig...))
		}
	}
}

// emitter returns a function that sends samples with the labels first, and then its
// own.
func (d *desc[F]) emitter(ch chan<- prometheus.Metric, first ...string) emit {
	return func(v float64, rest ...string) {
		labels := append(first[:len(first):len(first)], rest...)
		m, err := prometheus.NewConstMetric(d.desc, d.typ, v, labels...)
		if err != nil {
			m = prometheus.NewInvalidMetric(d.desc, err)
		}
		ch <- m
	}
}

func index(i int) string {
	if i < 0 {
		return ""
	}
	return strconv.Itoa(i)
}
