package engine

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-kit/log"
	promconfig "github.com/prometheus/common/config"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

const (
	// keepAliveIdle is below the 5 s after which uvicorn (vLLM, SGLang, …) closes an idle connection.
	keepAliveIdle = 4 * time.Second
	// clientName is a constant: common makes a series of it that is never removed.
	clientName = "probe"
)

// Options are what a Target gets from its surroundings.
type Options struct {
	Logger    log.Logger
	UserAgent string
	Now       func() time.Time // nil: time.Now
}

// Target is one server that can be spoken to. It keeps one HTTP client for its life, so that tokens and TLS sessions
// are not fetched anew for each probe. Its methods are safe for concurrent use.
type Target struct {
	config  config.Target
	logger  log.Logger
	agent   string
	now     func() time.Time
	client  *http.Client
	conns   *conns
	release func() // lets the kernel stop stamping what arrives

	mu          sync.Mutex
	facts       Facts
	features    Features
	learntLimit int // context length, from an error; 0 = none
	closed      bool
}

// NewTarget makes the client of a target. It does not wait for the target, which may be down.
func NewTarget(c config.Target, o Options) (*Target, error) {
	if o.Logger == nil {
		o.Logger = log.NewNopLogger()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	t := &Target{conns: newConns(), config: c, logger: o.Logger, agent: o.UserAgent, now: o.Now}
	t.facts = Facts{Engine: known(c.Engine), Model: known(c.Model), Protocol: known(c.Protocol)}
	if t.facts.Protocol == "" {
		t.facts.Protocol = openAIChat{}.Name()
	}
	if _, err := LookupProtocol(t.facts.Protocol); err != nil {
		return nil, config.Errorf("protocol", "%v", err)
	}
	client, err := newClient(c, t.conns)
	if err != nil {
		return nil, fmt.Errorf("target %q: %w", c.Name, err)
	}
	t.client = client
	// Without stamps the arrivals are those of the reading, and say so.
	if release, err := stream.HoldKernelStamps(); err == nil {
		t.release = release
	}
	return t, nil
}

// known is a setting that was made, empty for auto.
func known(setting string) string {
	if setting == config.Auto {
		return ""
	}
	return setting
}

// newClient makes the client: stamped connections, no compression, no timeout of its own, redirects only where the
// configuration says so, and then never to another host.
func newClient(c config.Target, open *conns) (*http.Client, error) {
	dialer := &net.Dialer{} // the request's context bounds it
	options := []promconfig.HTTPClientOption{
		promconfig.WithDialContextFunc(func(ctx context.Context, network, addr string) (net.Conn, error) {
			return open.dial(ctx, dialer, network, addr)
		}),
		promconfig.WithIdleConnTimeout(keepAliveIdle),
	}
	if !c.KeepAlive {
		options = append(options, promconfig.WithKeepAlivesDisabled())
	}
	if !c.HTTPClient.EnableHTTP2 {
		options = append(options, promconfig.WithHTTP2Disabled())
	}
	client, err := promconfig.NewClientFromConfig(c.HTTPClient, clientName, options...)
	if err != nil {
		return nil, err
	}
	client.Timeout = 0
	follow := c.HTTPClient.FollowRedirects
	client.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if !follow || len(via) >= 5 || req.URL.Host != via[0].URL.Host {
			return http.ErrUseLastResponse
		}
		return nil
	}
	return client, nil
}

// Facts returns what is known of the target.
func (t *Target) Facts() Facts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.facts
}

// Features returns what the target took, refused and reported so far.
func (t *Target) Features() Features {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Features{Refused: copyMap(t.features.Refused), Seen: copyMap(t.features.Seen)}
}

func copyMap[K comparable](m map[K]bool) map[K]bool {
	out := make(map[K]bool, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// refused returns the fields that are left out. The map is never written to.
func (t *Target) refused() map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.features.Refused
}

// refuse remembers a field that the target does not take.
func (t *Target) refuse(field string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := copyMap(t.features.Refused)
	m[field] = true
	t.features.Refused = m
}

// seen remembers a feature.
func (t *Target) seen(f Feature, works bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v, ok := t.features.Seen[f]; ok && v == works {
		return
	}
	m := copyMap(t.features.Seen)
	m[f] = works
	t.features.Seen = m
}

func (t *Target) hasSeen(f Feature) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.features.Seen[f]
}

// Close closes idle connections. Requests in flight go on.
func (t *Target) Close() {
	t.mu.Lock()
	closed := t.closed
	t.closed = true
	t.mu.Unlock()
	if closed {
		return
	}
	t.client.CloseIdleConnections()
	if t.release != nil {
		t.release()
	}
}

// url returns the address of a path below the target's base URL.
func (t *Target) url(path string) string { return strings.TrimRight(t.config.URL, "/") + path }

// setCommon sets the headers of every request.
func (t *Target) setCommon(h http.Header) {
	if t.agent != "" {
		h.Set("User-Agent", t.agent)
	}
	// Asked for by name: the transport would otherwise ask for gzip, which proxies apply to streams and so buffer them.
	h.Set("Accept-Encoding", "identity")
}
