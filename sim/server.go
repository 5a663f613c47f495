package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// shutdownGrace is how long Listen waits for open answers at its end.
const shutdownGrace = time.Second

// Server is one simulated engine. All methods are safe for concurrent use.
type Server struct {
	cfg      Config
	created  time.Time
	engine   *engine
	records  *records
	rules    *faultRules
	grammars grammarCache
	registry *prometheus.Registry
	mux      *http.ServeMux
	ids      atomic.Uint64
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
}

// New starts an engine; Close stops it. It listens to nothing by itself.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m := newMetrics(cfg)
	s := &Server{
		cfg: cfg, created: time.Now(), engine: newEngine(cfg, m),
		records:  newRecords(cfg.RecordLimit, cfg.RecordEventLimit),
		rules:    &faultRules{rules: cfg.Faults, rng: rand.New(rand.NewPCG(cfg.Seed, 1))},
		grammars: grammarCache{seen: map[string]bool{}},
		registry: prometheus.NewRegistry(),
	}
	m.stats = s.engine.snapshot
	s.registry.MustRegister(m)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.mux = s.routes()
	return s, nil
}

// Handler serves the engine's HTTP interface.
func (s *Server) Handler() http.Handler { return s.mux }

// Close aborts open requests and stops the engine. Call it once; handlers that
// still run end soon after.
func (s *Server) Close() {
	s.cancel()
	s.engine.close()
}

// Stats is a consistent view of the engine's counters.
func (s *Server) Stats() Stats { return s.engine.snapshot() }

// Record is the truth about one request, by its X-Request-Id or generated id.
func (s *Server) Record(id string) (Record, bool) { return s.records.get(id) }

// Records are all requests that are still remembered, the oldest first.
func (s *Server) Records() []Record { return s.records.all() }

// SetFaults replaces the faults that strike from the next request on.
func (s *Server) SetFaults(rules []FaultRule) error {
	rules, err := parseRules(rules)
	if err != nil {
		return err
	}
	s.rules.set(rules)
	return nil
}

// FaultRules are the faults in force.
func (s *Server) FaultRules() []FaultRule { return s.rules.get() }

// Gatherer gives the metrics of /metrics without HTTP.
func (s *Server) Gatherer() prometheus.Gatherer { return s.registry }

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", s.guard(func(w http.ResponseWriter, r *http.Request) { s.infer(w, r, true) }))
	mux.HandleFunc("POST /v1/completions", s.guard(func(w http.ResponseWriter, r *http.Request) { s.infer(w, r, false) }))
	mux.HandleFunc("GET /v1/models", s.guard(s.models))
	mux.HandleFunc("POST /tokenize", s.tokenize)
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /ping", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /version", s.version)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /sim/records/{id}", s.getRecord)
	mux.HandleFunc("GET /sim/faults", s.getFaults)
	mux.HandleFunc("POST /sim/faults", s.postFaults)
	return mux
}

// Listening is a server that Listen started.
type Listening struct {
	// URL is the base URL with the real port.
	URL  string
	done chan error
}

// Wait blocks until the context of Listen has ended and the listener is closed.
func (l *Listening) Wait() error { return <-l.done }

// Listen serves on addr (host:port, port 0 for a free one) until ctx ends.
func (s *Server) Listen(ctx context.Context, addr string) (*Listening, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("sim: cannot listen on %s: %w", addr, err)
	}
	// uvicorn, which vLLM runs on, closes idle connections after 5 s.
	srv := &http.Server{Handler: s.mux, IdleTimeout: 5 * time.Second, ReadHeaderTimeout: 10 * time.Second}
	l := &Listening{URL: "http://" + ln.Addr().String(), done: make(chan error, 1)}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	go func() { l.done <- serveUntil(ctx, srv, served) }()
	return l, nil
}

func serveUntil(ctx context.Context, srv *http.Server, served <-chan error) error {
	select {
	case err := <-served:
		return fmt.Errorf("sim: serving stopped: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	err := srv.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		err = srv.Close() // open answers are cut, as by any server that goes away
	}
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}
