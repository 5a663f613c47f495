package engine

import (
	"encoding/json"
	"net/url"
	"strings"

	"github.com/valyala/fastjson"

	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// tritonGenerate is Triton's generate_stream, with the tensors of the TensorRT-LLM ensemble or of the vLLM backend.
// It has neither usage nor finish reason nor [DONE]: an answer is whole when the body ends in order.
type tritonGenerate struct{}

func (tritonGenerate) Name() string          { return "triton_generate" }
func (tritonGenerate) Format() stream.Format { return stream.FormatSSE }
func (tritonGenerate) Parser() Parser        { return &tritonParser{} }

func (tritonGenerate) Path(w Wire) string {
	return "/v2/models/" + url.PathEscape(w.Model) + "/generate_stream"
}

func (tritonGenerate) Encode(r Request, w Wire, b *Body) error {
	prompt, err := plainPrompt(r)
	if err != nil {
		return err
	}
	b.Set("text_input", prompt)
	b.Set("stream", true)
	if strings.Contains(strings.ToLower(w.Model), "vllm") {
		return tritonVLLM(r, b)
	}
	b.Set("max_tokens", r.MaxTokens)
	// Some ensembles require these, and others refuse what they do not know.
	b.Option("bad_words", "")
	b.Option("stop_words", "")
	b.Option("temperature", 0.0)
	b.Option("random_seed", r.Seed)
	if r.Fixed {
		b.Option("min_length", r.MaxTokens)
	}
	if c := r.Constraint; c != nil {
		guide := map[ConstraintKind]string{JSONSchema: "json_schema", Regex: "regex", Choice: "regex", Grammar: "ebnf_grammar"}
		b.Set("guided_decoding_guide_type", guide[c.Kind])
		switch c.Kind {
		case JSONSchema:
			b.Set("guided_decoding_guide", string(c.Schema))
		case Choice:
			b.Set("guided_decoding_guide", anyOf(c.Values))
		default:
			b.Set("guided_decoding_guide", c.Text)
		}
	}
	return nil
}

// tritonVLLM writes the vLLM backend's form: the parameters are JSON within a string.
func tritonVLLM(r Request, b *Body) error {
	if r.Constraint != nil {
		return &UnsupportedError{What: "structured output by " + string(r.Constraint.Kind), Why: "Triton's vLLM backend has no form of it"}
	}
	parameters := map[string]any{"max_tokens": r.MaxTokens, "temperature": 0, "seed": r.Seed}
	if r.Fixed {
		parameters["ignore_eos"], parameters["min_tokens"] = true, r.MaxTokens
	}
	data, err := json.Marshal(parameters)
	if err != nil {
		return err
	}
	b.Set("sampling_parameters", string(data))
	b.Option("exclude_input_in_output", true)
	return nil
}

// tritonParser reads text_output, which is a piece or all of it so far, as the model's config has it.
type tritonParser struct {
	json fastjson.Parser
	text growingText
}

func (p *tritonParser) Event(ev stream.Event, a *Accumulator) error {
	v, err := parseEvent(&p.json, ev, a)
	if v == nil {
		return err
	}
	a.Model(str(v, "model_name"))
	p.text.add(str(v, "text_output"), true, a)
	return nil
}

// End takes the end of the body as the end of the answer, if there was any.
func (p *tritonParser) End(a *Accumulator) {
	if a.HasOutput() {
		a.Complete()
	}
}
