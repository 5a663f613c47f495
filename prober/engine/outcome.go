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
	"os"
	"strings"
	"syscall"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// verdict is why a request failed, for machines and for people.
type verdict struct {
	reason result.Reason
	detail string
}

// judgeError says why a request failed that ended in an error, before its answer or inside of it.
func judgeError(ctx context.Context, err error, s seen) verdict {
	if cause := context.Cause(ctx); cause != nil {
		return judgeCause(cause, s)
	}
	for _, row := range errorTable() {
		if row.is(err, s) {
			return verdict{row.reason, row.advice(err)}
		}
	}
	return verdict{result.ReasonInternal, short(err)}
}

// judgeCause tells our own deadlines from the caller's end.
func judgeCause(cause error, s seen) verdict {
	var d *deadlineError
	switch {
	case errors.As(cause, &d) && d.reason == result.ReasonTimeoutConnect:
		where := "the TCP connection was not established: check the port, firewalls and the accept queue"
		switch {
		case s.resolving:
			where = "the host name was not resolved: check the resolver"
		case s.shaking:
			where = "the TLS handshake did not end: check that the port speaks TLS"
		}
		return verdict{d.reason, d.Error() + "; " + where}
	case errors.As(cause, &d):
		return verdict{d.reason, d.Error()}
	case errors.Is(cause, context.DeadlineExceeded):
		return verdict{result.ReasonTimeoutTotal, "not finished when the probe's time was over"}
	}
	return verdict{result.ReasonCanceled, "the probe was canceled"}
}

// errorRow is one kind of error. The first row that holds wins.
type errorRow struct {
	reason result.Reason
	is     func(error, seen) bool
	advice func(error) string
}

// errorTable lists what can go wrong below HTTP.
func errorTable() []errorRow {
	say := func(format string) func(error) string {
		return func(err error) string { return fmt.Sprintf(format, short(err)) }
	}
	return []errorRow{
		{result.ReasonDNS, func(err error, _ seen) bool { return as[*net.DNSError](err) }, say("%s: check the host name in the target's url, and the resolver")},
		{result.ReasonTLS, isTLS, tlsAdvice},
		{result.ReasonResponseTooLarge, func(err error, _ seen) bool {
			return errors.Is(err, stream.ErrEventTooLarge) || errors.Is(err, stream.ErrBodyTooLarge)
		}, say("%s")},
		{result.ReasonTimeoutConnect, func(err error, s seen) bool { return !s.connected && isTimeout(err) }, say("%s: check the port and firewalls")},
		{result.ReasonConnect, func(err error, s seen) bool { return !s.connected && isDial(err) }, say("%s: check that the server listens there")},
		{result.ReasonNotAStream, func(err error, _ seen) bool { return strings.Contains(err.Error(), "malformed HTTP") }, say("the server does not speak HTTP/1.1 on this port: %s")},
		{result.ReasonConnectionReset, isReset, say("the connection broke: %s; check whether the server restarted, and the limits of what stands between")},
		{result.ReasonTruncated, func(err error, s seen) bool { return s.byte && isEOF(err) }, say("the connection was closed inside of the answer (%s)")},
		{result.ReasonConnectionReset, func(err error, _ seen) bool { return isEOF(err) }, say("the connection was closed without an answer (%s); check whether the server restarted")},
		{result.ReasonMalformedStream, func(err error, _ seen) bool {
			return errors.Is(err, errMalformed) || strings.Contains(err.Error(), "gzip")
		}, say("%s")},
		{result.ReasonMalformedStream, func(err error, s seen) bool { return s.byte && strings.Contains(err.Error(), "chunk") }, say("broken chunked coding: %s")},
		{result.ReasonConnect, func(err error, s seen) bool { return !s.connected && as[*net.OpError](err) }, say("%s")},
	}
}

// as reports whether there is an error of that type in the chain.
func as[T error](err error) bool {
	var target T
	return errors.As(err, &target)
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

func isDial(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect" || strings.HasPrefix(op.Op, "socks")) {
		return true
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

func isReset(err error, _ seen) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNABORTED) ||
		// net/http keeps its HTTP/2 errors to itself.
		strings.Contains(err.Error(), "stream error: ") || strings.Contains(err.Error(), "http2: server sent GOAWAY")
}

func isEOF(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		strings.Contains(err.Error(), "server closed idle connection") || strings.Contains(err.Error(), "transport connection broken")
}

func isTLS(err error, s seen) bool {
	var alert tls.AlertError
	switch {
	case errors.Is(err, http.ErrSchemeMismatch), errors.As(err, &alert), as[*tls.CertificateVerificationError](err),
		as[tls.RecordHeaderError](err), as[x509.UnknownAuthorityError](err), as[x509.HostnameError](err),
		as[x509.CertificateInvalidError](err), as[*tls.ECHRejectionError](err):
		return true
	case strings.Contains(err.Error(), tlsRecord):
		return true // a TLS alert where an answer in plain text was expected
	case strings.Contains(err.Error(), "tls: "), strings.Contains(err.Error(), "x509: "):
		return true
	}
	return s.shaking && !s.connected && (isEOF(err) || isReset(err, s))
}

// tlsRecord is how net/http quotes the start of a TLS alert.
const tlsRecord = `malformed HTTP response "\x15\x03`

func tlsAdvice(err error) string {
	said := short(err)
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return "the server speaks plain HTTP on this port: write http:// in the target's url"
	case strings.Contains(err.Error(), tlsRecord):
		return "the server speaks TLS on this port: write https:// in the target's url"
	case as[x509.UnknownAuthorityError](err):
		return said + ": set tls_config.ca_file of the target to the authority that signed it"
	case as[x509.HostnameError](err):
		return said + ": use a name of the certificate in the url, or set tls_config.server_name"
	case as[x509.CertificateInvalidError](err):
		return said + ": renew the certificate"
	}
	return "the TLS handshake failed: " + said
}

// short returns what an error says without the URL that net/http puts around it.
func short(err error) string {
	var wrapped interface{ Unwrap() error }
	message := err.Error()
	if errors.As(err, &wrapped) && (strings.HasPrefix(message, `Post "`) || strings.HasPrefix(message, `Get "`)) {
		message = wrapped.Unwrap().Error()
	}
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		message += " (a file that the target's config names)"
	}
	return message
}
