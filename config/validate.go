package config

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

var scenarioNameRE = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_.-]{0,63}$`)

const (
	maxTargetName = 128
	minInterval   = time.Second
	maxMaxTokens  = 1 << 20
)

// validate checks what a scenario type cannot check for itself. All errors are told, not only the first.
func (c *Config) validate(o Options) error {
	errs := c.Global.validate()
	names := map[string]int{}
	for i := range c.Scenarios {
		s := &c.Scenarios[i]
		at := fmt.Sprintf("scenarios[%d]", i)
		errs = append(errs, s.validate(at)...)
		if first, twice := names[s.Name]; twice && s.Name != "" {
			errs = append(errs, Errorf(at+".name", "%q is the name of scenarios[%d] already", s.Name, first))
		}
		names[s.Name] = i
	}
	targets := map[string]int{}
	for i := range c.Targets {
		t := &c.Targets[i]
		at := fmt.Sprintf("targets[%d]", i)
		errs = append(errs, t.validate(at, o)...)
		errs = append(errs, c.references(at, t)...)
		if first, twice := targets[t.Name]; twice && t.Name != "" {
			errs = append(errs, Errorf(at+".name", "%q is the name of targets[%d] already", t.Name, first))
		}
		targets[t.Name] = i
	}
	return errors.Join(errs...)
}

func (g *Global) validate() []error {
	errs := g.Timeouts.validate("global", true)
	positive := func(name string, v int) {
		if v < 1 {
			errs = append(errs, Errorf("global."+name, "is %d, must be at least 1", v))
		}
	}
	positive("max_concurrent_probes", g.MaxConcurrentProbes)
	positive("max_concurrent_probes_per_target", g.MaxConcurrentProbesPerTarget)
	if !slices.Contains([]Histograms{HistogramsClassic, HistogramsNative, HistogramsBoth}, g.Histograms) {
		errs = append(errs, Errorf("global.histograms", "is %q, must be classic, native or both", g.Histograms))
	}
	return errs
}

// validate checks deadlines against each other; in a scenario 0 means that the global one applies.
func (t Timeouts) validate(at string, all bool) []error {
	var errs []error
	for _, x := range []struct {
		name string
		d    model.Duration
	}{{"timeout", t.Timeout}, {"connect_timeout", t.ConnectTimeout}, {"first_token_timeout", t.FirstTokenTimeout}, {"stall_timeout", t.StallTimeout}} {
		field := at + "." + x.name
		switch {
		case x.d < 0 || all && x.d == 0:
			errs = append(errs, Errorf(field, "is %s, must be above 0", x.d))
		case x.name != "timeout" && t.Timeout > 0 && x.d > t.Timeout:
			errs = append(errs, Errorf(field, "is %s, must not be above timeout (%s), which would always come first", x.d, t.Timeout))
		}
	}
	return errs
}

func (s *Scenario) validate(at string) []error {
	errs := s.Timeouts.validate(at, false)
	if !scenarioNameRE.MatchString(s.Name) {
		errs = append(errs, Errorf(at+".name", "is %q, must be 1 to 64 letters, digits, '_', '.' or '-', beginning with a letter or '_'", s.Name))
	}
	if s.Type == "" {
		errs = append(errs, Errorf(at+".type", "is missing: name a scenario type, such as chat"))
	}
	if s.Interval != 0 && time.Duration(s.Interval) < minInterval {
		errs = append(errs, Errorf(at+".interval", "is %s, must be at least 1s", s.Interval))
	}
	if s.Interval != 0 && s.Schedule != "" {
		errs = append(errs, Errorf(at+".schedule", "excludes interval: give one of them"))
	}
	if s.MaxTokens < 0 || s.MaxTokens > maxMaxTokens {
		errs = append(errs, Errorf(at+".max_tokens", "is %d, must be 1 to %d", s.MaxTokens, maxMaxTokens))
	}
	return errs
}

func (t *Target) validate(at string, o Options) []error {
	var errs []error
	switch {
	case t.Name == "":
		errs = append(errs, Errorf(at+".name", "is missing"))
	case len(t.Name) > maxTargetName || strings.ContainsFunc(t.Name, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }):
		errs = append(errs, Errorf(at+".name", "must be at most %d printable characters", maxTargetName))
	}
	clean, err := CleanURL(t.URL)
	if err != nil {
		errs = append(errs, Errorf(at+".url", "%w", err))
	} else {
		t.URL = clean
	}
	for _, x := range []struct {
		field, value string
		known        []string
	}{{"protocol", t.Protocol, o.Protocols}, {"engine", t.Engine, o.Engines}} {
		if x.value != Auto && len(x.known) > 0 && !slices.Contains(x.known, x.value) {
			errs = append(errs, Errorf(at+"."+x.field, "is %q, must be auto or one of %s", x.value, strings.Join(x.known, ", ")))
		}
	}
	if e := t.EngineMetrics; e != Auto && e != EngineMetricsOff {
		if _, err := CleanURL(e); err != nil {
			errs = append(errs, Errorf(at+".engine_metrics", "must be auto, off or the URL of a metrics page: it %w", err))
		}
	}
	if !slices.Contains([]string{Auto, GPULocal, GPUOff}, t.GPU) {
		errs = append(errs, Errorf(at+".gpu", "is %q, must be auto, local or off", t.GPU))
	}
	if t.Model == "" {
		errs = append(errs, Errorf(at+".model", "is empty, must be auto or the name of a model"))
	}
	if t.Price.PromptPerMillion < 0 || t.Price.OutputPerMillion < 0 {
		errs = append(errs, Errorf(at+".price", "must not be negative"))
	}
	if err := t.HTTPClient.Validate(); err != nil {
		errs = append(errs, Errorf(at, "%w", err))
	}
	return errs
}

// references checks the names of scenarios that a target uses.
func (c *Config) references(at string, t *Target) []error {
	var errs []error
	check := func(field string, names []string) {
		seen := map[string]bool{}
		for i, n := range names {
			path := fmt.Sprintf("%s.%s[%d]", at, field, i)
			if c.Scenario(n) == nil {
				errs = append(errs, Errorf(path, "there is no scenario %q; there are %s", n, strings.Join(c.scenarioNames(), ", ")))
			}
			if seen[n] {
				errs = append(errs, Errorf(path, "%q is listed twice", n))
			}
			seen[n] = true
		}
	}
	check("scenarios", t.Scenarios)
	check("require", t.Require)
	return errs
}

func (c *Config) scenarioNames() []string {
	out := make([]string, 0, len(c.Scenarios))
	for _, s := range c.Scenarios {
		out = append(out, s.Name)
	}
	return out
}

// CleanURL checks the base URL of a target. A trailing slash and a trailing /v1 are left out: the paths of the
// protocols are added to it.
func CleanURL(raw string) (string, error) {
	if raw == "" {
		return "", errors.New("is missing: the base URL of the server, such as http://host:8000")
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return "", errors.New("is no URL: write it like http://host:8000")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Hostname() == "":
		return "", errors.New("must begin with http:// or https:// and name a host, such as http://host:8000")
	case u.User != nil:
		return "", errors.New("must not hold a user name or password: use basic_auth or authorization")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return "", errors.New("must not hold a query or a fragment")
	}
	u.Path = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/v1")
	u.RawPath = ""
	return strings.TrimRight(u.String(), "/"), nil
}

// Warnings says what is allowed and probably not meant.
func (c *Config) Warnings() []string {
	var out []string
	for i := range c.Scenarios {
		s := &c.Scenarios[i]
		if d := c.Global.Effective(s.Timeouts).Timeout; i < c.own && s.Interval > 0 && d > s.Interval {
			out = append(out, fmt.Sprintf("scenario %q: timeout %s is longer than interval %s: a slow server makes ticks overlap, which are skipped", s.Name, d, s.Interval))
		}
	}
	for i := range c.Targets {
		if t := &c.Targets[i]; t.HTTPClient.EnableHTTP2 {
			out = append(out, fmt.Sprintf("target %q: with enable_http2 arrival times are less exact", t.Name))
		}
	}
	return out
}
