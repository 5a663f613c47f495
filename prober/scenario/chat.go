package scenario

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/dataset"
	"github.com/llmcanary/llm_canary_exporter/prober/engine"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// The sizes of chat.
const (
	chatMaxTokens    = 64  // output
	chatPromptMean   = 200 // tokens, by estimate
	chatPromptSigma  = 0.45
	chatPromptLeast  = 60
	chatPromptMost   = 600
	chatMaxQuestions = 3
	outputTokensMost = 32768 // of any request of any type: the canary is a trickle
)

func chatType() Type {
	return Type{
		Name:     "chat",
		Summary:  "a conversation of about 200 tokens in and 64 out: how a chat user sees the service",
		Interval: 30 * time.Second,
		Poisson:  true,
		New:      newChat,
	}
}

type chat struct{ maxTokens int }

func newChat(c config.Scenario) (Scenario, error) {
	if err := noLengths(c); err != nil {
		return nil, err
	}
	n, err := positive("max_tokens", c.MaxTokens, chatMaxTokens, outputTokensMost)
	if err != nil {
		return nil, err
	}
	return chat{maxTokens: n}, nil
}

func (chat) Variants() []string         { return []string{variantDefault} }
func (chat) Checks() []result.CheckName { return nil }

func (s chat) Cost(engine.Facts) Cost {
	// Three tokens a word where the estimate has 1.3, two a character where it has 0.8.
	most := int(2.5*(chatPromptMost+60)) + templateTokens + nonceDigits
	return Cost{Requests: 1, PromptTokens: most, OutputTokens: s.maxTokens, Concurrency: 1}
}

func (s chat) Expected(engine.Facts) Cost {
	return Cost{Requests: 1, PromptTokens: chatPromptMean + 30, OutputTokens: s.maxTokens, Concurrency: 1}
}

// Run sends one conversation. Its earlier answers are ours, so that prompts have the wanted size and no request
// shares a prefix with the one before it.
func (s chat) Run(ctx context.Context, env *Env) Report {
	size := promptSize(env.Rand)
	questions := 1 + env.Rand.IntN(chatMaxQuestions)
	r := engine.Request{
		Variant:   variantDefault,
		Messages:  messages(dataset.Conversation(env.Rand, language(env.Rand), questions, size)),
		MaxTokens: s.maxTokens,
		Seed:      seed(env.Rand),
	}
	isolate(env, 0, &r)
	a := sendCold(ctx, env, r)
	return Report{Requests: []result.Request{a.Request}, Values: rateValues(a)}
}

// promptSize draws a size from a log-normal distribution of the wanted mean, cut at both ends: chat prompts are
// mostly short with a long tail.
func promptSize(r *rand.Rand) int {
	mu := math.Log(chatPromptMean) - chatPromptSigma*chatPromptSigma/2
	n := math.Exp(mu + chatPromptSigma*r.NormFloat64())
	return int(min(max(n, chatPromptLeast), chatPromptMost))
}
