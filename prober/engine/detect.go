package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-kit/log/level"
	"github.com/valyala/fastjson"
)

// Detect finds out what the target is and which model it serves, with small GETs that cost no tokens and destroy
// nothing. It never touches LiteLLM's /health (real model calls), trtllm-serve's JSON /metrics (reading it takes the
// data away) or SGLang's /health_generate.
//
// Each call has two seconds. Once the engine is known, a later detection only asks whether it still is the same. When
// the engine or its version changes, what was learnt of it is forgotten.
func (t *Target) Detect(ctx context.Context) (Facts, error) {
	d := &detector{target: t, ctx: ctx, replies: map[string]reply{}, errs: map[string]error{}}
	old := t.Facts()
	models, err := d.models(old)
	if err != nil {
		return old, err
	}
	f := d.engine(old, models)
	if f.Engine == old.Engine && f.Version == "" {
		f.Version = old.Version
	}
	note := d.pickModel(&f, old, models)
	if f.Model == "" {
		return old, fmt.Errorf("target %s: no model was found (%s): set its model", t.config.Name, note)
	}
	f.Protocol = notAuto(t.config.Protocol)
	if f.Protocol == "" {
		f.Protocol = protocolOf(f.Engine)
	}
	d.limits(&f, models)
	f.Tokenizes = d.tokenizes(f)
	if ctx.Err() != nil {
		return old, ctx.Err() // what could not be asked is not known
	}
	return t.learnt(old, f, d.signs, note), nil
}

// learnt takes over what was found.
func (t *Target) learnt(old, f Facts, signs []string, note string) Facts {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old.Engine != "" && old.Engine != f.Engine || old.Version != "" && old.Version != f.Version {
		_ = level.Info(t.logger).Log("msg", "the engine changed: what was learnt of it is forgotten", "target", t.config.Name,
			"was", old.Engine+" "+old.Version, "is", f.Engine+" "+f.Version)
		t.memory = newMemory()
	}
	if t.memory.notes["protocol"] != "" && f.Model == old.Model {
		f.Protocol = t.facts.Protocol // a request found out that there is no chat template
	} else {
		delete(t.memory.notes, "protocol")
	}
	if note != t.memory.notes["model"] && note != "" {
		_ = level.Warn(t.logger).Log("msg", note, "target", t.config.Name)
	}
	delete(t.memory.notes, "model")
	if note != "" {
		t.memory.notes["model"] = note
	}
	t.memory.signs = signs
	if f.MaxModelLen == 0 {
		f.MaxModelLen = t.memory.limit
	}
	t.facts = f
	return f
}

// detector is one detection. It asks for each path once.
type detector struct {
	target  *Target
	ctx     context.Context
	replies map[string]reply
	errs    map[string]error
	signs   []string
	silent  int // calls that failed below HTTP
}

// maxSilent is after how many calls without an answer a detection stops asking.
const maxSilent = 2

var errSilent = errors.New("not asked: earlier calls got no answer")

func (d *detector) get(path string) (reply, error) {
	if err, asked := d.errs[path]; asked {
		return d.replies[path], err
	}
	if d.silent >= maxSilent {
		return reply{}, errSilent
	}
	r, err := d.target.call(d.ctx, http.MethodGet, path, nil)
	if err != nil {
		d.silent++
	}
	d.replies[path], d.errs[path] = r, err
	return r, err
}

// object returns the JSON object that a path answers with, or nil: pages of HTML with status 200 are common.
func (d *detector) object(path string) *fastjson.Value {
	r, err := d.get(path)
	if err != nil || r.status != http.StatusOK {
		return nil
	}
	v, err := fastjson.ParseBytes(bytes.TrimSpace(r.body))
	if err != nil || v.Type() != fastjson.TypeObject {
		return nil
	}
	return v
}

// listed is a model as /v1/models lists it.
type listed struct {
	id, owner string
	adapter   bool // of another model
	length    int
}

// models asks for the list of models. That a server has none is no error; that it cannot be reached is.
func (d *detector) models(f Facts) ([]listed, error) {
	path := "/v1/models"
	if f.Engine == EngineAzure {
		path = "/openai/v1/models"
	}
	r, err := d.get(path)
	if err != nil {
		v := judgeError(d.ctx, err, seen{})
		if errors.Is(err, context.DeadlineExceeded) && d.ctx.Err() == nil {
			v.detail = fmt.Sprintf("%s does not answer within %s", path, callTimeout)
		}
		return nil, fmt.Errorf("target %s: %s", d.target.config.Name, redactor{}.clean(v.detail))
	}
	switch {
	case r.status == http.StatusUnauthorized, r.status == http.StatusForbidden, r.status == http.StatusServiceUnavailable,
		r.status == http.StatusTooManyRequests:
		v := r.judge(Wire{Facts: f}, path)
		return nil, fmt.Errorf("target %s: %s: %s", d.target.config.Name, path, redactor{}.clean(v.detail))
	case r.status != http.StatusOK:
		return nil, nil
	case looksLikeHTML(r.body):
		return nil, fmt.Errorf("target %s: %s answers with %s: check the target's url and authorization", d.target.config.Name, path, pageLooks(r.body))
	}
	return parseModels(r.body), nil
}

func parseModels(body []byte) []listed {
	v, err := fastjson.ParseBytes(bytes.TrimSpace(body))
	if err != nil {
		return nil
	}
	list := v.GetArray("data")
	if v.Type() == fastjson.TypeArray { // some gateways leave the envelope out
		list = v.GetArray()
	}
	var out []listed
	for _, m := range list {
		if len(str(m, "id")) == 0 {
			continue
		}
		l := listed{id: label(str(m, "id")), owner: label(str(m, "owned_by")), adapter: present(m.Get("parent"))}
		for _, field := range []string{"max_model_len", "context_length", "context_window", "max_context_length"} {
			if n := count(m, field); n > 0 {
				l.length = n
				break
			}
		}
		out = append(out, l)
	}
	return out
}

// pickModel chooses the model, and returns what is odd about it. With auto that is the first one that is no adapter;
// a choice that is still listed stays, so that the order of a list changes nothing.
func (d *detector) pickModel(f *Facts, old Facts, models []listed) (note string) {
	ids := make([]string, len(models))
	for i, m := range models {
		ids[i] = m.id
	}
	has := func(name string) bool {
		return slices.Contains(ids, name) || slices.Contains(ids, name+":latest")
	}
	if name := notAuto(d.target.config.Model); name != "" {
		f.Model = name
		if len(ids) > 0 && !has(name) {
			return fmt.Sprintf("model %q is not among those that the target lists (%s): it is asked for all the same", name, some(ids))
		}
		return ""
	}
	f.Model = ""
	if old.Model != "" && has(old.Model) {
		f.Model = old.Model
		return ""
	}
	if name := d.loadedModel(f.Engine); name != "" {
		f.Model = name
		return ""
	}
	for _, m := range models {
		if !m.adapter {
			f.Model = m.id
			return ""
		}
	}
	if len(ids) > 0 {
		f.Model = ids[0]
		return ""
	}
	return "the target lists none"
}

func some(ids []string) string {
	if len(ids) > 5 {
		return strings.Join(ids[:5], ", ") + ", …"
	}
	return strings.Join(ids, ", ")
}

// loadedModel returns a model that is better than the first of the list, or where the list is elsewhere.
func (d *detector) loadedModel(engine string) string {
	switch engine {
	case EngineOllama: // one that is loaded already costs no loading
		if v := d.object("/api/ps"); v != nil {
			for _, m := range v.GetArray("models") {
				return label(str(m, "name"))
			}
		}
	case EngineTriton:
		return d.tritonModel()
	case EngineTGI:
		if v := d.object("/info"); v != nil {
			return label(str(v, "model_id"))
		}
	}
	return ""
}

// tritonModel returns the model that takes text: the ensemble of the TensorRT-LLM backend, or the only one.
func (d *detector) tritonModel() string {
	r, err := d.target.call(d.ctx, http.MethodPost, "/v2/repository/index", []byte(`{"ready":true}`))
	if err != nil || r.status != http.StatusOK {
		return ""
	}
	v, err := fastjson.ParseBytes(r.body)
	if err != nil {
		return ""
	}
	var names []string
	for _, m := range v.GetArray() {
		if name := label(str(m, "name")); name != "" {
			names = append(names, name)
		}
	}
	for _, known := range []string{"ensemble", "tensorrt_llm_bls", "vllm_model"} {
		if slices.Contains(names, known) {
			return known
		}
	}
	if len(names) > 0 {
		return names[0]
	}
	return ""
}

// limits finds the length that prompt and output may have together.
func (d *detector) limits(f *Facts, models []listed) {
	for _, m := range models {
		if m.id == f.Model {
			f.MaxModelLen = m.length
		}
	}
	if f.MaxModelLen > 0 {
		return
	}
	longest := func(path string, keys ...string) {
		if v := d.object(path); v != nil {
			f.MaxModelLen = max(count(v, keys...), 0)
		}
	}
	switch f.Engine {
	case EngineLlamaCPP: // of one slot
		longest("/props", "default_generation_settings", "n_ctx")
	case EngineTGI:
		longest("/info", "max_total_tokens")
	case EngineSGLang:
		longest("/server_info", "context_length")
	case EngineOllama:
		if v := d.object("/api/ps"); v != nil {
			for _, m := range v.GetArray("models") {
				if string(str(m, "name")) == f.Model || string(str(m, "name")) == f.Model+":latest" {
					f.MaxModelLen = max(count(m, "context_length"), 0)
				}
			}
		}
	}
}

// tokenizes asks whether the target counts tokens for us.
func (d *detector) tokenizes(f Facts) bool {
	switch f.Engine {
	case EngineVLLM, EngineSGLang, EngineTGI, EngineLlamaCPP, EngineOpenAI:
	default:
		return false
	}
	body := map[string]any{"model": f.Model, "prompt": "canary", "inputs": "canary", "content": "canary"}
	switch f.Engine { // strict ones
	case EngineTGI:
		body = map[string]any{"inputs": "canary"}
	case EngineVLLM, EngineSGLang, EngineOpenAI:
		body = map[string]any{"model": f.Model, "prompt": "canary"}
	}
	data, err := json.Marshal(body)
	if err != nil {
		return false
	}
	r, err := d.target.call(d.ctx, http.MethodPost, "/tokenize", data)
	if err != nil || r.status != http.StatusOK {
		return false
	}
	v, err := fastjson.ParseBytes(r.body)
	if err != nil {
		return false
	}
	n, ok := tokensOf(v)
	return ok && n > 0
}
