package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/sim"
)

// demoConfig probes at a cadence that shows figures within seconds.
const demoConfig = `
scenarios:
  - {name: chat, type: chat, interval: 2s}
  - {name: prefill, type: prefill, interval: 10s}
  - {name: decode, type: decode, interval: 5s}
targets:
  - {name: demo, url: "http://%s"}
`

// runDemo serves the simulated engine on a loopback port and runs the daemon against it.
func runDemo(ctx context.Context, f *flags, o options, logger log.Logger, slogger *slog.Logger) int {
	if f.configFile != "" || len(f.targets) > 0 {
		fmt.Fprintf(o.stderr, "%s: demo probes its own simulated engine: leave --config.file and --target out\n", programName)
		return exitUsage
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	engine, err := startSim(sim.DefaultConfig(), "127.0.0.1:0")
	if err != nil {
		fmt.Fprintf(o.stderr, "%s: %v\n", programName, err)
		return exitFailed
	}
	o.listening("sim", engine.addr())
	stopped := make(chan error, 1)
	simCtx, stopSim := context.WithCancel(context.WithoutCancel(ctx))
	go func() { stopped <- engine.wait(simCtx); cancel() }()

	address := engine.addr().String()
	load := func() (*config.Config, error) {
		return parseConfig("demo", []byte(fmt.Sprintf(demoConfig, address)))
	}
	level.Info(logger).Log("msg", "demo: simulated engine", "url", "http://"+address)
	level.Info(logger).Log("msg", "demo: open the status page", "url", "http://"+pageAddress((*f.web.WebListenAddresses)[0])+"/")
	code := serveDaemon(ctx, f, o, logger, slogger, load)
	stopSim()
	if err := <-stopped; err != nil {
		level.Error(logger).Log("msg", "demo: the simulated engine stopped", "err", err)
		return exitFailed
	}
	return code
}

// pageAddress turns a listen address into one that a browser on this machine can open.
func pageAddress(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if host == "" || strings.Trim(host, "0.:") == "" {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}
