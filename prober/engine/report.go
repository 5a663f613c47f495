package engine

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/llmcanary/llm_canary_exporter/prober/measure"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// report judges the attempt and writes its figures into the answer.
func (a *attempt) report(answer *Answer, failed *failure) {
	acc := a.acc
	if failed == nil {
		failed = a.judge()
	}
	answer.Outcome = result.Success
	if failed != nil {
		answer.Outcome, answer.Reason, answer.Detail = result.Failure, failed.reason, failed.detail
	}
	answer.FinishReason, answer.Model = acc.finish, acc.model
	answer.Text, answer.Reasoning, answer.ToolCalls = acc.text.String(), acc.reasoning.String(), acc.toolCalls()
	answer.Phases, answer.ConnectionReused = a.trace.phases()
	answer.ServerTimings, answer.Speculation = acc.timings, acc.speculation
	if acc.clock != "" {
		answer.Clock = string(acc.clock)
		if acc.clock == stream.ClockKernel {
			answer.ClientLagMax = result.Ptr(acc.lagMax.Seconds())
		}
	}
	a.reportTokens(answer)
	a.reportTimes(answer)
	if failed == nil {
		a.findAnomalies(answer)
	}
	for _, x := range result.Anomalies() { // in a fixed order
		if acc.anomalies[x] {
			answer.Anomalies = append(answer.Anomalies, x)
		}
	}
}

// failedFinish are finish reasons by which servers say that they gave up.
var failedFinish = []string{"error", "abort", "parse_error", "cancelled", "canceled"}

// judge says why an answer that came to its end is no success; nil if it is one.
func (a *attempt) judge() *failure {
	acc := a.acc
	output := len(acc.timeline.Chunks) > 0
	if acc.failed {
		return failf(result.ReasonStreamError, "the server reports in the stream: %s", acc.failure)
	}
	for _, r := range failedFinish {
		if strings.EqualFold(acc.finish, r) {
			return failf(result.ReasonStreamError, "finish reason %q", acc.finish)
		}
	}
	if acc.finish == "" && !(a.protocol.Rules().FinishOptional && output) {
		switch {
		case a.dropped:
			return failf(result.ReasonTruncated, "the stream ended inside an event, without a finish reason")
		case !output && acc.done:
			return failf(result.ReasonEmptyOutput, "the stream ended without any output")
		}
		return failf(result.ReasonTruncated, "the stream ended without a finish reason after %d chunks", len(acc.timeline.Chunks))
	}
	if output {
		return nil
	}
	// Tokens without text happen: pieces of a character that never became whole. The end token alone is no answer.
	if acc.usage.Completion > 1 || acc.usage.Completion == 1 && acc.finish == "length" {
		acc.Anomaly(result.AnomalyNoVisibleOutput)
		return nil
	}
	return failf(result.ReasonEmptyOutput, "finish reason %q without any output", acc.finish)
}

func (a *attempt) reportTokens(answer *Answer) {
	acc, u := a.acc, a.acc.usage
	set := func(to **int, n int) {
		if n >= 0 {
			*to = result.Ptr(n)
		}
	}
	set(&answer.PromptTokens, u.Prompt)
	set(&answer.ReasoningTokens, u.Reasoning)
	switch {
	case u.Cached >= 0:
		set(&answer.CachedPromptTokens, u.Cached)
		a.t.seen(FeatureCachedTokens, true)
	case u.Prompt >= 0 && a.t.hasSeen(FeatureCachedTokens):
		// A target that has told cached tokens leaves them out when there are none.
		set(&answer.CachedPromptTokens, 0)
	}
	chunks := len(acc.timeline.Chunks)
	switch {
	case u.Completion > 0:
		answer.CompletionTokens, answer.TokenCountSource = result.Ptr(u.Completion), result.CountUsage
	case acc.told && acc.tokens > 0:
		answer.CompletionTokens, answer.TokenCountSource = result.Ptr(acc.tokens), result.CountExact
	case chunks > 0:
		answer.CompletionTokens, answer.TokenCountSource = result.Ptr(chunks), result.CountChunks
	}
}

func (a *attempt) reportTimes(answer *Answer) {
	t := &a.acc.timeline
	set := func(to **float64, d time.Duration, ok bool) {
		if ok {
			*to = result.Ptr(d.Seconds())
		}
	}
	d, ok := t.FirstToken()
	set(&answer.TimeToFirstTokenSeconds, d, ok)
	d, ok = t.FirstContent()
	set(&answer.TimeToFirstContentSeconds, d, ok)
	d, ok = t.End()
	set(&answer.E2ELatencySeconds, d, ok)
	if answer.CompletionTokens != nil && answer.TokenCountSource != result.CountChunks {
		// A count of chunks is no count of tokens: the figure would be off by the tokens in a chunk.
		d, ok = t.TimePerOutputToken(*answer.CompletionTokens)
		set(&answer.TimePerOutputTokenSeconds, d, ok)
	}
	for _, g := range t.Gaps() {
		answer.InterChunkLatenciesSeconds = append(answer.InterChunkLatenciesSeconds, g.Seconds())
	}
	if tokens, ok := t.ChunkTokens(); ok {
		answer.ChunkTokens = tokens
		a.t.seen(FeatureChunkTokens, true)
	}
}

// findAnomalies notes what is odd about an answer that is a success.
func (a *attempt) findAnomalies(answer *Answer) {
	acc, u := a.acc, a.acc.usage
	note := func(odd bool, x result.Anomaly) {
		if odd {
			acc.Anomaly(x)
		}
	}
	note(a.protocol.Rules().WantsDone && !acc.done, result.AnomalyMissingDone)
	note(acc.timeline.Buffered(), result.AnomalyBuffered)
	note(u.Completion < 0, result.AnomalyUsageMissing)
	chunks := len(acc.timeline.Chunks)
	note(u.Completion >= 0 && chunks > 0 && (u.Completion == 0 || u.Completion > a.r.MaxTokens+tokenSlack || u.Completion < textChunks(&acc.timeline)), result.AnomalyUsageInconsistent)
	note(u.Cached > u.Prompt && u.Prompt >= 0, result.AnomalyUsageInconsistent)
	note(acc.model != "" && a.facts.Model != "" && !strings.HasPrefix(acc.model, a.facts.Model), result.AnomalyModelMismatch)
	note(!validText(answer.Text) || !validText(answer.Reasoning), result.AnomalyInvalidUTF8)
}

// textChunks counts the chunks that bear text: each holds at least one token. Pieces of tool calls need not.
func textChunks(t *measure.Timeline) int {
	n := 0
	for _, c := range t.Chunks {
		if c.Kind&(measure.Content|measure.Reasoning) != 0 {
			n++
		}
	}
	return n
}

func validText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, utf8.RuneError) }
