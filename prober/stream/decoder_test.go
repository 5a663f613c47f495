package stream

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestStats(t *testing.T) {
	body := ": ping\n\ndata: a\n\nfoo: 1\nevent: ping\n\n{}\n\ndata: [DONE]\n\n"
	d := NewSSE(&pieces{parts: []string{body[:20], body[20:]}}, Options{})
	drain(d)
	want := Stats{Messages: 2, Comments: 2, IgnoredLines: 1, Bytes: int64(len(body)), Reads: 2}
	if got := d.Stats(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestUserClockOfDecoder(t *testing.T) {
	for name, arrival := range map[string]func() Arrival{"none": nil, "nothing read yet": func() Arrival { return Arrival{} }} {
		before := time.Now()
		ev, err := NewSSE(strings.NewReader("data: a\n\n"), Options{Arrival: arrival}).Next()
		if err != nil || ev.Clock != ClockUser || ev.Lag != 0 || ev.At.Before(before) || ev.At.After(time.Now()) {
			t.Errorf("%s: %+v, %v", name, ev, err)
		}
	}
}

// A body of carriage returns must not be searched for a line feed once a line.
func TestManyCarriageReturns(t *testing.T) {
	body := strings.Repeat("\r", 4<<20)
	start := time.Now()
	o := drain(NewSSE(&wholeReader{body}, Options{}))
	if len(o.events) != 0 || !isPlainEOF(o.err) {
		t.Errorf("got %s", o)
	}
	// Quadratic work would be 2^43 bytes looked at: many minutes. This is a bound on kind, not on speed.
	if d := time.Since(start); d > time.Minute {
		t.Errorf("took %v", d)
	}
}

// wholeReader gives as much as the buffer takes.
type wholeReader struct{ s string }

func (w *wholeReader) Read(b []byte) (int, error) {
	if w.s == "" {
		return 0, io.EOF
	}
	n := copy(b, w.s)
	w.s = w.s[n:]
	return n, nil
}

// repeat gives the same bytes again and again.
type repeat struct {
	s string
	n int // reads left; negative: without end
}

func (r *repeat) Read(b []byte) (int, error) {
	if r.n == 0 {
		return 0, io.EOF
	}
	r.n--
	return copy(b, r.s), nil
}

const steadyChunk = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1796079929,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}` + "\n\n"

func TestDecodingAllocatesNothing(t *testing.T) {
	conn := &Conn{last: Arrival{At: time.Now(), Clock: ClockKernel}}
	tests := []struct {
		name string
		make newDecoderFunc
		read string
	}{
		{"SSE", NewSSE, steadyChunk},
		{"SSE, all at once", NewSSE, "event: x\r\n" + strings.Repeat(": ping\n\n"+steadyChunk, 3) + "data: : ping\n\n{}\n\ndata: [DONE]\n\n"},
		{"NDJSON", NewNDJSON, `{"model":"m","message":{"content":" word"},"done":false}` + "\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := tt.make(&repeat{s: tt.read, n: -1}, Options{MaxBodyBytes: 1 << 40, Arrival: conn.LastArrival})
			next := func() {
				if _, err := d.Next(); err != nil {
					t.Fatal(err)
				}
			}
			for range 100 {
				next()
			}
			if allocs := testing.AllocsPerRun(2000, next); allocs != 0 {
				t.Errorf("%v allocations an event, want 0", allocs)
			}
		})
	}
}

// The buffer stays as small as the lines are, however long the stream.
func TestBufferStaysSmall(t *testing.T) {
	d := NewSSE(&repeat{s: steadyChunk[:100], n: 1000}, Options{MaxEventBytes: 16 << 10, MaxBodyBytes: 1 << 30})
	o := drain(d)
	if !errors.Is(o.err, ErrEventTooLarge) {
		t.Errorf("ended with %v, want %v", o.err, ErrEventTooLarge)
	}
	if len(d.buf) > 3*(16<<10) {
		t.Errorf("the buffer has %d bytes for lines of up to 16 KiB", len(d.buf))
	}
}

func TestDecoderSniff(t *testing.T) {
	tests := []struct {
		name        string
		contentType string
		body        string
		want        Format
		err         error
	}{
		{"SSE under the wrong type", "text/plain", "data: {}\n\n", FormatSSE, nil},
		{"blank lines first", "", "\n\ndata: {}\n\n", FormatSSE, nil},
		{"HTML under the right type", "text/event-stream", "<!DOCTYPE html><html>", FormatHTML, nil},
		{"HTML after blank lines", "text/event-stream", "\n\n<html>", FormatHTML, nil},
		{"HTML after a byte order mark", "text/event-stream", "\xef\xbb\xbf<html>", FormatHTML, nil},
		{"JSON under the right type", "text/event-stream", `{"error":1}`, FormatJSON, nil},
		{"NDJSON without a type", "", "{\"a\":1}\n{}\n", FormatNDJSON, nil},
		{"JSON without a type", "", `{"a":1}`, FormatJSON, nil},
		{"SSE under JSON's type", "application/json", "data: {}\n\n", FormatSSE, nil},
		{"empty under the right type", "text/event-stream", "", FormatSSE, io.EOF},
		{"empty", "", "", FormatUndecided, io.EOF},
		{"nothing but a part of a field", "", "dat", FormatUndecided, nil},
		{"nothing but space", "", strings.Repeat(" ", 10_000), FormatUndecided, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := NewSSE(iotest.OneByteReader(strings.NewReader(tt.body)), Options{})
			f, err := d.Sniff(tt.contentType)
			if f != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("got %s, %v, want %s, %v", f, err, tt.want, tt.err)
			}
			b, err := io.ReadAll(d.Rest())
			if string(b) != tt.body || err != nil {
				t.Errorf("the rest is %q, %v, want the whole body", b, err)
			}
		})
	}
}

func TestDecoderSniffConsumesNothing(t *testing.T) {
	clock := &stepClock{}
	d := NewSSE(iotest.OneByteReader(strings.NewReader("data: a\n\ndata: b\n\n")), Options{Arrival: clock.arrival})
	if f, err := d.Sniff(""); f != FormatSSE || err != nil {
		t.Fatal(f, err)
	}
	ev, err := d.Next()
	if err != nil || string(ev.Data) != "a" || readOf(ev.At) != 7 {
		t.Errorf("got %q of read %d, %v", ev.Data, readOf(ev.At), err)
	}
	if rest, err := io.ReadAll(d.Rest()); string(rest) != "data: b\n\n" || err != nil {
		t.Errorf("the rest is %q, %v", rest, err)
	}
}

func TestDecoderSniffFailingRead(t *testing.T) {
	d := NewSSE(&pieces{err: errBroken}, Options{})
	if _, err := d.Sniff(""); !errors.Is(err, errBroken) {
		t.Errorf("got %v, want %v", err, errBroken)
	}
	if _, err := io.ReadAll(d.Rest()); !errors.Is(err, errBroken) {
		t.Errorf("the rest ends with %v, want %v", err, errBroken)
	}
}

func TestSniff(t *testing.T) {
	tests := []struct {
		contentType string
		first       string
		want        Format
	}{
		{"text/event-stream", "data: {}", FormatSSE},
		{"text/event-stream; charset=utf-8", "data:{}", FormatSSE},
		{"TEXT/EVENT-STREAM;", "", FormatSSE},
		{"text/event-stream", ": ping", FormatSSE},
		{"text/event-stream", "oops", FormatSSE},
		{"text/event-stream", `{"error":{}}`, FormatJSON},
		{"text/event-stream", "\n<html>", FormatHTML},
		{"text/plain", "data: {}", FormatSSE},
		{"text/plain", "event: x", FormatSSE},
		{"text/plain", "id:1", FormatSSE},
		{"text/plain", "retry: 5", FormatSSE},
		{"application/json", "data: {}", FormatSSE},
		{"text/html", "data: {}", FormatSSE},
		{"", "\xef\xbb\xbfdata: {}", FormatSSE},
		{"text/plain", "da", FormatUndecided},
		{"application/json", "da", FormatJSON},
		{"text/plain", "database down", FormatOther},
		{"text/plain", "Internal Server Error", FormatOther},
		{"", "", FormatUndecided},
		{"application/x-ndjson", `{"a":`, FormatNDJSON},
		{"application/jsonl", "", FormatNDJSON},
		{"application/json", "{\"a\":1}\n{\"a\":2}\n", FormatJSON},
		{"application/json; charset=utf-8", `{"a":1}`, FormatJSON},
		{"application/problem+json", "", FormatJSON},
		{"text/plain", "{\"a\":1}\n{\"a\"", FormatNDJSON},
		{"text/plain", "{\"a\":1}", FormatJSON},
		{"text/plain", "{\n  \"a\":1\n}", FormatJSON},
		{"", "[1,2]\n", FormatJSON},
		{"text/html; charset=utf-8", "", FormatHTML},
		{"application/json", "<html><title>502 Bad Gateway</title>", FormatHTML},
		{"text/event-stream", "<?xml version", FormatHTML},
		{"garbage;;;", "data: x", FormatSSE},
	}
	for _, tt := range tests {
		if got := Sniff(tt.contentType, []byte(tt.first)); got != tt.want {
			t.Errorf("%q under %q is %s, want %s", tt.first, tt.contentType, got, tt.want)
		}
	}
}

func TestNames(t *testing.T) {
	for k, want := range map[Kind]string{Message: "message", Comment: "comment", BareJSON: "bare_json", Done: "done", 99: "unknown"} {
		if k.String() != want {
			t.Errorf("%d is %q, want %q", k, k, want)
		}
	}
}
