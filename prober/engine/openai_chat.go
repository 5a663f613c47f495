package engine

import (
	"fmt"

	"github.com/valyala/fastjson"

	"github.com/llmcanary/llm_canary_exporter/prober/measure"
	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// openAIChat is /v1/chat/completions, as OpenAI defined it and as nearly every server speaks it.
type openAIChat struct{}

func (openAIChat) Name() string          { return "openai_chat" }
func (openAIChat) Format() stream.Format { return stream.FormatSSE }
func (openAIChat) Parser() Parser        { return &openAIChatParser{} }

func (openAIChat) Path(w Wire) string { return openAIPath(w, "chat/completions") }

func (openAIChat) Encode(r Request, w Wire, b *Body) error {
	messages, err := chatMessages(r, w)
	if err != nil {
		return err
	}
	openAICommon(r, w, b)
	b.Set("messages", messages)
	if err := openAIConstraint(r.Constraint, w, b); err != nil {
		return err
	}
	return openAITools(r, b)
}

// openAIChatParser reads chat.completion.chunk events of all dialects.
type openAIChatParser struct{ json fastjson.Parser }

func (p *openAIChatParser) Event(ev stream.Event, a *Accumulator) error {
	v, err := parseEvent(&p.json, ev, a)
	if v == nil {
		return err
	}
	for _, choice := range v.GetArray("choices") {
		if count(choice, "index") > 0 {
			continue // one answer is asked for
		}
		delta := choice.Get("delta")
		if delta == nil {
			delta = choice.Get("message") // gateways that send a whole message
		}
		if delta != nil {
			chatDelta(delta, a)
		}
		openAIChoice(choice, a)
	}
	openAITail(v, a)
	return nil
}

func chatDelta(delta *fastjson.Value, a *Accumulator) {
	chatContent(delta.Get("content"), a)
	a.Output(measure.Content, str(delta, "refusal"))
	// The field was renamed, and some servers send it under both names.
	for _, field := range []string{"reasoning_content", "reasoning", "thinking"} {
		if piece := str(delta, field); len(piece) > 0 {
			a.Output(measure.Reasoning, piece)
			break
		}
	}
	if calls := delta.Get("tool_calls"); calls != nil {
		switch calls.Type() {
		case fastjson.TypeArray:
			for i, c := range calls.GetArray() {
				openAIToolCall(c, i, a)
			}
		case fastjson.TypeObject: // TGI before 3.1
			openAIToolCall(calls, 0, a)
		}
	}
	if call := delta.Get("function_call"); call != nil && call.Type() == fastjson.TypeObject {
		a.ToolCall(0, nil, str(call, "name"), str(call, "arguments"))
	}
}

// chatContent reads content, which is a string, or a list of parts where a model thinks inside of its content.
func chatContent(content *fastjson.Value, a *Accumulator) {
	if content == nil {
		return
	}
	switch content.Type() {
	case fastjson.TypeString:
		a.Output(measure.Content, content.GetStringBytes())
	case fastjson.TypeArray:
		for _, part := range content.GetArray() {
			switch string(str(part, "type")) {
			case "thinking", "reasoning":
				a.Output(measure.Reasoning, str(part, "text"))
				a.Output(measure.Reasoning, str(part, "thinking"))
				for _, inner := range part.GetArray("thinking") {
					a.Output(measure.Reasoning, str(inner, "text"))
				}
			default:
				a.Output(measure.Content, str(part, "text"))
			}
		}
	}
}

// openAIToolCall reads one piece of a tool call. Arguments are pieces of a string; where a server sends an object,
// it is whole.
func openAIToolCall(c *fastjson.Value, position int, a *Accumulator) {
	if c.Type() != fastjson.TypeObject {
		return
	}
	index := count(c, "index")
	if index < 0 {
		index = position
	}
	a.ToolCall(index, str(c, "id"), str(c, "function", "name"), jsonText(c.Get("function", "arguments")))
}

// jsonText returns a string's value, or the JSON of anything else that is not null.
func jsonText(v *fastjson.Value) []byte {
	if v == nil || v.Type() == fastjson.TypeNull {
		return nil
	}
	if v.Type() == fastjson.TypeString {
		return v.GetStringBytes()
	}
	return v.MarshalTo(nil)
}

// chatMessages writes the conversation. Text alone is a string, which every server takes; media make a list of parts.
func chatMessages(r Request, w Wire) ([]any, error) {
	messages := make([]any, 0, len(r.Messages))
	for _, m := range r.Messages {
		if len(m.Media) == 0 {
			messages = append(messages, map[string]any{"role": string(m.Role), "content": m.Text})
			continue
		}
		parts := make([]any, 0, len(m.Media)+1)
		for _, media := range m.Media {
			part, err := openAIMedia(media, w)
			if err != nil {
				return nil, err
			}
			parts = append(parts, part)
		}
		if m.Text != "" {
			parts = append(parts, map[string]any{"type": "text", "text": m.Text})
		}
		messages = append(messages, map[string]any{"role": string(m.Role), "content": parts})
	}
	return messages, nil
}

func openAIMedia(m Media, w Wire) (any, error) {
	switch m.Kind {
	case Image:
		return map[string]any{"type": "image_url", "image_url": map[string]any{"url": dataURL(m)}}, nil
	case Audio:
		switch w.Engine {
		case EngineSGLang, EngineLMDeploy, EngineTRTLLM:
			return map[string]any{"type": "audio_url", "audio_url": map[string]any{"url": dataURL(m)}}, nil
		case EngineOllama, EngineTGI:
			return nil, &UnsupportedError{What: "audio", Why: w.Engine + " takes no audio on this route"}
		}
		return map[string]any{"type": "input_audio", "input_audio": map[string]any{"data": base64Text(m.Data), "format": audioFormat(m)}}, nil
	}
	return nil, &UnsupportedError{What: string(m.Kind), Why: "no form of it is known for openai_chat"}
}

func openAITools(r Request, b *Body) error {
	if len(r.Tools) == 0 {
		return nil
	}
	tools := make([]any, len(r.Tools))
	for i, t := range r.Tools {
		tools[i] = map[string]any{"type": "function", "function": map[string]any{
			"name": t.Name, "description": t.Description, "parameters": t.Parameters,
		}}
	}
	b.Set("tools", tools)
	switch r.ToolChoice {
	case "":
	case "auto", "none", "required":
		b.Set("tool_choice", r.ToolChoice)
	default:
		if !hasTool(r, r.ToolChoice) {
			return fmt.Errorf("tool choice %q is none of the request's tools", r.ToolChoice)
		}
		b.Set("tool_choice", map[string]any{"type": "function", "function": map[string]any{"name": r.ToolChoice}})
	}
	return nil
}

func hasTool(r Request, name string) bool {
	for _, t := range r.Tools {
		if t.Name == name {
			return true
		}
	}
	return false
}
