package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/version"
	toolkit "github.com/prometheus/exporter-toolkit/web"
	"golang.org/x/sync/errgroup"

	"github.com/llmcanary/llm_canary_exporter/collector"
	enginemetrics "github.com/llmcanary/llm_canary_exporter/collector/engine"
	"github.com/llmcanary/llm_canary_exporter/collector/gpu"
	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/nvml"
	"github.com/llmcanary/llm_canary_exporter/prober"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
	"github.com/llmcanary/llm_canary_exporter/web"
)

const (
	// historyPerPair is how many results and how many failures of each scenario the pages show.
	historyPerPair = 50
	// drainTimeout is how long open scrapes and pages may take when the daemon stops.
	drainTimeout = 5 * time.Second
)

// daemon is the running process: it applies configurations and answers the pages.
type daemon struct {
	logger    log.Logger
	load      func() (*config.Config, error)
	prober    *prober.Prober
	collector *collector.Collector
	history   *web.History
	reloads   reloadMetrics
	gpus      *nvml.Sampler  // nil: switched off
	engines   *engineReaders // nil: switched off
	quiet     bool           // no warnings about the configuration: it is the demo's

	histograms config.Histograms // what the collector was made with

	reloading sync.Mutex // one reload at a time
	cfg       atomic.Pointer[config.Config]
	ready     atomic.Bool
}

func runDaemon(ctx context.Context, f *flags, o options, logger log.Logger, slogger *slog.Logger) int {
	load := func() (*config.Config, error) { return loadConfig(f) }
	return serveDaemon(ctx, f, o, logger, slogger, load)
}

// serveDaemon runs the daemon on the configuration that load returns, until ctx ends.
func serveDaemon(ctx context.Context, f *flags, o options, logger log.Logger, slogger *slog.Logger, load func() (*config.Config, error)) int {
	usage := func(err error) int {
		fmt.Fprintf(o.stderr, "%s: %v\n", programName, err)
		return exitUsage
	}
	if !web.CheckMetricsPath(f.web.metricsPath) {
		return usage(fmt.Errorf("--web.telemetry-path=%s: must begin with / and must not be a path of another page", f.web.metricsPath))
	}
	if err := toolkit.Validate(*f.web.WebConfigFile); err != nil {
		return usage(fmt.Errorf("--web.config.file=%s: %w", *f.web.WebConfigFile, err))
	}
	cfg, err := load()
	if err != nil {
		return usage(err)
	}
	if cfg.Targets == nil {
		return usage(errors.New("no target to probe: give --target=http://host:8000 or a --config.file with targets (or try the demo command); a file that says `targets: []` runs without"))
	}
	if len(cfg.Targets) == 0 {
		level.Warn(logger).Log("msg", "no targets are configured: nothing is probed, only this host's GPUs are read")
	}
	listeners, err := listen(*f.web.WebListenAddresses, *f.web.WebSystemdSocket)
	if err != nil {
		return usage(err)
	}
	// From here on SIGHUP means reload, also while the daemon starts and while it stops: it must never end it.
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	d, registry, err := newDaemon(cfg, f, logger, load)
	if err != nil {
		closeAll(listeners)
		return usage(err)
	}
	level.Info(logger).Log("msg", "starting", "version", version.Version, "revision", version.GetRevision(), "targets", len(cfg.Targets))
	d.logPlan(cfg)
	for _, l := range listeners {
		o.listening("web", l.Addr())
	}
	if err := d.serve(ctx, f, listeners, registry, slogger, hangup); err != nil {
		level.Error(logger).Log("msg", "stopped with an error", "err", err)
		return exitFailed
	}
	level.Info(logger).Log("msg", "stopped")
	return exitOK
}

func newDaemon(cfg *config.Config, f *flags, logger log.Logger, load func() (*config.Config, error)) (*daemon, *prometheus.Registry, error) {
	registry := prometheus.NewRegistry()
	sink, err := collector.New(collector.Options{Histograms: string(cfg.Global.Histograms), Logger: logger})
	if err != nil {
		return nil, nil, err
	}
	if err := registerProcessMetrics(registry, f.collectors); err != nil {
		return nil, nil, err
	}
	d := &daemon{
		quiet: f.demo, logger: logger, load: load, collector: sink, history: web.NewHistory(historyPerPair),
		reloads: newReloadMetrics(registry), histograms: cfg.Global.Histograms,
	}
	if d.gpus, err = newSampler(f.collectors.gpu, logger); err != nil {
		return nil, nil, fmt.Errorf("--collector.gpu.interval=%s: %w", f.collectors.gpu.interval, err)
	}
	if d.gpus != nil {
		if err := registry.Register(gpu.New(d.gpus, gpu.Options{})); err != nil {
			return nil, nil, err
		}
	}
	sinks := []prober.Sink{sink, d.history}
	var busy prober.Load
	if f.collectors.engine {
		d.engines = newEngineReaders(logger)
		if err := registry.Register(enginemetrics.NewCollector(d.engines.set)); err != nil {
			return nil, nil, err
		}
		busy, sinks = d.engines, append(sinks, d.engines)
	}
	d.prober = newProber(logger, busy, windows{d.gpus, d.engines, d.cfg.Load}, sinks...)
	if err := d.apply(cfg); err != nil {
		d.close()
		return nil, nil, err
	}
	return d, registry, nil
}

// serve probes and answers until ctx ends, then stops in order: not ready, no new probes, running ones finish
// within the grace, open requests are answered.
func (d *daemon) serve(ctx context.Context, f *flags, listeners []net.Listener, registry *prometheus.Registry, slogger *slog.Logger, hangup <-chan os.Signal) error {
	server := &http.Server{
		Handler:           d.handler(f, registry),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		var err error
		if listeners == nil { // systemd hands them over
			err = toolkit.ListenAndServe(server, f.web.FlagConfig, slogger)
		} else {
			err = toolkit.ServeMultiple(listeners, server, f.web.FlagConfig, slogger)
		}
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return err
	})
	group.Go(func() error { return d.reloadOnHangup(gctx, hangup) })
	if d.gpus != nil {
		group.Go(func() error { return d.gpus.Run(gctx) })
	}
	group.Go(func() error {
		d.ready.Store(true)
		context.AfterFunc(gctx, func() { d.ready.Store(false) })
		err := d.prober.Run(gctx)
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		if e := server.Shutdown(stop); e != nil {
			_ = server.Close()
		}
		return err
	})
	err := group.Wait()
	d.close()
	return err
}

// close ends what the daemon does beside serving. It may be called twice.
func (d *daemon) close() {
	d.prober.Close()
	if d.engines != nil {
		d.engines.close()
	}
}

// logPlan says in one line what will be probed and what it costs.
func (d *daemon) logPlan(cfg *config.Config) {
	plan, err := d.prober.Plan(cfg)
	if err != nil {
		return // the prober has taken the same configuration: it would have refused it
	}
	level.Info(d.logger).Log("msg", "will probe", "targets", len(plan.Targets), "scenarios", len(plan.Pairs),
		"probes_per_day", math.Round(plan.Total.ProbesPerDay), "prompt_tokens_per_day", math.Round(plan.Total.Expected.PromptPerDay),
		"output_tokens_per_day", math.Round(plan.Total.Expected.OutputPerDay))
}

func (d *daemon) handler(f *flags, registry *prometheus.Registry) http.Handler {
	metrics := d.collector.Handler(collector.HandlerOptions{Rest: registry, MaxRequestsInFlight: f.web.maxRequests})
	return web.NewHandler(web.Options{
		Logger: d.logger, Backend: d, History: d.history,
		Metrics: metrics, MetricsPath: f.web.metricsPath,
		Lifecycle: f.web.lifecycle, Pprof: f.web.pprof,
		Version: version.Version, ProbeGatherer: probeGatherer,
	})
}

// probeGatherer exposes one result the way the daemon exposes all of them.
func probeGatherer(p *result.Probe) (prometheus.Gatherer, error) {
	return collector.ForProbe(collector.Options{Histograms: string(config.HistogramsClassic)}, p)
}

// apply makes cfg the running configuration. An error leaves everything as it was.
func (d *daemon) apply(cfg *config.Config) error {
	if err := d.prober.Apply(cfg); err != nil {
		return cfg.Annotate(err)
	}
	d.cfg.Store(cfg)
	if d.engines != nil {
		d.engines.apply(cfg)
	}
	d.reloads.done(time.Now())
	if d.quiet {
		return nil
	}
	if cfg.Global.Histograms != d.histograms {
		level.Warn(d.logger).Log("msg", "global.histograms changes with a restart only: buckets that change under running series would spoil every rate", "stays", d.histograms)
	}
	for _, w := range cfg.Warnings() {
		level.Warn(d.logger).Log("msg", "configuration", "warning", w)
	}
	return nil
}

// Reload reads the configuration again. A bad one changes nothing but the reload metrics.
func (d *daemon) Reload() error {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	cfg, err := d.load()
	if err == nil {
		err = d.apply(cfg)
	}
	if err != nil {
		d.reloads.failed()
		level.Error(d.logger).Log("msg", "the configuration was not reloaded, the old one stays", "err", err)
		return err
	}
	level.Info(d.logger).Log("msg", "configuration reloaded", "targets", len(cfg.Targets))
	return nil
}

func (d *daemon) reloadOnHangup(ctx context.Context, hangup <-chan os.Signal) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hangup:
			_ = d.Reload() // logged there
		}
	}
}

// listen opens the addresses of the web server. With systemd's sockets there are none to open.
func listen(addresses []string, systemd bool) ([]net.Listener, error) {
	if systemd {
		return nil, nil
	}
	var out []net.Listener
	for _, a := range addresses {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", a)
		if err != nil {
			closeAll(out)
			return nil, fmt.Errorf("--web.listen-address=%s: %w", a, err)
		}
		out = append(out, l)
	}
	return out, nil
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		_ = l.Close()
	}
}
