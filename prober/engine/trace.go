package engine

import (
	"crypto/tls"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// connTrace notes when the phases of a request began and ended. net/http calls it from several goroutines, and may
// still do so after the request has failed.
type connTrace struct {
	onConn func() // called when a connection is ready

	mu        sync.Mutex
	issued    time.Time // net/http began with the request: credentials were fetched before
	dns       phase
	connect   phase
	tls       phase
	conn      time.Time // the connection was ready
	sent      time.Time // the last byte of the request was written
	firstByte time.Time // of the response
	reused    bool
	stamped   *stream.Conn
	secrets   []string // values of headers that hold credentials, as they were sent
}

type phase struct{ from, to time.Time }

func (p phase) seconds() *float64 {
	if p.from.IsZero() || p.to.IsZero() {
		return nil
	}
	return result.Ptr(max(p.to.Sub(p.from), 0).Seconds())
}

func (t *connTrace) lock(f func(now time.Time)) {
	now := time.Now()
	t.mu.Lock()
	f(now)
	t.mu.Unlock()
}

// hooks returns what net/http calls. With several addresses, attempts run at the same time: a phase goes from its
// first start to its last end.
func (t *connTrace) hooks() *httptrace.ClientTrace {
	first := func(at *time.Time) {
		t.lock(func(now time.Time) {
			if at.IsZero() {
				*at = now
			}
		})
	}
	return &httptrace.ClientTrace{
		GetConn:           func(string) { first(&t.issued) },
		DNSStart:          func(httptrace.DNSStartInfo) { first(&t.dns.from) },
		DNSDone:           func(httptrace.DNSDoneInfo) { t.lock(func(now time.Time) { t.dns.to = now }) },
		ConnectStart:      func(string, string) { first(&t.connect.from) },
		TLSHandshakeStart: func() { first(&t.tls.from) },
		ConnectDone: func(_, _ string, err error) {
			t.lock(func(now time.Time) {
				if err == nil {
					t.connect.to = now
				}
			})
		},
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) {
			t.lock(func(now time.Time) {
				if err == nil {
					t.tls.to = now
				}
			})
		},
		GotConn: func(info httptrace.GotConnInfo) {
			t.lock(func(now time.Time) {
				t.conn, t.reused, t.stamped = now, info.Reused, stampedConn(info.Conn)
			})
			t.onConn()
		},
		WroteHeaderField: func(name string, values []string) {
			if holdsCredentials(name) {
				t.lock(func(time.Time) { t.secrets = append(t.secrets, words(values)...) })
			}
		},
		WroteRequest: func(httptrace.WroteRequestInfo) { t.lock(func(now time.Time) { t.sent = now }) },
		GotFirstResponseByte: func() {
			t.lock(func(now time.Time) {
				t.firstByte = now
				if t.stamped != nil {
					if a := t.stamped.LastArrival(); a.Clock == stream.ClockKernel && a.At.Before(now) {
						t.firstByte = a.At
					}
				}
			})
		},
	}
}

// holdsCredentials reports whether a header's value may be a secret: all of them but those that we write ourselves.
func holdsCredentials(name string) bool {
	switch strings.ToLower(name) {
	case "host", "user-agent", "content-length", "content-type", "accept", "accept-encoding", "connection",
		"transfer-encoding", "x-request-id", "traceparent", "anthropic-version", "x-litellm-num-retries",
		":method", ":path", ":scheme", ":authority":
		return false
	}
	return true
}

func words(values []string) []string {
	var out []string
	for _, v := range values {
		out = append(out, strings.Fields(v)...)
	}
	return out
}

// seen is what a trace has noted up to a moment.
type seen struct {
	phases                  result.Phases
	connected, reused, byte bool
	resolving, shaking      bool // the phase that the request stands in, before it is connected
	issued, sent            time.Time
	stamped                 *stream.Conn
	secrets                 []string
}

func (t *connTrace) seen() seen {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := seen{
		connected: !t.conn.IsZero(), reused: t.reused, byte: !t.firstByte.IsZero(),
		resolving: !t.dns.from.IsZero() && t.dns.to.IsZero(),
		shaking:   !t.tls.from.IsZero() && t.tls.to.IsZero(),
		issued:    t.issued, sent: t.sent, stamped: t.stamped, secrets: append([]string(nil), t.secrets...),
	}
	if !t.reused {
		s.phases = result.Phases{DNS: t.dns.seconds(), Connect: t.connect.seconds(), TLS: t.tls.seconds()}
	}
	s.phases.Send = phase{t.conn, t.sent}.seconds()
	s.phases.Headers = phase{t.sent, t.firstByte}.seconds()
	return s
}
