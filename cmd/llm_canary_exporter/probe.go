package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-kit/log"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// runProbe probes every target once (or --count times) with the asked scenarios, one probe after the other.
func runProbe(ctx context.Context, f *flags, o options, logger log.Logger) int {
	usage := func(err error) int {
		fmt.Fprintf(o.stderr, "%s: %v\n", programName, err)
		return exitUsage
	}
	if f.probe.count < 1 {
		return usage(fmt.Errorf("--count=%d: must be at least 1", f.probe.count))
	}
	cfg, err := loadConfig(f)
	if err != nil {
		return usage(err)
	}
	if len(cfg.Targets) == 0 {
		return usage(errors.New("no target to probe: give --target=http://host:8000 or a --config.file with targets"))
	}
	wanted, err := wantedScenarios(f.probe.scenarios, cfg)
	if err != nil {
		return usage(err)
	}
	p := newProber(logger, nil, nil)
	if err := p.Apply(cfg); err != nil {
		return usage(cfg.Annotate(err))
	}
	defer p.Close()
	out := newProbeOutput(f.probe.output, o)
	jobs := probeJobs(cfg, p, wanted, f.probe.count)
	code := exitOK
	for i, j := range jobs {
		if ctx.Err() != nil {
			out.finish()
			fmt.Fprintf(o.stderr, "%s: interrupted after %d of %d probes\n", programName, i, len(jobs))
			return exitFailed
		}
		out.progress(i, len(jobs), j)
		res, err := p.Probe(ctx, j.target, j.scenario)
		if err != nil {
			out.finish()
			return usage(err)
		}
		if res.Outcome == result.Failure {
			code = exitFailed
		}
		if err := out.probe(res); err != nil {
			fmt.Fprintf(o.stderr, "%s: cannot write the result: %v\n", programName, err)
			return exitFailed
		}
	}
	out.finish()
	return code
}

type probeJob struct{ target, scenario string }

// wantedScenarios splits the list of --scenario; each name must be configured. nil means all of each target.
func wantedScenarios(list string, cfg *config.Config) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	var known, out []string
	for _, s := range cfg.Scenarios {
		known = append(known, s.Name)
	}
	for _, name := range strings.Split(list, ",") {
		name = strings.TrimSpace(name)
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("--scenario: there is no scenario %q; there are %s", name, strings.Join(known, ", "))
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out, nil
}

// probeJobs lists the probes to run. A scenario that was asked for by name runs on every target, also where the
// target's own list leaves it out.
func probeJobs(cfg *config.Config, p *prober.Prober, wanted []string, count int) []probeJob {
	var jobs []probeJob
	for range count {
		for _, t := range cfg.Targets {
			scenarios := wanted
			if scenarios == nil {
				scenarios = scenariosOf(p, t.Name)
			}
			for _, s := range scenarios {
				jobs = append(jobs, probeJob{t.Name, s})
			}
		}
	}
	return jobs
}

// probeOutput writes results: JSON lines, or a table.
type probeOutput struct {
	json      *json.Encoder
	table     *table
	stderr    io.Writer
	terminal  bool
	lineDrawn bool
}

func newProbeOutput(format string, o options) *probeOutput {
	out := &probeOutput{stderr: o.stderr, terminal: o.stderrIsTerminal()}
	if format == "json" {
		out.json = json.NewEncoder(o.stdout)
		out.json.SetEscapeHTML(false)
		return out
	}
	out.table = newTable(o.stdout)
	return out
}

// progress draws what runs now, on a terminal only.
func (p *probeOutput) progress(done, all int, j probeJob) {
	if p.terminal {
		fmt.Fprintf(p.stderr, "\r\x1b[K[%d/%d] %s on %s …", done+1, all, j.scenario, j.target)
		p.lineDrawn = true
	}
}

func (p *probeOutput) clearLine() {
	if p.lineDrawn {
		fmt.Fprint(p.stderr, "\r\x1b[K")
		p.lineDrawn = false
	}
}

func (p *probeOutput) probe(r *result.Probe) error {
	p.clearLine()
	if r.Outcome == result.Unsupported {
		fmt.Fprintf(p.stderr, "%s: %s cannot do %s: %s\n", programName, r.Target, r.Scenario, r.Detail)
	}
	if p.json != nil {
		return p.json.Encode(r)
	}
	return p.table.probe(r)
}

func (p *probeOutput) finish() { p.clearLine() }
