package engine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// failure is why a request failed. It is an error, so that it can be the cause of a context's end.
type failure struct {
	reason result.Reason
	detail string
}

func (f *failure) Error() string { return string(f.reason) + ": " + f.detail }

func failf(r result.Reason, format string, args ...any) *failure {
	return &failure{reason: r, detail: fmt.Sprintf(format, args...)}
}

// progress is how far a request has come, for telling errors apart.
type progress struct {
	connected bool // TCP stands
	ready     bool // TLS too, where there is any
	answered  bool // status and headers are there
}

// classify finds the reason of an error of the transport or of the body. ctx is the request's own, whose cause is a
// failure when a deadline of ours ended it.
func classify(ctx context.Context, err error, p progress) *failure {
	var own *failure
	if errors.As(context.Cause(ctx), &own) {
		return own
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return failf(result.ReasonTimeoutTotal, "the time for the whole probe was over")
	}
	if ctx.Err() != nil {
		return failf(result.ReasonCanceled, "canceled by the exporter")
	}
	switch {
	case errors.Is(err, stream.ErrEventTooLarge), errors.Is(err, stream.ErrBodyTooLarge):
		return failf(result.ReasonResponseTooLarge, "%v", err)
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return failf(result.ReasonDNS, "the name %q cannot be resolved: %s", dns.Name, dns.Err)
	}
	if f := classifyTLS(err); f != nil {
		return f
	}
	cause := redact(err)
	switch {
	case !p.connected:
		return failf(result.ReasonConnect, "cannot connect: %v: is the server up, and is it the right port?", cause)
	case !p.ready:
		return failf(result.ReasonTLS, "the TLS handshake failed: %v", cause)
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return failf(result.ReasonConnectionReset, "the server or something before it reset the connection")
	case errors.Is(err, io.ErrUnexpectedEOF) && p.answered:
		return failf(result.ReasonTruncated, "the connection ended in the middle of the answer")
	case errors.Is(err, io.EOF), strings.Contains(err.Error(), "server closed idle connection"):
		return failf(result.ReasonConnectionReset, "the server closed the connection without an answer")
	case strings.Contains(err.Error(), "malformed HTTP"), strings.Contains(err.Error(), "malformed chunked"),
		strings.Contains(err.Error(), "invalid byte in chunk length"), strings.Contains(err.Error(), "chunk length"):
		return failf(result.ReasonMalformedStream, "the answer is no valid HTTP: %v", cause)
	}
	return failf(result.ReasonConnectionReset, "%v", cause)
}

func classifyTLS(err error) *failure {
	var (
		record    tls.RecordHeaderError
		unknown   x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		verify    *tls.CertificateVerificationError
		alert     tls.AlertError
		hint      string
		recognise = true
	)
	switch {
	case errors.As(err, &unknown):
		hint = "set tls_config.ca_file to the authority's certificate"
	case errors.As(err, &host):
		hint = "the certificate is for another name: check the URL, or set tls_config.server_name"
	case errors.As(err, &invalid):
		hint = "the certificate is expired or not for this use"
	case errors.As(err, &record):
		hint = "the server does not speak TLS on this port: http:// instead of https://?"
	case errors.As(err, &verify), errors.As(err, &alert):
	default:
		recognise = strings.Contains(err.Error(), "tls: ") || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client")
		if strings.Contains(err.Error(), "HTTP response to HTTPS") {
			hint = "the server does not speak TLS on this port: http:// instead of https://?"
		}
	}
	if !recognise {
		return nil
	}
	if hint != "" {
		hint = ": " + hint
	}
	return failf(result.ReasonTLS, "%v%s", redact(err), hint)
}

// redact takes the URL out of net/http's errors: it may hold what nobody should read in a log.
func redact(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// statusFailure finds the reason of an answer that is no 2xx.
func statusFailure(status int, header http.Header, body []byte) *failure {
	detail := statusDetail(status, body)
	lower := strings.ToLower(string(body))
	switch {
	case status >= 300 && status < 400:
		where := "nowhere"
		if u, err := url.Parse(header.Get("Location")); err == nil && u.Host != "" {
			where = "the host " + u.Host
		} else if err == nil && u.Path != "" {
			where = "the path " + short([]byte(u.Path))
		}
		return failf(result.ReasonNotAStream, "HTTP %d redirects to %s: use the final address in the target's url", status, where)
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return failf(result.ReasonHTTP401, "%s: check the target's authorization", detail)
	case status == http.StatusNotFound && strings.Contains(lower, "model"):
		return failf(result.ReasonModelNotFound, "%s: check the target's model", detail)
	case status == http.StatusBadRequest && strings.Contains(lower, "model") && (strings.Contains(lower, "not found") || strings.Contains(lower, "does not exist")):
		return failf(result.ReasonModelNotFound, "%s: check the target's model", detail)
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		return failf(result.ReasonHTTP404, "%s: check the target's url and protocol", detail)
	case status == http.StatusTooManyRequests:
		return failf(result.ReasonHTTP429, "%s", detail)
	case status == http.StatusServiceUnavailable, status == 529: // 529: overloaded, by Anthropic's convention
		return failf(result.ReasonHTTP503, "%s", detail)
	case status >= 500:
		return failf(result.ReasonHTTP5xx, "%s", detail)
	case status >= 400:
		return failf(result.ReasonHTTP4xx, "%s", detail)
	}
	return failf(result.ReasonNotAStream, "%s: not an answer to a request", detail)
}

func statusDetail(status int, body []byte) string {
	text := errorText(body)
	if text == "" {
		text = http.StatusText(status)
	}
	return fmt.Sprintf("HTTP %d: %s", status, text)
}
