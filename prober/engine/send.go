package engine

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/go-kit/log/level"
	"github.com/valyala/fastjson"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// Send sends one request and measures its answer. It does not fail: what went wrong is in the answer. A request
// whose optional field is refused is sent again without it; the answer is that of the last one sent, with the
// anomaly field_dropped.
func (t *Target) Send(ctx context.Context, r Request, timeouts config.Timeouts) Answer {
	f := t.Facts()
	protocol, err := LookupProtocol(f.Protocol)
	if err != nil {
		return failedAnswer(r, time.Now(), failf(result.ReasonInternal, "%v", err))
	}
	var odd []result.Anomaly
	for dropped, retried := 0, false; ; {
		refused := t.refused()
		body, header, err := protocol.Encode(r, f, refused)
		if err != nil {
			return failedAnswer(r, time.Now(), failf(result.ReasonInternal, "cannot write the request: %v", err))
		}
		a := t.newAttempt(ctx, r, f, protocol, timeouts)
		answer := a.run(body, header)
		answer.Anomalies = append(odd, answer.Anomalies...)
		field, is := refusedField(answer.HTTPStatus, a.errorBody, body, refused)
		switch {
		case is && dropped < maxRefusals:
			dropped++
			t.refuse(field)
			level.Info(t.logger).Log("msg", "the target does not take an optional field: it is left out from now on", "field", field)
			if dropped == 1 {
				odd = append(odd, result.AnomalyFieldDropped)
			}
		case a.stale && !retried:
			retried = true
			odd = append(odd, result.AnomalyRetried)
		default:
			return answer
		}
	}
}

func failedAnswer(r Request, start time.Time, f *failure) Answer {
	return Answer{Request: result.Request{
		Variant: r.Variant, StartTime: start, Outcome: result.Failure, Reason: f.reason, Detail: f.detail,
	}}
}

// attempt is one request on the wire.
type attempt struct {
	t        *Target
	r        Request
	facts    Facts
	protocol Protocol
	timeouts config.Timeouts

	ctx    context.Context
	cancel context.CancelCauseFunc
	trace  requestTrace
	acc    *Accumulator

	firstToken, stall *time.Timer
	stalled           *failure

	errorBody []byte
	stale     bool
	whole     bool // the stream ended by itself, by [DONE] or by its last event
	dropped   bool // it ended inside an event
}

func (t *Target) newAttempt(ctx context.Context, r Request, f Facts, p Protocol, timeouts config.Timeouts) *attempt {
	a := &attempt{t: t, r: r, facts: f, protocol: p, timeouts: timeouts}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	a.stalled = failf(result.ReasonTimeoutStall, "no more output for %s", timeouts.StallTimeout)
	return a
}

// run sends the request and reads the answer to its end.
func (a *attempt) run(body []byte, header http.Header) Answer {
	defer a.cancel(nil)
	id, traceID, parent := newIDs()
	start := time.Now()
	a.acc = newAccumulator(start, 2*a.r.MaxTokens)
	answer := Answer{Request: result.Request{Variant: a.r.Variant, ID: id, StartTime: start, TraceID: traceID}}
	failed := a.exchange(body, header, &answer, id, parent)
	a.report(&answer, failed)
	return answer
}

// exchange does the I/O. It returns what failed, or nil.
func (a *attempt) exchange(body []byte, header http.Header, answer *Answer, id, parent string) *failure {
	connect := a.deadline(time.Duration(a.timeouts.ConnectTimeout), result.ReasonTimeoutConnect, "the connection did not stand after %s")
	total := a.deadline(time.Duration(a.timeouts.Timeout), result.ReasonTimeoutTotal, "the answer was not complete after %s")
	a.firstToken = a.deadline(time.Duration(a.timeouts.FirstTokenTimeout), result.ReasonTimeoutFirstToken, "no output after %s")
	defer stop(connect, total, a.firstToken)
	a.trace.onReady, a.trace.find = func() { stop(connect) }, a.t.conns.find

	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(a.ctx, a.trace.hooks()), http.MethodPost, a.t.url(a.protocol.Path(a.facts)), bytes.NewReader(body))
	if err != nil {
		return failf(result.ReasonInternal, "cannot make the request: %v", redact(err))
	}
	req.GetBody = nil // without it the transport sends nothing twice by itself
	a.t.setCommon(req.Header)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream, application/x-ndjson, application/json")
	req.Header.Set("X-Request-Id", id)
	req.Header.Set("Traceparent", parent)
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := a.t.client.Do(req)
	if err != nil {
		f := classify(a.ctx, err, a.trace.progress(false))
		a.stale = f.reason == result.ReasonConnectionReset && a.trace.stale()
		return f
	}
	defer resp.Body.Close()
	answer.HTTPStatus = resp.StatusCode
	if resp.StatusCode != http.StatusOK {
		return a.errorAnswer(resp, answer)
	}
	return a.readStream(resp)
}

// deadline ends the request after d with a reason of its own; no d, no deadline.
func (a *attempt) deadline(d time.Duration, reason result.Reason, format string) *time.Timer {
	if d <= 0 {
		return nil
	}
	return time.AfterFunc(d, func() { a.cancel(failf(reason, format, d)) })
}

func stop(timers ...*time.Timer) {
	for _, t := range timers {
		if t != nil {
			t.Stop()
		}
	}
}

// errorAnswer reads an answer that is no 200.
func (a *attempt) errorAnswer(resp *http.Response, answer *Answer) *failure {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil && a.ctx.Err() != nil {
		return classify(a.ctx, err, a.trace.progress(true))
	}
	a.errorBody = body
	a.t.learnLimit(body)
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 {
		answer.RetryAfter = retryAfter(resp.Header, a.t.now())
	}
	return statusFailure(resp.StatusCode, resp.Header, body)
}

// readStream finds out what the body is and reads its events.
func (a *attempt) readStream(resp *http.Response) *failure {
	var body io.Reader = resp.Body
	switch encoding := resp.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip":
		a.acc.Anomaly(result.AnomalyCompressed)
		z, err := gzip.NewReader(body)
		if err != nil {
			return a.bodyFailure(err)
		}
		body = z
	default:
		return failf(result.ReasonNotAStream, "the answer is compressed (Content-Encoding %s) although that was not asked for", short([]byte(encoding)))
	}
	contentType := resp.Header.Get("Content-Type")
	options := stream.Options{Arrival: a.trace.arrivals()}
	d := stream.NewSSE(body, options)
	format, err := d.Sniff(contentType)
	if err != nil && !errors.Is(err, io.EOF) {
		return a.bodyFailure(err)
	}
	if d.Stats().Bytes == 0 {
		return failf(result.ReasonEmptyOutput, "HTTP 200 with an empty body")
	}
	switch format {
	case stream.FormatSSE:
		return a.readEvents(d)
	case stream.FormatNDJSON:
		return a.readEvents(stream.NewNDJSON(d.Rest(), options))
	case stream.FormatJSON:
		return a.document(d.Rest())
	case stream.FormatHTML:
		return failf(result.ReasonNotAStream, "the answer is an HTML page: a login or error page of something before the server?")
	case stream.FormatUndecided, stream.FormatOther:
	}
	return failf(result.ReasonNotAStream, "the answer is no event stream (Content-Type %q)", short([]byte(contentType)))
}

// document reads a body that is one JSON document: an error with status 200, or an answer that was not streamed.
func (a *attempt) document(body io.Reader) *failure {
	b, err := io.ReadAll(io.LimitReader(body, maxErrorBody))
	if err != nil {
		return a.bodyFailure(err)
	}
	if v, err := fastjson.ParseBytes(b); err == nil && v.Type() == fastjson.TypeObject && v.Exists("error") {
		return failf(result.ReasonStreamError, "an error with status 200: %s", errorMessage(v))
	}
	return failf(result.ReasonNotAStream, "the answer came as one JSON document, not as a stream: does something between drop stream:true?")
}

// readEvents reads the events of a stream until it ends, fails or goes over its limits.
func (a *attempt) readEvents(d *stream.Decoder) *failure {
	parser, json := a.protocol.Parser(), fastjson.Parser{}
	defer func() {
		stop(a.stall)
		a.dropped = d.Truncated()
	}()
	for {
		ev, err := d.Next()
		if err != nil {
			return a.streamEnd(err)
		}
		if a.stall != nil {
			a.stall.Reset(time.Duration(a.timeouts.StallTimeout))
		}
		if ev.Nonstandard {
			a.acc.Anomaly(result.AnomalyNonstandardFraming)
		}
		if ev.Unterminated {
			a.acc.Anomaly(result.AnomalyUnterminated)
		}
		switch ev.Kind {
		case stream.Comment:
			continue
		case stream.Done:
			a.acc.done, a.whole = true, true
			return nil
		case stream.Message, stream.BareJSON:
		}
		if f := a.event(ev, parser, &json); f != nil {
			return f
		}
		if a.acc.failed || a.acc.ended {
			a.whole = true
			return nil
		}
	}
}

// event folds one event into the answer.
func (a *attempt) event(ev stream.Event, parser Parser, json *fastjson.Parser) *failure {
	v, err := json.ParseBytes(ev.Data)
	if string(ev.Name) == "error" && (err != nil || v.Type() != fastjson.TypeObject) {
		a.acc.Fail("the server sent an error event: " + short(ev.Data))
		return nil
	}
	if err != nil || v.Type() != fastjson.TypeObject {
		return failf(result.ReasonMalformedStream, "an event is no JSON object: %s", short(clipBytes(ev.Data, 80)))
	}
	a.acc.begin()
	if err := parser.Event(ev, v, a.acc); err != nil {
		return failf(result.ReasonMalformedStream, "%v", err)
	}
	if string(ev.Name) == "error" && !a.acc.failed {
		a.acc.Fail(errorMessage(v))
	}
	if !a.acc.end(ev.At, ev.Lag, ev.Clock) {
		return nil
	}
	if a.stall == nil {
		stop(a.firstToken)
		if d := time.Duration(a.timeouts.StallTimeout); d > 0 {
			a.stall = time.AfterFunc(d, func() { a.cancel(a.stalled) })
		}
	}
	return a.overLimit()
}

const (
	tokenSlack = 16 // some servers count the end token, or overshoot by a speculative step
	chunkSlack = 64
)

// overLimit stops an answer that does not keep to max_tokens: a server that ignores it would never end.
func (a *attempt) overLimit() *failure {
	limit := a.r.MaxTokens
	if (a.acc.told && a.acc.tokens > limit+tokenSlack) || len(a.acc.timeline.Chunks) > 2*limit+chunkSlack {
		a.acc.Anomaly(result.AnomalyLimitIgnored)
		return failf(result.ReasonResponseTooLarge, "more than max_tokens=%d came: the server ignores the limit; the answer was cut off", limit)
	}
	return nil
}

// streamEnd judges the error that the body ended with.
func (a *attempt) streamEnd(err error) *failure {
	if errors.Is(err, io.EOF) {
		a.whole = true
		return nil
	}
	f := a.bodyFailure(err)
	switch f.reason {
	case result.ReasonTimeoutStall, result.ReasonTruncated, result.ReasonConnectionReset:
		// The answer is complete: the server only did not end the stream as it should.
		if a.acc.finish != "" {
			return nil
		}
	}
	if f.reason == result.ReasonConnectionReset {
		return failf(result.ReasonConnectionReset, "the connection was reset in the middle of the answer")
	}
	return f
}

func (a *attempt) bodyFailure(err error) *failure {
	return classify(a.ctx, err, a.trace.progress(true))
}

func clipBytes(b []byte, n int) []byte { return b[:min(len(b), n)] }
