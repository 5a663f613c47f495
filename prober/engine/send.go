package engine

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"time"

	"github.com/go-kit/log/level"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// RequestIDPrefix begins the X-Request-Id of every request, so that a server's log tells canaries from users.
const RequestIDPrefix = "llm-canary-"

// Send sends one request and measures the answer. It never fails otherwise than in the answer.
//
// A request goes out again in two cases, both of which the answer shows: without an optional field that the target
// refuses (field_dropped), and on a fresh connection when a kept one had been closed (retried). The figures are those
// of the last one that went out; the total deadline holds for all of them together.
func (t *Target) Send(ctx context.Context, r Request, timeouts config.Timeouts) Answer {
	began := time.Now()
	var carried anomalies
	for dropped := 0; ; {
		x := t.exchange(r, timeouts)
		x.anomalies |= carried
		if x.prepare() {
			x.run(ctx, time.Duration(timeouts.Timeout)-time.Since(began))
		}
		switch {
		case x.stale && carried&retried == 0:
			t.client.CloseIdleConnections()
			carried |= retried
			continue
		case dropped < maxRefusals && ctx.Err() == nil && x.dropRefused():
			dropped++
			carried |= fieldDropped
			continue
		}
		x.learn()
		return x.answer()
	}
}

// exchange is one request on the wire and its answer.
type exchange struct {
	target   *Target
	request  Request
	timeouts config.Timeouts
	protocol Protocol
	wire     Wire
	body     *Body
	payload  []byte
	path     string

	id, traceID, spanID string
	start               time.Time
	trace               connTrace
	dog                 *watchdog
	acc                 *Accumulator
	arrivals            arrivals

	status     int
	reply      *reply // an answer that is no stream
	outcome    result.Outcome
	verdict    verdict
	stale      bool // a kept connection had been closed before a byte came
	anomalies  anomalies
	askedUsage bool
}

func (t *Target) exchange(r Request, timeouts config.Timeouts) *exchange {
	x := &exchange{
		target: t, request: r, timeouts: timeouts, acc: NewAccumulator(r.MaxTokens), arrivals: newArrivals(),
		wire: Wire{Facts: t.Facts(), APIVersion: t.config.APIVersion}, outcome: result.Failure, start: time.Now(),
	}
	id := randomBytes(24)
	x.traceID, x.spanID = hex.EncodeToString(id[:16]), hex.EncodeToString(id[16:])
	x.id = RequestIDPrefix + x.traceID[:16]
	return x
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	return b
}

// prepare writes the request, before its time begins. It returns false when that cannot be done.
func (x *exchange) prepare() bool {
	protocol, ok := LookupProtocol(x.wire.Protocol)
	switch {
	case !ok:
		x.verdict = verdict{result.ReasonInternal, fmt.Sprintf("protocol %q is unknown", x.wire.Protocol)}
		return false
	case x.request.MaxTokens <= 0:
		x.verdict = verdict{result.ReasonInternal, "a request without an output limit is never sent"}
		return false
	}
	x.protocol, x.path = protocol, protocol.Path(x.wire)
	x.body = newBody(x.target.refusedFields())
	err := protocol.Encode(x.request, x.wire, x.body)
	var unsupported *UnsupportedError
	if errors.As(err, &unsupported) {
		x.outcome, x.verdict = result.Unsupported, verdict{result.ReasonNone, unsupported.Error()}
		return false
	}
	if err == nil {
		x.payload, err = x.body.encode()
	}
	if err != nil {
		x.verdict = verdict{result.ReasonInternal, err.Error()}
		return false
	}
	x.askedUsage = x.body.usage
	return true
}

// run sends the request and reads the answer. left is what remains of the total deadline.
func (x *exchange) run(parent context.Context, left time.Duration) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	req, err := x.newRequest(ctx)
	if err != nil {
		x.verdict = verdict{result.ReasonInternal, err.Error()}
		return
	}
	// The hooks may be called as soon as the request is under way: the watchdog comes first.
	x.start = time.Now()
	x.dog = newWatchdog(cancel, x.start, x.timeouts, left)
	defer x.dog.stop()
	x.trace.onConn = x.dog.connected

	resp, err := x.target.client.Do(req)
	if err != nil {
		s := x.trace.seen()
		x.stale = s.reused && !s.byte && context.Cause(ctx) == nil && (isEOF(err) || isReset(err, s))
		x.verdict = judgeError(ctx, err, s)
		return
	}
	defer resp.Body.Close()
	if s := x.trace.seen(); x.target.config.HTTPClient.OAuth2 != nil && !s.issued.IsZero() {
		// A token that had to be fetched first is none of the server's time. No output came yet, so nobody else has
		// looked at the start.
		x.start, x.dog.start = s.issued, s.issued
	}
	x.status = resp.StatusCode
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		x.refused(resp)
		return
	}
	x.read(ctx, cancel, resp)
}

func (x *exchange) newRequest(ctx context.Context) (*http.Request, error) {
	ctx = httptrace.WithClientTrace(ctx, x.trace.hooks())
	// The reader is hidden: with a known one net/http would make GetBody, and then send again by itself.
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.target.base+x.path, io.NopCloser(bytes.NewReader(x.payload)))
	if err != nil {
		return nil, err
	}
	req.ContentLength = int64(len(x.payload))
	if x.target.config.HTTPClient.FollowRedirects {
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(x.payload)), nil }
	}
	x.target.addHeaders(req.Header)
	for name, values := range x.body.Header {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", acceptOf(x.protocol))
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("X-Request-Id", x.id)
	req.Header.Set("Traceparent", "00-"+x.traceID+"-"+x.spanID+"-01")
	return req, nil
}

// refused takes an answer whose status is no success.
func (x *exchange) refused(resp *http.Response) {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // what came of it says enough
	r := newReply(resp.StatusCode, resp.Header, body)
	x.reply = &r
	x.verdict = r.judge(x.wire, x.path)
}

// dropRefused remembers an optional field that the target refused, and reports whether to send again.
func (x *exchange) dropRefused() bool {
	if x.reply == nil || x.outcome != result.Failure {
		return false
	}
	field := x.reply.refusedField(x.body.candidates())
	if field == "" {
		return x.tryCompletions()
	}
	why := x.redactor().clean(x.reply.message())
	x.target.refuse(field, why)
	_ = level.Info(x.target.logger).Log("msg", "the target refuses an optional field, which is left out from now on",
		"target", x.target.config.Name, "field", field, "said", why)
	return true
}

// tryCompletions turns to /v1/completions when a model has no chat template and the config leaves the choice to us.
func (x *exchange) tryCompletions() bool {
	if x.wire.Protocol != "openai_chat" || notAuto(x.target.config.Protocol) != "" || len(x.request.Tools) > 0 ||
		!strings.Contains(strings.ToLower(x.reply.message()), "chat template") {
		return false
	}
	x.target.mu.Lock()
	x.target.facts.Protocol = "openai_completions"
	x.target.memory.notes["protocol"] = "openai_completions: the model has no chat template"
	x.target.mu.Unlock()
	return true
}

// learn remembers what the answer taught about the target, and turns a refusal of an ability into "unsupported".
func (x *exchange) learn() {
	if x.reply != nil && x.outcome == result.Failure {
		x.target.learnLimit(x.reply.contextLimit())
		if a, yes := x.reply.cannot(x.request); yes {
			said := x.redactor().clean(x.reply.message())
			x.target.notice(a.feature, false, said)
			x.outcome, x.verdict = result.Unsupported, verdict{result.ReasonNone, fmt.Sprintf("the target does not take %s: %s", a.what, said)}
		}
		return
	}
	if x.outcome != result.Success {
		return
	}
	if x.acc.usage.Cached >= 0 || x.acc.told.Cached >= 0 {
		x.target.notice(FeatureCachedTokens, true, "usage told them")
	}
	if x.acc.line.Exact() {
		x.target.notice(FeatureChunkTokens, true, "each chunk told its tokens")
	}
	for _, a := range abilities() {
		if a.asked(x.request) {
			x.target.notice(a.feature, true, "a request with "+a.what+" was taken")
		}
	}
}

func (x *exchange) redactor() redactor { return redactorOf(x.request, x.trace.seen().secrets) }
