package engine

import (
	"strings"

	"github.com/valyala/fastjson"

	"github.com/llmcanary/llm_canary_exporter/prober/measure"
	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// openAICompletions is /v1/completions: a prompt without a chat template.
type openAICompletions struct{}

func (openAICompletions) Name() string          { return "openai_completions" }
func (openAICompletions) Format() stream.Format { return stream.FormatSSE }
func (openAICompletions) Parser() Parser        { return &openAICompletionsParser{} }

func (openAICompletions) Path(w Wire) string { return openAIPath(w, "completions") }

func (openAICompletions) Encode(r Request, w Wire, b *Body) error {
	prompt, err := plainPrompt(r)
	if err != nil {
		return err
	}
	openAICommon(r, w, b)
	b.Set("prompt", prompt)
	return openAIConstraint(r.Constraint, w, b)
}

// openAICompletionsParser reads text_completion events.
type openAICompletionsParser struct{ json fastjson.Parser }

func (p *openAICompletionsParser) Event(ev stream.Event, a *Accumulator) error {
	v, err := parseEvent(&p.json, ev, a)
	if v == nil {
		return err
	}
	for _, choice := range v.GetArray("choices") {
		if count(choice, "index") > 0 {
			continue
		}
		a.Output(measure.Content, str(choice, "text"))
		openAIChoice(choice, a)
	}
	openAITail(v, a)
	return nil
}

// plainPrompt joins a conversation into one text, for protocols that have no messages.
func plainPrompt(r Request) (string, error) {
	if len(r.Tools) > 0 {
		return "", &UnsupportedError{What: "tools", Why: "the protocol has none: use openai_chat"}
	}
	texts := make([]string, 0, len(r.Messages))
	for _, m := range r.Messages {
		if len(m.Media) > 0 {
			return "", &UnsupportedError{What: string(m.Media[0].Kind), Why: "the protocol takes text alone: use openai_chat"}
		}
		texts = append(texts, m.Text)
	}
	return strings.Join(texts, "\n\n"), nil
}
