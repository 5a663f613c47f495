package main

import (
	"context"
	"fmt"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
	"github.com/llmcanary/llm_canary_exporter/web"
)

// The methods here make the daemon the backend of the pages.

// Ready reports whether the daemon probes and is not stopping.
func (d *daemon) Ready() bool { return d.ready.Load() }

// ConfigYAML returns the running configuration without secrets.
func (d *daemon) ConfigYAML() ([]byte, error) { return d.cfg.Load().YAML() }

// ResolveTarget accepts the name or the base URL of a configured target.
func (d *daemon) ResolveTarget(param string) (string, error) {
	cfg := d.cfg.Load()
	if t := cfg.Target(param); t != nil {
		return t.Name, nil
	}
	if url, err := config.CleanURL(param); err == nil { // as it is written in the configuration, or to the same effect
		for i := range cfg.Targets {
			if t := &cfg.Targets[i]; t.URL == url {
				return t.Name, nil
			}
		}
	}
	return "", fmt.Errorf("target %q is not configured: /probe reaches only configured targets, by name or URL", param)
}

// Scenarios lists what a target is probed with.
func (d *daemon) Scenarios(target string) []string { return scenariosOf(d.prober, target) }

// Probe runs one probe now.
func (d *daemon) Probe(ctx context.Context, target, scenario string) (*result.Probe, error) {
	return d.prober.Probe(ctx, target, scenario)
}

// TargetDetails says what was found out about the targets.
func (d *daemon) TargetDetails() []web.TargetDetail { return targetDetails(d.prober.Targets()) }
