package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// judge says whether a stream that was read to its end is a success. err is what ended it, nil if we stopped.
func (x *exchange) judge(ctx context.Context, err error) {
	x.anomalies |= x.acc.anomalies
	finished := x.acc.finish != "" || x.acc.complete
	switch {
	case x.acc.failed:
		x.verdict = verdict{result.ReasonStreamError, "the server reported an error inside of the stream: " + x.acc.failure}
	case x.acc.tooLarge:
		x.verdict = verdict{result.ReasonResponseTooLarge, fmt.Sprintf("more output than max_tokens (%d) allows: the server ignores the limit; the answer was cut", x.request.MaxTokens)}
	case isErrorFinish(x.acc.finish):
		x.verdict = verdict{result.ReasonStreamError, fmt.Sprintf("finish reason %q", x.acc.finish)}
	case !finished:
		x.verdict = x.unfinished(ctx, err)
	case x.acc.line.Len() == 0 && !x.invisible():
		x.verdict = verdict{result.ReasonEmptyOutput, fmt.Sprintf("the answer finished (%s) without any output", orElse(x.acc.finish, "end of stream"))}
	default:
		x.succeed(err)
	}
}

// unfinished says why a stream has no finish reason.
func (x *exchange) unfinished(ctx context.Context, err error) verdict {
	switch {
	case err == nil:
		return verdict{result.ReasonTruncated, "[DONE] came without a finish reason"}
	case errors.Is(err, errMalformed):
		return verdict{result.ReasonMalformedStream, fmt.Sprintf("after %d chunks: %s", x.acc.line.Len(), err)}
	case errors.Is(err, io.EOF):
		return verdict{result.ReasonTruncated, fmt.Sprintf("the stream ended after %d chunks without a finish reason", x.acc.line.Len())}
	}
	v := judgeError(ctx, err, x.trace.seen())
	v.detail += fmt.Sprintf(" (after %d chunks)", x.acc.line.Len())
	return v
}

// succeed takes a complete answer. Whatever came behind its finish reason is odd at most.
func (x *exchange) succeed(err error) {
	x.outcome = result.Success
	if !x.acc.done {
		x.anomalies |= missingDone
	}
	if errors.Is(err, errMalformed) {
		x.anomalies |= nonstandardFraming
	}
	if x.acc.line.Len() == 0 {
		x.anomalies |= noVisibleOutput
	}
	if x.askedUsage && !x.acc.usageSaid {
		x.anomalies |= usageMissing
	}
	if x.inconsistent() {
		x.anomalies |= usageInconsistent
	}
	if n := x.acc.usage.Completion; n > x.request.MaxTokens {
		x.anomalies |= limitIgnored
	}
	if !sameModel(x.wire.Model, x.acc.model) {
		x.anomalies |= modelMismatch
	}
	if x.acc.textOdd() {
		x.anomalies |= invalidUTF8
	}
	if first, ok := x.acc.line.FirstToken(); ok {
		wait := first
		if s := x.trace.seen(); !s.sent.IsZero() {
			wait = max(first-s.sent.Sub(x.start), 0)
		}
		tokens, _ := x.completionTokens()
		if x.acc.line.Buffered(wait, tokens) {
			x.anomalies |= buffered
		}
	}
}

// invisible reports whether the server counted tokens of which none became text, and stopped at the limit: tokens
// that are no whole characters yet, as llama.cpp holds them back. That is no failure; there is no TTFT.
func (x *exchange) invisible() bool {
	tokens, source := x.completionTokens()
	return tokens > 0 && source != result.CountChunks && x.acc.finish == "length"
}

// completionTokens returns how many tokens the answer has by the best source there is, or Unknown.
func (x *exchange) completionTokens() (int, result.TokenCountSource) {
	a := x.acc
	switch {
	case a.usage.Completion > 0:
		return a.usage.Completion, result.CountUsage
	case a.exact > 0:
		return a.exact, result.CountExact
	case a.line.Len() > 0:
		return a.line.Len(), result.CountChunks
	}
	return Unknown, ""
}

// inconsistent reports whether usage contradicts itself or the chunks. A chunk may hold many tokens, and tokens may
// make no chunk, but a server cannot have made fewer tokens than pieces of text: one more is allowed for pieces that
// a parser of reasoning or tools cut.
func (x *exchange) inconsistent() bool {
	u := x.acc.usage
	switch {
	case u.Completion == 0 && x.acc.line.Len() > 0:
		return true
	case u.Completion > 0 && len(x.acc.calls) == 0 && x.acc.line.Len() > u.Completion+1:
		return true
	case u.Cached > 0 && u.Prompt >= 0 && u.Cached > u.Prompt:
		return true
	case u.Reasoning > 0 && u.Completion > 0 && u.Reasoning > u.Completion:
		return true
	}
	return u.Total > 0 && u.Prompt > 0 && u.Completion > 0 && u.Total != u.Prompt+u.Completion
}

// isErrorFinish reports whether a finish reason says that the answer failed. content_filter and refusal do not: the
// server did its work, and whether the answer is right is the scenario's to check.
func isErrorFinish(reason string) bool {
	switch strings.ToLower(reason) {
	case "error", "abort", "aborted", "parse_error", "failed", "cancelled", "canceled", "unload", "load":
		return true
	}
	return false
}

// sameModel reports whether an answer's model may be the one that was asked for. Services answer with the dated
// version of a name, and gateways leave out or add the provider.
func sameModel(asked, named string) bool {
	if asked == "" || named == "" {
		return true
	}
	asked, named = strings.ToLower(asked), strings.ToLower(named)
	base := func(s string) string { return s[strings.LastIndexByte(s, '/')+1:] }
	return asked == named || strings.HasPrefix(named, asked+"-") || base(asked) == base(named) ||
		strings.HasPrefix(base(named), base(asked)+"-") || strings.TrimSuffix(named, ":latest") == asked
}

// answer makes the answer of what was found.
func (x *exchange) answer() Answer {
	a := Answer{Request: result.Request{
		Variant: x.request.Variant, ID: x.id, StartTime: x.start, Outcome: x.outcome, Reason: x.verdict.reason,
		HTTPStatus: x.status, FinishReason: x.acc.finish, Model: x.acc.model, Anomalies: x.anomalies.list(), TraceID: x.traceID,
	}}
	if a.Variant == "" {
		a.Variant = "default"
	}
	if x.outcome != result.Success {
		a.Detail = x.redactor().clean(x.verdict.detail)
	}
	if x.reply != nil {
		now := time.Now()
		if date, err := http.ParseTime(x.reply.header.Get("Date")); err == nil {
			now = date // the two clocks may differ
		}
		a.RetryAfter = retryAfter(x.reply.header, now)
		if a.RetryAfter > 0 && x.status != 429 && x.status != 503 && x.status < 500 {
			a.RetryAfter = 0
		}
	}
	a.Text, a.Reasoning, a.ToolCalls = string(x.acc.text), string(x.acc.reasoning), x.acc.toolCalls()
	x.connection(&a.Request)
	x.counts(&a.Request)
	x.figures(&a.Request)
	x.server(&a.Request)
	return a
}

func (x *exchange) connection(r *result.Request) {
	s := x.trace.seen()
	r.Phases = s.phases
	if s.connected {
		r.ConnectionReused = result.Ptr(s.reused)
	}
	if !x.arrivals.any {
		return
	}
	r.Clock = string(stream.ClockUser)
	if x.arrivals.kernel {
		r.Clock = string(stream.ClockKernel)
		r.ClientLagMax = result.Ptr(x.arrivals.lag.Seconds())
	}
}

// counts fills in the token counts. An absent count is unknown, which is not 0.
func (x *exchange) counts(r *result.Request) {
	known := func(values ...int) *int {
		for _, v := range values {
			if v >= 0 {
				return result.Ptr(v)
			}
		}
		return nil
	}
	u, told := x.acc.usage, x.acc.told
	if prompt := max(u.Prompt, told.Prompt); u.Prompt > 0 {
		r.PromptTokens = result.Ptr(u.Prompt)
	} else if prompt > 0 {
		r.PromptTokens = result.Ptr(prompt)
	}
	if r.PromptTokens != nil && x.body != nil && x.body.evaluated && u.Cached < 0 && x.promptBytes() > maxBytesPerToken**r.PromptTokens {
		r.PromptTokens = nil // cached tokens were left out, and nobody knows how many
	}
	r.CachedPromptTokens = known(u.Cached, told.Cached)
	if r.CachedPromptTokens == nil && x.outcome == result.Success && x.acc.usageSaid {
		// A server that has told cached tokens before leaves them out when there are none.
		if works, _ := x.target.knows(FeatureCachedTokens); works {
			r.CachedPromptTokens = result.Ptr(0)
		}
	}
	if n, source := x.completionTokens(); n > 0 {
		r.CompletionTokens, r.TokenCountSource = result.Ptr(n), source
	}
	if u.Reasoning > 0 {
		r.ReasoningTokens = result.Ptr(u.Reasoning)
	}
}

// maxBytesPerToken is more than any tokenizer packs into a token of the prompts that we send, on average.
const maxBytesPerToken = 20

func (x *exchange) promptBytes() int {
	n := 0
	for _, m := range x.request.Messages {
		n += len(m.Text)
	}
	return n
}

// figures fills in what was measured. Of a failed request that is the time to its first output and its gaps: they
// show where it broke. They are no latencies of an answer, since there was none.
func (x *exchange) figures(r *result.Request) {
	line := x.acc.line
	since := func(d time.Duration, ok bool) *float64 {
		if !ok {
			return nil
		}
		return result.Ptr(d.Seconds())
	}
	r.TimeToFirstTokenSeconds = since(line.FirstToken())
	r.TimeToFirstContentSeconds = since(line.FirstContent())
	r.InterChunkLatenciesSeconds = line.Gaps()
	r.ChunkTokens = line.Tokens()
	if x.outcome != result.Success {
		return
	}
	r.E2ELatencySeconds = since(line.End())
	// Chunks are no tokens: where nobody counted tokens there is no time per token.
	if n, source := x.completionTokens(); source != result.CountChunks {
		if v, ok := line.TimePerOutputToken(n); ok {
			r.TimePerOutputTokenSeconds = result.Ptr(v)
		}
	}
}

// server fills in what the server reports of itself.
func (x *exchange) server(r *result.Request) {
	known := func(v float64) *float64 {
		if v < 0 {
			return nil
		}
		return result.Ptr(v)
	}
	whole := func(n int) *int {
		if n < 0 {
			return nil
		}
		return result.Ptr(n)
	}
	t, s := x.acc.timings, x.acc.spec
	r.ServerTimings = result.ServerTimings{
		Queue: known(t.Queue), Load: known(t.Load), Prefill: known(t.Prefill), Decode: known(t.Decode), Total: known(t.Total),
	}
	r.Speculation = result.Speculation{DraftTokens: whole(s.Drafted), AcceptedTokens: whole(s.Accepted), VerifySteps: whole(s.Steps)}
}
