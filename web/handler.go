package web

import (
	"context"
	"net/http"
	"net/http/pprof"
	"net/url"
	"strings"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// Backend is what the pages ask of the running daemon. Its methods may be called concurrently.
type Backend interface {
	// Ready reports whether the first configuration is applied and the daemon is not shutting down.
	Ready() bool
	// Reload reads the configuration again; on an error the old one stays.
	Reload() error
	// ConfigYAML is the effective configuration with every secret replaced.
	ConfigYAML() ([]byte, error)
	// ResolveTarget turns the target parameter of /probe into the name of a target that may be probed.
	ResolveTarget(param string) (name string, err error)
	// Scenarios lists the scenarios that a target is configured for.
	Scenarios(target string) []string
	// Probe runs one probe now.
	Probe(ctx context.Context, target, scenario string) (*result.Probe, error)
	// TargetDetails says what was found out about each target, and why it is believed.
	TargetDetails() []TargetDetail
}

// TargetDetail is what /targets shows of a target.
type TargetDetail struct {
	result.Target
	Detected bool      `json:"detected"`
	Error    string    `json:"error,omitempty"`  // why detection did not work
	Facts    []KV      `json:"facts,omitempty"`  // what is known and why
	Limits   []KV      `json:"limits,omitempty"` // optional fields that were refused, features that were seen or missed
	Checked  time.Time `json:"checked,omitzero"`
}

// KV is one line of a list of facts.
type KV struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Options are what the handler is made of. Metrics, History and Backend are required.
type Options struct {
	Logger      log.Logger
	Backend     Backend
	History     *History
	Metrics     http.Handler // the exposition
	MetricsPath string       // such as /metrics
	Lifecycle   bool         // allow POST /-/reload
	Pprof       bool
	Version     string
	// ProbeGatherer turns the result of /probe into metrics.
	ProbeGatherer func(*result.Probe) (prometheus.Gatherer, error)
	// MaxProbes is how many /probe requests may run at once; more get 503.
	MaxProbes int
	Now       func() time.Time // nil: time.Now
}

type handler struct {
	Options
	probeSlots chan struct{}
}

// NewHandler returns the handler of every page and endpoint.
func NewHandler(o Options) http.Handler {
	if o.Logger == nil {
		o.Logger = log.NewNopLogger()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxProbes < 1 {
		o.MaxProbes = 8
	}
	h := &handler{Options: o, probeSlots: make(chan struct{}, o.MaxProbes)}
	mux := http.NewServeMux()
	mux.Handle("GET "+o.MetricsPath, o.Metrics)
	mux.HandleFunc("GET /probe", h.probe)
	mux.HandleFunc("GET /{$}", h.status)
	mux.HandleFunc("GET /targets", h.targets)
	mux.HandleFunc("GET /probes", h.probes)
	mux.HandleFunc("GET /probes/{id}", h.probeDetail)
	mux.HandleFunc("GET /config", h.config)
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "healthy\n") })
	mux.HandleFunc("GET /-/ready", h.ready)
	mux.HandleFunc("POST /-/reload", h.reload)
	if o.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return harden(mux)
}

// reserved are the paths that --web.telemetry-path must not take.
var reserved = []string{"/", "/probe", "/targets", "/probes", "/config"}

// CheckMetricsPath says whether the exposition may live at that path.
func CheckMetricsPath(path string) bool {
	u, err := url.Parse(path)
	if err != nil || u.Path != path || !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "{} \t\n") {
		return false
	}
	for _, r := range reserved {
		if strings.TrimSuffix(path, "/") == strings.TrimSuffix(r, "/") {
			return false
		}
	}
	return !strings.HasPrefix(path, "/-/") && !strings.HasPrefix(path, "/debug/") && !strings.HasPrefix(path, "/probes/")
}

// harden sets the headers that keep a page from being framed, sniffed or made to load anything from elsewhere.
func harden(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		next.ServeHTTP(w, r)
	})
}

func text(w http.ResponseWriter, code int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(body))
}

func (h *handler) ready(w http.ResponseWriter, _ *http.Request) {
	if !h.Backend.Ready() {
		text(w, http.StatusServiceUnavailable, "not ready: starting, or shutting down\n")
		return
	}
	text(w, http.StatusOK, "ready\n")
}

func (h *handler) reload(w http.ResponseWriter, r *http.Request) {
	if !h.Lifecycle {
		text(w, http.StatusForbidden, "reloading over HTTP is off: start with --web.enable-lifecycle, or send SIGHUP\n")
		return
	}
	level.Info(h.Logger).Log("msg", "reload asked for over HTTP", "remote", r.RemoteAddr)
	if err := h.Backend.Reload(); err != nil {
		text(w, http.StatusInternalServerError, "the configuration was not changed: "+err.Error()+"\n")
		return
	}
	text(w, http.StatusOK, "reloaded\n")
}

func (h *handler) config(w http.ResponseWriter, _ *http.Request) {
	y, err := h.Backend.ConfigYAML()
	if err != nil {
		text(w, http.StatusInternalServerError, "cannot write the configuration: "+err.Error()+"\n")
		return
	}
	w.Header().Set("Content-Type", "text/yaml; charset=utf-8")
	_, _ = w.Write(y)
}
