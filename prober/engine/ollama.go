package engine

import (
	"github.com/valyala/fastjson"

	"github.com/llmcanary/llm_canary_exporter/prober/measure"
	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// What Ollama's two native routes have in common: lines of JSON, counts and durations in the last one.

func ollamaCommon(r Request, w Wire, b *Body) error {
	b.Set("model", w.Model)
	b.Set("stream", true)
	b.Set("options.num_predict", r.MaxTokens)
	b.Set("options.temperature", 0)
	b.Set("options.seed", r.Seed)
	b.ExpectUsage()
	b.evaluated = true
	if c := r.Constraint; c != nil {
		if c.Kind != JSONSchema {
			return &UnsupportedError{What: "structured output by " + string(c.Kind), Why: "Ollama knows JSON schemas alone"}
		}
		b.Set("format", c.Schema)
	}
	return nil
}

func ollamaImages(m Message) ([]string, error) {
	var images []string
	for _, media := range m.Media {
		if media.Kind != Image {
			return nil, &UnsupportedError{What: string(media.Kind), Why: "Ollama's native routes carry images alone"}
		}
		images = append(images, base64Text(media.Data))
	}
	return images, nil
}

// ollamaEnd reads the last line. Durations are nanoseconds; load_duration is the loading of the model, some of which
// is told for a warm one too. Older servers leave cached tokens out of prompt_eval_count, or leave it out altogether.
func ollamaEnd(v *fastjson.Value, a *Accumulator) {
	if !v.GetBool("done") {
		return
	}
	u := NoUsage()
	u.Prompt, u.Cached = count(v, "prompt_eval_count"), count(v, "prompt_eval_cached_count")
	u.Completion = count(v, "eval_count")
	a.Usage(u)
	a.Timings(Timings{
		Queue: Unknown, Load: seconds(v, 1e9, "load_duration"), Prefill: seconds(v, 1e9, "prompt_eval_duration"),
		Decode: seconds(v, 1e9, "eval_duration"), Total: seconds(v, 1e9, "total_duration"),
	})
	reason := str(v, "done_reason")
	if len(reason) == 0 {
		reason = []byte("stop") // before 0.2
	}
	a.Finish(reason)
	a.Done()
}

// ollamaChat is /api/chat.
type ollamaChat struct{}

func (ollamaChat) Name() string          { return "ollama_chat" }
func (ollamaChat) Format() stream.Format { return stream.FormatNDJSON }
func (ollamaChat) Parser() Parser        { return &ollamaChatParser{} }
func (ollamaChat) Path(Wire) string      { return "/api/chat" }

func (ollamaChat) Encode(r Request, w Wire, b *Body) error {
	messages := make([]any, 0, len(r.Messages))
	for _, m := range r.Messages {
		message := map[string]any{"role": string(m.Role), "content": m.Text}
		images, err := ollamaImages(m)
		if err != nil {
			return err
		}
		if len(images) > 0 {
			message["images"] = images
		}
		messages = append(messages, message)
	}
	b.Set("messages", messages)
	if err := openAITools(r, b); err != nil {
		return err
	}
	return ollamaCommon(r, w, b)
}

type ollamaChatParser struct {
	json  fastjson.Parser
	calls int
}

func (p *ollamaChatParser) Event(ev stream.Event, a *Accumulator) error {
	v, err := parseEvent(&p.json, ev, a)
	if v == nil {
		return err
	}
	a.Model(str(v, "model"))
	a.Output(measure.Reasoning, str(v, "message", "thinking"))
	a.Output(measure.Content, str(v, "message", "content"))
	for _, c := range v.GetArray("message", "tool_calls") {
		// Each is whole. Its index is missing in older servers, and starts again with each line in some.
		a.ToolCall(p.calls, str(c, "id"), str(c, "function", "name"), jsonText(c.Get("function", "arguments")))
		p.calls++
	}
	ollamaEnd(v, a)
	return nil
}

// ollamaGenerate is /api/generate.
type ollamaGenerate struct{}

func (ollamaGenerate) Name() string          { return "ollama_generate" }
func (ollamaGenerate) Format() stream.Format { return stream.FormatNDJSON }
func (ollamaGenerate) Parser() Parser        { return &ollamaGenerateParser{} }
func (ollamaGenerate) Path(Wire) string      { return "/api/generate" }

func (ollamaGenerate) Encode(r Request, w Wire, b *Body) error {
	var images []string
	plain := r
	plain.Messages = nil
	for _, m := range r.Messages {
		more, err := ollamaImages(m)
		if err != nil {
			return err
		}
		images = append(images, more...)
		plain.Messages = append(plain.Messages, Message{Role: m.Role, Text: m.Text})
	}
	prompt, err := plainPrompt(plain)
	if err != nil {
		return err
	}
	b.Set("prompt", prompt)
	if len(images) > 0 {
		b.Set("images", images)
	}
	return ollamaCommon(r, w, b)
}

type ollamaGenerateParser struct{ json fastjson.Parser }

func (p *ollamaGenerateParser) Event(ev stream.Event, a *Accumulator) error {
	v, err := parseEvent(&p.json, ev, a)
	if v == nil {
		return err
	}
	a.Model(str(v, "model"))
	a.Output(measure.Reasoning, str(v, "thinking"))
	a.Output(measure.Content, str(v, "response"))
	ollamaEnd(v, a)
	return nil
}
