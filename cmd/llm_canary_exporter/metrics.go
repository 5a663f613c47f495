package main

import (
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/collectors/version"
)

// collectorFlags switch groups of metrics on and off.
type collectorFlags struct {
	process, runtime bool
	engine           bool
	gpu              gpuFlags
}

func (c *collectorFlags) register(app *kingpin.Application) {
	app.Flag("collector.engine", "Read the targets' own metrics pages (engine_*). A target's engine_metrics setting says where, or off.").Default("true").BoolVar(&c.engine)
	c.gpu.register(app)
	app.Flag("collector.process", "Expose the exporter's own CPU, memory and file descriptors (process_*).").Default("true").BoolVar(&c.process)
	app.Flag("collector.go", "Expose the Go runtime's metrics (go_*).").Default("true").BoolVar(&c.runtime)
}

func registerProcessMetrics(r prometheus.Registerer, f collectorFlags) error {
	list := []prometheus.Collector{version.NewCollector("llm_canary")}
	if f.process {
		list = append(list, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	if f.runtime {
		list = append(list, collectors.NewGoCollector())
	}
	for _, c := range list {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// reloadMetrics tell whether the last reload worked.
type reloadMetrics struct {
	successful, successTime prometheus.Gauge
}

func newReloadMetrics(r prometheus.Registerer) reloadMetrics {
	m := reloadMetrics{
		successful: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "llm_canary_config_last_reload_successful", Help: "Whether the last attempt to load the configuration worked (1) or left the old one in place (0).",
		}),
		successTime: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "llm_canary_config_last_reload_success_timestamp_seconds", Help: "When a configuration was last loaded with success, as Unix time.",
		}),
	}
	r.MustRegister(m.successful, m.successTime)
	return m
}

func (m reloadMetrics) done(at time.Time) {
	m.successful.Set(1)
	m.successTime.Set(float64(at.UnixMilli()) / 1000)
}

func (m reloadMetrics) failed() { m.successful.Set(0) }
