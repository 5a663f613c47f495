package scenario

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/dataset"
	"github.com/llmcanary/llm_canary_exporter/prober/engine"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

const (
	prefillMaxTokens     = 1
	prefillLeast         = 100 // tokens of the smallest size that can be asked for: template and nonce must fit in
	prefillMost          = 4 << 20
	prefillMostRungs     = 16
	calibrationWords     = 256
	sizeTolerance        = 0.05
	checkPromptTokens    = "prompt_tokens"
	variantMinimal       = "minimal"
	variantCalibration   = "calibration"
	metricPrefill        = "prefill_tokens_per_second"
	prefillFrame         = "Read the following words, then answer with one word.\n"
	minimalTokens        = 60    // expected of a minimal prompt with its template
	prefillNoiseFloor    = 0.002 // seconds
	prefillNoiseFraction = 0.2   // of the minimal prompt's time to the first token
)

func prefillType() Type {
	return Type{
		Name:     "prefill",
		Summary:  "prompts of 128, 1k and 4k tokens with one token out: time to the first token by size, prefill rate",
		Interval: 5 * time.Minute,
		New:      newPrefill,
	}
}

type prefill struct {
	maxTokens int
	lengths   []int // ascending
}

func newPrefill(c config.Scenario) (Scenario, error) {
	n, err := positive("max_tokens", c.MaxTokens, prefillMaxTokens, outputTokensMost)
	if err != nil {
		return nil, err
	}
	lengths, err := ladder(c.Lengths, []int{128, 1024, 4096})
	if err != nil {
		return nil, err
	}
	return prefill{maxTokens: n, lengths: lengths}, nil
}

// ladder checks the configured prompt sizes, or returns the default ones.
func ladder(configured, def []int) ([]int, error) {
	if len(configured) == 0 {
		return def, nil
	}
	if len(configured) > prefillMostRungs {
		return nil, config.Errorf("lengths", "has %d sizes, at most %d are allowed", len(configured), prefillMostRungs)
	}
	for i, n := range configured {
		field := fmt.Sprintf("lengths[%d]", i)
		if n < prefillLeast || n > prefillMost {
			return nil, config.Errorf(field, "is %d tokens, must be from %d to %d", n, prefillLeast, prefillMost)
		}
		if i > 0 && n <= configured[i-1] {
			return nil, config.Errorf(field, "is %d, sizes must ascend: the one before is %d", n, configured[i-1])
		}
	}
	return append([]int(nil), configured...), nil
}

// sizeName returns the variant of a prompt size: 128, 1k, 4k.
func sizeName(tokens int) string {
	if tokens >= 1024 && tokens%1024 == 0 {
		return strconv.Itoa(tokens/1024) + "k"
	}
	return strconv.Itoa(tokens)
}

func (s prefill) Variants() []string {
	out := []string{variantMinimal, variantCalibration}
	for _, n := range s.lengths {
		out = append(out, sizeName(n))
	}
	return out
}

func (s prefill) Checks() []result.CheckName {
	var out []result.CheckName
	for _, n := range s.lengths {
		out = append(out, result.CheckName{Variant: sizeName(n), Name: checkPromptTokens})
	}
	return out
}

// Cost covers a target that never tells its token counts: there the sizes are guesses, and a word may be three
// tokens where 1.2 were assumed.
func (s prefill) Cost(f engine.Facts) Cost {
	overhead := templateTokens + nonceDigits + dataset.MaxTokens(prefillFrame)
	requests, prompt := 3, 3*overhead+3*calibrationWords
	for _, n := range s.rungs(f) {
		requests++
		prompt += int(2.5*float64(n.tokens)) + overhead
	}
	return Cost{Requests: requests, PromptTokens: prompt, OutputTokens: requests * s.maxTokens, Concurrency: 1}
}

// Expected leaves the calibration out: it runs once.
func (s prefill) Expected(f engine.Facts) Cost {
	c := Cost{Requests: 2, PromptTokens: 2 * minimalTokens, Concurrency: 1}
	for _, n := range s.rungs(f) {
		c.Requests++
		c.PromptTokens += n.tokens
	}
	c.OutputTokens = c.Requests * s.maxTokens
	return c
}

// rung is one size of the ladder: its variant, and the tokens that are really asked for.
type rung struct {
	variant string
	tokens  int
}

// rungs returns the ladder for a target. The first size that does not fit the model's limit is cut to it, if that
// is well beyond the size before; larger ones are left out.
func (s prefill) rungs(f engine.Facts) []rung {
	limit := prefillMost
	if f.MaxModelLen > 0 {
		// 5 % off, since sizes are only as exact as that.
		limit = int(float64(f.MaxModelLen-s.maxTokens)*(1-sizeTolerance)) - 8
	}
	var out []rung
	before := prefillLeast
	for _, n := range s.lengths {
		if n <= limit {
			out = append(out, rung{sizeName(n), n})
			before = n
			continue
		}
		if limit >= before+before/4 {
			out = append(out, rung{sizeName(n), limit})
		}
		break
	}
	return out
}

// prefillRun is one run: the requests so far.
type prefillRun struct {
	prefill
	env  *Env
	sent int
	rep  Report
}

// Run sends the minimal prompt, the ladder, and the minimal prompt again. The first failed request ends it: a server
// in trouble gets no larger prompts.
func (s prefill) Run(ctx context.Context, env *Env) Report {
	run := &prefillRun{prefill: s, env: env}
	first := run.send(ctx, variantMinimal, 0)
	if !ok(first) || !run.calibrate(ctx, first) {
		return run.rep
	}
	var sized []engine.Answer
	for _, step := range s.rungs(env.Facts) {
		if first.PromptTokens != nil && *first.PromptTokens >= step.tokens {
			continue // the model's chat template alone is longer
		}
		words, calibrated := env.Sizer.Words(step.tokens)
		a := run.send(ctx, step.variant, words)
		if !ok(a) {
			return run.rep
		}
		if calibrated {
			run.checkSize(a, step.tokens)
		}
		sized = append(sized, a)
	}
	last := run.send(ctx, variantMinimal, 0)
	base, noise, known := baseline(first, last)
	if !known {
		return run.rep
	}
	for _, a := range sized {
		if rate, known := prefillRate(a, first, base, noise); known {
			run.rep.Values = append(run.rep.Values, result.Value{Metric: metricPrefill, Label: a.Variant, Figure: rate})
		}
	}
	return run.rep
}

// send sends a prompt with that many words of filler, and lets the sizer learn from what the target counted.
func (r *prefillRun) send(ctx context.Context, variant string, words int) engine.Answer {
	q := engine.Request{
		Variant:   variant,
		Messages:  []engine.Message{{Role: engine.User, Text: prefillFrame + dataset.Filler(r.env.Rand, words)}},
		MaxTokens: r.maxTokens,
		Seed:      seed(r.env.Rand),
	}
	isolate(r.env, r.sent, &q)
	r.sent++
	a := sendCold(ctx, r.env, q)
	r.rep.Requests = append(r.rep.Requests, a.Request)
	if ok(a) && a.PromptTokens != nil {
		r.env.Sizer.Learn(words, *a.PromptTokens)
	}
	return a
}

// calibrate finds out what a word costs, unless that is known: from the target's tokenizer where it lends it to us,
// else from a request of its own. It reports whether the run can go on.
func (r *prefillRun) calibrate(ctx context.Context, minimal engine.Answer) bool {
	if _, calibrated := r.env.Sizer.Words(0); calibrated || minimal.PromptTokens == nil {
		return true
	}
	if added, known := countWords(ctx, r.env, calibrationWords); known {
		r.env.Sizer.Learn(calibrationWords, *minimal.PromptTokens+added)
		return true
	}
	words := calibrationWords
	if limit := r.env.Facts.MaxModelLen; limit > 0 {
		// Nothing is known of a word yet but that it has no more than three tokens.
		words = min(words, (limit-r.maxTokens-*minimal.PromptTokens)/3)
	}
	return words <= 0 || ok(r.send(ctx, variantCalibration, words))
}

// countWords returns what that many words add to a prompt, as the target's tokenizer counts.
func countWords(ctx context.Context, env *Env, words int) (tokens int, known bool) {
	if env.Tokens == nil {
		return 0, false
	}
	frame, known := env.Tokens.CountTokens(ctx, prefillFrame)
	if !known {
		return 0, false
	}
	all, known := env.Tokens.CountTokens(ctx, prefillFrame+dataset.Filler(env.Rand, words))
	return all - frame, known && all > frame
}

// checkSize judges whether the target counted about as many prompt tokens as were asked for: a server that cuts long
// prompts silently is fast, and wrong.
func (r *prefillRun) checkSize(a engine.Answer, asked int) {
	if a.PromptTokens == nil {
		return
	}
	got := *a.PromptTokens
	c := result.Check{Variant: a.Variant, Name: checkPromptTokens}
	c.OK = math.Abs(float64(got-asked)) <= sizeTolerance*float64(asked)
	if !c.OK {
		c.Detail = fmt.Sprintf("the target counted %d prompt tokens of %d that were sent: it may cut prompts, or its tokenizer changed", got, asked)
	}
	r.rep.Checks = append(r.rep.Checks, c)
}

// baseline returns the minimal prompt's time to the first token, the lesser of two since anything that disturbs makes
// it longer, and the noise: what a difference to it must exceed in order to mean something. That is the largest of
// how far the two lie apart, a fifth of the lesser, and 2 ms.
func baseline(first, last engine.Answer) (base, noise float64, known bool) {
	a, knownA := netTTFT(first)
	b, knownB := netTTFT(last)
	if !knownA || !knownB {
		return 0, 0, false
	}
	base = min(a, b)
	return base, max(math.Abs(a-b), prefillNoiseFraction*base, prefillNoiseFloor), true
}

// prefillRate returns uncached prompt tokens beyond the minimal prompt's, per second beyond the minimal prompt's.
func prefillRate(a, minimal engine.Answer, base, noise float64) (tokensPerSecond float64, known bool) {
	t, known := netTTFT(a)
	if !known || a.PromptTokens == nil || minimal.PromptTokens == nil || t-base <= noise {
		return 0, false
	}
	tokens := uncached(a) - uncached(minimal)
	if tokens <= 0 {
		return 0, false
	}
	return float64(tokens) / (t - base), true
}

func uncached(a engine.Answer) int {
	n := *a.PromptTokens
	if a.CachedPromptTokens != nil {
		n -= *a.CachedPromptTokens
	}
	return n
}
