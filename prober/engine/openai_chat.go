package engine

import (
	"encoding/base64"
	"encoding/json"
	"net/http"

	"github.com/valyala/fastjson"

	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// openAIChat is POST /v1/chat/completions.
type openAIChat struct{}

func (openAIChat) Name() string { return "openai_chat" }

func (openAIChat) Path(Facts) string { return "/v1/chat/completions" }

func (openAIChat) Rules() Rules { return Rules{WantsDone: true} }

func (openAIChat) Parser() Parser { return &openAIParser{} }

func (openAIChat) Encode(r Request, f Facts, refused map[string]bool) ([]byte, http.Header, error) {
	b := openAIBody(r, f, refused)
	messages := make([]map[string]any, 0, len(r.Messages))
	for _, m := range r.Messages {
		messages = append(messages, map[string]any{"role": m.Role, "content": openAIContent(m)})
	}
	b["messages"] = messages
	if len(r.Tools) > 0 && !refused["tools"] {
		tools := make([]map[string]any, 0, len(r.Tools))
		for _, t := range r.Tools {
			tools = append(tools, map[string]any{"type": "function", "function": map[string]any{
				"name": t.Name, "description": t.Description, "parameters": t.Parameters,
			}})
		}
		b["tools"] = tools
		switch r.ToolChoice {
		case "":
		case "auto", "none", "required":
			b["tool_choice"] = r.ToolChoice
		default:
			b["tool_choice"] = map[string]any{"type": "function", "function": map[string]any{"name": r.ToolChoice}}
		}
	}
	body, err := json.Marshal(b)
	return body, nil, err
}

// openAIContent is a message's text, or the list of its parts if it has media.
func openAIContent(m Message) any {
	if len(m.Media) == 0 {
		return m.Text
	}
	parts := []map[string]any{}
	if m.Text != "" {
		parts = append(parts, map[string]any{"type": "text", "text": m.Text})
	}
	for _, x := range m.Media {
		data := base64.StdEncoding.EncodeToString(x.Data)
		if x.Kind == Audio {
			parts = append(parts, map[string]any{"type": "input_audio", "input_audio": map[string]any{"data": data, "format": "wav"}})
			continue
		}
		parts = append(parts, map[string]any{"type": "image_url", "image_url": map[string]any{"url": "data:" + x.MIMEType + ";base64," + data}})
	}
	return parts
}

// openAIBody holds the fields that chat and completions have in common. Optional ones can be refused.
func openAIBody(r Request, f Facts, refused map[string]bool) map[string]any {
	b := map[string]any{"model": f.Model, "stream": true}
	optional := func(name string, value any) {
		if !refused[name] {
			b[name] = value
		}
	}
	// One of the two, never both: some servers refuse the pair. The old name comes first, since Ollama ignores the
	// new one and would never stop.
	if refused["max_tokens"] {
		b["max_completion_tokens"] = r.MaxTokens
	} else {
		b["max_tokens"] = r.MaxTokens
	}
	optional("temperature", 0)
	optional("seed", r.Seed)
	if !refused["stream_options"] {
		o := map[string]any{"include_usage": true}
		if knowsContinuousUsage(f.Engine) && !refused["continuous_usage_stats"] {
			o["continuous_usage_stats"] = true
		}
		b["stream_options"] = o
	}
	if r.Fixed && knowsIgnoreEOS(f.Engine) {
		optional("ignore_eos", true)
		if f.Engine != "llamacpp" {
			optional("min_tokens", r.MaxTokens)
		}
	}
	if r.CacheSalt != "" && knowsCacheSalt(f.Engine) {
		optional("cache_salt", r.CacheSalt)
	}
	return b
}

// The engines that know a field; the others refuse or ignore it.
func knowsContinuousUsage(engine string) bool {
	return engine == "vllm" || engine == "sglang" || engine == "trtllm"
}

func knowsIgnoreEOS(engine string) bool {
	return engine == "vllm" || engine == "sglang" || engine == "trtllm" || engine == "llamacpp" || engine == "lmdeploy"
}

func knowsCacheSalt(engine string) bool {
	return engine == "vllm" || engine == "sglang" || engine == "trtllm"
}

// openAIParser reads the chunks of chat and of completions. It accepts both in either, as gateways mix them.
type openAIParser struct{}

// Event reads one chunk. Every field may be missing, null or of another type: what is not understood is nothing.
func (p *openAIParser) Event(_ stream.Event, v *fastjson.Value, acc *Accumulator) error {
	if e := v.Get("error"); e != nil && e.Type() != fastjson.TypeNull {
		acc.Fail(errorMessage(v))
		return nil
	}
	acc.Model(v.GetStringBytes("model"))
	for _, choice := range v.GetArray("choices") {
		if choice.GetInt("index") != 0 {
			continue
		}
		acc.Content(choice.GetStringBytes("text"))
		openAIDelta(choice.Get("delta"), acc)
		acc.Tokens(len(choice.GetArray("token_ids")))
		acc.Finish(choice.GetStringBytes("finish_reason"))
	}
	if u := v.Get("usage"); u != nil && u.Type() == fastjson.TypeObject {
		usage := openAIUsage(u)
		acc.Usage(usage)
		if usage.Completion > 0 && acc.kind != 0 { // continuous usage: the count up to this chunk
			acc.CumulativeTokens(usage.Completion)
		}
	}
	groqUsage(v.Get("x_groq", "usage"), acc)
	llamaTimings(v.Get("timings"), acc)
	vllmMetrics(v.Get("metrics"), acc)
	return nil
}

func openAIDelta(d *fastjson.Value, acc *Accumulator) {
	if d == nil {
		return
	}
	acc.Content(d.GetStringBytes("content"))
	// The field was renamed; a server that sends both sends the same twice.
	if r := d.GetStringBytes("reasoning"); len(r) > 0 {
		acc.Reasoning(r)
	} else {
		acc.Reasoning(d.GetStringBytes("reasoning_content"))
	}
	calls := d.Get("tool_calls")
	if calls == nil {
		return
	}
	if calls.Type() == fastjson.TypeObject { // TGI before 3.0 sent one object
		openAIToolCall(0, calls, acc)
		return
	}
	for i, c := range calls.GetArray() {
		openAIToolCall(i, c, acc)
	}
}

func openAIToolCall(position int, c *fastjson.Value, acc *Accumulator) {
	index := position
	if i := c.Get("index"); i != nil && i.Type() == fastjson.TypeNumber {
		index = i.GetInt()
	}
	f := c.Get("function")
	arguments := f.GetStringBytes("arguments")
	if a := f.Get("arguments"); a != nil && a.Type() == fastjson.TypeObject {
		arguments = a.MarshalTo(nil)
	}
	acc.ToolCall(index, c.GetStringBytes("id"), f.GetStringBytes("name"), arguments)
}

// openAIUsage reads a usage object. Cached tokens are part of the prompt's.
func openAIUsage(u *fastjson.Value) Usage {
	usage := NoUsage()
	number(u, &usage.Prompt, "prompt_tokens")
	number(u, &usage.Completion, "completion_tokens")
	number(u, &usage.Cached, "prompt_tokens_details", "cached_tokens")
	number(u, &usage.Reasoning, "completion_tokens_details", "reasoning_tokens")
	return usage
}

// number reads a count; anything that is none leaves it unknown.
func number(v *fastjson.Value, to *int, keys ...string) {
	if n := v.Get(keys...); n != nil && n.Type() == fastjson.TypeNumber {
		if i, err := n.Int(); err == nil && i >= 0 {
			*to = i
		}
	}
}
