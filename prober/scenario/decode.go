package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/dataset"
	"github.com/llmcanary/llm_canary_exporter/prober/engine"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

const (
	decodeMaxTokens = 128
	decodeShare     = 0.95 // of the tokens asked for: less is a failed check, where the length can be fixed
	checkLength     = "length"
	longTaskTokens  = 120 // of a prompt, by estimate
)

func decodeType() Type {
	return Type{
		Name:     "decode",
		Summary:  "a long answer of fixed length: time per output token, gaps and stalls",
		Interval: 2 * time.Minute,
		New:      newDecode,
	}
}

type decode struct{ maxTokens int }

func newDecode(c config.Scenario) (Scenario, error) {
	if err := noLengths(c); err != nil {
		return nil, err
	}
	n, err := positive("max_tokens", c.MaxTokens, decodeMaxTokens, outputTokensMost)
	if err != nil {
		return nil, err
	}
	return decode{maxTokens: n}, nil
}

func (decode) Variants() []string { return []string{variantDefault} }

func (decode) Checks() []result.CheckName {
	return []result.CheckName{{Variant: variantDefault, Name: checkLength}}
}

func (s decode) Cost(engine.Facts) Cost {
	return Cost{
		Requests: 1, Concurrency: 1,
		PromptTokens: int(2.5*longTaskTokens) + templateTokens + nonceDigits, OutputTokens: s.maxTokens,
	}
}

func (s decode) Expected(engine.Facts) Cost {
	return Cost{Requests: 1, Concurrency: 1, PromptTokens: 110, OutputTokens: s.maxTokens}
}

func (s decode) Run(ctx context.Context, env *Env) Report {
	r := engine.Request{
		Variant:   variantDefault,
		Messages:  []engine.Message{{Role: engine.User, Text: dataset.LongTask(env.Rand, language(env.Rand))}},
		MaxTokens: s.maxTokens,
		Fixed:     true,
		Seed:      seed(env.Rand),
	}
	isolate(env, 0, &r)
	a := sendCold(ctx, env, r)
	rep := Report{Requests: []result.Request{a.Request}, Values: rateValues(a)}
	if c, judged := s.check(env.Facts, a); judged {
		rep.Checks = append(rep.Checks, c)
	}
	return rep
}

// check judges the length where it could be fixed and was counted in tokens.
func (s decode) check(f engine.Facts, a engine.Answer) (c result.Check, judged bool) {
	if !ok(a) || !fixesLength(f.Engine) || slices.Contains(a.Anomalies, result.AnomalyFieldDropped) ||
		a.CompletionTokens == nil || a.TokenCountSource == result.CountChunks {
		return c, false
	}
	n := *a.CompletionTokens
	c = result.Check{Variant: a.Variant, Name: checkLength, OK: float64(n) >= decodeShare*float64(s.maxTokens)}
	if !c.OK {
		c.Detail = fmt.Sprintf("the answer has %d tokens, %d were asked for with a fixed length (finish reason %q)",
			n, s.maxTokens, a.FinishReason)
	}
	return c, true
}

// fixesLength reports whether an engine has a field that keeps an answer from ending early (ignore_eos, min_tokens).
func fixesLength(name string) bool {
	switch name {
	case "vllm", "sglang", "trtllm", "llamacpp", "lmdeploy":
		return true
	}
	return false
}
