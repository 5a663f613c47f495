package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llmcanary/llm_canary_exporter/config"
)

// site is a server of fixed pages that notes what was asked for.
type site struct {
	mu     sync.Mutex
	pages  map[string]string // path -> body; "404" where there is none
	header http.Header
	asked  []string
	status int // of /v1/models, 0 = 200
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r.Method+" "+r.URL.Path)
	for name, values := range s.header {
		w.Header()[name] = values
	}
	body, ok := s.pages[r.URL.Path]
	switch {
	case !ok:
		w.WriteHeader(404)
		fmt.Fprint(w, `{"detail":"Not Found"}`)
	case r.URL.Path == "/v1/models" && s.status != 0:
		w.WriteHeader(s.status)
		fmt.Fprint(w, body)
	default:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, body)
	}
}

func (s *site) start(t *testing.T) string {
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return server.URL
}

func (s *site) was(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.asked, func(a string) bool { return strings.HasSuffix(a, " "+path) })
}

func auto(c *config.Target) { c.Model, c.Protocol = config.Auto, config.Auto }

func models(owner string, ids ...string) string {
	var list []string
	for _, id := range ids {
		list = append(list, fmt.Sprintf(`{"id":%q,"object":"model","owned_by":%q}`, id, owner))
	}
	return `{"object":"list","data":[` + strings.Join(list, ",") + `]}`
}

func TestDetect(t *testing.T) {
	vllmModels := `{"object":"list","data":[{"id":"lora","owned_by":"vllm","parent":"base"},{"id":"base","owned_by":"vllm","root":"base","parent":null,"max_model_len":8192}]}`
	tokenize := `{"count":2,"max_model_len":8192,"tokens":[1,2]}`
	html := "<html>Ollama is running</html>"
	tests := []struct {
		name   string
		pages  map[string]string
		header http.Header
		want   Facts
		sign   string
	}{
		{"vLLM", map[string]string{"/v1/models": vllmModels, "/version": `{"version":"0.27.1"}`, "/tokenize": tokenize}, nil, Facts{EngineVLLM, "0.27.1", "base", "openai_chat", 8192, true}, "owned_by vllm"},
		{"vLLM without /version", map[string]string{"/v1/models": vllmModels}, nil, Facts{EngineVLLM, "", "base", "openai_chat", 8192, false}, "owned_by vllm"},
		{"vLLM in dev mode", map[string]string{"/v1/models": vllmModels, "/version": `{"version":"0.27.1"}`, "/server_info": `{"vllm_config":"x"}`}, nil, Facts{EngineVLLM, "0.27.1", "base", "openai_chat", 8192, false}, "owned_by vllm"},
		{"SGLang with Ollama's routes", map[string]string{"/v1/models": models("sglang", "q"), "/server_info": `{"server_args":{},"version":"0.5.3","context_length":4096}`, "/": html, "/api/tags": `{}`, "/api/ps": `{"models":[]}`}, nil, Facts{EngineSGLang, "0.5.3", "q", "openai_chat", 4096, false}, "/server_info"},
		{"old SGLang", map[string]string{"/v1/models": models("sglang", "q"), "/get_server_info": `{"internal_states":[],"version":"0.4.4"}`}, nil, Facts{EngineSGLang, "0.4.4", "q", "openai_chat", 0, false}, "/get_server_info"},
		{"TGI", map[string]string{"/v1/models": models("meta", "q"), "/info": `{"router":"text-generation-router","version":"3.3.7","model_id":"q","max_total_tokens":2048}`, "/tokenize": `[{"id":1,"text":"c"}]`}, nil, Facts{EngineTGI, "3.3.7", "q", "openai_chat", 2048, true}, "/info"},
		{"llama.cpp", map[string]string{"/v1/models": models("llamacpp", "tiny"), "/props": `{"build_info":"b6500-0ab","default_generation_settings":{"n_ctx":2048},"total_slots":4}`, "/tokenize": `{"tokens":[1]}`}, http.Header{"Server": {"llama.cpp"}}, Facts{EngineLlamaCPP, "b6500-0ab", "tiny", "openai_chat", 2048, true}, "Server: llama.cpp"},
		{"llama.cpp behind nginx", map[string]string{"/v1/models": models("llamacpp", "tiny"), "/props": `{"build_info":"b6500-0ab","default_generation_settings":{"n_ctx":2048},"total_slots":4}`}, http.Header{"Server": {"nginx"}}, Facts{EngineLlamaCPP, "b6500-0ab", "tiny", "openai_chat", 2048, false}, "/props"},
		{"Ollama takes a loaded model", map[string]string{"/v1/models": models("library", "a:latest", "b:latest"), "/api/version": `{"version":"0.17.4"}`, "/api/ps": `{"models":[{"name":"b:latest","context_length":4096}]}`}, nil, Facts{EngineOllama, "0.17.4", "b:latest", "openai_chat", 4096, false}, "/api/version"},
		{"Triton", map[string]string{"/v2": `{"name":"triton","version":"2.73.0"}`, "/v2/repository/index": `[{"name":"postprocessing"},{"name":"ensemble"}]`}, nil, Facts{EngineTriton, "2.73.0", "ensemble", "triton_generate", 0, false}, "/v2"},
		{"NIM over vLLM", map[string]string{"/v1/models": vllmModels, "/v1/metadata": `{"x":1}`, "/v1/version": `{"release":"2.1.0"}`, "/version": `{"version":"0.27.1"}`}, nil, Facts{EngineNIM, "2.1.0", "base", "openai_chat", 8192, false}, "/v1/metadata"},
		{"trtllm-serve", map[string]string{"/v1/models": models("tensorrt_llm", "q"), "/version": `{"version":"1.2.0"}`, "/metrics": "[]", "/server_info": `{"disaggregated_params":{}}`}, nil, Facts{EngineTRTLLM, "1.2.0", "q", "openai_chat", 0, false}, "tensorrt_llm"},
		{"LMDeploy", map[string]string{"/v1/models": models("lmdeploy", "q"), "/is_sleeping": `{"is_sleeping":false}`}, nil, Facts{EngineLMDeploy, "", "q", "openai_chat", 0, false}, "lmdeploy"},
		{"LiteLLM", map[string]string{"/v1/models": models("openai", "gpt"), "/health": `{}`}, http.Header{"X-Litellm-Version": {"1.80.0"}, "Openai-Processing-Ms": {"5"}}, Facts{EngineLiteLLM, "1.80.0", "gpt", "openai_chat", 0, false}, "X-Litellm-Version"},
		{"LiteLLM without headers", map[string]string{"/v1/models": models("openai", "gpt"), "/health/readiness": `{"status":"connected","litellm_version":"1.80.0"}`, "/health": `{}`, "/live": `{}`}, nil, Facts{EngineLiteLLM, "1.80.0", "gpt", "openai_chat", 0, false}, "/health/readiness"},
		{"Dynamo", map[string]string{"/v1/models": models("nvidia", "q"), "/live": `{"status":"live"}`, "/health": `{"status":"healthy","instances":[]}`}, nil, Facts{EngineDynamo, "", "q", "openai_chat", 0, false}, "/live"},
		{"OpenAI behind a proxy of one's own", map[string]string{"/v1/models": models("system", "gpt-5")}, http.Header{"Openai-Processing-Ms": {"5"}}, Facts{EngineOpenAIHosted, "", "gpt-5", "openai_chat", 0, false}, "Openai-Processing-Ms"},
		{"an unknown server", map[string]string{"/v1/models": models("me", "q"), "/props": html, "/info": html, "/api/version": html, "/v2": html}, nil, Facts{EngineOpenAI, "", "q", "openai_chat", 0, false}, "none of the known"},
		{"an unknown server with a bare list", map[string]string{"/v1/models": `[{"id":"q","context_length":512}]`}, nil, Facts{EngineOpenAI, "", "q", "openai_chat", 512, false}, "none of the known"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &site{pages: tt.pages, header: tt.header}
			target := newTarget(t, s.start(t), auto)
			got, err := target.Detect(context.Background())
			if err != nil || got != tt.want || target.Facts() != tt.want {
				t.Errorf("got %+v, %v\nwant %+v", got, err, tt.want)
			}
			if signs := target.Snapshot().Signs; len(signs) != 1 || !strings.Contains(signs[0], tt.sign) {
				t.Errorf("signs %q, want …%s…", signs, tt.sign)
			}
			// What must never be touched, since it costs tokens or takes data away.
			for _, path := range []string{"/metrics", "/health_generate", "/generate", "/perf_metrics", "/flush_cache", "/reset_prefix_cache"} {
				if s.was(path) {
					t.Errorf("%s was touched", path)
				}
			}
			if tt.want.Engine != EngineDynamo && s.was("/health") {
				t.Error("/health was touched, which makes LiteLLM call every model")
			}
			if _, err := json.Marshal(target.Snapshot()); err != nil {
				t.Error(err)
			}
			// A second detection finds the same with few questions.
			s.mu.Lock()
			s.asked = nil
			s.mu.Unlock()
			if again, err := target.Detect(context.Background()); err != nil || again != tt.want {
				t.Errorf("again: %+v, %v", again, err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if n := len(s.asked); n > 5 && tt.want.Engine != EngineOpenAI {
				t.Errorf("%d questions the second time: %v", n, s.asked)
			}
		})
	}
}

func TestDetectModel(t *testing.T) {
	s := &site{pages: map[string]string{"/v1/models": models("vllm", "a", "b")}}
	url := s.start(t)
	set := func(page string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pages["/v1/models"] = page
	}
	target := newTarget(t, url, auto)
	detect := func(want string) {
		t.Helper()
		if f, err := target.Detect(context.Background()); err != nil || f.Model != want {
			t.Errorf("model %q, %v, want %q", f.Model, err, want)
		}
	}
	detect("a")
	set(models("vllm", "b", "a")) // another order changes nothing
	detect("a")
	set(models("vllm", "c"))
	detect("c")
	set(models("vllm"))
	if f, err := target.Detect(context.Background()); err == nil || f.Model != "c" {
		t.Errorf("no models: %+v, %v", f, err)
	}

	named := newTarget(t, url, func(c *config.Target) { c.Model = "gone" })
	set(models("vllm", "a"))
	if f, err := named.Detect(context.Background()); err != nil || f.Model != "gone" {
		t.Errorf("%+v, %v", f, err)
	}
	if note := named.Snapshot().Notes["model"]; !strings.Contains(note, `"gone" is not among`) || !strings.Contains(note, "(a)") {
		t.Errorf("note %q", note)
	}
}

func TestDetectFails(t *testing.T) {
	for _, tt := range []struct {
		status int
		body   string
		want   string
	}{
		{401, `{"error":"Unauthorized"}`, "authorization"},
		{403, "", "authorization"},
		{503, `{"error":{"message":"Loading model"}}`, "Loading model"},
		{200, "<html><form>password", "login page"},
		{404, "", "set its model"},
		{200, "{", "set its model"},
	} {
		s := &site{pages: map[string]string{"/v1/models": tt.body}, status: tt.status}
		target := newTarget(t, s.start(t), auto)
		before := target.Facts()
		f, err := target.Detect(context.Background())
		if err == nil || !strings.Contains(err.Error(), tt.want) || f != before || target.Facts() != before {
			t.Errorf("%d %q: %+v, %v", tt.status, tt.body, f, err)
		}
	}
	target := newTarget(t, "http://127.0.0.1:1", auto)
	if _, err := target.Detect(context.Background()); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%v", err)
	}
}

// Another engine or version forgets what was learnt; a silent page does not.
func TestForgetting(t *testing.T) {
	s := &site{pages: map[string]string{"/v1/models": models("vllm", "a"), "/version": `{"version":"0.27.1"}`}}
	target := newTarget(t, s.start(t), auto)
	detect := func() {
		t.Helper()
		if _, err := target.Detect(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	page := func(path, body string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pages[path] = body
	}
	detect()
	target.refuse("seed", "unknown field seed")
	target.notice(FeatureTools, true, "a request was taken")
	detect()
	if f := target.Features(); !f.Refused["seed"] || !f.Seen[FeatureTools] {
		t.Errorf("forgotten for nothing: %+v", f)
	}

	// A reload makes a new target, which takes over.
	next := newTarget(t, target.base, auto)
	next.Restore(target.Snapshot())
	if f := next.Features(); !f.Refused["seed"] || !f.Seen[FeatureTools] {
		t.Errorf("not restored: %+v", f)
	}

	page("/version", `{"version":"0.28.0"}`)
	detect()
	if f := target.Features(); len(f.Refused) > 0 || len(f.Seen) > 0 {
		t.Errorf("another version: %+v", f)
	}
	target.refuse("seed", "unknown field seed")
	page("/v1/models", models("sglang", "a"))
	page("/server_info", `{"server_args":{},"version":"0.5.3"}`)
	detect()
	if f := target.Features(); len(f.Refused) > 0 || target.Facts().Engine != EngineSGLang {
		t.Errorf("another engine: %+v, %+v", f, target.Facts())
	}

	// Features are values: what a caller does to them changes nothing.
	target.refuse("seed", "x")
	target.Features().Refused["other"] = true
	if target.Features().Refused["other"] {
		t.Error("features are shared")
	}
}

func TestConfiguredFacts(t *testing.T) {
	s := &site{pages: map[string]string{"/v1/models": models("vllm", "a"), "/version": `{"version":"0.9.1"}`}}
	target := newTarget(t, s.start(t), func(c *config.Target) { c.Engine, c.Protocol, c.Model = EngineVLLM, "openai_completions", "a" })
	want := Facts{Engine: EngineVLLM, Version: "0.9.1", Model: "a", Protocol: "openai_completions"}
	if got, err := target.Detect(context.Background()); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	for host, engine := range map[string]string{"api.openai.com": EngineOpenAIHosted, "x.openai.azure.com": EngineAzure, "api.anthropic.com": EngineAnthropic, "localhost": ""} {
		if got := engineOfHost(host); got != engine {
			t.Errorf("%s: %q", host, got)
		}
	}
}

func TestCountTokens(t *testing.T) {
	for engine, body := range map[string]string{
		EngineVLLM: `{"count":3,"tokens":[1,2,3]}`, EngineLlamaCPP: `{"tokens":[{"id":1},{"id":2},{"id":3}]}`, EngineTGI: `[{"id":1},{"id":2},{"id":3}]`,
	} {
		s := &site{pages: map[string]string{"/tokenize": body, "/v1/models": models("x", "m")}}
		target := newTarget(t, s.start(t), func(c *config.Target) { c.Engine = engine })
		if _, ok := target.CountTokens(context.Background(), "a b c"); ok {
			t.Errorf("%s: counted before it is known to", engine)
		}
		if _, err := target.Detect(context.Background()); err != nil {
			t.Fatal(err)
		}
		if n, ok := target.CountTokens(context.Background(), "a b c"); !ok || n != 3 {
			t.Errorf("%s: %d, %v", engine, n, ok)
		}
		s.mu.Lock()
		s.pages["/tokenize"] = "<html>"
		s.mu.Unlock()
		if n, ok := target.CountTokens(context.Background(), "a b c"); ok {
			t.Errorf("%s: %d from a page", engine, n)
		}
	}
}
