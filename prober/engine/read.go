package engine

import (
	"bytes"
	"compress/gzip"
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

// arrivals sums up whose clock the arrival times came from, and how late they were read.
type arrivals struct {
	kernel bool
	any    bool
	lag    time.Duration
}

func newArrivals() arrivals { return arrivals{kernel: true} }

func (c *arrivals) add(a stream.Arrival) {
	c.any = true
	if a.Clock != stream.ClockKernel {
		c.kernel = false
	}
	c.lag = max(c.lag, a.Lag)
}

// read reads the body of a success.
func (x *exchange) read(ctx context.Context, cancel context.CancelCauseFunc, resp *http.Response) {
	body, err := x.decompressed(resp)
	if err != nil {
		x.verdict = judgeError(ctx, err, x.trace.seen())
		return
	}
	if body == nil {
		x.verdict = verdict{result.ReasonNotAStream, fmt.Sprintf("the answer has Content-Encoding %q although identity was asked for: something in front of the server compresses streams", resp.Header.Get("Content-Encoding"))}
		return
	}
	head, headErr := peek(body)
	if !fits(x.protocol.Format(), stream.Sniff(resp.Header.Get("Content-Type"), head)) {
		if headErr != nil && !errors.Is(headErr, io.EOF) {
			x.verdict = judgeError(ctx, headErr, x.trace.seen())
			return
		}
		rest, _ := io.ReadAll(io.LimitReader(body, maxErrorBody))
		r := newReply(resp.StatusCode, resp.Header, append(head, rest...))
		x.verdict = r.judgePage(acceptOf(x.protocol))
		return
	}
	dec := x.decoder(io.MultiReader(bytes.NewReader(head), body))
	err = x.events(dec)
	if x.acc.done {
		drain(body, cancel)
	}
	if dec.Truncated() && err != nil && isEOF(err) {
		x.anomalies |= unterminated
	}
	x.judge(ctx, err)
}

// decompressed returns the body, or nil if it is compressed in a way that is not known.
func (x *exchange) decompressed(resp *http.Response) (io.Reader, error) {
	switch coding := strings.ToLower(strings.TrimSpace(resp.Header.Get("Content-Encoding"))); coding {
	case "", "identity":
		return resp.Body, nil
	case "gzip", "x-gzip":
		x.anomalies |= compressed
		r, err := gzip.NewReader(resp.Body)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		return r, nil
	}
	x.anomalies |= compressed
	return nil, nil
}

// peek reads as much of a body as tells what it is, which is the least that comes in one read as a rule.
func peek(r io.Reader) ([]byte, error) {
	head := make([]byte, 0, 512)
	for {
		n, err := r.Read(head[len(head):cap(head)])
		head = head[:len(head)+n]
		if err != nil || len(head) >= 16 || stream.Sniff("", head) != stream.FormatUndecided {
			return head, err
		}
	}
}

// fits reports whether a body of that format can be read as the expected one.
func fits(want, is stream.Format) bool {
	if want == stream.FormatNDJSON {
		return is == stream.FormatNDJSON || is == stream.FormatJSON
	}
	return is == want
}

func acceptOf(p Protocol) string {
	if p.Format() == stream.FormatNDJSON {
		return "application/x-ndjson"
	}
	return "text/event-stream"
}

func (x *exchange) decoder(r io.Reader) *stream.Decoder {
	var options stream.Options
	if conn := x.trace.seen().stamped; conn != nil {
		options.Arrival = conn.LastArrival
	}
	if x.protocol.Format() == stream.FormatNDJSON {
		return stream.NewNDJSON(r, options)
	}
	return stream.NewSSE(r, options)
}

// events reads the stream to its end, or to where it makes no sense to go on. It returns the error that ended it.
func (x *exchange) events(dec *stream.Decoder) error {
	parser, first := x.protocol.Parser(), true
	for {
		ev, err := dec.Next()
		if err != nil {
			return x.ended(parser, err)
		}
		x.arrivals.add(stream.Arrival{At: ev.At, Lag: ev.Lag, Clock: ev.Clock})
		at := ev.At.Sub(x.start)
		x.dog.alive(at)
		if ev.Nonstandard {
			x.anomalies |= nonstandardFraming
		}
		if ev.Unterminated {
			x.anomalies |= unterminated
		}
		if err := x.event(parser, ev, at); err != nil {
			return err
		}
		if first && x.acc.HasOutput() {
			first = false
			x.dog.output(at)
		}
		if x.acc.done || x.acc.failed || x.acc.tooLarge {
			return nil
		}
	}
}

// event reads one event.
func (x *exchange) event(parser Parser, ev stream.Event, at time.Duration) error {
	switch {
	case ev.Kind == stream.Comment:
		return nil
	case ev.Kind == stream.Done:
		x.acc.Done()
		return nil
	case len(ev.Data) == 0: // an event that names itself an error and says no more
		x.acc.Fail("an error event without data")
		return nil
	}
	x.acc.begin(at)
	err := parser.Event(ev, x.acc)
	x.acc.commit()
	return err
}

// ender is a parser of a protocol whose streams just end.
type ender interface {
	// End is called when the stream ended without an error.
	End(a *Accumulator)
}

func (x *exchange) ended(parser Parser, err error) error {
	if e, ok := parser.(ender); ok && errors.Is(err, io.EOF) {
		e.End(x.acc)
	}
	return err
}

// The bounds of what is read behind a complete answer, so that its connection can be kept and the server sees no
// client that leaves.
const (
	drainTime  = 100 * time.Millisecond
	drainBytes = 64 << 10
)

var errDrained = errors.New("the rest of a complete answer took too long")

func drain(body io.Reader, cancel context.CancelCauseFunc) {
	timer := time.AfterFunc(drainTime, func() { cancel(errDrained) })
	defer timer.Stop()
	_, _ = io.CopyN(io.Discard, body, drainBytes)
}
