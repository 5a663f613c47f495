package engine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	promconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

func wholeAnswer() []step {
	return data(content("One"), content(" two"), finish("stop"), usage(31, 3), done)
}

func wantReason(t *testing.T, a Answer, reason result.Reason, detail string) {
	t.Helper()
	if a.Outcome != result.Failure || a.Reason != reason || !strings.Contains(a.Detail, detail) {
		t.Errorf("%s %s: %s; want %s: …%s…", a.Outcome, a.Reason, a.Detail, reason, detail)
	}
}

func TestUnreachable(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	silent := serve(t, always([]step{hang()}))
	silentTLS := "https" + strings.TrimPrefix(silentListener(t), "http")
	page := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "x") }))
	defer page.Close()
	page.Config.ErrorLog = nil

	short := timeouts()
	short.ConnectTimeout = model.Duration(150 * time.Millisecond)
	tests := []struct {
		name, url string
		limits    config.Timeouts
		reason    result.Reason
		detail    string
	}{
		{"no such host", "http://" + strings.Repeat("a", 70) + ".invalid", timeouts(), result.ReasonDNS, "check the host name"},
		{"refused", "http://" + closed.Addr().String(), timeouts(), result.ReasonConnect, "refused"},
		{"unknown authority", page.URL, timeouts(), result.ReasonTLS, "ca_file"},
		{"plain HTTP to a TLS port", "http" + strings.TrimPrefix(page.URL, "https"), timeouts(), result.ReasonTLS, "write https://"},
		{"TLS to a plain port", "https" + strings.TrimPrefix(plainServer(t), "http"), timeouts(), result.ReasonTLS, "write http://"},
		{"TLS handshake that never ends", silentTLS, short, result.ReasonTimeoutConnect, "TLS handshake"},
		{"connect deadline does not hold for the answer", silent.url(), func() config.Timeouts {
			l := short
			l.FirstTokenTimeout = model.Duration(400 * time.Millisecond)
			return l
		}(), result.ReasonTimeoutFirstToken, "first_token"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := newTarget(t, tt.url, nil).Send(context.Background(), ask(), tt.limits)
			wantReason(t, a, tt.reason, tt.detail)
			if a.TimeToFirstTokenSeconds != nil || a.E2ELatencySeconds != nil {
				t.Error("figures without an answer")
			}
		})
	}
}

// plainServer speaks HTTP without TLS.
func plainServer(t *testing.T) string {
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	return s.URL
}

// silentListener accepts and never says a word.
func silentListener(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var conns []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			conns = append(conns, c)
		}
		for _, c := range conns {
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return "http://" + l.Addr().String()
}

func TestJudgeError(t *testing.T) {
	deadline := func(r result.Reason) error { return &deadlineError{r, time.Second} }
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	tests := []struct {
		name   string
		err    error
		cause  error
		seen   seen
		want   result.Reason
		detail string
	}{
		{"resolver", dial(&net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}), nil, seen{}, result.ReasonDNS, ""},
		{"resolver timeout is ours", context.Canceled, deadline(result.ReasonTimeoutConnect), seen{resolving: true}, result.ReasonTimeoutConnect, "resolver"},
		{"TCP timeout is ours", context.Canceled, deadline(result.ReasonTimeoutConnect), seen{}, result.ReasonTimeoutConnect, "TCP connection"},
		{"kernel gave up", dial(os.NewSyscallError("connect", syscall.ETIMEDOUT)), nil, seen{}, result.ReasonTimeoutConnect, "firewalls"},
		{"no route", dial(os.NewSyscallError("connect", syscall.EHOSTUNREACH)), nil, seen{}, result.ReasonConnect, "no route"},
		{"proxy", &net.OpError{Op: "proxyconnect", Net: "tcp", Err: errors.New("bad gateway")}, nil, seen{}, result.ReasonConnect, "bad gateway"},
		{"expired certificate", &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}, nil, seen{}, result.ReasonTLS, "renew"},
		{"wrong name", &tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}}, nil, seen{}, result.ReasonTLS, "server_name"},
		{"alert", tls.AlertError(42), nil, seen{}, result.ReasonTLS, "handshake"},
		{"closed during the handshake", io.EOF, nil, seen{shaking: true}, result.ReasonTLS, "handshake"},
		{"broken pipe", os.NewSyscallError("write", syscall.EPIPE), nil, seen{connected: true}, result.ReasonConnectionReset, "broke"},
		{"HTTP/2 reset", errors.New("stream error: stream ID 3; INTERNAL_ERROR; received from peer"), nil, seen{connected: true, byte: true}, result.ReasonConnectionReset, "INTERNAL_ERROR"},
		{"caller's deadline", context.DeadlineExceeded, context.DeadlineExceeded, seen{}, result.ReasonTimeoutTotal, "probe's time"},
		{"caller's end", context.Canceled, context.Canceled, seen{}, result.ReasonCanceled, "canceled"},
		{"credentials file", fmt.Errorf("unable to read authorization credentials: %w", os.ErrNotExist), nil, seen{}, result.ReasonInternal, "config names"},
	}
	for _, tt := range tests {
		ctx, cancel := context.WithCancelCause(context.Background())
		if tt.cause != nil {
			cancel(tt.cause)
		}
		v := judgeError(ctx, tt.err, tt.seen)
		cancel(nil)
		if v.reason != tt.want || !strings.Contains(v.detail, tt.detail) {
			t.Errorf("%s: %s (%s), want %s (…%s…)", tt.name, v.reason, v.detail, tt.want, tt.detail)
		}
	}
}

func TestCanceledByCaller(t *testing.T) {
	s := serve(t, always([]step{raw(sseHead), chunk("data: " + content("One") + "\n\n"), hang()}))
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for s.count() == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	wantReason(t, newTarget(t, s.url(), nil).Send(ctx, ask(), timeouts()), result.ReasonCanceled, "canceled")
}

// Under TLS the kernel's stamps and the phases are there too.
func TestTLS(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range []string{content("One"), content(" two"), finish("stop"), usage(31, 3), done} {
			fmt.Fprintf(w, "data: %s\n\n", e)
			w.(http.Flusher).Flush()
			time.Sleep(20 * time.Millisecond)
		}
	}))
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, http2 := range []bool{false, true} {
		target := newTarget(t, server.URL, func(c *config.Target) {
			c.HTTPClient.TLSConfig.CAFile = ca
			c.HTTPClient.EnableHTTP2 = http2
		})
		a := target.Send(context.Background(), ask(), timeouts())
		if want := `success text="One two" finish=stop in=31 out=3:usage [ttft ttfc tpot e2e 1gaps]`; summary(a) != want {
			t.Errorf("got %s (%s)\nwant %s", summary(a), a.Detail, want)
		}
		if a.Phases.TLS == nil || *a.Phases.TLS <= 0 {
			t.Errorf("phases %s", compact(a.Phases))
		}
		if plain := plainClock(t); a.Clock != plain {
			t.Errorf("clock under TLS is %s, without it is %s", a.Clock, plain)
		}
	}
}

func plainClock(t *testing.T) string {
	return send(t, serve(t, always(wholeAnswer())), nil).Clock
}

// Connections: fresh ones unless the config says otherwise.
func TestConnections(t *testing.T) {
	s := serve(t, always(wholeAnswer()))
	target := newTarget(t, s.url(), nil)
	for range 2 {
		if a := target.Send(context.Background(), ask(), timeouts()); compact(a.ConnectionReused) != "false" || a.Phases.Connect == nil {
			t.Errorf("reused %s, phases %s", compact(a.ConnectionReused), compact(a.Phases))
		}
	}
	kept := newTarget(t, s.url(), func(c *config.Target) { c.KeepAlive = true })
	for i := range 3 {
		a := kept.Send(context.Background(), ask(), timeouts())
		if got, want := compact(a.ConnectionReused), fmt.Sprint(i > 0); got != want || (a.Phases.Connect == nil) != (i > 0) {
			t.Errorf("request %d: reused %s, want %s; phases %s", i, got, want, compact(a.Phases))
		}
		if a.Outcome != result.Success || a.Phases.Send == nil || a.Phases.Headers == nil {
			t.Errorf("request %d: %s, phases %s", i, summary(a), compact(a.Phases))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns != 3 {
		t.Errorf("%d connections, want 2 fresh ones and 1 kept", s.conns)
	}
}

// E29: a server closes a kept connection while we send on it. One more try, which shows; not two, and none where a
// byte of an answer came.
func TestStaleConnection(t *testing.T) {
	var gone atomic.Int64
	s := serve(t, func(n int, _ *http.Request, _ []byte) []step {
		if n > 0 && gone.Add(-1) >= 0 {
			return []step{fin()}
		}
		return wholeAnswer()
	})
	target := newTarget(t, s.url(), func(c *config.Target) { c.KeepAlive = true })
	target.Send(context.Background(), ask(), timeouts())
	gone.Store(1)
	a := target.Send(context.Background(), ask(), timeouts())
	if want := `success text="One two" finish=stop in=31 out=3:usage`; !strings.HasPrefix(summary(a), want) || compact(a.Anomalies) != `["retried"]` {
		t.Errorf("got %s %s", summary(a), a.Detail)
	}
	if n := s.count(); n != 3 {
		t.Errorf("%d requests, want 3", n)
	}
	gone.Store(2)
	a = target.Send(context.Background(), ask(), timeouts())
	wantReason(t, a, result.ReasonConnectionReset, "without an answer")
	if n := s.count(); n != 5 {
		t.Errorf("%d requests, want 5", n)
	}
}

// A fresh connection that fails is never tried again.
func TestNoSilentRetry(t *testing.T) {
	s := serve(t, always([]step{fin()}))
	send(t, s, nil)
	if n := s.count(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

func TestRedirects(t *testing.T) {
	s := serve(t, func(n int, r *http.Request, _ []byte) []step {
		if r.URL.Path == "/v1/chat/completions" {
			return plain(307, "text/plain", "", "Location: /there")
		}
		return wholeAnswer()
	})
	wantReason(t, send(t, s, nil), result.ReasonNotAStream, "the path /there of the same host")
	a := send(t, s, func(c *config.Target) { c.HTTPClient.FollowRedirects = true })
	if a.Outcome != result.Success || a.Text != "One two" {
		t.Errorf("followed: %s %s", summary(a), a.Detail)
	}
}

// An Authorization without a key sends no header: V38.
func TestNoKeyNoHeader(t *testing.T) {
	s := serve(t, always(wholeAnswer()))
	send(t, s, func(c *config.Target) { c.HTTPClient.Authorization = authorization("") })
	if r, _ := s.seen(0); r.Header.Get("Authorization") != "" {
		t.Errorf("Authorization: %q", r.Header.Get("Authorization"))
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	in := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	tests := []struct {
		headers map[string]string
		want    time.Duration
	}{
		{nil, 0},
		{map[string]string{"Retry-After": "7"}, 7 * time.Second},
		{map[string]string{"Retry-After": "0.5"}, 500 * time.Millisecond},
		{map[string]string{"Retry-After": in(90 * time.Second)}, 90 * time.Second},
		{map[string]string{"Retry-After": in(-90 * time.Second)}, 0},
		{map[string]string{"Retry-After": "-3"}, 0},
		{map[string]string{"Retry-After": "soon"}, 0},
		{map[string]string{"Retry-After": "NaN"}, 0},
		{map[string]string{"Retry-After": "1e300"}, time.Hour},
		{map[string]string{"Retry-After": "999999"}, time.Hour},
		{map[string]string{"Retry-After-Ms": "350", "Retry-After": "1"}, 350 * time.Millisecond},
		{map[string]string{"X-Ratelimit-Reset-Requests": "1m2s"}, 62 * time.Second},
		{map[string]string{"X-Ratelimit-Reset-Tokens": "350ms"}, 350 * time.Millisecond},
		{map[string]string{"X-Ratelimit-Reset-Tokens": "6m0s", "X-Ratelimit-Reset-Requests": "2s"}, 6 * time.Minute},
		{map[string]string{"X-Ratelimit-Reset-Tokens": "12"}, 12 * time.Second},
		{map[string]string{"X-Ratelimit-Reset-Tokens": "-5s"}, 0},
	}
	for _, tt := range tests {
		h := http.Header{}
		for k, v := range tt.headers {
			h.Set(k, v)
		}
		if got := retryAfter(h, now); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.headers, got, tt.want)
		}
	}
	// Through Send, with a server whose clock is an hour behind ours.
	date := time.Now().Add(-time.Hour)
	s := serve(t, always(jsonReply(429, `{}`, "Date: "+date.UTC().Format(http.TimeFormat), "Retry-After: "+date.Add(30*time.Second).UTC().Format(http.TimeFormat))))
	if a := send(t, s, nil); a.RetryAfter < 29*time.Second || a.RetryAfter > 31*time.Second || a.Reason != result.ReasonHTTP429 {
		t.Errorf("%s, retry after %v", a.Reason, a.RetryAfter)
	}
}

func TestBadConfig(t *testing.T) {
	for name, change := range map[string]func(*config.Target){
		"url":      func(c *config.Target) { c.URL = "localhost:8000" },
		"protocol": func(c *config.Target) { c.Protocol = "openai-chat" },
		"engine":   func(c *config.Target) { c.Engine = "vllmm" },
		"tls":      func(c *config.Target) { c.HTTPClient.TLSConfig.CAFile = "/nowhere/ca.pem" },
	} {
		c := config.Target{Name: "prod", URL: "http://localhost:8000", Model: "m", Protocol: config.Auto, Engine: config.Auto}
		change(&c)
		if target, err := NewTarget(c, Options{}); err == nil || !strings.Contains(err.Error(), "target prod: ") {
			t.Errorf("%s: %v, %v", name, target, err)
		}
	}
	for in, want := range map[string]string{
		"http://h:1": "http://h:1", "http://h:1/": "http://h:1", "http://h:1/v1": "http://h:1", "http://h:1/v1/": "http://h:1",
		"https://h/gw/v1": "https://h/gw",
	} {
		if got := baseURL(in); got != want {
			t.Errorf("baseURL(%s) = %s", in, got)
		}
	}
}

// Time that goes into fetching an OAuth2 token is none of the server's.
func TestTokenFetchIsNotMeasured(t *testing.T) {
	var tokens atomic.Int64
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		tokens.Add(1)
		time.Sleep(300 * time.Millisecond)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"access_token":"tok-123456","token_type":"Bearer","expires_in":3600}`)
	}))
	defer issuer.Close()
	s := serve(t, always(wholeAnswer()))
	target := newTarget(t, s.url(), func(c *config.Target) {
		c.HTTPClient.OAuth2 = &promconfig.OAuth2{ClientID: "id", ClientSecret: "secret", TokenURL: issuer.URL}
	})
	limits := timeouts()
	limits.StallTimeout = model.Duration(200 * time.Millisecond)
	for range 2 {
		a := target.Send(context.Background(), ask(), limits)
		if a.Outcome != result.Success || *a.TimeToFirstTokenSeconds > 0.2 || *a.Phases.Connect > 0.2 {
			t.Errorf("%s %s, TTFT %s, phases %s", summary(a), a.Detail, compact(a.TimeToFirstTokenSeconds), compact(a.Phases))
		}
	}
	if r, _ := s.seen(0); r.Header.Get("Authorization") != "Bearer tok-123456" || tokens.Load() != 1 {
		t.Errorf("Authorization %q, %d tokens fetched", r.Header.Get("Authorization"), tokens.Load())
	}
}
