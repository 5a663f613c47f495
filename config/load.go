package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	promconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

// maxFile bounds the size of a configuration file.
const maxFile = 4 << 20

// Options is what the configuration has to know of the packages that it configures, which it cannot import.
type Options struct {
	Builtin   []Scenario // the scenarios that exist without being configured, under the name of their type
	Protocols []string   // known protocols
	Engines   []string   // known engines; empty: any name is taken
}

// Default returns a configuration without targets.
func Default(o Options) *Config {
	c, err := Parse("defaults", nil, "", o)
	if err != nil { // nothing that a user can cause
		return &Config{}
	}
	return c
}

// Load reads a configuration file. Relative paths in it are relative to its folder. Every error names file, line
// and field.
func Load(path string, o Options) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration %s: %w", path, err)
	}
	return Parse(path, data, filepath.Dir(path), o)
}

// Parse reads a configuration from memory. name stands for the file in errors, dir is what relative paths in it are
// relative to.
func Parse(name string, data []byte, dir string, o Options) (*Config, error) {
	c := &Config{file: name, Global: defaultGlobal()}
	if err := checkBytes(name, data); err != nil {
		return nil, err
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	var root yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	switch err := dec.Decode(&root); {
	case errors.Is(err, io.EOF): // empty: all defaults
	case err != nil:
		return nil, c.syntaxError(err)
	default:
		c.root = &root
		var more yaml.Node
		if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s: holds more than one YAML document: keep one", name)
		}
		strict := yaml.NewDecoder(bytes.NewReader(data))
		strict.KnownFields(true)
		if err := strict.Decode(c); err != nil {
			return nil, c.redactError(c.decodeError(err))
		}
	}
	c.shortenDefaults()
	c.addBuiltin(o.Builtin)
	if err := c.validate(o); err != nil {
		return nil, c.redactError(c.Annotate(err))
	}
	for i := range c.Targets {
		c.Targets[i].HTTPClient.SetDirectory(dir)
	}
	return c, nil
}

func checkBytes(name string, data []byte) error {
	switch {
	case len(data) > maxFile:
		return fmt.Errorf("%s: is larger than %d MiB: not a configuration", name, maxFile>>20)
	case !utf8.Valid(data):
		return fmt.Errorf("%s: is not UTF-8: save it as UTF-8", name)
	}
	return nil
}

func defaultGlobal() Global {
	return Global{
		Timeouts: Timeouts{
			Timeout:           model.Duration(60 * time.Second),
			ConnectTimeout:    model.Duration(5 * time.Second),
			FirstTokenTimeout: model.Duration(30 * time.Second),
			StallTimeout:      model.Duration(10 * time.Second),
		},
		MaxConcurrentProbes:          16,
		MaxConcurrentProbesPerTarget: 4,
		Histograms:                   HistogramsBoth,
		ShutdownGrace:                model.Duration(10 * time.Second),
	}
}

// shortenDefaults lets the deadlines that the file does not give follow a shorter timeout that it does give.
func (c *Config) shortenDefaults() {
	g := &c.Global
	for name, d := range map[string]*model.Duration{
		"connect_timeout": &g.ConnectTimeout, "first_token_timeout": &g.FirstTokenTimeout, "stall_timeout": &g.StallTimeout,
	} {
		if *d > g.Timeout && g.Timeout > 0 && !c.has("global."+name) {
			*d = g.Timeout
		}
	}
}

// DefaultTarget is a target of which only name and URL have to be given. Redirects are not followed and HTTP/2 is
// off, unlike in Prometheus: a redirected POST sends the prompt and the credentials elsewhere, and with HTTP/2 the
// arrival of a chunk cannot be told from that of its neighbour on the connection.
func DefaultTarget() Target {
	h := promconfig.DefaultHTTPClientConfig
	h.FollowRedirects, h.EnableHTTP2 = false, false
	return Target{Model: Auto, Protocol: Auto, Engine: Auto, EngineMetrics: Auto, GPU: Auto, HTTPClient: h}
}

// UnmarshalYAML starts from the defaults. This form of the method, unlike the one with a node, keeps the decoder
// strict about unknown fields.
func (t *Target) UnmarshalYAML(unmarshal func(any) error) error {
	*t = DefaultTarget()
	type plain Target
	return unmarshal((*plain)(t))
}

// addBuiltin adds the built-in scenarios that the file does not define itself, behind the file's own.
func (c *Config) addBuiltin(builtin []Scenario) {
	c.own = len(c.Scenarios)
	for _, b := range builtin {
		if c.Scenario(b.Name) == nil {
			c.Scenarios = append(c.Scenarios, b)
		}
	}
}
