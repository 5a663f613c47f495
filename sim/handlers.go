package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxBodyBytes bounds request bodies; images come inside them.
const maxBodyBytes = 64 << 20

// guard checks the API key as vLLM does: a plain string as error.
func (s *Server) guard(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.cfg.APIKey != "" && r.Header.Get("Authorization") != "Bearer "+s.cfg.APIKey {
			writeJSON(w, http.StatusUnauthorized, []byte(`{"error":"Unauthorized"}`))
			return
		}
		next(w, r)
	}
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have left; nothing to do then
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, marshal(map[string]any{
		"object": "list",
		"data": []map[string]any{{
			"id": s.cfg.Model, "object": "model", "created": s.created.Unix(), "owned_by": "vllm",
			"root": s.cfg.Model, "parent": nil, "max_model_len": s.cfg.MaxModelLen, "permission": []any{},
		}},
	}))
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, marshal(map[string]string{"version": s.cfg.Version}))
}

func (s *Server) getRecord(w http.ResponseWriter, r *http.Request) {
	rec, ok := s.Record(r.PathValue("id"))
	if !ok {
		writeJSON(w, http.StatusNotFound, (&apiError{http.StatusNotFound, "NotFoundError", "id", "no record of this request"}).body())
		return
	}
	writeJSON(w, http.StatusOK, marshal(rec))
}

func (s *Server) getFaults(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, marshal(map[string]any{"rules": s.FaultRules(), "known": Faults()}))
}

// postFaults takes a list of rules; an empty list ends all faults.
func (s *Server) postFaults(w http.ResponseWriter, r *http.Request) {
	var in []struct {
		Fault       string   `json:"fault"`
		Probability *float64 `json:"probability"`
	}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&in)
	rules := make([]FaultRule, len(in))
	for i, rule := range in {
		rules[i] = FaultRule{Fault: rule.Fault, Probability: 1}
		if rule.Probability != nil {
			rules[i].Probability = *rule.Probability
		}
	}
	if err == nil {
		err = s.SetFaults(rules)
	}
	if err != nil {
		writeJSON(w, http.StatusBadRequest, badRequest("", "%v", err).body())
		return
	}
	writeJSON(w, http.StatusOK, marshal(map[string]any{"rules": rules}))
}

func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	var req request
	apiErr := s.decode(w, r, &req, nil)
	if apiErr == nil && req.Prompt.set == (len(req.Messages) > 0) {
		apiErr = badRequest("", "give either prompt or messages")
	}
	if apiErr != nil {
		writeJSON(w, apiErr.status, apiErr.body())
		return
	}
	e := encoder{keep: req.ReturnTokenStrs, ids: []uint32{}}
	s.encode(&e, &req, req.AddSpecialTokens == nil || *req.AddSpecialTokens)
	out := map[string]any{"count": len(e.ids), "max_model_len": s.cfg.MaxModelLen, "tokens": e.ids}
	if req.ReturnTokenStrs {
		out["token_strs"] = e.strs
	}
	writeJSON(w, http.StatusOK, marshal(out))
}

// encode tokenizes a prompt as inference does.
func (s *Server) encode(e *encoder, r *request, special bool) {
	switch {
	case len(r.Messages) > 0:
		e.chat(r.Messages, r.Tools, s.mediaTokens())
	case r.Prompt.ids != nil:
		e.ids = append(e.ids, r.Prompt.ids...)
	default:
		if special {
			e.special(tokenBOS, "<|begin|>")
		}
		e.text(r.Prompt.text)
	}
}

// decode reads and checks the body; reject names fields that are refused.
func (s *Server) decode(w http.ResponseWriter, r *http.Request, req *request, reject []string) *apiError {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err != nil {
		return badRequest("", "cannot read the body: %v", err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return &apiError{http.StatusBadRequest, "Bad Request", "", fmt.Sprintf("body is not a JSON object: %v", err)}
	}
	for _, f := range reject {
		if _, ok := fields[f]; ok {
			return badRequest(f, "Unrecognized request argument supplied: %s", f)
		}
	}
	if err := json.Unmarshal(body, req); err != nil {
		return &apiError{http.StatusBadRequest, "Bad Request", "", err.Error()}
	}
	if req.Model != "" && req.Model != s.cfg.Model {
		return &apiError{http.StatusNotFound, "NotFoundError", "model", fmt.Sprintf("The model `%s` does not exist.", req.Model)}
	}
	return nil
}

// check refuses what vLLM refuses and returns the limit of output tokens.
func (s *Server) check(r *request, chat bool, prompt int) (int, *apiError) {
	switch {
	case chat && len(r.Messages) == 0:
		return 0, badRequest("messages", "messages is missing or empty")
	case !chat && !r.Prompt.set:
		return 0, badRequest("prompt", "prompt is missing")
	case prompt == 0:
		return 0, badRequest("prompt", "the prompt has no token")
	case r.N != nil && *r.N != 1:
		return 0, badRequest("n", "only n=1 is supported")
	case r.StreamOptions != nil && !r.Stream:
		return 0, badRequest("stream_options", "Stream options can only be defined when `stream=True`.")
	case r.CacheSalt != nil && *r.CacheSalt == "":
		return 0, badRequest("cache_salt", "Parameter 'cache_salt' must be a non-empty string if provided.")
	case prompt >= s.cfg.MaxModelLen:
		return 0, badRequest("input_tokens", "This model's maximum context length is %d tokens. However, your request has %d input tokens. Please reduce the length of the input messages.", s.cfg.MaxModelLen, prompt)
	}
	limit := s.cfg.MaxModelLen - prompt
	asked, param := r.MaxCompletionTokens, "max_completion_tokens"
	if asked == nil {
		asked, param = r.MaxTokens, "max_tokens"
	}
	if asked == nil && !chat {
		return min(16, limit), nil
	}
	if asked == nil {
		return limit, nil
	}
	switch {
	case *asked < 1:
		return 0, badRequest(param, "%s must be at least 1, got %d.", param, *asked)
	case *asked > limit:
		return 0, badRequest(param, "'max_tokens' or 'max_completion_tokens' is too large: %d. This model's maximum context length is %d tokens and your request has %d input tokens (%d > %d - %d).",
			*asked, s.cfg.MaxModelLen, prompt, *asked, s.cfg.MaxModelLen, prompt)
	case r.MinTokens < 0 || r.MinTokens > *asked:
		return 0, badRequest("min_tokens", "min_tokens must lie between 0 and max_tokens=%d, got %d.", *asked, r.MinTokens)
	}
	return *asked, nil
}

// infer serves both completion interfaces.
func (s *Server) infer(w http.ResponseWriter, r *http.Request, chat bool) {
	received := time.Now()
	id := r.Header.Get("X-Request-Id")
	if id == "" {
		id = fmt.Sprintf("%016x", s.ids.Add(1))
	}
	rec := s.records.start(id, r.URL.Path, received)
	defer s.records.update(rec, func(rec *Record) { rec.Ended = time.Now() })
	f, err := s.rules.draw(r.Header.Get(FaultHeader))
	if err != nil {
		s.fail(w, rec, badRequest(FaultHeader, "%v", err))
		return
	}
	s.records.update(rec, func(rec *Record) { rec.Faults = f.spec })
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	var req request
	if apiErr := s.decode(w, r, &req, f.reject); apiErr != nil {
		s.fail(w, rec, apiErr)
		return
	}
	if s.refuse(ctx, w, rec, f) {
		return
	}
	if apiErr := s.findAnswer(&req, r.Header); apiErr != nil {
		s.fail(w, rec, apiErr)
		return
	}
	a, apiErr := s.prepare(&req, chat, id, received, f)
	if apiErr != nil {
		s.fail(w, rec, apiErr)
		return
	}
	if err := s.compile(ctx, &req); err != nil {
		return // the client left
	}
	a.ctx = ctx
	a.w = &wireWriter{ctx: ctx, w: w, rc: http.NewResponseController(w), f: f, recs: s.records, rec: rec}
	a.seq = s.engine.submit(a.work)
	s.records.update(rec, func(rec *Record) { rec.PromptTokens = len(a.seq.prompt) })
	if req.Stream {
		err = a.stream()
	} else {
		err = a.whole()
	}
	s.engine.abort(a.seq) // no effect on a finished one
	s.settle(rec, a, err)
}

// settle completes the record.
func (s *Server) settle(rec *Record, a *answer, err error) {
	cached, preempts, timing, spec := s.engine.progress(a.seq)
	s.records.update(rec, func(r *Record) {
		r.CachedTokens, r.Preemptions, r.Timing, r.Spec = cached, preempts, timing, spec
		r.Aborted = err != nil && !errors.Is(err, errCut)
	})
}

func (s *Server) fail(w http.ResponseWriter, rec *Record, e *apiError) {
	s.records.update(rec, func(r *Record) { r.Status = e.status })
	writeJSON(w, e.status, e.body())
}

// refuse lets those faults happen that come before any work.
func (s *Server) refuse(ctx context.Context, w http.ResponseWriter, rec *Record, f *faults) bool {
	status := func(code int) { s.records.update(rec, func(r *Record) { r.Status = code }) }
	switch {
	case f.hang:
		<-ctx.Done()
	case f.redirect != "":
		status(http.StatusTemporaryRedirect)
		w.Header().Set("Location", f.redirect)
		w.WriteHeader(http.StatusTemporaryRedirect)
	case f.status != 0 && (f.status < 200 || f.status > 599):
		s.fail(w, rec, badRequest(FaultHeader, "status %d lies outside of 200..599", f.status))
	case f.status != 0:
		status(f.status)
		for name, v := range f.headers {
			w.Header()[name] = v
		}
		body := []byte(f.body)
		if len(body) == 0 {
			body = (&apiError{f.status, http.StatusText(f.status), "", "simulated " + strconv.Itoa(f.status)}).body()
		}
		writeJSON(w, f.status, body)
	case f.html:
		status(http.StatusOK)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>Please sign in.</body></html>\n")
	default:
		return false
	}
	return true
}

// prepare turns a request into work for the engine.
func (s *Server) prepare(req *request, chat bool, id string, received time.Time, f *faults) (*answer, *apiError) {
	var e encoder
	s.encode(&e, req, true)
	limit, apiErr := s.check(req, chat, len(e.ids))
	if apiErr != nil {
		return nil, apiErr
	}
	if apiErr := s.checkSkills(req); apiErr != nil {
		return nil, apiErr
	}
	req.chinese = containsCJK(req.lastText())
	var seed int64
	if req.Seed != nil {
		seed = *req.Seed
	}
	rng := newRNG(s.cfg.Seed, e.ids, seed)
	f.length = min(f.length, s.cfg.MaxModelLen-len(e.ids)-1)
	pieces, finish := s.plan(req, rng, limit, f)
	work := work{
		prompt: e.ids, pieces: pieces, finish: finish, arrived: received,
		prefillFactor: f.slowPrefill, rng: rng,
		encode: time.Duration(len(req.mediaParts())) * s.cfg.Skills.EncodePerMedia,
	}
	if c, _ := req.constraint(); c != nil && !s.cfg.Skills.IgnoreConstraints {
		work.perStep = s.cfg.Skills.GrammarPerToken
	}
	if req.CacheSalt != nil {
		work.salt = *req.CacheSalt
	}
	model, prefix := s.cfg.Model, "cmpl-"
	if f.model != "" {
		model = f.model
	}
	if chat {
		prefix = "chatcmpl-"
	}
	r := newRenderer(chat, prefix+id, model, received.Unix(), f.reasoningField)
	r.tokenIDs = req.ReturnTokenIDs
	return &answer{
		eng: s.engine, work: work, req: req, f: f, r: r, received: received,
		roleAt: s.cfg.RoleChunkDelay, report: s.cfg.ReportCachedTokens,
	}, nil
}

// lastText is the text of the last message, or the prompt.
func (r *request) lastText() string {
	if len(r.Messages) == 0 {
		return r.Prompt.text
	}
	var b strings.Builder
	for _, p := range r.Messages[len(r.Messages)-1].Content {
		b.WriteString(p.Text)
	}
	return b.String()
}
