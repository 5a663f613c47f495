package stream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// flat is an event without its arrival, for comparison.
type flat struct {
	kind         Kind
	name, data   string
	unterminated bool
	nonstandard  bool
}

func collect(d *Decoder) ([]flat, error) {
	var out []flat
	for {
		ev, err := d.Next()
		if err != nil {
			return out, err
		}
		out = append(out, flat{ev.Kind, string(ev.Name), string(ev.Data), ev.Unterminated, ev.Nonstandard})
	}
}

func msg(data string) flat { return flat{kind: Message, data: data} }

var sseCases = []struct {
	name, in string
	want     []flat
	dropped  bool
}{
	{name: "empty", in: ""},
	{name: "LF", in: "data: {\"a\":1}\n\ndata: [DONE]\n\n", want: []flat{msg(`{"a":1}`), {kind: Done, data: "[DONE]"}}},
	{name: "CRLF", in: "data: a\r\n\r\ndata: b\r\n\r\n", want: []flat{msg("a"), msg("b")}},
	{name: "lone CR", in: "data: a\r\rdata: b\r\r", want: []flat{msg("a"), msg("b")}},
	{name: "mixed line ends", in: "data: a\r\n\ndata: b\n\r\ndata: c\r\r", want: []flat{msg("a"), msg("b"), msg("c")}},
	{name: "byte order mark", in: "\xef\xbb\xbfdata: a\n\n", want: []flat{msg("a")}},
	{name: "no space after the colon", in: "data:{\"a\":1}\n\n", want: []flat{msg(`{"a":1}`)}},
	{name: "only one space is taken", in: "data:  a \n\n", want: []flat{msg(" a ")}},
	{name: "comment dispatches nothing", in: ": ping\n\ndata: a\n\n", want: []flat{{kind: Comment, data: " ping"}, msg("a")}},
	{name: "empty comment", in: ":\n\ndata: a\n\n", want: []flat{{kind: Comment}, msg("a")}},
	{name: "comment inside an event", in: "data: a\n: ping\ndata: b\n\n", want: []flat{{kind: Comment, data: " ping"}, msg("a\nb")}},
	{name: "comment wrapped into data", in: "data: : keep-alive\n\n", want: []flat{{kind: Comment, data: ": keep-alive", nonstandard: true}}},
	{name: "data lines are joined", in: "data: {\"a\":\ndata: 1}\n\n", want: []flat{msg("{\"a\":\n1}")}},
	{name: "event name", in: "event: message_start\ndata: {}\n\n", want: []flat{{kind: Message, name: "message_start", data: "{}"}}},
	{name: "the name does not carry over", in: "event: x\ndata: 1\n\ndata: 2\n\n", want: []flat{{kind: Message, name: "x", data: "1"}, msg("2")}},
	{name: "error event without data", in: "event: error\n: upstream worker vanished\n\n", want: []flat{{kind: Comment, data: " upstream worker vanished"}, {kind: Message, name: "error"}}},
	{name: "error event without data at the end", in: "event: error\n: gone\n", want: []flat{{kind: Comment, data: " gone"}, {kind: Message, name: "error", unterminated: true}}},
	{name: "other event without data", in: "event: ping\n\ndata: a\n\n", want: []flat{msg("a")}},
	{name: "done without space", in: "data:[DONE]\n\n", want: []flat{{kind: Done, data: "[DONE]"}}},
	{name: "done with spaces", in: "data:  [DONE] \n\n", want: []flat{{kind: Done, data: " [DONE] "}}},
	{name: "last event unterminated", in: "data: a\n\ndata: {\"b\":2}", want: []flat{msg("a"), {kind: Message, data: `{"b":2}`, unterminated: true}}},
	{name: "last event with one newline", in: "data: {\"b\":2}\n", want: []flat{{kind: Message, data: `{"b":2}`, unterminated: true}}},
	{name: "done unterminated", in: "data: [DONE]", want: []flat{{kind: Done, data: "[DONE]", unterminated: true}}},
	{name: "half an event", in: "data: a\n\ndata: {\"b\":", want: []flat{msg("a")}, dropped: true},
	{name: "bare JSON", in: "data: a\n\n{\"error\":\"x\"}\n\n", want: []flat{msg("a"), {kind: BareJSON, data: `{"error":"x"}`, nonstandard: true}}},
	{name: "bare JSON at the end", in: "{\"error\":\"x\"}", want: []flat{{kind: BareJSON, data: `{"error":"x"}`, nonstandard: true, unterminated: true}}},
	{name: "unknown fields", in: "id: 1\nretry: 5\nfoo: x\nbar\ndata: a\n\n", want: []flat{msg("a")}},
	{name: "empty data", in: "data:\n\ndata\n\ndata: a\n\n", want: []flat{msg("a")}},
	{name: "UTF-8 over reads", in: "data: 日本語 🙂\n\n", want: []flat{msg("日本語 🙂")}},
	{name: "whitespace inside JSON is kept", in: "data: {\"a\": \" x \"}\n\n", want: []flat{msg(`{"a": " x "}`)}},
	{name: "many blank lines", in: "\n\n\ndata: a\n\n\n\n", want: []flat{msg("a")}},
	{name: "long line", in: "data: " + strings.Repeat("x", 200_000) + "\n\n", want: []flat{msg(strings.Repeat("x", 200_000))}},
}

func checkSSE(t *testing.T, r io.Reader, want []flat, dropped bool) {
	t.Helper()
	d := NewSSE(r, Options{})
	got, err := collect(d)
	if !errors.Is(err, io.EOF) {
		t.Fatalf("ended with %v", err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("got  %.300s\nwant %.300s", fmt.Sprint(got), fmt.Sprint(want))
	}
	if d.Dropped() != dropped {
		t.Fatalf("dropped %v, want %v", d.Dropped(), dropped)
	}
}

// Each stream means the same however the network cuts it into reads.
func TestSSE(t *testing.T) {
	for _, tt := range sseCases {
		t.Run(tt.name, func(t *testing.T) {
			checkSSE(t, strings.NewReader(tt.in), tt.want, tt.dropped)
			checkSSE(t, iotest.DataErrReader(strings.NewReader(tt.in)), tt.want, tt.dropped)
			checkSSE(t, iotest.HalfReader(strings.NewReader(tt.in)), tt.want, tt.dropped)
			if len(tt.in) > 1000 {
				return
			}
			checkSSE(t, iotest.OneByteReader(strings.NewReader(tt.in)), tt.want, tt.dropped)
			for i := range len(tt.in) {
				checkSSE(t, io.MultiReader(strings.NewReader(tt.in[:i]), strings.NewReader(tt.in[i:])), tt.want, tt.dropped)
			}
		})
	}
}

func TestNDJSON(t *testing.T) {
	tests := []struct {
		name, in string
		want     []flat
		dropped  bool
	}{
		{name: "LF", in: "{\"a\":1}\n{\"b\":2}\n", want: []flat{msg(`{"a":1}`), msg(`{"b":2}`)}},
		{name: "CRLF", in: "{\"a\":1}\r\n\r\n{\"b\":2}\r\n", want: []flat{msg(`{"a":1}`), msg(`{"b":2}`)}},
		{name: "no newline at the end", in: "{\"a\":1}\n{\"b\":2}", want: []flat{msg(`{"a":1}`), {kind: Message, data: `{"b":2}`, unterminated: true}}},
		{name: "half a line", in: "{\"a\":1}\n{\"b\":", want: []flat{msg(`{"a":1}`)}, dropped: true},
		{name: "byte order mark", in: "\xef\xbb\xbf{\"a\":1}\n", want: []flat{msg(`{"a":1}`)}},
	}
	for _, tt := range tests {
		for i := range len(tt.in) {
			d := NewNDJSON(io.MultiReader(strings.NewReader(tt.in[:i]), strings.NewReader(tt.in[i:])), Options{})
			got, err := collect(d)
			if !errors.Is(err, io.EOF) || fmt.Sprint(got) != fmt.Sprint(tt.want) || d.Dropped() != tt.dropped {
				t.Fatalf("%s, cut at %d: %v, %v, dropped %v", tt.name, i, got, err, d.Dropped())
			}
		}
	}
}

// script gives one read per entry and says when each arrived.
type script struct {
	reads []string
	n     int
}

func (s *script) Read(p []byte) (int, error) {
	if s.n == len(s.reads) {
		return 0, io.EOF
	}
	n := copy(p, s.reads[s.n])
	s.n++
	return n, nil
}

func (s *script) arrival() Arrival {
	return Arrival{At: time.Unix(int64(s.n), 0), Clock: ClockKernel}
}

// An event arrived when its last data byte did, however late the blank line after it comes; events of one read
// share its arrival.
func TestArrival(t *testing.T) {
	tests := []struct {
		name  string
		reads []string
		want  []int64
	}{
		{"whole events", []string{"data: a\n\n", "data: b\n\n"}, []int64{1, 2}},
		{"two in one read", []string{"data: a\n\ndata: b\n\n"}, []int64{1, 1}},
		{"blank line with the next event", []string{"data: a\n", "\ndata: b\n\n"}, []int64{1, 2}},
		{"line end with the next event", []string{"data: a", "\n\ndata: b\n\n"}, []int64{1, 2}},
		{"CRLF cut", []string{"data: a\r", "\n\r\n"}, []int64{1}},
		{"event over three reads", []string{"da", "ta: a", "b\n\n"}, []int64{3}},
		{"tail of one read", []string{"data: a\n\ndata: b", "c\n\ndata: d\n\n"}, []int64{1, 2, 2}},
		{"unterminated", []string{"data: 1\n\n", "data: 2", ""}, []int64{1, 2}},
		{"comments have their own", []string{": x\n", "data: a\n\n"}, []int64{1, 2}},
	}
	for _, tt := range tests {
		s := &script{reads: tt.reads}
		d := NewSSE(s, Options{Arrival: s.arrival})
		var got []int64
		for {
			ev, err := d.Next()
			if err != nil {
				break
			}
			got = append(got, ev.At.Unix())
		}
		if fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// An event is returned as soon as it is complete: nothing waits for a read that may never come.
func TestEventIsNotHeldBack(t *testing.T) {
	for _, end := range []string{"\n\n", "\r\n\r\n", "\r\r", "\r\n\r"} {
		r, w := io.Pipe()
		d := NewSSE(r, Options{})
		got := make(chan string, 1)
		go func() {
			ev, err := d.Next()
			got <- fmt.Sprint(string(ev.Data), err)
			w.Close()
		}()
		_, _ = w.Write([]byte("data: a" + end))
		if g := <-got; g != "a<nil>" {
			t.Errorf("%q: %s", end, g)
		}
	}
}

func TestLimits(t *testing.T) {
	endless := func(s string) io.Reader { return &repeat{s: s} }
	tests := []struct {
		name string
		in   io.Reader
		want error
	}{
		{"endless line", endless("x"), ErrEventTooLarge},
		{"endless event", endless("data: x\n"), ErrEventTooLarge},
		{"endless body", endless("data: x\n\n"), ErrBodyTooLarge},
		{"endless comments", endless(": x\n"), ErrBodyTooLarge},
		{"a reader that returns nothing", iotest.ErrReader(nil), io.ErrNoProgress},
	}
	for _, tt := range tests {
		for _, format := range []func(io.Reader, Options) *Decoder{NewSSE, NewNDJSON} {
			d := format(tt.in, Options{MaxEventBytes: 10_000, MaxBodyBytes: 1 << 20})
			_, err := collect(d)
			if _, again := d.Next(); !errors.Is(again, err) {
				t.Errorf("%s: first %v, then %v", tt.name, err, again)
			}
			if len(d.buf) > 20_000 || cap(d.data) > 40_000 {
				t.Errorf("%s: %d and %d bytes held", tt.name, len(d.buf), cap(d.data))
			}
			if strings.Contains(tt.name, "event") || strings.Contains(tt.name, "comments") {
				continue // lines of NDJSON
			}
			if !errors.Is(err, tt.want) && !errors.Is(err, ErrBodyTooLarge) {
				t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
			}
		}
	}
}

type repeat struct{ s string }

func (r *repeat) Read(p []byte) (int, error) {
	n := 0
	for n+len(r.s) <= len(p) {
		n += copy(p[n:], r.s)
	}
	if n == 0 {
		n = copy(p, r.s)
	}
	return n, nil
}

// A read error does not swallow what was complete before it.
func TestReadError(t *testing.T) {
	boom := errors.New("boom")
	d := NewSSE(io.MultiReader(strings.NewReader("data: a\n\ndata: {\"x"), iotest.ErrReader(boom)), Options{})
	got, err := collect(d)
	if !errors.Is(err, boom) || len(got) != 1 || !d.Dropped() {
		t.Fatalf("%v, %v, dropped %v", got, err, d.Dropped())
	}
}

func TestNoAllocationPerEvent(t *testing.T) {
	d := NewSSE(&repeat{s: chunk}, Options{MaxBodyBytes: 1 << 40})
	for range 1000 {
		if _, err := d.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(1000, func() { _, _ = d.Next() }); n != 0 {
		t.Fatalf("%v allocations per event", n)
	}
}

const chunk = `data: {"id":"chatcmpl-9a","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" two"},"logprobs":null,"finish_reason":null}]}` + "\n\n"

func TestSniff(t *testing.T) {
	tests := []struct {
		contentType, head string
		want              Format
	}{
		{"text/event-stream; charset=utf-8", "", FormatSSE},
		{"text/plain", "data: {}", FormatSSE},
		{"", ": ping\n", FormatSSE},
		{"text/event-stream", "<!DOCTYPE html>", FormatHTML},
		{"text/html", "\n<html>", FormatHTML},
		{"text/html", "", FormatHTML},
		{"application/x-ndjson", `{"a":1}`, FormatNDJSON},
		{"application/json", `{"error":{}}`, FormatJSON},
		{"application/problem+json", ``, FormatJSON},
		{"text/event-stream", `{"error":"x"}`, FormatSSE}, // a bare error in a stream
		{"application/octet-stream", "\x00", FormatUnknown},
		{"bad;;;", "", FormatUnknown},
	}
	for _, tt := range tests {
		if got := Sniff(tt.contentType, []byte(tt.head)); got != tt.want {
			t.Errorf("%q %q: %v, want %v", tt.contentType, tt.head, got, tt.want)
		}
	}
}

// Fuzzing looks for panics, and for streams that mean something else when they are cut differently.
func FuzzSSE(f *testing.F) {
	for _, c := range sseCases {
		if len(c.in) < 1000 {
			f.Add([]byte(c.in))
		}
	}
	f.Fuzz(func(t *testing.T, in []byte) { splitInvariant(t, NewSSE, in) })
}

func FuzzNDJSON(f *testing.F) {
	f.Add([]byte("{\"a\":1}\r\n\n{"))
	f.Fuzz(func(t *testing.T, in []byte) { splitInvariant(t, NewNDJSON, in) })
}

func splitInvariant(t *testing.T, decoder func(io.Reader, Options) *Decoder, in []byte) {
	whole, err1 := collect(decoder(bytes.NewReader(in), Options{MaxEventBytes: 1 << 20}))
	single, err2 := collect(decoder(iotest.OneByteReader(bytes.NewReader(in)), Options{MaxEventBytes: 1 << 20}))
	if fmt.Sprint(whole) != fmt.Sprint(single) || !errors.Is(err1, err2) {
		t.Fatalf("whole  %+v %v\nsingle %+v %v", whole, err1, single, err2)
	}
	total := 0
	for _, ev := range whole {
		total += len(ev.data)
	}
	if total > len(in) {
		t.Fatalf("%d bytes of data out of %d", total, len(in))
	}
}

func BenchmarkSSE(b *testing.B) {
	d := NewSSE(&repeat{s: chunk}, Options{MaxBodyBytes: 1 << 62})
	b.ReportAllocs()
	b.SetBytes(int64(len(chunk)))
	for b.Loop() {
		if _, err := d.Next(); err != nil {
			b.Fatal(err)
		}
	}
}
