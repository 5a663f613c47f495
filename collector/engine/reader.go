package enginemetrics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
)

// Defaults of a Reader.
const (
	DefaultCadence      = 15 * time.Second
	DefaultBoostCadence = 500 * time.Millisecond
	DefaultTimeout      = 2 * time.Second
)

// staleAfter is how many cadences a reading may be old.
const staleAfter = 3

// ReaderOptions say whose metrics to read and how. Target, Client and one of URL and Base are needed.
type ReaderOptions struct {
	Target string // name of the target, the label
	URL    string // of the metrics page, if configured
	Base   string // base URL of the target, from which the page is found if URL is empty
	Hint   Hint

	// Client carries the target's credentials and TLS settings in its transport. Its timeout and redirect policy are
	// replaced.
	Client    *http.Client
	UserAgent string

	Cadence      time.Duration // 0: DefaultCadence
	BoostCadence time.Duration // 0: DefaultBoostCadence; while somebody holds a Boost
	Timeout      time.Duration // 0: DefaultTimeout; of each request

	Logger log.Logger // nil: none
}

func (o ReaderOptions) withDefaults() ReaderOptions {
	set := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	set(&o.Cadence, DefaultCadence)
	set(&o.BoostCadence, DefaultBoostCadence)
	set(&o.Timeout, DefaultTimeout)
	if o.Logger == nil {
		o.Logger = log.NewNopLogger()
	}
	if o.Client == nil {
		o.Client = &http.Client{}
	}
	return o
}

// Reading is a page as it was read. It is a value that is not modified afterwards.
type Reading struct {
	*Normalised
	At     time.Time // when the request for the page was sent
	URL    string    // without userinfo and query
	Report Report
	Epoch  uint64 // grows when the engine's counters began anew: counters of two epochs have no difference
}

// State is what is known of a target's metrics at a moment. It is a copy.
type State struct {
	Target   string
	Hint     Hint
	Last     *Reading  // the last one that succeeded, nil before
	Attempt  time.Time // of the last read, whatever came of it; zero before the first
	Err      error     // of the last read
	Reason   Reason    // of the last read; empty if it succeeded
	Advice   string    // what to change, if it failed
	Failures map[Reason]uint64
	BadLines uint64
	Resets   uint64
	Fresh    bool // Last is young enough to be shown
}

// Reader reads the metrics page of one target. Run keeps it up to date; all other methods may be called at any time
// and from any goroutine.
type Reader struct {
	opts  ReaderOptions
	fetch fetcher
	turn  chan struct{} // held by the one who reads
	wake  chan struct{} // tells Run that its next read is due earlier

	mu      sync.Mutex
	state   State
	started time.Time // when the last finished read started
	failing int       // reads in a row that failed
	boosts  int
	page    string          // the URL that works; empty: to be found
	never   map[string]bool // pages that turned out to be emptied by reading
	window  window
	logged  string // the last condition that was logged
}

// NewReader returns a Reader that has read nothing yet.
func NewReader(o ReaderOptions) *Reader {
	o = o.withDefaults()
	return &Reader{
		opts:  o,
		fetch: newFetcher(o.Client, o.UserAgent),
		turn:  make(chan struct{}, 1),
		wake:  make(chan struct{}, 1),
		state: State{Target: o.Target, Hint: o.Hint, Failures: map[Reason]uint64{}},
		never: map[string]bool{},
	}
}

// Run reads at once and then on the cadence until ctx ends.
func (r *Reader) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-timer.C:
			_, _ = r.ReadNow(ctx) // what went wrong is in the state, and logged
		}
		timer.Reset(time.Until(r.due()))
	}
}

// due returns when Run reads next.
func (r *Reader) due() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	delay := r.opts.Cadence
	switch {
	case r.failing > 0:
		limit := 3
		if r.state.Reason.lasting() {
			limit = 4
		}
		delay <<= min(r.failing-1, limit)
	case r.boosts > 0:
		delay = min(delay, r.opts.BoostCadence)
	}
	return r.state.Attempt.Add(delay)
}

// SetHint tells what has been found out about the target. If the engine is another one than before, its page is
// looked for anew.
func (r *Reader) SetHint(h Hint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h == r.state.Hint {
		return
	}
	if h.Engine != r.state.Hint.Engine {
		r.page, r.failing, r.never = "", 0, map[string]bool{}
		r.poke()
	}
	r.state.Hint = h
}

// Boost lets Run read at the fast cadence until the returned function is called, which may be more than once. A
// target whose page cannot be read is not asked more often.
func (r *Reader) Boost() (release func()) {
	r.boost(1)
	return sync.OnceFunc(func() { r.boost(-1) })
}

func (r *Reader) boost(by int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.boosts += by
	r.poke()
}

func (r *Reader) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Last returns the last reading that succeeded and its age, without blocking. Its counters may be of an engine
// that does not answer any more: see State.
func (r *Reader) Last() (reading Reading, age time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state.Last == nil {
		return Reading{}, 0, false
	}
	return *r.state.Last, time.Since(r.state.Last.At), true
}

// State returns what is known, without blocking.
func (r *Reader) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state
	s.Failures = maps.Clone(s.Failures)
	s.Fresh = s.Last != nil && time.Since(s.Last.At) <= staleAfter*r.opts.Cadence
	return s
}

// Load is what a guard looks at: the engine's queue as it was at the last read.
type Load struct {
	Running *float64
	Waiting *float64
	Age     time.Duration
}

// Load returns the engine's queue, and an error if the last read failed or is too old to go by.
func (r *Reader) Load() (Load, error) {
	s := r.State()
	switch {
	case s.Attempt.IsZero():
		return Load{}, errors.New("engine metrics have not been read yet")
	case s.Err != nil:
		return Load{}, fmt.Errorf("engine metrics: %w", s.Err)
	case !s.Fresh:
		return Load{}, fmt.Errorf("engine metrics are %s old", time.Since(s.Last.At).Round(time.Second))
	}
	return Load{Running: s.Last.RequestsRunning, Waiting: s.Last.RequestsWaiting, Age: time.Since(s.Last.At)}, nil
}

// KVPeak returns the highest KV cache usage that was read between two times, nil if none was. Ten minutes are kept.
func (r *Reader) KVPeak(from, to time.Time) *float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.window.peak(from, to)
}

// ReadNow reads the page. Callers that wait while another one reads share a read that began after they called.
func (r *Reader) ReadNow(ctx context.Context) (Reading, error) {
	called := time.Now()
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return Reading{}, fmt.Errorf("engine metrics: %w", context.Cause(ctx))
	}
	defer func() { <-r.turn }()
	r.mu.Lock()
	if r.started.After(called) {
		s := r.state
		r.mu.Unlock()
		if s.Err != nil {
			return Reading{}, s.Err
		}
		return *s.Last, nil
	}
	hint, page := r.state.Hint, r.page
	never := maps.Clone(r.never)
	r.mu.Unlock()

	got := r.read(ctx, hint, page, never)
	if got.err != nil && ctx.Err() != nil {
		// Nobody's fault but the caller's: says nothing about the engine.
		return Reading{}, fmt.Errorf("engine metrics: %w", context.Cause(ctx))
	}
	return r.publish(got)
}

// attempt is what came of a read.
type attempt struct {
	at     time.Time
	hint   Hint
	url    string
	n      *Normalised
	report Report
	never  []string // pages that must not be read again
	err    error
}

// read tries the page that is known to work, or all candidates until one does.
func (r *Reader) read(ctx context.Context, hint Hint, page string, never map[string]bool) attempt {
	out := attempt{at: time.Now(), hint: hint}
	tries := candidates(r.opts.URL, r.opts.Base, hint.Engine)
	if page != "" {
		tries = []candidate{{url: page}}
	}
	if len(tries) == 0 {
		out.err = failed(ReasonUnsupported, "%s has no metrics page", hint.Engine)
	}
	for _, c := range tries {
		err := r.try(ctx, c, never, &out)
		if err == nil {
			out.err = nil
			return out
		}
		out.err = worse(out.err, err)
	}
	return out
}

// try reads one candidate into out.
func (r *Reader) try(ctx context.Context, c candidate, never map[string]bool, out *attempt) error {
	if forbidden(c.url, r.opts.Base, out.hint.Engine) || never[c.url] {
		return failed(ReasonUnsupported, "%s is trtllm-serve's JSON statistics, which reading takes away: not read", shown(c.url))
	}
	ctx, cancel := context.WithTimeout(ctx, r.opts.Timeout)
	defer cancel()
	if c.risky && r.fetch.isTRTLLM(ctx, r.opts.Base) {
		return failed(ReasonUnsupported, "this is trtllm-serve, whose %s is JSON that reading takes away: not read", shown(c.url))
	}
	at := time.Now()
	body, contentType, err := r.fetch.get(ctx, c.url, MaxPageBytes)
	if err != nil {
		return err
	}
	families, report, err := Parse(body, contentType)
	out.report.BadLines += report.BadLines
	if err != nil {
		if errors.Is(err, ErrJSON) && isList(body) {
			out.never = append(out.never, c.url)
		}
		return failed(reasonOf(err), "GET %s: %w", shown(c.url), err)
	}
	n, err := Normalise(families, out.hint)
	if err != nil {
		return failed(reasonOf(err), "GET %s: %w", shown(c.url), err)
	}
	out.at, out.url, out.n, out.report = at, c.url, n, report
	return nil
}

// worse returns the error that says more: that a guess at the path was wrong says least.
func worse(a, b error) error {
	if a == nil || reasonOf(a) == ReasonNotFound {
		return b
	}
	return a
}

// isList reports whether JSON is a list, as trtllm-serve's statistics are.
func isList(body []byte) bool {
	for _, c := range body {
		switch c {
		case ' ', '\t', '\r', '\n':
			continue
		}
		return c == '['
	}
	return false
}

// publish makes what came of a read visible, and then logs it: nobody waits for a log.
func (r *Reader) publish(got attempt) (Reading, error) {
	r.mu.Lock()
	var lines []line
	if got.err != nil {
		lines = r.failure(got)
	} else {
		lines = r.success(got)
	}
	r.started, r.state.Attempt, r.state.Err = got.at, time.Now(), got.err
	r.state.BadLines += uint64(got.report.BadLines)
	for _, u := range got.never {
		r.never[u] = true
	}
	last := r.state.Last
	r.mu.Unlock()
	for _, l := range lines {
		l.at(r.opts.Logger).Log(l.keyvals...)
	}
	if got.err != nil {
		return Reading{}, got.err
	}
	return *last, nil
}

func (r *Reader) failure(got attempt) []line {
	s := &r.state
	r.failing++
	s.Reason = reasonOf(got.err)
	s.Advice = advice(s.Reason, got.hint.Engine)
	s.Failures[s.Reason]++
	if s.Reason.lasting() {
		r.page = "" // perhaps it has moved
	}
	return r.say("failed "+string(s.Reason), level.Warn,
		"msg", "engine metrics cannot be read", "reason", s.Reason, "err", got.err, "advice", s.Advice)
}

func (r *Reader) success(got attempt) (lines []line) {
	s := &r.state
	r.failing, s.Reason, s.Advice = 0, "", ""
	if got.hint.Engine == s.Hint.Engine {
		r.page = got.url
	}
	if s.Last != nil && restarted(s.Last.Normalised, got.n) {
		s.Resets++
		lines = append(lines, line{level.Info, []any{"msg", "the engine's counters began anew", "url", shown(got.url)}})
	}
	s.Last = &Reading{Normalised: got.n, At: got.at, URL: shown(got.url), Report: got.report, Epoch: s.Resets}
	r.window.add(got.at, got.n.KVCacheUsage)
	if missing := fmt.Sprint(got.n.Missing); len(got.n.Missing) > 0 {
		return append(lines, r.say("missing "+missing, level.Warn,
			"msg", "the engine's metrics lack figures that this dialect has: renamed, or switched off",
			"url", s.Last.URL, "dialect", got.n.Dialect, "missing", missing)...)
	}
	return append(lines, r.say("ok "+s.Last.URL+" "+got.n.Dialect, level.Info,
		"msg", "engine metrics found", "url", s.Last.URL, "dialect", got.n.Dialect, "figures", len(got.n.Why))...)
}

// line is a log line.
type line struct {
	at      func(log.Logger) log.Logger
	keyvals []any
}

// say returns a line for a condition that begins, none while it lasts.
func (r *Reader) say(condition string, at func(log.Logger) log.Logger, keyvals ...any) []line {
	if r.logged == condition {
		return nil
	}
	r.logged = condition
	return []line{{at, keyvals}}
}
