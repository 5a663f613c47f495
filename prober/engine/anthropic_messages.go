package engine

import (
	"github.com/valyala/fastjson"

	"github.com/llmcanary/llm_canary_exporter/prober/measure"
	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// anthropicMessages is /v1/messages, of Anthropic and of the servers that speak it too.
type anthropicMessages struct{}

func (anthropicMessages) Name() string          { return "anthropic_messages" }
func (anthropicMessages) Format() stream.Format { return stream.FormatSSE }
func (anthropicMessages) Parser() Parser {
	return &anthropicParser{usage: [3]int{Unknown, Unknown, Unknown}}
}
func (anthropicMessages) Path(Wire) string { return "/v1/messages" }

func (anthropicMessages) Encode(r Request, w Wire, b *Body) error {
	if r.Constraint != nil {
		return &UnsupportedError{What: "structured output by " + string(r.Constraint.Kind), Why: "anthropic_messages has no form that its servers share"}
	}
	var messages []any
	system := ""
	for _, m := range r.Messages {
		if m.Role == System {
			if system != "" {
				system += "\n\n"
			}
			system += m.Text
			continue
		}
		message := map[string]any{"role": string(m.Role), "content": m.Text}
		if len(m.Media) > 0 {
			var parts []any
			for _, media := range m.Media {
				if media.Kind != Image {
					return &UnsupportedError{What: string(media.Kind), Why: "anthropic_messages carries images alone"}
				}
				parts = append(parts, map[string]any{"type": "image", "source": map[string]any{
					"type": "base64", "media_type": media.MIMEType, "data": base64Text(media.Data),
				}})
			}
			message["content"] = append(parts, map[string]any{"type": "text", "text": m.Text})
		}
		messages = append(messages, message)
	}
	b.Header.Set("Anthropic-Version", anthropicVersion)
	b.Set("model", w.Model)
	b.Set("messages", messages)
	b.Set("max_tokens", r.MaxTokens) // the protocol requires it
	b.Set("stream", true)
	b.Option("temperature", 0)
	if system != "" {
		b.Set("system", system)
	}
	b.ExpectUsage()
	anthropicTools(r, b)
	return nil
}

func anthropicTools(r Request, b *Body) {
	if len(r.Tools) == 0 {
		return
	}
	tools := make([]any, len(r.Tools))
	for i, t := range r.Tools {
		tools[i] = map[string]any{"name": t.Name, "description": t.Description, "input_schema": t.Parameters}
	}
	b.Set("tools", tools)
	switch r.ToolChoice {
	case "":
	case "auto", "none":
		b.Set("tool_choice", map[string]any{"type": r.ToolChoice})
	case "required":
		b.Set("tool_choice", map[string]any{"type": "any"})
	default:
		b.Set("tool_choice", map[string]any{"type": "tool", "name": r.ToolChoice})
	}
}

// anthropicParser reads message events. Usage comes in two events: input_tokens leaves cached tokens out, and
// output_tokens is the count so far.
type anthropicParser struct {
	json  fastjson.Parser
	usage [3]int // input, cache read, cache creation: the last of each that is not zero
}

func (p *anthropicParser) Event(ev stream.Event, a *Accumulator) error {
	v, err := parseEvent(&p.json, ev, a)
	if v == nil {
		return err
	}
	kind := str(v, "type")
	if len(kind) == 0 {
		kind = ev.Name
	}
	index := count(v, "index")
	switch string(kind) {
	case "message_start":
		a.Model(str(v, "message", "model"))
		p.counts(v.Get("message", "usage"), Unknown, a) // its output_tokens says nothing of the answer
	case "content_block_start":
		block := v.Get("content_block")
		if block == nil {
			break
		}
		if string(str(block, "type")) == "tool_use" {
			a.NameToolCall(index, str(block, "id"), str(block, "name"))
		}
		a.Output(measure.Content, str(block, "text"))
		a.Output(measure.Reasoning, str(block, "thinking"))
	case "content_block_delta":
		a.Output(measure.Content, str(v, "delta", "text"))
		a.Output(measure.Reasoning, str(v, "delta", "thinking"))
		if piece := str(v, "delta", "partial_json"); len(piece) > 0 {
			a.ToolCall(index, nil, nil, piece)
		}
	case "message_delta":
		a.Finish(str(v, "delta", "stop_reason"))
		p.counts(v.Get("usage"), count(v, "usage", "output_tokens"), a)
	case "message_stop":
		a.Done()
	}
	return nil
}

func (p *anthropicParser) counts(u *fastjson.Value, completion int, a *Accumulator) {
	if u == nil || u.Type() != fastjson.TypeObject {
		return
	}
	for i, field := range []string{"input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"} {
		if n := count(u, field); n > 0 || n == 0 && p.usage[i] < 0 {
			p.usage[i] = n
		}
	}
	usage := NoUsage()
	usage.Prompt = sum(p.usage[0], p.usage[1], p.usage[2])
	usage.Cached = p.usage[1]
	usage.Completion = completion
	a.Usage(usage)
}
