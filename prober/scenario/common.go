package scenario

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/dataset"
	"github.com/llmcanary/llm_canary_exporter/prober/engine"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// The names of what several types report.
const (
	variantDefault        = "default"
	metricOutputPerSecond = "output_tokens_per_second"
)

// templateTokens bounds what a chat template adds to one request: the longest known system preambles are about 100
// tokens, and each message costs up to 10.
const templateTokens = 160

// nonceDigits is the length of a nonce: 60 bits. Digits alone, because tokenizers split numbers evenly: every nonce
// costs the same number of tokens.
const nonceDigits = 18

// nonce returns the nonce of the probe's i-th request. Two of them differ from their first token on (in 999 cases of
// 1000 for tokens of three digits), so that a request shares no more with any other than the chat template: the
// prefix cache cannot hit more than that, whatever is repeated after it.
func nonce(env *Env, i int) string {
	h := sha256.Sum256([]byte(env.Nonce + "/" + strconv.Itoa(i)))
	const space = 1_000_000_000_000_000_000
	return fmt.Sprintf("%0*d", nonceDigits, binary.BigEndian.Uint64(h[:8])%space)
}

// isolate puts a nonce to the very front of the first message and asks for a prefix cache of its own.
func isolate(env *Env, i int, r *engine.Request) {
	n := nonce(env, i)
	r.Messages[0].Text = n + "\n" + r.Messages[0].Text
	r.CacheSalt = "llm-canary-" + n
}

// sendCold sends a request that isolate has set apart. What it shares with others is the chat template: more cached
// tokens than that can have mean that the figures are not those of a cold prompt.
func sendCold(ctx context.Context, env *Env, r engine.Request) engine.Answer {
	a := env.Send(ctx, r)
	if c := a.CachedPromptTokens; c != nil && *c > templateTokens {
		a.Anomalies = append(slices.Clone(a.Anomalies), result.AnomalyDirtyCold)
	}
	return a
}

func messages(turns []dataset.Turn) []engine.Message {
	out := make([]engine.Message, len(turns))
	for i, t := range turns {
		role := engine.Assistant
		if t.User {
			role = engine.User
		}
		out[i] = engine.Message{Role: role, Text: t.Text}
	}
	return out
}

func seed(r *rand.Rand) int64 { return r.Int64N(1 << 31) }

// language draws the language of a prompt: three English ones to a Chinese one.
func language(r *rand.Rand) dataset.Language {
	if r.IntN(4) == 0 {
		return dataset.Chinese
	}
	return dataset.English
}

// positive returns v, or def where v is 0; a v out of bounds is an error about the field.
func positive(field string, v, def, most int) (int, error) {
	switch {
	case v == 0:
		return def, nil
	case v < 0 || v > most:
		return 0, config.Errorf(field, "is %d, must be from 1 to %d", v, most)
	default:
		return v, nil
	}
}

// noLengths refuses the prompt sizes of types that have no ladder.
func noLengths(c config.Scenario) error {
	if len(c.Lengths) > 0 {
		return config.Errorf("lengths", "scenarios of type %s have no prompt sizes: leave it out", c.Type)
	}
	return nil
}

// ok reports whether a request succeeded.
func ok(a engine.Answer) bool { return a.Outcome == result.Success }

// decodeRate returns the rate at which an answer's tokens came after the first: the inverse of TPOT.
func decodeRate(a engine.Answer) (tokensPerSecond float64, known bool) {
	t := a.TimePerOutputTokenSeconds
	if !ok(a) || t == nil || *t <= 0 {
		return 0, false
	}
	return 1 / *t, true
}

// rateValues returns the decode rate as a derived figure, if it is known.
func rateValues(a engine.Answer) result.Values {
	rate, known := decodeRate(a)
	if !known {
		return nil
	}
	return result.Values{{Metric: metricOutputPerSecond, Label: a.Variant, Figure: rate}}
}

// netTTFT returns the time to the first token without the phases of making a connection.
func netTTFT(a engine.Answer) (seconds float64, known bool) {
	if !ok(a) || a.TimeToFirstTokenSeconds == nil {
		return 0, false
	}
	net := *a.TimeToFirstTokenSeconds
	for _, p := range []*float64{a.Phases.DNS, a.Phases.Connect, a.Phases.TLS} {
		if p != nil {
			net -= *p
		}
	}
	return net, net > 0
}
