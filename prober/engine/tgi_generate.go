package engine

import (
	"strings"

	"github.com/valyala/fastjson"

	"github.com/llmcanary/llm_canary_exporter/prober/measure"
	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// tgiGenerate is TGI's native /generate_stream: one event for each token, details in the last one, no [DONE].
type tgiGenerate struct{}

func (tgiGenerate) Name() string          { return "tgi_generate" }
func (tgiGenerate) Format() stream.Format { return stream.FormatSSE }
func (tgiGenerate) Parser() Parser        { return &tgiParser{} }
func (tgiGenerate) Path(Wire) string      { return "/generate_stream" }

func (tgiGenerate) Encode(r Request, _ Wire, b *Body) error {
	if len(r.Tools) > 0 {
		return &UnsupportedError{What: "tools", Why: "tgi_generate has none: use openai_chat"}
	}
	var inputs strings.Builder
	for i, m := range r.Messages {
		if i > 0 {
			inputs.WriteString("\n\n")
		}
		for _, media := range m.Media {
			if media.Kind != Image {
				return &UnsupportedError{What: string(media.Kind), Why: "tgi_generate carries images alone"}
			}
			inputs.WriteString("![](" + dataURL(media) + ")")
		}
		inputs.WriteString(m.Text)
	}
	b.Set("inputs", inputs.String())
	b.Set("parameters.max_new_tokens", r.MaxTokens)
	b.Set("parameters.details", true)
	b.Option("parameters.do_sample", false) // greedy; a temperature of 0 is refused
	b.Option("parameters.seed", r.Seed)
	b.ExpectUsage()
	if c := r.Constraint; c != nil {
		switch c.Kind {
		case JSONSchema:
			b.Set("parameters.grammar", map[string]any{"type": "json", "value": c.Schema})
		case Regex:
			b.Set("parameters.grammar", map[string]any{"type": "regex", "value": c.Text})
		case Choice:
			b.Set("parameters.grammar", map[string]any{"type": "regex", "value": anyOf(c.Values)})
		default:
			return &UnsupportedError{What: "structured output by " + string(c.Kind), Why: "TGI has no form of it"}
		}
	}
	return nil
}

// tgiParser reads token events. Special tokens are no output, but they are tokens.
type tgiParser struct{ json fastjson.Parser }

func (p *tgiParser) Event(ev stream.Event, a *Accumulator) error {
	v, err := parseEvent(&p.json, ev, a)
	if v == nil {
		return err
	}
	if token := v.Get("token"); token != nil && token.Type() == fastjson.TypeObject {
		a.EventTokens(1)
		if !token.GetBool("special") {
			a.Output(measure.Content, str(token, "text"))
		}
	}
	details := v.Get("details")
	switch {
	case details != nil && details.Type() == fastjson.TypeObject:
		u := NoUsage()
		u.Prompt, u.Completion = count(details, "input_length"), count(details, "generated_tokens")
		a.Usage(u)
		a.Finish(str(details, "finish_reason"))
		a.Done()
	case present(v.Get("generated_text")): // without details nobody says why
		a.Complete()
	}
	return nil
}
