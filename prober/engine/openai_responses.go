package engine

import (
	"github.com/valyala/fastjson"

	"github.com/llmcanary/llm_canary_exporter/prober/measure"
	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// openAIResponses is /v1/responses: typed events, usage always in the last one, no [DONE].
type openAIResponses struct{}

func (openAIResponses) Name() string          { return "openai_responses" }
func (openAIResponses) Format() stream.Format { return stream.FormatSSE }
func (openAIResponses) Parser() Parser        { return &openAIResponsesParser{} }

func (openAIResponses) Path(w Wire) string {
	if w.Engine == EngineAzure {
		return "/openai/v1/responses"
	}
	return "/v1/responses"
}

func (openAIResponses) Encode(r Request, w Wire, b *Body) error {
	input := make([]any, 0, len(r.Messages))
	for _, m := range r.Messages {
		message := map[string]any{"role": string(m.Role), "content": m.Text}
		if len(m.Media) > 0 {
			var parts []any
			for _, media := range m.Media {
				if media.Kind != Image {
					return &UnsupportedError{What: string(media.Kind), Why: "openai_responses carries images alone"}
				}
				parts = append(parts, map[string]any{"type": "input_image", "image_url": dataURL(media)})
			}
			message["content"] = append(parts, map[string]any{"type": "input_text", "text": m.Text})
		}
		input = append(input, message)
	}
	b.setModel(w)
	b.Set("input", input)
	b.Set("stream", true)
	b.Option("max_output_tokens", r.MaxTokens)
	b.Option("temperature", 0)
	b.Option("store", false) // hosted services keep answers otherwise
	if r.CacheSalt != "" && w.Engine == EngineVLLM {
		b.Option("cache_salt", r.CacheSalt)
	}
	b.ExpectUsage()
	if c := r.Constraint; c != nil {
		if c.Kind != JSONSchema {
			return &UnsupportedError{What: "structured output by " + string(c.Kind), Why: "openai_responses knows json_schema alone"}
		}
		b.Set("text", map[string]any{"format": map[string]any{"type": "json_schema", "name": orElse(c.Name, "answer"), "schema": c.Schema, "strict": true}})
	}
	responsesTools(r, b)
	return nil
}

func responsesTools(r Request, b *Body) {
	if len(r.Tools) == 0 {
		return
	}
	tools := make([]any, len(r.Tools))
	for i, t := range r.Tools {
		tools[i] = map[string]any{"type": "function", "name": t.Name, "description": t.Description, "parameters": t.Parameters}
	}
	b.Set("tools", tools)
	switch r.ToolChoice {
	case "":
	case "auto", "none", "required":
		b.Set("tool_choice", r.ToolChoice)
	default:
		b.Set("tool_choice", map[string]any{"type": "function", "name": r.ToolChoice})
	}
}

// openAIResponsesParser reads response.* events. Deltas are output; the events that repeat the whole of it are not,
// unless no delta came before them.
type openAIResponsesParser struct {
	json    fastjson.Parser
	started map[int]bool // calls of which arguments came
}

func (p *openAIResponsesParser) Event(ev stream.Event, a *Accumulator) error {
	v, err := parseEvent(&p.json, ev, a)
	if v == nil {
		return err
	}
	kind := str(v, "type")
	if len(kind) == 0 {
		kind = ev.Name
	}
	switch string(kind) {
	case "response.output_text.delta", "response.refusal.delta":
		a.Output(measure.Content, str(v, "delta"))
	case "response.reasoning_text.delta", "response.reasoning_summary_text.delta", "response.reasoning.delta":
		a.Output(measure.Reasoning, str(v, "delta"))
	case "response.output_text.done":
		if len(a.Text()) == 0 {
			a.Output(measure.Content, str(v, "text"))
		}
	case "response.output_item.added":
		if string(str(v, "item", "type")) == "function_call" {
			a.NameToolCall(count(v, "output_index"), str(v, "item", "call_id"), str(v, "item", "name"))
		}
	case "response.function_call_arguments.delta":
		p.arguments(v, str(v, "delta"), a)
	case "response.function_call_arguments.done":
		if !p.started[count(v, "output_index")] {
			p.arguments(v, str(v, "arguments"), a)
		}
	case "response.output_item.done":
		if string(str(v, "item", "type")) == "function_call" && !p.started[count(v, "output_index")] {
			a.NameToolCall(count(v, "output_index"), str(v, "item", "call_id"), str(v, "item", "name"))
			p.arguments(v, str(v, "item", "arguments"), a)
		}
	case "response.created", "response.in_progress":
		a.Model(str(v, "response", "model"))
	case "response.completed", "response.incomplete", "response.failed":
		responsesEnd(v, a)
	}
	return nil
}

func (p *openAIResponsesParser) arguments(v *fastjson.Value, piece []byte, a *Accumulator) {
	index := count(v, "output_index")
	if len(piece) > 0 {
		if p.started == nil {
			p.started = map[int]bool{}
		}
		if len(p.started) < maxToolCalls {
			p.started[index] = true
		}
	}
	a.ToolCall(index, nil, nil, piece)
}

// responsesEnd reads the event that ends the answer.
func responsesEnd(v *fastjson.Value, a *Accumulator) {
	r := v.Get("response")
	a.Done()
	if r == nil {
		return
	}
	a.Model(str(r, "model"))
	if u := r.Get("usage"); u != nil && u.Type() == fastjson.TypeObject {
		a.Usage(Usage{
			Prompt:     count(u, "input_tokens"),
			Cached:     count(u, "input_tokens_details", "cached_tokens"),
			Completion: count(u, "output_tokens"),
			Reasoning:  count(u, "output_tokens_details", "reasoning_tokens"),
			Total:      count(u, "total_tokens"),
		})
	}
	for _, t := range []*fastjson.Value{v.Get("timings"), r.Get("timings")} {
		if t != nil && t.Type() == fastjson.TypeObject {
			llamaTimings(t, a)
		}
	}
	status := str(r, "status")
	if len(status) == 0 {
		status = str(v, "type")[len("response."):]
	}
	switch string(status) {
	case "incomplete":
		reason := str(r, "incomplete_details", "reason")
		if len(reason) == 0 {
			reason = status
		}
		a.Finish(reason)
	case "failed", "cancelled":
		e := readError(r)
		a.Fail(orElse(e.text(), "the response "+string(status)))
	default:
		if len(a.calls) > 0 {
			a.Finish([]byte("tool_calls"))
			return
		}
		a.Finish([]byte("stop"))
	}
}
