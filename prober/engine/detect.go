package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	detectCall     = 2 * time.Second
	maxDetectBody  = 4 << 20
	maxDetectNames = 256 // bytes of a name that is taken over
)

// Detect finds out what the target serves: its model, how long its context is, and what it is built of, from
// GET /v1/models, GET /version and POST /tokenize. It costs no tokens. What was configured is never overruled.
func (t *Target) Detect(ctx context.Context) (Facts, error) {
	models, header, err := t.models(ctx)
	if err != nil {
		return t.Facts(), err
	}
	f := t.Facts()
	chosen, err := chooseModel(models, known(t.config.Model))
	if err != nil {
		return f, err
	}
	f.Model, f.MaxModelLen = bounded(chosen.ID), chosen.contextLength()
	if e := known(t.config.Engine); e != "" {
		f.Engine = e
	} else {
		f.Engine = engineOf(chosen.OwnedBy, header)
	}
	f.Version = t.version(ctx)
	f.Tokenizes = t.tokenizes(ctx, f.Model)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.facts.Engine != "" && (t.facts.Engine != f.Engine || t.facts.Version != f.Version) {
		t.features, t.learntLimit = Features{}, 0 // another server: what the old one refused says nothing
	}
	if f.MaxModelLen == 0 {
		f.MaxModelLen = t.learntLimit
	}
	t.facts = f
	return f, nil
}

// listedModel is an entry of GET /v1/models.
type listedModel struct {
	ID          string          `json:"id"`
	OwnedBy     string          `json:"owned_by"`
	Parent      json.RawMessage `json:"parent"` // of a LoRA adapter
	MaxModelLen int             `json:"max_model_len"`
	Meta        struct {
		ContextTrained int `json:"n_ctx_train"`
		Context        int `json:"n_ctx"`
	} `json:"meta"`
}

func (m listedModel) contextLength() int {
	for _, n := range []int{m.MaxModelLen, m.Meta.Context} {
		if n > 0 {
			return n
		}
	}
	return 0
}

func (t *Target) models(ctx context.Context) ([]listedModel, http.Header, error) {
	status, header, body, err := t.call(ctx, http.MethodGet, "/v1/models", nil)
	if err != nil {
		return nil, nil, fmt.Errorf("GET /v1/models: %w", err)
	}
	if status != http.StatusOK {
		return nil, nil, fmt.Errorf("GET /v1/models: %s", statusDetail(status, body))
	}
	var list struct {
		Data []listedModel `json:"data"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, nil, errors.New("GET /v1/models: the answer is no list of models: is the URL that of an inference server?")
	}
	return list.Data, header, nil
}

// chooseModel takes the configured model, else the first that is no adapter. A configured model that is not listed
// is used all the same: gateways route more names than they list.
func chooseModel(list []listedModel, configured string) (listedModel, error) {
	if configured != "" {
		for _, m := range list {
			if m.ID == configured {
				return m, nil
			}
		}
		var owner string
		if len(list) > 0 {
			owner = list[0].OwnedBy
		}
		return listedModel{ID: configured, OwnedBy: owner}, nil
	}
	for _, m := range list {
		if p := strings.TrimSpace(string(m.Parent)); m.ID != "" && (p == "" || p == "null" || p == `""`) {
			return m, nil
		}
	}
	return listedModel{}, errors.New("GET /v1/models: no model is listed: load one, or set model in the target's configuration")
}

// engineOf names the engine from what its list of models tells.
func engineOf(owner string, h http.Header) string {
	switch {
	case strings.HasPrefix(h.Get("Server"), "llama.cpp"), owner == "llamacpp":
		return "llamacpp"
	case h.Get("X-Litellm-Version") != "", h.Get("X-Litellm-Call-Id") != "":
		return "litellm"
	}
	switch owner {
	case "vllm", "sglang", "lmdeploy":
		return owner
	case "tensorrt_llm":
		return "trtllm"
	case "library":
		return "ollama"
	}
	return "openai"
}

// version asks for the server's version; empty where it does not tell.
func (t *Target) version(ctx context.Context) string {
	status, _, body, err := t.call(ctx, http.MethodGet, "/version", nil)
	var v struct {
		Version string `json:"version"`
	}
	if err != nil || status != http.StatusOK || json.Unmarshal(body, &v) != nil {
		return ""
	}
	return bounded(v.Version)
}

// tokenizes finds out whether the target counts tokens for us.
func (t *Target) tokenizes(ctx context.Context, model string) bool {
	_, ok := t.countTokens(ctx, model, "one two three")
	return ok
}

// CountTokens counts with the target's own tokenizer, and returns false where it does not lend it to us. Special
// tokens that begin a prompt are left out.
func (t *Target) CountTokens(ctx context.Context, text string) (int, bool) {
	f := t.Facts()
	if !f.Tokenizes {
		return 0, false
	}
	return t.countTokens(ctx, f.Model, text)
}

// countTokens understands vLLM's form (prompt -> count) and llama.cpp's (content -> tokens), which share the path.
func (t *Target) countTokens(ctx context.Context, model, text string) (int, bool) {
	body, err := json.Marshal(map[string]any{"model": model, "prompt": text, "content": text, "add_special_tokens": false, "add_special": false})
	if err != nil {
		return 0, false
	}
	status, _, answer, err := t.call(ctx, http.MethodPost, "/tokenize", body)
	var v struct {
		Count  *int              `json:"count"`
		Tokens []json.RawMessage `json:"tokens"`
	}
	if err != nil || status != http.StatusOK || json.Unmarshal(answer, &v) != nil {
		return 0, false
	}
	switch {
	case v.Count != nil && *v.Count > 0:
		return *v.Count, true
	case len(v.Tokens) > 0:
		return len(v.Tokens), true
	}
	return 0, false
}

// call makes a short call beside the probes.
func (t *Target) call(ctx context.Context, method, path string, body []byte) (int, http.Header, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, detectCall)
	defer cancel()
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, t.url(path), r)
	if err != nil {
		return 0, nil, nil, err
	}
	t.setCommon(req.Header)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return 0, nil, nil, redact(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxDetectBody))
	if err != nil {
		return 0, nil, nil, redact(err)
	}
	return resp.StatusCode, resp.Header, answer, nil
}

func bounded(s string) string {
	if len(s) > maxDetectNames {
		s = s[:maxDetectNames]
	}
	return short([]byte(s))
}
