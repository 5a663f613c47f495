package enginemetrics

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
)

const (
	maxRedirects = 3
	// What has to be seen of /v1/models to know whose it is.
	maxModelsBytes = 256 << 10
)

// candidate is a URL that may be the metrics page.
type candidate struct {
	url string
	// risky: on trtllm-serve this path is a queue of JSON statistics that every read empties, so it is only read
	// where the engine is known to be another one or has been ruled out first.
	risky bool
}

// candidates returns where the metrics of an engine may be, in the order to try. With an explicit page there is
// nothing to look for.
func candidates(page, base, engine string) []candidate {
	if page != "" {
		return []candidate{{url: page, risky: samePlace(page, base) && strings.HasSuffix(pathOf(page), "/metrics") && !strings.HasSuffix(pathOf(page), "/prometheus/metrics") && unknownEngine(engine)}}
	}
	root := strings.TrimSuffix(strings.TrimSuffix(base, "/"), "/v1")
	plain := candidate{url: root + "/metrics"}
	switch engine {
	case "ollama", "anthropic", "azure", "azure_openai":
		return nil
	case "trtllm":
		return []candidate{{url: root + "/prometheus/metrics"}}
	case "nim":
		return []candidate{{url: root + "/v1/metrics"}, plain}
	case "triton":
		out := []candidate{plain}
		if u := withPort(base, "8002"); u != "" {
			out = append([]candidate{{url: u + "/metrics"}}, out...)
		}
		return out
	}
	if unknownEngine(engine) {
		plain.risky = true
		return []candidate{{url: root + "/prometheus/metrics"}, {url: root + "/v1/metrics"}, plain}
	}
	return []candidate{plain}
}

func unknownEngine(engine string) bool { return engine == "" || engine == "openai" }

// forbidden reports whether a page must not be read because it is trtllm-serve's queue of JSON statistics.
func forbidden(page, base, engine string) bool {
	path := strings.TrimSuffix(pathOf(page), "/")
	return engine == "trtllm" && samePlace(page, base) && strings.HasSuffix(path, "/metrics") && !strings.HasSuffix(path, "/prometheus/metrics")
}

func pathOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return raw
	}
	return u.Path
}

func samePlace(a, b string) bool {
	x, err := url.Parse(a)
	if err != nil {
		return false
	}
	y, err := url.Parse(b)
	return err == nil && strings.EqualFold(x.Hostname(), y.Hostname()) && portOf(x) == portOf(y)
}

func portOf(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	if u.Scheme == "https" {
		return "443"
	}
	return "80"
}

// withPort returns scheme, host and another port; empty for a URL that cannot be read.
func withPort(raw, port string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	host := u.Hostname()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return (&url.URL{Scheme: u.Scheme, User: u.User, Host: host + ":" + port}).String()
}

// shown is a URL without userinfo and query, for logs and pages.
func shown(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(URL that cannot be parsed)"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// fetcher gets pages. Redirects are followed by hand: to the same host and port only, or from http to https of the
// same host, so that the client's credentials, which go with every request, never reach another host.
type fetcher struct {
	client *http.Client
	agent  string
}

func newFetcher(c *http.Client, agent string) fetcher {
	own := *c
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	own.Timeout = 0 // the context's deadline counts
	return fetcher{client: &own, agent: agent}
}

// get returns the body of a page of at most limit bytes and its content type.
func (f fetcher) get(ctx context.Context, page string, limit int64) (body []byte, contentType string, err error) {
	for range maxRedirects + 1 {
		body, contentType, next, err := f.once(ctx, page, limit)
		if err != nil || next == "" {
			return body, contentType, err
		}
		page = next
	}
	return nil, "", failed(ReasonRedirect, "GET %s: more than %d redirects", shown(page), maxRedirects)
}

func (f fetcher) once(ctx context.Context, page string, limit int64) (body []byte, contentType, next string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return nil, "", "", failed(ReasonUnsupported, "URL of the metrics page %s cannot be used", shown(page))
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4;q=1, application/openmetrics-text;version=1.0.0;q=0.5, */*;q=0.1")
	if f.agent != "" {
		req.Header.Set("User-Agent", f.agent)
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return nil, "", "", failed(reasonOf(err), "GET %s: %w", shown(page), withoutURL(err))
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		next, err := redirect(req.URL, resp.Header.Get("Location"))
		return nil, "", next, err
	default:
		return nil, "", "", statusError(resp.StatusCode, shown(page))
	}
	body, err = io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, "", "", failed(reasonOf(err), "GET %s: body: %w", shown(page), err)
	}
	if int64(len(body)) > limit {
		return nil, "", "", failed(ReasonTooLarge, "GET %s: %w: more than %d bytes", shown(page), ErrTooLarge, limit)
	}
	return body, resp.Header.Get("Content-Type"), "", nil
}

// redirect returns where a redirect leads, if it may be followed.
func redirect(from *url.URL, location string) (string, error) {
	to, err := from.Parse(location)
	if err != nil || location == "" {
		return "", failed(ReasonRedirect, "GET %s: redirect without a usable Location", shown(from.String()))
	}
	same := strings.EqualFold(to.Hostname(), from.Hostname()) && portOf(to) == portOf(from) && to.Scheme == from.Scheme
	upgrade := strings.EqualFold(to.Hostname(), from.Hostname()) && from.Scheme == "http" && to.Scheme == "https"
	if !same && !upgrade {
		return "", failed(ReasonRedirect, "GET %s: redirect to another host %s is not followed", shown(from.String()), shown(to.String()))
	}
	if to.User == nil {
		to.User = from.User
	}
	return to.String(), nil
}

// withoutURL takes the URL, which may hold secrets, out of the client's error.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// isTRTLLM asks a server of an unknown kind whether it is trtllm-serve, before a page is read that reading empties
// there. It costs no tokens. A server that does not answer is not known to be one.
func (f fetcher) isTRTLLM(ctx context.Context, base string) bool {
	root := strings.TrimSuffix(strings.TrimSuffix(base, "/"), "/v1")
	body, _, err := f.get(ctx, root+"/v1/models", maxModelsBytes)
	return err == nil && bytes.Contains(body, []byte(`"tensorrt_llm"`))
}
