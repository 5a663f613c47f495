package engine

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"net"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// requestTrace notes when the parts of a request before its answer happened. net/http calls it from goroutines of
// its own.
type requestTrace struct {
	onReady func()                      // the connection stands
	find    func(net.Conn) *stream.Conn // the stamped connection below net/http's

	mu                        sync.Mutex
	dnsStart, dnsDone         time.Time
	connectStart, connectDone time.Time
	tlsStart, tlsDone         time.Time
	gotConn, wrote, firstByte time.Time
	reused                    bool
	conn                      *stream.Conn
}

func (t *requestTrace) hooks() *httptrace.ClientTrace {
	set := func(to *time.Time) {
		now := time.Now()
		t.mu.Lock()
		if to.IsZero() {
			*to = now
		}
		t.mu.Unlock()
	}
	return &httptrace.ClientTrace{
		DNSStart:     func(httptrace.DNSStartInfo) { set(&t.dnsStart) },
		DNSDone:      func(httptrace.DNSDoneInfo) { set(&t.dnsDone) },
		ConnectStart: func(string, string) { set(&t.connectStart) },
		ConnectDone: func(_, _ string, err error) { // several addresses may be tried
			if err == nil {
				set(&t.connectDone)
			}
		},
		TLSHandshakeStart: func() { set(&t.tlsStart) },
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) {
			if err == nil {
				set(&t.tlsDone)
			}
		},
		GotConn: func(i httptrace.GotConnInfo) {
			set(&t.gotConn)
			t.mu.Lock()
			t.reused, t.conn = i.Reused, t.find(i.Conn)
			t.mu.Unlock()
			t.onReady()
		},
		WroteRequest: func(i httptrace.WroteRequestInfo) {
			if i.Err == nil {
				set(&t.wrote)
			}
		},
		GotFirstResponseByte: t.responded,
	}
}

// responded takes the kernel's time of the first byte, not that of this call.
func (t *requestTrace) responded() {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn != nil {
		now = t.conn.LastArrival().At
	}
	t.firstByte = now
}

func (t *requestTrace) progress(answered bool) progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	ready := !t.gotConn.IsZero()
	return progress{connected: ready || !t.connectDone.IsZero(), ready: ready, answered: answered}
}

// phases returns the parts that happened.
func (t *requestTrace) phases() (result.Phases, *bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	span := func(from, to time.Time) *float64 {
		if from.IsZero() || to.IsZero() || to.Before(from) {
			return nil
		}
		return result.Ptr(to.Sub(from).Seconds())
	}
	p := result.Phases{Send: span(t.gotConn, t.wrote), Headers: span(t.wrote, t.firstByte)}
	if t.gotConn.IsZero() || !t.reused {
		p.DNS, p.Connect, p.TLS = span(t.dnsStart, t.dnsDone), span(t.connectStart, t.connectDone), span(t.tlsStart, t.tlsDone)
	}
	if t.gotConn.IsZero() {
		return p, nil
	}
	return p, result.Ptr(t.reused)
}

// arrivals returns where the arrival times of the body come from.
func (t *requestTrace) arrivals() func() stream.Arrival {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn == nil {
		return nil
	}
	return t.conn.LastArrival
}

// stale reports whether the request failed on a kept connection that the server had closed meanwhile.
func (t *requestTrace) stale() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reused && t.firstByte.IsZero()
}

// RequestIDPrefix marks the canary's requests in the logs of servers.
const RequestIDPrefix = "llm-canary-"

func newIDs() (requestID, traceID, traceparent string) {
	var b [40]byte
	_, _ = rand.Read(b[:]) // never fails
	requestID = RequestIDPrefix + hex.EncodeToString(b[:16])
	traceID = hex.EncodeToString(b[16:32])
	return requestID, traceID, "00-" + traceID + "-" + hex.EncodeToString(b[32:40]) + "-01"
}
