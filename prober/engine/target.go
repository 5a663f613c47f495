package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/valyala/fastjson"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// Options are what a Target needs beside its config.
type Options struct {
	Logger    log.Logger // nil = no log
	UserAgent string     // empty = llm_canary_exporter
}

// Target is one inference server or gateway that can be spoken to. It is safe for concurrent use.
type Target struct {
	config   config.Target
	base     string
	hostname string
	client   *http.Client
	logger   log.Logger
	stamps   func()

	mu     sync.Mutex
	facts  Facts
	memory memory
}

// NewTarget makes a target. Nothing is sent yet. Errors are about the config: a URL or a certificate file that cannot
// be used, an unknown protocol or engine.
func NewTarget(c config.Target, o Options) (*Target, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("target %s: url %q: write http://host:port or https://host", c.Name, redactURL(c.URL))
	}
	if o.Logger == nil {
		o.Logger = log.NewNopLogger()
	}
	if o.UserAgent == "" {
		o.UserAgent = "llm_canary_exporter"
	}
	facts, err := configured(c, u)
	if err != nil {
		return nil, err
	}
	client, err := newClient(c, o)
	if err != nil {
		return nil, err
	}
	stamps, err := stream.HoldKernelStamps()
	if err != nil {
		stamps = func() {} // the first bytes of a lone connection may then come without a stamp
	}
	return &Target{
		config: c, base: baseURL(c.URL), hostname: u.Hostname(), client: client, logger: o.Logger, stamps: stamps,
		facts: facts, memory: newMemory(),
	}, nil
}

// configured returns what is known before anything was asked.
func configured(c config.Target, u *url.URL) (Facts, error) {
	f := Facts{Model: notAuto(c.Model), Engine: notAuto(c.Engine), Protocol: notAuto(c.Protocol)}
	if f.Engine == "" {
		f.Engine = engineOfHost(u.Hostname())
	}
	if f.Protocol == "" {
		f.Protocol = protocolOf(f.Engine)
	}
	if _, ok := LookupProtocol(f.Protocol); !ok {
		return Facts{}, fmt.Errorf("target %s: protocol %q is unknown: use auto or one of %s", c.Name, f.Protocol, strings.Join(ProtocolNames(), ", "))
	}
	if f.Engine != "" && !isEngine(f.Engine) {
		return Facts{}, fmt.Errorf("target %s: engine %q is unknown: use auto or one of %s", c.Name, f.Engine, strings.Join(Engines(), ", "))
	}
	return f, nil
}

func notAuto(s string) string {
	if s == config.Auto {
		return ""
	}
	return s
}

func isEngine(name string) bool {
	for _, e := range Engines() {
		if e == name {
			return true
		}
	}
	return false
}

// protocolOf returns the protocol that an engine is spoken to with unless the config says another: chat, which all
// but two of them speak.
func protocolOf(engine string) string {
	switch engine {
	case EngineTriton:
		return "triton_generate"
	case EngineAnthropic:
		return "anthropic_messages"
	}
	return "openai_chat"
}

// engineOfHost knows the hosted services.
func engineOfHost(host string) string {
	switch {
	case host == "api.openai.com":
		return EngineOpenAIHosted
	case host == "api.anthropic.com":
		return EngineAnthropic
	case strings.HasSuffix(host, ".openai.azure.com"), strings.HasSuffix(host, ".cognitiveservices.azure.com"),
		strings.HasSuffix(host, ".services.ai.azure.com"):
		return EngineAzure
	}
	return ""
}

// baseURL returns the URL below which the routes are, without the /v1 that some people write.
func baseURL(s string) string {
	return strings.TrimRight(strings.TrimSuffix(strings.TrimRight(s, "/"), "/v1"), "/")
}

func redactURL(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "(unreadable)"
	}
	return u.Redacted()
}

// Facts returns what is known: what was configured, until a detection worked.
func (t *Target) Facts() Facts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.facts
}

// Features returns what the target took, refused and reported so far.
func (t *Target) Features() Features {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.memory.features()
}

// Close closes idle connections. Requests in flight go on.
func (t *Target) Close() {
	t.client.CloseIdleConnections()
	t.stamps()
}

// The bounds of a call that is no probe: detection, tokenizing.
const (
	callTimeout = 2 * time.Second
	maxCallBody = 4 << 20
)

// CountTokens counts a text's tokens with the target's own tokenizer, without special tokens. It returns false where
// the target does not lend it to us.
func (t *Target) CountTokens(ctx context.Context, text string) (int, bool) {
	f := t.Facts()
	if !f.Tokenizes {
		return 0, false
	}
	var body map[string]any
	switch f.Engine {
	case EngineLlamaCPP:
		body = map[string]any{"content": text, "add_special": false}
	case EngineTGI:
		body = map[string]any{"inputs": text, "add_special_tokens": false}
	default:
		body = map[string]any{"model": f.Model, "prompt": text, "add_special_tokens": false}
	}
	data, err := json.Marshal(body)
	if err != nil {
		return 0, false
	}
	r, err := t.call(ctx, http.MethodPost, "/tokenize", data)
	if err != nil || r.status != http.StatusOK {
		return 0, false
	}
	v, err := fastjson.ParseBytes(r.body)
	if err != nil {
		return 0, false
	}
	return tokensOf(v)
}

func tokensOf(v *fastjson.Value) (int, bool) {
	if n := count(v, "count"); n >= 0 {
		return n, true
	}
	tokens := v.Get("tokens")
	if v.Type() == fastjson.TypeArray { // TGI
		tokens = v
	}
	if tokens == nil || tokens.Type() != fastjson.TypeArray {
		return 0, false
	}
	return len(tokens.GetArray()), true
}

// call makes one small request that is no probe, within its own budget of time and size.
func (t *Target) call(ctx context.Context, method, path string, body []byte) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, t.base+path, bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Accept-Encoding", "identity")
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	t.addHeaders(req.Header)
	resp, err := t.client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxCallBody+1))
	if err != nil {
		return reply{}, err
	}
	if len(data) > maxCallBody {
		return reply{}, fmt.Errorf("%s answers with more than %d bytes", path, maxCallBody)
	}
	return newReply(resp.StatusCode, resp.Header, data), nil
}

// addHeaders adds what a service wants with every request.
func (t *Target) addHeaders(h http.Header) {
	if t.Facts().Engine == EngineAnthropic {
		h.Set("Anthropic-Version", anthropicVersion)
	}
}

// anthropicVersion is the version of the Messages API that is spoken.
const anthropicVersion = "2023-06-01"
