// Package config reads, checks and describes the configuration. A Config is immutable once it is loaded: it is
// shared between goroutines without locks, and a reload makes a new one.
package config

import (
	"cmp"

	promconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

// Config is a whole, validated configuration with all defaults filled in.
type Config struct {
	Global    Global     `yaml:"global"`
	Scenarios []Scenario `yaml:"scenarios"` // configured ones and built-in ones, names unique
	Targets   []Target   `yaml:"targets"`   // names unique; empty but not nil where the file says that there are none

	file string     // for errors
	root *yaml.Node // of the file, for the lines of errors; nil without a file
	own  int        // how many of Scenarios are the file's own
}

// Global holds what applies to every target and scenario.
type Global struct {
	Timeouts `yaml:",inline"`

	MaxConcurrentProbes          int            `yaml:"max_concurrent_probes"`
	MaxConcurrentProbesPerTarget int            `yaml:"max_concurrent_probes_per_target"`
	Histograms                   Histograms     `yaml:"histograms"`
	ShutdownGrace                model.Duration `yaml:"shutdown_grace"`
	Seed                         uint64         `yaml:"seed"` // prompts are a function of (seed, target, scenario, probe number); 0 = drawn at start
}

// Timeouts are the deadlines of one request. In a scenario a zero value means that the global one applies.
type Timeouts struct {
	Timeout           model.Duration `yaml:"timeout,omitempty"`             // the whole request
	ConnectTimeout    model.Duration `yaml:"connect_timeout,omitempty"`     // DNS, TCP and TLS
	FirstTokenTimeout model.Duration `yaml:"first_token_timeout,omitempty"` // start to first output
	StallTimeout      model.Duration `yaml:"stall_timeout,omitempty"`       // between two pieces of output
}

// Histograms says which kinds of buckets the latency histograms carry.
type Histograms string

// The kinds of histogram buckets.
const (
	HistogramsClassic Histograms = "classic"
	HistogramsNative  Histograms = "native"
	HistogramsBoth    Histograms = "both"
)

// Scenario is a named instance of a scenario type.
type Scenario struct {
	Name     string         `yaml:"name"`
	Type     string         `yaml:"type"`
	Interval model.Duration `yaml:"interval,omitempty"` // mean time between probes; 0 with a schedule
	Schedule string         `yaml:"schedule,omitempty"` // cron expression, instead of an interval
	Timeouts `yaml:",inline"`

	MaxTokens int   `yaml:"max_tokens,omitempty"` // output tokens of each request; 0 = the type's default
	Lengths   []int `yaml:"lengths,omitempty"`    // prompt sizes in tokens, for types with a ladder
}

// Target is one inference server or gateway.
type Target struct {
	Name      string   `yaml:"name"`
	URL       string   `yaml:"url"` // base URL, no trailing slash, no userinfo
	Scenarios []string `yaml:"scenarios,omitempty"`
	Require   []string `yaml:"require,omitempty"`
	Model     string   `yaml:"model"`    // "auto" or a name
	Protocol  string   `yaml:"protocol"` // "auto" or a name
	Engine    string   `yaml:"engine"`   // "auto" or a name
	// EngineMetrics is auto, off, or the URL of the engine's own metrics page.
	EngineMetrics string   `yaml:"engine_metrics"`
	GPU           string   `yaml:"gpu"`                 // auto, local or off
	GPUUUIDs      []string `yaml:"gpu_uuids,omitempty"` // the GPUs that serve it; empty: all of the host
	Price         Price    `yaml:"price,omitempty"`
	APIVersion    string   `yaml:"api_version,omitempty"` // of Azure's deployment URLs; empty = /openai/v1
	KeepAlive     bool     `yaml:"keep_alive,omitempty"`  // use a connection again; by default every request has a fresh one

	HTTPClient promconfig.HTTPClientConfig `yaml:",inline"`
}

// Price is what a million tokens cost, in any one currency; used by plan alone.
type Price struct {
	PromptPerMillion float64 `yaml:"prompt_per_million,omitempty"`
	OutputPerMillion float64 `yaml:"output_per_million,omitempty"`
}

// Auto is the value of a setting that is found out from the target.
const Auto = "auto"

// EngineMetricsOff is the value of engine_metrics that reads nothing.
const EngineMetricsOff = "off"

// The values of a target's gpu besides auto, which means local for a target on a loopback address and off for others.
const (
	GPULocal = "local" // this host's GPUs serve it
	GPUOff   = "off"
)

// Scenario returns the scenario of that name, or nil.
func (c *Config) Scenario(name string) *Scenario {
	for i := range c.Scenarios {
		if c.Scenarios[i].Name == name {
			return &c.Scenarios[i]
		}
	}
	return nil
}

// Target returns the target of that name, or nil.
func (c *Config) Target(name string) *Target {
	for i := range c.Targets {
		if c.Targets[i].Name == name {
			return &c.Targets[i]
		}
	}
	return nil
}

// Effective returns the timeouts of a scenario: its own where it has them, else the global ones, none of them longer
// than the whole request may take.
func (g Global) Effective(s Timeouts) Timeouts {
	total := cmp.Or(s.Timeout, g.Timeout)
	pick := func(own, global model.Duration) model.Duration { return min(cmp.Or(own, global), total) }
	return Timeouts{
		Timeout:           total,
		ConnectTimeout:    pick(s.ConnectTimeout, g.ConnectTimeout),
		FirstTokenTimeout: pick(s.FirstTokenTimeout, g.FirstTokenTimeout),
		StallTimeout:      pick(s.StallTimeout, g.StallTimeout),
	}
}
