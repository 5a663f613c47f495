package engine

import (
	"github.com/valyala/fastjson"

	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// sglangGenerate is SGLang's native /generate: a prompt without a chat template, and counts with every event.
type sglangGenerate struct{}

func (sglangGenerate) Name() string          { return "sglang_generate" }
func (sglangGenerate) Format() stream.Format { return stream.FormatSSE }
func (sglangGenerate) Parser() Parser        { return &sglangParser{} }
func (sglangGenerate) Path(Wire) string      { return "/generate" }

func (sglangGenerate) Encode(r Request, _ Wire, b *Body) error {
	var images []string
	plain := r
	plain.Messages = nil
	for _, m := range r.Messages {
		for _, media := range m.Media {
			if media.Kind != Image {
				return &UnsupportedError{What: string(media.Kind), Why: "sglang_generate carries images alone"}
			}
			images = append(images, base64Text(media.Data))
		}
		plain.Messages = append(plain.Messages, Message{Role: m.Role, Text: m.Text})
	}
	prompt, err := plainPrompt(plain)
	if err != nil {
		return err
	}
	b.Set("text", prompt)
	b.Set("stream", true)
	if len(images) > 0 {
		b.Set("image_data", images)
	}
	b.Set("sampling_params.max_new_tokens", r.MaxTokens)
	b.Set("sampling_params.temperature", 0)
	if r.Fixed {
		b.Option("sampling_params.ignore_eos", true)
		b.Option("sampling_params.min_new_tokens", r.MaxTokens)
	}
	b.ExpectUsage()
	if c := r.Constraint; c != nil {
		switch c.Kind {
		case JSONSchema:
			b.Set("sampling_params.json_schema", string(c.Schema)) // a string here
		case Regex:
			b.Set("sampling_params.regex", c.Text)
		case Choice:
			b.Set("sampling_params.regex", anyOf(c.Values))
		case Grammar:
			b.Set("sampling_params.ebnf", c.Text)
		}
	}
	return nil
}

// sglangParser reads events whose text is all of it so far, or a piece with --incremental-streaming-output.
type sglangParser struct {
	json fastjson.Parser
	text growingText
	last int // tokens so far
}

func (p *sglangParser) Event(ev stream.Event, a *Accumulator) error {
	v, err := parseEvent(&p.json, ev, a)
	if v == nil {
		return err
	}
	m := v.Get("meta_info")
	tokens := count(v, "meta_info", "completion_tokens")
	p.text.add(str(v, "text"), tokens < 0 || tokens > p.last, a)
	p.last = max(p.last, tokens)
	if m == nil || m.Type() != fastjson.TypeObject {
		return nil
	}
	u := NoUsage()
	u.Prompt, u.Cached, u.Completion = count(m, "prompt_tokens"), count(m, "cached_tokens"), tokens
	u.Reasoning = count(m, "reasoning_tokens")
	a.Usage(u)
	a.CumulativeTokens(u.Completion)
	t := NoTimings()
	t.Total = num(m, "e2e_latency")
	t.Queue = num(m, "queue_time")
	a.Timings(t)
	a.Speculation(Speculation{
		Drafted:  max(count(m, "spec_proposed_drafts"), count(m, "spec_draft_token_num")),
		Accepted: max(count(m, "spec_accepted_drafts"), count(m, "spec_accept_token_num")),
		Steps:    count(m, "spec_verify_ct"),
	})
	reason := m.Get("finish_reason")
	if reason == nil {
		return nil
	}
	switch reason.Type() {
	case fastjson.TypeObject:
		if kind := str(reason, "type"); string(kind) == "abort" {
			a.Fail("abort: " + orElse(string(str(reason, "message")), "the server said no more"))
		} else {
			a.Finish(kind)
		}
	case fastjson.TypeString:
		a.Finish(reason.GetStringBytes())
	}
	return nil
}
