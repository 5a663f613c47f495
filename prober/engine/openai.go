package engine

import (
	"encoding/base64"
	"net/url"
	"regexp"
	"strings"

	"github.com/valyala/fastjson"

	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// What the OpenAI-style protocols have in common.

// openAIPath returns the path of a route. Azure names the deployment in the path and the version of its API in the
// query; its newer form has the usual path.
func openAIPath(w Wire, route string) string {
	if w.Engine == EngineAzure && w.APIVersion != "" {
		return "/openai/deployments/" + url.PathEscape(w.Model) + "/" + route + "?api-version=" + url.QueryEscape(w.APIVersion)
	}
	if w.Engine == EngineAzure {
		return "/openai/v1/" + route
	}
	return "/v1/" + route
}

// takes is what an engine's OpenAI routes understand beyond the common fields. Engines that are not in the table
// get nothing of it: some answer 400 to a field that they do not know.
type takes struct {
	ignoreEOS, minTokens    bool
	continuousUsage         bool
	cacheSalt               bool
	timingsPerToken         bool
	completionTokensOnly    bool // max_tokens is gone
	noSeed, responseNoCache bool
}

func dialect(engine string) takes {
	switch engine {
	case EngineVLLM, EngineSGLang, EngineTRTLLM:
		return takes{ignoreEOS: true, minTokens: true, continuousUsage: true, cacheSalt: true}
	case EngineTriton:
		return takes{ignoreEOS: true, minTokens: true}
	case EngineLMDeploy:
		return takes{ignoreEOS: true}
	case EngineLlamaCPP:
		return takes{ignoreEOS: true, timingsPerToken: true}
	case EngineLiteLLM:
		return takes{responseNoCache: true}
	case EngineOpenAI, EngineAzure:
		return takes{}
	case EngineOpenAIHosted:
		return takes{completionTokensOnly: true}
	}
	return takes{}
}

// openAICommon writes the fields that chat and completions share.
func openAICommon(r Request, w Wire, b *Body) {
	d := dialect(w.Engine)
	b.setModel(w)
	b.Set("stream", true)
	if b.Option("stream_options.include_usage", true) {
		b.ExpectUsage()
	}
	if d.continuousUsage {
		b.Option("stream_options.continuous_usage_stats", true)
	}
	// Some servers ignore the newer name and then never stop, others refuse the older one.
	if d.completionTokensOnly {
		b.OneOf(r.MaxTokens, "max_completion_tokens", "max_tokens")
	} else {
		b.OneOf(r.MaxTokens, "max_tokens", "max_completion_tokens")
	}
	b.Option("temperature", 0)
	if !d.noSeed {
		b.Option("seed", r.Seed)
	}
	if r.Fixed && d.ignoreEOS {
		b.Option("ignore_eos", true)
	}
	if r.Fixed && d.minTokens {
		b.Option("min_tokens", r.MaxTokens)
	}
	if r.CacheSalt != "" && d.cacheSalt {
		b.Option("cache_salt", r.CacheSalt)
	}
	if r.CacheSalt != "" && w.Engine == EngineDynamo {
		b.Option("nvext.cache_salt", r.CacheSalt)
	}
	if d.timingsPerToken {
		b.Option("timings_per_token", true)
	}
	if d.responseNoCache {
		b.Option("cache", map[string]any{"no-cache": true, "no-store": true})
		b.Header.Set("X-Litellm-Num-Retries", "0")
	}
}

// openAIConstraint writes structured output in the form that the engine knows.
func openAIConstraint(c *Constraint, w Wire, b *Body) error {
	if c == nil {
		return nil
	}
	format := func(v map[string]any) error { b.Set("response_format", v); return nil }
	schema := func() map[string]any {
		return map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": orElse(c.Name, "answer"), "schema": c.Schema, "strict": true}}
	}
	unsupported := &UnsupportedError{What: "structured output by " + string(c.Kind), Why: "no form of it is known for engine " + w.Engine}
	switch w.Engine {
	case EngineVLLM:
		return vllmConstraint(c, w, b, schema())
	case EngineSGLang:
		switch c.Kind {
		case JSONSchema:
			return format(schema())
		case Regex:
			b.Set("regex", c.Text)
		case Choice:
			b.Set("regex", anyOf(c.Values))
		case Grammar:
			b.Set("ebnf", c.Text)
		}
		return nil
	case EngineTGI:
		switch c.Kind {
		case JSONSchema:
			return format(map[string]any{"type": "json", "value": c.Schema})
		case Regex:
			return format(map[string]any{"type": "regex", "value": c.Text})
		case Choice:
			return format(map[string]any{"type": "regex", "value": anyOf(c.Values)})
		}
		return unsupported
	case EngineTRTLLM:
		switch c.Kind {
		case JSONSchema:
			return format(schema())
		case Regex:
			return format(map[string]any{"type": "regex", "regex": c.Text})
		case Choice:
			return format(map[string]any{"type": "regex", "regex": anyOf(c.Values)})
		case Grammar:
			return format(map[string]any{"type": "ebnf", "ebnf": c.Text})
		}
	case EngineLMDeploy:
		switch c.Kind {
		case JSONSchema:
			return format(schema())
		case Regex:
			return format(map[string]any{"type": "regex_schema", "regex_schema": c.Text})
		case Choice:
			return format(map[string]any{"type": "regex_schema", "regex_schema": anyOf(c.Values)})
		}
		return unsupported
	case EngineLlamaCPP:
		switch c.Kind {
		case JSONSchema:
			return format(schema())
		case Choice:
			b.Set("grammar", choiceGrammar(c.Values))
			return nil
		case Grammar:
			b.Set("grammar", c.Text)
			return nil
		}
		return unsupported
	}
	if c.Kind == JSONSchema {
		return format(schema())
	}
	return unsupported
}

// vllmConstraint knows both names: guided_* was replaced by structured_outputs in 0.11, and an unknown one is
// silently ignored.
func vllmConstraint(c *Constraint, w Wire, b *Body, schema map[string]any) error {
	name, field := "", "structured_outputs."
	if versionBefore(w.Version, 0, 11) {
		field = "guided_"
	}
	var value any
	switch c.Kind {
	case JSONSchema:
		b.Set("response_format", schema)
		return nil
	case Regex:
		name, value = "regex", c.Text
	case Choice:
		name, value = "choice", c.Values
	case Grammar:
		name, value = "grammar", c.Text
	}
	b.Set(field+name, value)
	return nil
}

// anyOf is the regular expression of a choice.
func anyOf(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = regexp.QuoteMeta(v)
	}
	return "(" + strings.Join(quoted, "|") + ")"
}

// choiceGrammar is the GBNF of a choice.
func choiceGrammar(values []string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`, "\t", `\t`)
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = `"` + escape.Replace(v) + `"`
	}
	return "root ::= " + strings.Join(quoted, " | ")
}

// parseEvent parses the JSON object of an event. It returns nil, without an error, for an event that is dealt with:
// an error that the server reports, or a value that is no object.
func parseEvent(p *fastjson.Parser, ev stream.Event, a *Accumulator) (*fastjson.Value, error) {
	v, err := p.ParseBytes(ev.Data)
	if err != nil {
		return nil, errMalformed
	}
	if v.Type() != fastjson.TypeObject {
		a.Nonstandard()
		return nil, nil
	}
	if failed(v) || string(ev.Name) == "error" {
		a.Fail(orElse(readError(v).text(), "the server said no more"))
		return nil, nil
	}
	return v, nil
}

// failed reports whether an object of a stream is an error, in any of the forms.
func failed(v *fastjson.Value) bool {
	if present(v.Get("error")) {
		return true
	}
	return string(str(v, "object")) == "error" || string(str(v, "type")) == "error"
}

// openAIChoice reads what a choice holds beside its output.
func openAIChoice(choice *fastjson.Value, a *Accumulator) {
	a.Finish(str(choice, "finish_reason"))
	if ids := choice.Get("token_ids"); ids != nil && ids.Type() == fastjson.TypeArray {
		a.EventTokens(len(ids.GetArray()))
	}
	if u := choice.Get("usage"); u != nil && u.Type() == fastjson.TypeObject {
		a.Usage(openAIUsage(u))
	}
}

// openAITail reads what stands beside the choices.
func openAITail(v *fastjson.Value, a *Accumulator) {
	a.Model(str(v, "model"))
	if u := v.Get("usage"); u != nil && u.Type() == fastjson.TypeObject {
		openAICounts(u, len(v.GetArray("choices")) > 0, a)
	}
	if t := v.Get("timings"); t != nil && t.Type() == fastjson.TypeObject {
		llamaTimings(t, a)
	}
	if m := v.Get("metrics"); m != nil && m.Type() == fastjson.TypeObject { // vLLM with per-request metrics
		t := NoTimings()
		t.Queue = seconds(m, 1e3, "queue_time_ms")
		t.Prefill = seconds(m, 1e3, "time_to_first_token_ms") // from scheduling on: without the queue
		t.Decode = seconds(m, 1e3, "generation_time_ms")
		a.Timings(t)
	}
	if x := v.Get("x_groq", "usage"); x != nil && x.Type() == fastjson.TypeObject {
		a.Usage(openAIUsage(x))
		a.Timings(Timings{
			Queue: num(x, "queue_time"), Load: Unknown, Prefill: num(x, "prompt_time"),
			Decode: num(x, "completion_time"), Total: num(x, "total_time"),
		})
	}
	if ms := num(v, "nvext", "timing", "total_time_ms"); ms >= 0 {
		t := NoTimings()
		t.Total = ms / 1e3
		a.Timings(t)
	}
}

// openAICounts takes a usage object. On a chunk with choices it is the count so far, where the server counts all
// along; on servers that send it with the last chunk alone that is the same.
func openAICounts(u *fastjson.Value, onChunk bool, a *Accumulator) {
	usage := openAIUsage(u)
	a.Usage(usage)
	if onChunk && usage.Completion > 0 {
		a.CumulativeTokens(usage.Completion)
	}
}

// openAIUsage reads prompt_tokens and completion_tokens. Cached tokens are a part of the prompt. Reasoning is a part
// of the completion, except at xAI, where the total shows that it comes on top.
func openAIUsage(u *fastjson.Value) Usage {
	usage := Usage{
		Prompt:     count(u, "prompt_tokens"),
		Cached:     count(u, "prompt_tokens_details", "cached_tokens"),
		Completion: count(u, "completion_tokens"),
		Reasoning:  count(u, "completion_tokens_details", "reasoning_tokens"),
		Total:      count(u, "total_tokens"),
	}
	if usage.Cached < 0 {
		usage.Cached = count(u, "prompt_cache_hit_tokens") // DeepSeek
	}
	if usage.Reasoning < 0 {
		usage.Reasoning = count(u, "reasoning_tokens") // SGLang
	}
	if usage.Reasoning > 0 && usage.Prompt >= 0 && usage.Completion >= 0 &&
		usage.Total == usage.Prompt+usage.Completion+usage.Reasoning {
		usage.Completion += usage.Reasoning
	}
	return usage
}

// llamaTimings reads llama.cpp's timings. prompt_n leaves cached tokens out, and predicted_n is the exact count so
// far; for a single token the server gives no useful duration.
func llamaTimings(t *fastjson.Value, a *Accumulator) {
	generated := count(t, "predicted_n")
	if generated > 0 {
		a.CumulativeTokens(generated)
	}
	cached, evaluated := count(t, "cache_n"), count(t, "prompt_n")
	u := NoUsage()
	u.Cached = cached
	if cached >= 0 && evaluated >= 0 {
		u.Prompt = cached + evaluated
	}
	a.serverCounts(u)
	timings := NoTimings()
	if generated > 0 {
		timings.Prefill = seconds(t, 1e3, "prompt_ms")
	}
	if generated > 1 {
		timings.Decode = seconds(t, 1e3, "predicted_ms")
	}
	a.Timings(timings)
	a.Speculation(Speculation{Drafted: count(t, "draft_n"), Accepted: count(t, "draft_n_accepted"), Steps: Unknown})
}

func dataURL(m Media) string { return "data:" + m.MIMEType + ";base64," + base64Text(m.Data) }

func base64Text(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// audioFormat is the format's short name: audio/wav is wav, audio/mpeg mp3.
func audioFormat(m Media) string {
	_, sub, _ := strings.Cut(m.MIMEType, "/")
	switch sub = strings.TrimPrefix(sub, "x-"); sub {
	case "mpeg":
		return "mp3"
	case "wave", "vnd.wave", "":
		return "wav"
	}
	return sub
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}
