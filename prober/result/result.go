// Package result holds what a probe found, as plain data. It is the one type of the prober that the sinks
// (collector, history, log, JSON output) see, and it imports nothing else of this module.
//
// Figures that were not measured are nil or empty, never 0. All durations are in seconds, as they are exported.
package result

import (
	"encoding/json"
	"time"
)

// Outcome says how a request or a probe ended.
type Outcome string

// The outcomes of a probe or of one of its requests.
const (
	Success     Outcome = "success"
	Failure     Outcome = "failure"
	Unsupported Outcome = "unsupported" // the target cannot do it, which is not a failure
)

// Pair is one scenario that is run against one target on a cadence.
type Pair struct {
	Target   string
	Scenario string
	Type     string        // the scenario's type
	Interval time.Duration // mean time between two probes; 0 for a scenario that runs on a cron schedule
	Variants []string      // every variant that the scenario can report, so that counters exist at 0 from the start
	Checks   []CheckName   // every check that the scenario can report
}

// CheckName names one check of one variant.
type CheckName struct {
	Variant string
	Name    string
}

// Target describes a target as it was found to be.
type Target struct {
	Name     string `json:"name"`
	URL      string `json:"url"` // without userinfo and query
	Engine   string `json:"engine,omitempty"`
	Version  string `json:"version,omitempty"`
	Model    string `json:"model,omitempty"`
	Protocol string `json:"protocol,omitempty"`
}

// Skip is a tick of the cadence that did not become a probe.
type Skip struct {
	Target   string
	Scenario string
	Reason   SkipReason
	At       time.Time
	Detail   string
}

// SkipReason says why a tick did not become a probe. The list is closed.
type SkipReason string

// The reasons why a tick does not become a probe.
const (
	SkipOverlap     SkipReason = "overlap"     // the previous probe of this scenario still runs
	SkipConcurrency SkipReason = "concurrency" // no slot became free before the next tick
	SkipBudget      SkipReason = "budget"      // the token budget is used up
	SkipGuard       SkipReason = "guard"       // the engine is too busy for a heavy scenario
	SkipUnsupported SkipReason = "unsupported" // the target cannot do it; tried again rarely
	SkipBackoff     SkipReason = "backoff"     // the target asked for a pause (429, 503)
	SkipShutdown    SkipReason = "shutdown"    // the daemon is stopping
	SkipMissed      SkipReason = "missed"      // the daemon did not run when ticks were due (suspended, starved); once for all of them
)

// SkipReasons returns every reason for which a tick is skipped.
func SkipReasons() []SkipReason {
	return []SkipReason{
		SkipOverlap, SkipConcurrency, SkipBudget, SkipGuard, SkipUnsupported, SkipBackoff, SkipShutdown,
		SkipMissed,
	}
}

// Probe is one run of a scenario against a target.
type Probe struct {
	Target          string    `json:"target"`
	Scenario        string    `json:"scenario"`
	Type            string    `json:"type"`
	Outcome         Outcome   `json:"outcome"`
	Reason          Reason    `json:"reason"`
	Detail          string    `json:"detail,omitempty"` // for people: what failed, where, what to do; never a secret, never a prompt
	ID              string    `json:"id"`
	StartTime       time.Time `json:"start_time"`
	DurationSeconds float64   `json:"duration_seconds"`
	Requests        []Request `json:"requests"`
	Values          Values    `json:"values,omitempty"`
	Checks          []Check   `json:"checks,omitempty"`

	// ScheduleLagSeconds is start − scheduled; nil for a probe that no cadence asked for.
	ScheduleLagSeconds *float64 `json:"schedule_lag_seconds,omitempty"`

	// What the engine's own metrics said just before the probe started.
	EngineRequestsRunning *float64 `json:"engine_requests_running,omitempty"`
	EngineRequestsWaiting *float64 `json:"engine_requests_waiting,omitempty"`
}

// Request is one request of a probe.
type Request struct {
	Variant      string    `json:"variant"`
	ID           string    `json:"id,omitempty"` // the X-Request-Id that was sent
	StartTime    time.Time `json:"start_time"`
	Outcome      Outcome   `json:"outcome"`
	Reason       Reason    `json:"reason"`
	Detail       string    `json:"detail,omitempty"`
	HTTPStatus   int       `json:"http_status,omitempty"`
	FinishReason string    `json:"finish_reason,omitempty"`
	Model        string    `json:"model,omitempty"` // as the answer names it
	Anomalies    []Anomaly `json:"anomalies,omitempty"`

	PromptTokens       *int             `json:"prompt_tokens,omitempty"` // cached ones included, whatever the server's convention
	CachedPromptTokens *int             `json:"cached_prompt_tokens,omitempty"`
	CompletionTokens   *int             `json:"completion_tokens,omitempty"`
	ReasoningTokens    *int             `json:"reasoning_tokens,omitempty"`
	TokenCountSource   TokenCountSource `json:"token_count_source,omitempty"`

	TimeToFirstTokenSeconds   *float64 `json:"time_to_first_token_seconds,omitempty"`
	TimeToFirstContentSeconds *float64 `json:"time_to_first_content_seconds,omitempty"`
	TimePerOutputTokenSeconds *float64 `json:"time_per_output_token_seconds,omitempty"`
	E2ELatencySeconds         *float64 `json:"e2e_latency_seconds,omitempty"`

	InterChunkLatenciesSeconds []float64 `json:"inter_chunk_latencies_seconds,omitempty"` // one per gap: vLLM's ITL
	ChunkTokens                []int     `json:"chunk_tokens,omitempty"`                  // only where exact per-chunk counts are known

	Phases           Phases   `json:"phases_seconds,omitzero"`
	ConnectionReused *bool    `json:"connection_reused,omitempty"`
	ClientLagMax     *float64 `json:"client_lag_max_seconds,omitempty"`
	Clock            string   `json:"clock,omitempty"` // kernel or user: whose arrival times these are
	TraceID          string   `json:"trace_id,omitempty"`

	ServerTimings ServerTimings `json:"server_timings,omitzero"`
	Speculation   Speculation   `json:"speculation,omitzero"`
	Window        Window        `json:"window,omitzero"`
}

// Phases are the parts of a request before its first event. A part that did not happen is nil.
type Phases struct {
	DNS     *float64 `json:"dns,omitempty"`
	Connect *float64 `json:"connect,omitempty"`
	TLS     *float64 `json:"tls,omitempty"`
	Send    *float64 `json:"send,omitempty"`    // connection ready -> last request byte written
	Headers *float64 `json:"headers,omitempty"` // last request byte written -> first response byte
}

// ServerTimings are the durations that the server itself reports for a request.
type ServerTimings struct {
	Queue   *float64 `json:"queue_seconds,omitempty"`
	Load    *float64 `json:"load_seconds,omitempty"` // model load (Ollama)
	Prefill *float64 `json:"prefill_seconds,omitempty"`
	Decode  *float64 `json:"decode_seconds,omitempty"`
	Total   *float64 `json:"total_seconds,omitempty"`
}

// Speculation is what the server reports of speculative decoding for a request.
type Speculation struct {
	DraftTokens    *int `json:"draft_tokens,omitempty"`
	AcceptedTokens *int `json:"accepted_tokens,omitempty"`
	VerifySteps    *int `json:"verify_steps,omitempty"`
}

// Window is what the GPUs and the engine's KV cache did while a request ran.
type Window struct {
	KVCacheUsagePeakRatio *float64    `json:"kv_cache_usage_peak_ratio,omitempty"`
	GPUs                  []GPUWindow `json:"gpus,omitempty"`
}

// IsZero reports whether nothing was seen.
func (w Window) IsZero() bool { return w.KVCacheUsagePeakRatio == nil && len(w.GPUs) == 0 }

// GPUWindow is what one GPU did while a request ran.
type GPUWindow struct {
	GPU                 string   `json:"gpu"` // index
	UUID                string   `json:"uuid"`
	MemoryUsedPeakBytes *float64 `json:"memory_used_peak_bytes,omitempty"`
	MemoryUsedDelta     *float64 `json:"memory_used_delta_bytes,omitempty"` // peak − before
	UtilizationMaxRatio *float64 `json:"utilization_max_ratio,omitempty"`
}

// TokenCountSource says where a completion token count comes from.
type TokenCountSource string

// Where completion token counts come from, best first.
const (
	CountUsage  TokenCountSource = "usage"  // the server's usage object
	CountExact  TokenCountSource = "exact"  // exact counts per chunk (token ids, continuous usage, server timings)
	CountChunks TokenCountSource = "chunks" // chunks were counted: an estimate, a chunk is not a token
)

// Check is one check of an answer.
type Check struct {
	Variant string `json:"variant,omitempty"`
	Name    string `json:"name"`
	OK      bool   `json:"ok"`
	Detail  string `json:"detail"`
}

// Value is a figure that a scenario derived from its requests, under the metric's name without the namespace.
type Value struct {
	Metric string  // such as prefix_cache_hit_ratio
	Label  string  // the value of the metric's label beyond target and scenario; empty if it has none
	Figure float64 // in the metric's unit
}

// Values are the derived figures of a probe. In JSON they are an object from metric name to figure, or to an
// object from label value to figure where the metric has a further label.
type Values []Value

// MarshalJSON writes the object form.
func (v Values) MarshalJSON() ([]byte, error) {
	out := make(map[string]any, len(v))
	for _, x := range v {
		if x.Label == "" {
			out[x.Metric] = x.Figure
			continue
		}
		m, ok := out[x.Metric].(map[string]float64)
		if !ok {
			m = map[string]float64{}
			out[x.Metric] = m
		}
		m[x.Label] = x.Figure
	}
	return json.Marshal(out)
}

// Get returns the figure of a metric and label, and whether it is there.
func (v Values) Get(metric, label string) (float64, bool) {
	for _, x := range v {
		if x.Metric == metric && x.Label == label {
			return x.Figure, true
		}
	}
	return 0, false
}

// Ptr returns a pointer to a copy of v: a figure that was measured.
func Ptr[T any](v T) *T { return &v }
