package main

import (
	"fmt"

	"github.com/go-kit/log"
	"github.com/prometheus/common/version"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober"
	"github.com/llmcanary/llm_canary_exporter/prober/engine"
	"github.com/llmcanary/llm_canary_exporter/prober/scenario"
	"github.com/llmcanary/llm_canary_exporter/web"
)

// The packages are put together here: config knows none of the others.

func configOptions() config.Options {
	o := config.Options{Builtin: scenario.Builtin()}
	for _, p := range engine.Protocols() {
		o.Protocols = append(o.Protocols, p.Name())
	}
	return o
}

// loadConfig reads the configuration file, if there is one, and adds the targets of the command line.
func loadConfig(f *flags) (*config.Config, error) {
	cfg := config.Default(configOptions())
	if f.configFile != "" {
		var err error
		if cfg, err = config.Load(f.configFile, configOptions()); err != nil {
			return nil, err
		}
	}
	return cfg.WithTargets(f.targets)
}

func parseConfig(name string, data []byte) (*config.Config, error) {
	return config.Parse(name, data, "", configOptions())
}

func newProber(logger log.Logger, load prober.Load, windows prober.Windows, sinks ...prober.Sink) *prober.Prober {
	if logger == nil {
		logger = log.NewNopLogger()
	}
	agent := programName + "/" + version.Version
	return prober.New(prober.Options{
		Logger:  logger,
		Sinks:   sinks,
		Load:    load,
		Windows: windows,
		NewTarget: func(c config.Target) (prober.Engine, error) {
			return engine.NewTarget(c, engine.Options{Logger: log.With(logger, "target", c.Name), UserAgent: agent})
		},
	})
}

// checkScenarios checks the settings that only the scenario types know.
func checkScenarios(cfg *config.Config) error {
	p := newProber(nil, nil, nil)
	defer p.Close()
	return cfg.Annotate(p.Apply(cfg))
}

// scenariosOf lists what a target is probed with, in the order of the configuration.
func scenariosOf(p *prober.Prober, target string) []string {
	var out []string
	for _, pair := range p.Pairs() {
		if pair.Target == target {
			out = append(out, pair.Scenario)
		}
	}
	return out
}

// targetDetails writes what the prober knows of the targets for the page.
func targetDetails(list []prober.TargetState) []web.TargetDetail {
	out := make([]web.TargetDetail, 0, len(list))
	for _, t := range list {
		d := web.TargetDetail{Target: t.Target, Detected: t.Detected, Checked: t.Checked}
		if t.Err != nil {
			d.Error = t.Err.Error()
		}
		add := func(key, value string) {
			if value != "" {
				d.Facts = append(d.Facts, web.KV{Key: key, Value: value})
			}
		}
		add("engine", t.Facts.Engine)
		add("version", t.Facts.Version)
		add("model", t.Facts.Model)
		add("protocol", t.Facts.Protocol)
		if t.Facts.MaxModelLen > 0 {
			add("context length", fmt.Sprintf("%d tokens", t.Facts.MaxModelLen))
		}
		if t.Detected {
			add("counts tokens for us", map[bool]string{true: "yes (POST /tokenize)", false: "no: sizes are learnt from usage"}[t.Facts.Tokenizes])
		}
		if t.Features != nil {
			d.Limits = featureLines(*t.Features)
		}
		out = append(out, d)
	}
	return out
}

func featureLines(f engine.Features) []web.KV {
	var out []web.KV
	for _, name := range sortedKeys(f.Refused) {
		if f.Refused[name] {
			out = append(out, web.KV{Key: "refused field", Value: name})
		}
	}
	for _, name := range sortedKeys(f.Seen) {
		out = append(out, web.KV{Key: string(name), Value: map[bool]string{true: "seen to work", false: "seen not to work"}[f.Seen[name]]})
	}
	return out
}
