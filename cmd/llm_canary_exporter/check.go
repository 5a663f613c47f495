package main

import (
	"errors"
	"fmt"

	toolkit "github.com/prometheus/exporter-toolkit/web"
)

// runCheck validates the configuration and the web configuration without sending anything.
func runCheck(f *flags, o options) int {
	fail := func(err error) int {
		fmt.Fprintf(o.stderr, "%s: %v\n", programName, err)
		return exitUsage
	}
	if f.configFile == "" && len(f.targets) == 0 && *f.web.WebConfigFile == "" {
		return fail(errors.New("nothing to check: give --config.file=FILE or --web.config.file=FILE"))
	}
	if path := *f.web.WebConfigFile; path != "" {
		if err := toolkit.Validate(path); err != nil {
			return fail(fmt.Errorf("--web.config.file=%s: %w", path, err))
		}
		fmt.Fprintf(o.stdout, "%s: valid web configuration\n", path)
	}
	if f.configFile == "" && len(f.targets) == 0 {
		return exitOK
	}
	cfg, err := loadConfig(f)
	if err != nil {
		return fail(err)
	}
	if err := checkScenarios(cfg); err != nil {
		return fail(err)
	}
	for _, w := range cfg.Warnings() {
		fmt.Fprintf(o.stderr, "warning: %s\n", w)
	}
	name := f.configFile
	if name == "" {
		name = "command line"
	}
	fmt.Fprintf(o.stdout, "%s: valid, %d targets, %d scenarios\n", name, len(cfg.Targets), len(cfg.Scenarios))
	return exitOK
}
