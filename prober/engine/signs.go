package engine

import (
	"fmt"
	"net/http"
	"strings"
)

// sign is how an engine shows itself. check returns its version, if it tells, and why it is taken for that engine;
// an empty why means that it is not.
type sign struct {
	engine string
	check  func(d *detector, owner string) (version, why string)
}

// signs is the table of signs, the most certain ones first. The order matters: SGLang also serves Ollama's routes,
// NIM runs vLLM, and /version has the same shape at many.
func signs() []sign {
	return []sign{
		{EngineLlamaCPP, func(d *detector, _ string) (string, string) {
			if !d.header("Server", "llama.cpp") {
				return "", ""
			}
			return d.field("/props", "build_info"), "header Server: llama.cpp"
		}},
		{EngineLiteLLM, func(d *detector, _ string) (string, string) {
			for _, name := range []string{"X-Litellm-Version", "X-Litellm-Call-Id", "X-Litellm-Model-Id"} {
				if d.hasHeader(name) {
					return d.headerValue("X-Litellm-Version"), "header " + name
				}
			}
			return "", ""
		}},
		{EngineAzure, headerSign("Apim-Request-Id", "X-Ms-Region")},
		{EngineOpenAIHosted, headerSign("Openai-Processing-Ms", "Openai-Version")},
		{EngineAnthropic, headerSign("Anthropic-Organization-Id")},
		{EngineSGLang, func(d *detector, _ string) (string, string) {
			for _, path := range []string{"/server_info", "/get_server_info"} {
				v := d.object(path)
				if v != nil && (v.Exists("server_args") || v.Exists("internal_states")) {
					return label(str(v, "version")), path + " tells server_args"
				}
			}
			return "", ""
		}},
		{EngineTGI, func(d *detector, _ string) (string, string) {
			if v := d.object("/info"); v != nil && string(str(v, "router")) == "text-generation-router" {
				return label(str(v, "version")), "/info tells router text-generation-router"
			}
			return "", ""
		}},
		{EngineLlamaCPP, func(d *detector, _ string) (string, string) {
			v := d.object("/props")
			if v != nil && v.Exists("build_info") && v.Exists("default_generation_settings") {
				return label(str(v, "build_info")), "/props tells build_info"
			}
			return "", ""
		}},
		{EngineOllama, func(d *detector, _ string) (string, string) {
			version := d.field("/api/version", "version")
			if v := d.object("/api/ps"); version != "" && v != nil && v.Exists("models") {
				return version, "/api/version and /api/ps answer"
			}
			return "", ""
		}},
		{EngineTriton, func(d *detector, _ string) (string, string) {
			if v := d.object("/v2"); v != nil && string(str(v, "name")) == "triton" {
				return label(str(v, "version")), "/v2 tells name triton"
			}
			return "", ""
		}},
		{EngineNIM, func(d *detector, _ string) (string, string) {
			if d.object("/v1/metadata") == nil || d.object("/v1/version") == nil {
				return "", ""
			}
			return orElse(d.field("/v1/version", "release"), d.field("/v1/version", "version")), "/v1/metadata and /v1/version answer"
		}},
		{EngineVLLM, func(d *detector, owner string) (string, string) {
			if version := d.field("/version", "version"); version != "" && owner == "vllm" {
				return version, "/version answers and /v1/models tells owned_by vllm"
			}
			return "", ""
		}},
		{EngineVLLM, ownerSign("vllm", "")},
		{EngineSGLang, ownerSign("sglang", "")},
		{EngineLMDeploy, ownerSign("lmdeploy", "")},
		{EngineLlamaCPP, ownerSign("llamacpp", "")},
		{EngineTRTLLM, ownerSign("tensorrt_llm", "/version")},
		{EngineOllama, ownerSign("library", "")},
		{EngineLMDeploy, func(d *detector, _ string) (string, string) {
			if v := d.object("/is_sleeping"); v != nil && v.Exists("is_sleeping") && d.object("/version") == nil {
				return "", "/is_sleeping answers and /version does not"
			}
			return "", ""
		}},
		// LiteLLM without its headers has to be told from others before /health is touched, which costs tokens there.
		{EngineLiteLLM, func(d *detector, _ string) (string, string) {
			if version := d.field("/health/readiness", "litellm_version"); version != "" {
				return version, "/health/readiness tells litellm_version"
			}
			return "", ""
		}},
		{EngineDynamo, func(d *detector, _ string) (string, string) {
			if d.object("/live") == nil {
				return "", ""
			}
			if v := d.object("/health"); v != nil && (v.Exists("instances") || v.Exists("endpoints")) {
				return "", "/live answers and /health tells instances"
			}
			return "", ""
		}},
	}
}

func headerSign(names ...string) func(*detector, string) (string, string) {
	return func(d *detector, _ string) (string, string) {
		for _, name := range names {
			if d.hasHeader(name) {
				return "", "header " + name
			}
		}
		return "", ""
	}
}

func ownerSign(owned, versionPath string) func(*detector, string) (string, string) {
	return func(d *detector, owner string) (version, why string) {
		if owner != owned {
			return "", ""
		}
		if versionPath != "" {
			version = d.field(versionPath, "version")
		}
		return version, "/v1/models tells owned_by " + owned
	}
}

// engine finds the engine: the configured one, else the one that it was before if its sign still holds, else the
// first of the table.
func (d *detector) engine(old Facts, models []listed) Facts {
	f := Facts{Engine: notAuto(d.target.config.Engine)}
	owner := ""
	if len(models) > 0 {
		owner = models[0].owner
	}
	if f.Engine != "" {
		d.signs = append(d.signs, "configured")
		f.Version, _ = d.confirm(f.Engine, owner)
		return f
	}
	if hosted := engineOfHost(d.target.hostname); hosted != "" {
		d.signs = append(d.signs, "host name "+d.target.hostname)
		f.Engine = hosted
		return f
	}
	if old.Engine != "" && old.Engine != EngineOpenAI {
		if version, why := d.confirm(old.Engine, owner); why != "" {
			d.signs = append(d.signs, why)
			f.Engine, f.Version = old.Engine, version
			return f
		}
	}
	for _, s := range signs() {
		if version, why := s.check(d, owner); why != "" {
			d.signs = append(d.signs, why)
			f.Engine, f.Version = s.engine, version
			return f
		}
	}
	if d.silent > 0 && old.Engine != "" {
		d.signs = append(d.signs, "as before: some calls got no answer")
		f.Engine, f.Version = old.Engine, old.Version
		return f
	}
	d.signs = append(d.signs, fmt.Sprintf("none of the known engines; owned_by %q", owner))
	f.Engine = EngineOpenAI
	return f
}

// confirm looks for the signs of one engine alone.
func (d *detector) confirm(engine, owner string) (version, why string) {
	for _, s := range signs() {
		if s.engine != engine {
			continue
		}
		if version, why = s.check(d, owner); why != "" {
			return version, why
		}
	}
	return "", ""
}

// field returns a string of the JSON object at a path.
func (d *detector) field(path, name string) string {
	if v := d.object(path); v != nil {
		return label(str(v, name))
	}
	return ""
}

// headerValue returns a header of any reply so far.
func (d *detector) headerValue(name string) string {
	for _, r := range d.replies {
		if r.header != nil && r.header.Get(name) != "" {
			return label([]byte(r.header.Get(name)))
		}
	}
	return ""
}

func (d *detector) hasHeader(name string) bool {
	return d.headerValue(http.CanonicalHeaderKey(name)) != ""
}

func (d *detector) header(name, value string) bool {
	return strings.EqualFold(d.headerValue(name), value)
}
