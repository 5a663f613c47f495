package engine

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/valyala/fastjson"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// maxErrorBody bounds what is read of an error's body.
const maxErrorBody = 64 << 10

// reply is an answer that is no stream: an error, a page, a redirect.
type reply struct {
	status int
	header http.Header
	body   []byte
	said   apiError
}

func newReply(status int, header http.Header, body []byte) reply {
	r := reply{status: status, header: header, body: body}
	if v, err := fastjson.ParseBytes(bytes.TrimSpace(body)); err == nil {
		if list := v.GetArray(); len(list) == 1 { // some gateways put the error into a list
			v = list[0]
		}
		r.said = readError(v)
	}
	return r
}

// judge says why a request failed that got this reply, and what to change.
func (r reply) judge(w Wire, path string) verdict {
	said := r.message()
	switch {
	case r.status >= 300 && r.status < 400:
		return verdict{result.ReasonNotAStream, fmt.Sprintf("status %d redirects to %s: set the target's url to where it leads, or follow_redirects: true", r.status, locationHost(r.header))}
	case plainToTLS(r.body):
		return verdict{result.ReasonTLS, "the server speaks TLS on this port: write https:// in the target's url"}
	case r.status == http.StatusUnauthorized, r.status == http.StatusForbidden:
		return verdict{result.ReasonHTTP401, r.say("check the target's authorization: the key is missing, wrong, expired or not allowed to do this", said)}
	case r.noModel():
		return verdict{result.ReasonModelNotFound, r.say(fmt.Sprintf("the server does not know the model %q: set model: auto, or a name that /v1/models lists", w.Model), said)}
	case r.status == http.StatusNotFound, r.status == http.StatusMethodNotAllowed && r.said.message == "":
		return verdict{result.ReasonHTTP404, r.say(fmt.Sprintf("there is no %s: check the target's url (the base, without /v1/…) and its protocol", path), said)}
	case r.status == http.StatusTooManyRequests:
		advice := "rate limited, or the queue is full"
		if strings.Contains(r.said.code+r.said.kind, "insufficient_quota") {
			advice = "the quota is used up, which no waiting heals: check the account"
		}
		return verdict{result.ReasonHTTP429, r.say(advice, said)}
	case r.status == http.StatusServiceUnavailable:
		return verdict{result.ReasonHTTP503, r.say("unavailable: loading, draining, overloaded, or no healthy backend", said)}
	case r.status >= 500:
		return verdict{result.ReasonHTTP5xx, r.say("the server failed", said)}
	case r.status >= 400:
		return verdict{result.ReasonHTTP4xx, r.say("the server refuses the request", said)}
	}
	return verdict{result.ReasonNotAStream, r.say("the server did not answer with a stream", said)}
}

func (r reply) say(advice, said string) string {
	if said == "" {
		return fmt.Sprintf("status %d: %s", r.status, advice)
	}
	return fmt.Sprintf("status %d: %s; the server says: %s", r.status, advice, said)
}

// message returns what the reply says, or what it looks like.
func (r reply) message() string {
	if m := r.said.text(); m != "" {
		return m
	}
	if looksLikeHTML(r.body) {
		return pageLooks(r.body)
	}
	return string(r.body[:min(len(r.body), maxDetail)])
}

// noModel tells "no such model" from "no such path": both are 404, and some gateways answer 400.
func (r reply) noModel() bool {
	if r.status != http.StatusNotFound && r.status != http.StatusBadRequest && r.status != http.StatusUnprocessableEntity {
		return false
	}
	switch r.said.code {
	case "model_not_found", "DeploymentNotFound":
		return true
	}
	m := strings.ToLower(r.said.message)
	if strings.Contains(m, "invalid model name") || strings.Contains(m, "unknown model") {
		return true
	}
	if !strings.Contains(m, "model") && !strings.Contains(m, "deployment") {
		return false
	}
	missing := strings.Contains(m, "not exist") || strings.Contains(m, "not found") || strings.Contains(m, "no such model") ||
		strings.Contains(m, "not available") || strings.Contains(m, "not served") || strings.Contains(m, "not loaded")
	return missing && (r.status == http.StatusNotFound || strings.HasPrefix(m, "model") || strings.HasPrefix(m, "the model"))
}

func plainToTLS(body []byte) bool {
	return bytes.Contains(body, []byte("HTTP request to an HTTPS server")) ||
		bytes.Contains(body, []byte("plain HTTP request was sent to HTTPS port"))
}

func locationHost(h http.Header) string {
	location := h.Get("Location")
	u, err := url.Parse(location)
	switch {
	case err != nil || location == "":
		return "an unknown place"
	case u.Host == "":
		return "the path " + u.Path + " of the same host"
	}
	return u.Scheme + "://" + u.Host
}

func looksLikeHTML(body []byte) bool {
	head := bytes.TrimLeft(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")), " \t\r\n")
	return len(head) > 0 && head[0] == '<'
}

var pageTitle = regexp.MustCompile(`(?i)<title>([^<]{1,100})`)

// pageLooks says what an HTML page may be.
func pageLooks(body []byte) string {
	page := bytes.ToLower(body)
	what := "an HTML page"
	for _, sign := range []string{"password", "log in", "login", "sign in", "sso", "oauth"} {
		if bytes.Contains(page, []byte(sign)) {
			what = "an HTML page that looks like a login page"
			break
		}
	}
	if title := pageTitle.FindSubmatch(body); title != nil {
		what += fmt.Sprintf(" (%q)", bytes.TrimSpace(title[1]))
	}
	return what
}

// judgePage says why a status of 2xx with that body is no success.
func (r reply) judgePage(expected string) verdict {
	switch {
	case looksLikeHTML(r.body):
		return verdict{result.ReasonNotAStream, fmt.Sprintf("status %d with %s instead of a stream: something in front of the server answers; check the target's url and authorization", r.status, pageLooks(r.body))}
	case failedReply(r.body):
		return verdict{result.ReasonStreamError, fmt.Sprintf("status %d with an error: %s", r.status, r.message())}
	case len(bytes.TrimSpace(r.body)) == 0:
		return verdict{result.ReasonNotAStream, fmt.Sprintf("status %d with an empty body of type %q, expected %s", r.status, r.header.Get("Content-Type"), expected)}
	}
	return verdict{result.ReasonNotAStream, fmt.Sprintf("status %d with type %q instead of %s: the server or a gateway ignores stream: true", r.status, r.header.Get("Content-Type"), expected)}
}

func failedReply(body []byte) bool {
	v, err := fastjson.ParseBytes(bytes.TrimSpace(body))
	return err == nil && v.Type() == fastjson.TypeObject && failed(v)
}
