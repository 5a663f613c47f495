package enginemetrics

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
)

// Reason says why a page could not be read. The list is closed.
type Reason string

// The reasons for which a read fails.
const (
	ReasonConnect        Reason = "connect"         // no connection: name, address, refused, reset
	ReasonTLS            Reason = "tls"             // certificate or handshake
	ReasonTimeout        Reason = "timeout"         // no whole page in time
	ReasonUnauthorized   Reason = "unauthorized"    // 401, 403
	ReasonNotFound       Reason = "not_found"       // 404: wrong path, or metrics are off
	ReasonNotImplemented Reason = "not_implemented" // 501: llama.cpp without --metrics
	ReasonUnavailable    Reason = "unavailable"     // 503: starting, or overloaded
	ReasonHTTPStatus     Reason = "http_status"     // any other status that is not 200
	ReasonRedirect       Reason = "redirect"        // to another host, or round in circles
	ReasonJSON           Reason = "json"            // JSON instead of a metrics page
	ReasonHTML           Reason = "html"            // HTML: a login page, or another service
	ReasonTooLarge       Reason = "too_large"       // more bytes or series than any engine has
	ReasonEmpty          Reason = "empty"           // nothing on the page
	ReasonMalformed      Reason = "malformed"       // nothing on the page is a metric
	ReasonUnknownDialect Reason = "unknown_dialect" // metrics, but of no engine that is known
	ReasonUnsupported    Reason = "unsupported"     // the engine has no page that may be read
)

// Reasons returns every reason for which a read fails.
func Reasons() []Reason {
	return []Reason{
		ReasonConnect, ReasonTLS, ReasonTimeout, ReasonUnauthorized, ReasonNotFound, ReasonNotImplemented, ReasonUnavailable,
		ReasonHTTPStatus, ReasonRedirect, ReasonJSON, ReasonHTML, ReasonTooLarge, ReasonEmpty, ReasonMalformed,
		ReasonUnknownDialect, ReasonUnsupported,
	}
}

// ReadError is why a page could not be read.
type ReadError struct {
	Reason Reason
	Err    error
}

// Error says what went wrong, without the target's credentials.
func (e *ReadError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ReadError) Unwrap() error { return e.Err }

func failed(reason Reason, format string, args ...any) *ReadError {
	return &ReadError{Reason: reason, Err: fmt.Errorf(format, args...)}
}

// reasonOf finds the reason of any error of a read.
func reasonOf(err error) Reason {
	var read *ReadError
	var unknownAuthority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var verification *tls.CertificateVerificationError
	var alert tls.AlertError
	var network net.Error
	switch {
	case errors.As(err, &read):
		return read.Reason
	case errors.Is(err, ErrJSON):
		return ReasonJSON
	case errors.Is(err, ErrHTML):
		return ReasonHTML
	case errors.Is(err, ErrTooLarge):
		return ReasonTooLarge
	case errors.Is(err, ErrEmpty):
		return ReasonEmpty
	case errors.Is(err, ErrMalformed):
		return ReasonMalformed
	case errors.Is(err, ErrUnknownDialect):
		return ReasonUnknownDialect
	case errors.As(err, &unknownAuthority), errors.As(err, &hostname), errors.As(err, &invalid), errors.As(err, &record),
		errors.As(err, &verification), errors.As(err, &alert):
		return ReasonTLS
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return ReasonTimeout
	}
	return ReasonConnect
}

// lasting reports whether a failure is a matter of configuration, so that trying often helps nobody.
func (r Reason) lasting() bool {
	switch r {
	case ReasonUnauthorized, ReasonNotFound, ReasonNotImplemented, ReasonRedirect, ReasonJSON, ReasonHTML, ReasonTooLarge,
		ReasonUnknownDialect, ReasonUnsupported:
		return true
	}
	return false
}

func statusError(status int, page string) *ReadError {
	reason := ReasonHTTPStatus
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		reason = ReasonUnauthorized
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone:
		reason = ReasonNotFound
	case http.StatusNotImplemented:
		reason = ReasonNotImplemented
	case http.StatusServiceUnavailable:
		reason = ReasonUnavailable
	}
	return failed(reason, "GET %s: HTTP status %d", page, status)
}

// advice says what to change.
func advice(reason Reason, engine string) string {
	switch reason {
	case ReasonUnauthorized:
		return "give the target's authorization; LiteLLM and gateways may guard their metrics page"
	case ReasonNotImplemented:
		return "start llama-server with --metrics"
	case ReasonNotFound, ReasonUnsupported, ReasonJSON:
		switch engine {
		case "sglang":
			return "start SGLang with --enable-metrics"
		case "llamacpp":
			return "start llama-server with --metrics"
		case "trtllm":
			return "set return_perf_metrics: true for trtllm-serve, which then serves /prometheus/metrics; its /metrics is JSON that reading empties and is never read"
		case "triton":
			return "set engine_metrics to the URL of Triton's metrics port, by default 8002"
		case "litellm":
			return `set callbacks: ["prometheus"] for LiteLLM`
		case "ollama":
			return "Ollama has no metrics page: set engine_metrics: off to silence this"
		}
		return "set engine_metrics to the URL of the engine's metrics page, or to off"
	case ReasonHTML, ReasonUnknownDialect, ReasonMalformed, ReasonEmpty, ReasonTooLarge:
		return "set engine_metrics to the URL of the engine's own metrics page, or to off"
	case ReasonTLS:
		return "check tls_config of the target and its certificate"
	case ReasonRedirect:
		return "set engine_metrics to the URL that the redirect leads to, if it is to be trusted with the target's credentials"
	case ReasonTimeout, ReasonConnect, ReasonUnavailable:
		return "check that the engine runs and answers"
	}
	return "check the engine's log"
}
