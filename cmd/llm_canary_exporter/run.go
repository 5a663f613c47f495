package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/version"
	"github.com/prometheus/exporter-toolkit/web"
	"github.com/prometheus/exporter-toolkit/web/kingpinflag"
	"golang.org/x/term"
)

const (
	programName    = "llm_canary_exporter"
	defaultAddress = ":9877"
)

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // a probe failed; the daemon could not go on
	exitUsage  = 2 // the command line or the configuration is wrong
)

// options are what run gets from its surroundings; tests bring their own.
type options struct {
	stdout, stderr io.Writer
	// onListen is told the address that the daemon or the simulated engine really listens on.
	onListen func(what string, addr net.Addr)
}

func (o options) listening(what string, addr net.Addr) {
	if o.onListen != nil {
		o.onListen(what, addr)
	}
}

// stderrIsTerminal says whether a progress line can be drawn.
func (o options) stderrIsTerminal() bool {
	f, ok := o.stderr.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// flags are the parsed command line.
type flags struct {
	logLevel, logFormat string
	configFile          string
	targets             []string

	web struct {
		*web.FlagConfig
		metricsPath      string
		lifecycle, pprof bool
		maxRequests      int
	}
	collectors collectorFlags

	probe struct {
		scenarios string
		count     int
		output    string
	}
	plan struct{ output string }
	sim  simFlags
	demo bool
}

// run is the one entry that the binary and the end-to-end tests share. It returns the exit code when ctx has
// ended, or when the command is done.
func run(ctx context.Context, args []string, o options) int {
	var f flags
	app := newApp(&f, o)
	terminated, code := false, exitOK
	app.Terminate(func(c int) { terminated, code = true, c })
	command, err := app.Parse(args)
	if terminated {
		return code
	}
	if err != nil {
		fmt.Fprintf(o.stderr, "%s: %v\nTry %s --help.\n", programName, err, programName)
		return exitUsage
	}
	logger, slogger, err := newLogger(o.stderr, f.logLevel, f.logFormat)
	if err != nil {
		fmt.Fprintf(o.stderr, "%s: %v\n", programName, err)
		return exitUsage
	}
	switch command {
	case "probe":
		return runProbe(ctx, &f, o, logger)
	case "check":
		return runCheck(&f, o)
	case "plan":
		return runPlan(&f, o)
	case "sim":
		return runSim(ctx, &f, o, logger)
	case "demo":
		f.demo = true
		return runDemo(ctx, &f, o, logger, slogger)
	}
	return runDaemon(ctx, &f, o, logger, slogger)
}

func newApp(f *flags, o options) *kingpin.Application {
	app := kingpin.New(programName, "Watches LLM inference servers from the client's side: canary prompts, measured token by token, for Prometheus.\n\n"+
		"Examples:\n"+
		"  llm_canary_exporter --target=http://host:8000        the daemon, /metrics on :9877\n"+
		"  llm_canary_exporter --config.file=llm_canary.yml     the daemon, configured\n"+
		"  llm_canary_exporter demo                             a simulated engine and the daemon that probes it\n"+
		"  llm_canary_exporter probe --target=http://host:8000  one round of probes, as a table\n")
	app.Version(version.Print(programName))
	app.HelpFlag.Short('h')
	app.UsageWriter(o.stdout).ErrorWriter(o.stderr)

	app.Flag("log.level", "Only log messages with the given severity or above. One of: debug, info, warn, error.").
		Default("info").EnumVar(&f.logLevel, "debug", "info", "warn", "error")
	app.Flag("log.format", "Output format of log messages. One of: logfmt, json.").
		Default("logfmt").EnumVar(&f.logFormat, "logfmt", "json")
	app.Flag("config.file", "Path of the configuration file, such as llm_canary.yml. Without one, --target says what to probe.").
		PlaceHolder("FILE").StringVar(&f.configFile)
	app.Flag("target", "Base URL of an inference server, such as http://host:8000. Repeatable; added to the targets of the configuration file.").
		PlaceHolder("URL").StringsVar(&f.targets)

	f.web.FlagConfig = kingpinflag.AddFlags(app, defaultAddress)
	app.Flag("web.telemetry-path", "Path under which to expose metrics.").Default("/metrics").StringVar(&f.web.metricsPath)
	app.Flag("web.enable-lifecycle", "Allow reloading the configuration with POST /-/reload.").BoolVar(&f.web.lifecycle)
	app.Flag("web.enable-pprof", "Serve profiling data under /debug/pprof/.").BoolVar(&f.web.pprof)
	app.Flag("web.max-requests", "Scrapes of the metrics page that may run at once; more get 503. 0 = no limit.").Default("40").IntVar(&f.web.maxRequests)
	f.collectors.register(app)

	app.Command("run", "Run the daemon (what happens without a command).").Default()

	probe := app.Command("probe", "Probe the targets once and print what was found. Exit 0: all good, 1: a probe failed, 2: usage or configuration.")
	probe.Flag("scenario", "Scenarios to run, comma separated, such as chat,decode. Default: every one of the target.").PlaceHolder("LIST").StringVar(&f.probe.scenarios)
	probe.Flag("count", "How often to run each scenario.").Default("1").IntVar(&f.probe.count)
	probe.Flag("output", "table for people, json for programs: one object per probe and line.").Default("table").EnumVar(&f.probe.output, "table", "json")

	app.Command("check", "Check the configuration file and the web configuration; every error names file, line and field.")

	plan := app.Command("plan", "Show what the configuration will send: probes and tokens per day, peak concurrency, money.")
	plan.Flag("output", "table or json.").Default("table").EnumVar(&f.plan.output, "table", "json")

	f.sim.register(app.Command("sim", "Run the simulated engine alone: an OpenAI-compatible server with a made-up model."), "sim.listen-address", ":8000")
	app.Command("demo", "Run the simulated engine and the daemon probing it at a quick cadence. Needs no server, no GPU, no network.")
	return app
}
