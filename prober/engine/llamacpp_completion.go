package engine

import (
	"github.com/valyala/fastjson"

	"github.com/llmcanary/llm_canary_exporter/prober/measure"
	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// llamacppCompletion is llama.cpp's native /completion: a prompt without a chat template, timings, no [DONE].
type llamacppCompletion struct{}

func (llamacppCompletion) Name() string          { return "llamacpp_completion" }
func (llamacppCompletion) Format() stream.Format { return stream.FormatSSE }
func (llamacppCompletion) Parser() Parser        { return &llamacppParser{} }
func (llamacppCompletion) Path(Wire) string      { return "/completion" }

func (llamacppCompletion) Encode(r Request, _ Wire, b *Body) error {
	prompt, err := plainPrompt(r)
	if err != nil {
		return err
	}
	b.Set("prompt", prompt)
	b.Set("n_predict", r.MaxTokens)
	b.Set("stream", true)
	b.Option("temperature", 0)
	b.Option("seed", r.Seed)
	b.Option("timings_per_token", true)
	if r.Fixed {
		b.Option("ignore_eos", true)
	}
	b.ExpectUsage()
	if c := r.Constraint; c != nil {
		switch c.Kind {
		case JSONSchema:
			b.Set("json_schema", c.Schema)
		case Choice:
			b.Set("grammar", choiceGrammar(c.Values))
		case Grammar:
			b.Set("grammar", c.Text)
		default:
			return &UnsupportedError{What: "structured output by " + string(c.Kind), Why: "llama.cpp has no form of it"}
		}
	}
	return nil
}

// llamacppParser reads completion events. tokens_evaluated is the whole prompt; tokens_cached is how full the slot
// is, not what was hit: that is in timings.
type llamacppParser struct{ json fastjson.Parser }

func (p *llamacppParser) Event(ev stream.Event, a *Accumulator) error {
	v, err := parseEvent(&p.json, ev, a)
	if v == nil {
		return err
	}
	a.Output(measure.Content, str(v, "content"))
	a.Model(str(v, "model"))
	if tokens := v.Get("tokens"); tokens != nil && tokens.Type() == fastjson.TypeArray && !v.GetBool("stop") {
		a.EventTokens(len(tokens.GetArray()))
	}
	if t := v.Get("timings"); t != nil && t.Type() == fastjson.TypeObject {
		llamaTimings(t, a)
	}
	if !v.GetBool("stop") {
		return nil
	}
	u := NoUsage()
	u.Prompt, u.Completion = count(v, "tokens_evaluated"), count(v, "tokens_predicted")
	u.Cached = count(v, "timings", "cache_n")
	a.Usage(u)
	reason := str(v, "stop_type")
	switch {
	case len(reason) > 0:
	case v.GetBool("stopped_limit"): // before 2025
		reason = []byte("limit")
	default:
		reason = []byte("stop")
	}
	a.Finish(reason)
	a.Done()
	return nil
}
