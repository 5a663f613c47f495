package stream

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func msg(data string) got { return got{Kind: Message, Data: data} }

func TestSSEFraming(t *testing.T) {
	big := `{"arguments":"` + strings.Repeat("x", 300<<10) + `"}`
	tests := []struct {
		name string
		body string
		want []got
		cut  bool
	}{
		// The rules of the specification.
		{"empty body", "", nil, false},
		{"LF", "data: a\n\ndata: b\n\n", []got{msg("a"), msg("b")}, false},
		{"CRLF (26)", "data: a\r\n\r\ndata: b\r\n\r\n", []got{msg("a"), msg("b")}, false},
		{"lone CR (26)", "data: a\r\rdata: b\r\r", []got{msg("a"), msg("b")}, false},
		{"mixed line ends", "data: a\r\ndata: b\n\rdata: c\r\n\n", []got{msg("a\nb"), msg("c")}, false},
		{"byte order mark", "\xef\xbb\xbfdata: a\n\n", []got{msg("a")}, false},
		{"only one byte order mark", "\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n", []got{msg("b")}, false},
		{"no space after the colon (5)", "data:{\"a\":1}\n\n", []got{msg(`{"a":1}`)}, false},
		{"only one space is dropped", "data:   a \n\n", []got{msg("  a ")}, false},
		{"a tab is not a space", "data:\ta\n\n", []got{msg("\ta")}, false},
		{"data lines are joined", "data: a\ndata:\ndata: b\n\n", []got{msg("a\n\nb")}, false},
		{"event name before and after data", "event: x\ndata: 1\n\ndata: 2\nevent: y\n\n", []got{{Kind: Message, Name: "x", Data: "1"}, {Kind: Message, Name: "y", Data: "2"}}, false},
		{"the name does not last", "event: x\ndata: 1\n\ndata: 2\n\n", []got{{Kind: Message, Name: "x", Data: "1"}, msg("2")}, false},
		{"the last name counts", "event: x\nevent: y\ndata: 1\n\n", []got{{Kind: Message, Name: "y", Data: "1"}}, false},
		{"id and retry are skipped", "id: 7\nretry: 10\ndata: a\n\nid: 8\n\n", []got{msg("a")}, false},
		{"blank lines", "\n\n\ndata: a\n\n\n\n", []got{msg("a")}, false},
		{"a colon in the data", "data: a: b\n\n", []got{msg("a: b")}, false},
		{"unknown fields", "foo: 1\nbar\ndata: a\n\n", []got{msg("a")}, false},
		{"field names are case-sensitive", "Data: a\n\n", nil, false},

		// What LLM servers do.
		{"comment only (2)", ": OPENROUTER PROCESSING\n\ndata: a\n\n", []got{{Kind: Comment, Data: "OPENROUTER PROCESSING"}, msg("a")}, false},
		{"llama.cpp ping", ":\n\ndata: a\n\n", []got{{Kind: Comment}, msg("a")}, false},
		{"comment inside an event", "data: a\n: c\ndata: b\n\n", []got{{Kind: Comment, Data: "c"}, msg("a\nb")}, false},
		{"comment wrapped into data (4)", "data: : keep-alive\n\ndata: a\n\n", []got{{Kind: Comment, Data: ": keep-alive", Nonstandard: true}, msg("a")}, false},
		{"empty data", "data:\n\ndata: \n\n", []got{{Kind: Comment, Nonstandard: true}, {Kind: Comment, Nonstandard: true}}, false},
		{"name without data", "event: ping\n\n", []got{{Kind: Comment, Name: "ping", Nonstandard: true}}, false},
		{"done", "data: {}\n\ndata: [DONE]\n\n", []got{msg("{}"), {Kind: Done, Data: "[DONE]"}}, false},
		{"done without space", "data:[DONE]\n\n", []got{{Kind: Done, Data: "[DONE]"}}, false},
		{"done, padded (7)", "event: x\ndata:  [DONE] \n\n", []got{{Kind: Done, Name: "x", Data: " [DONE] "}}, false},
		{"done without field", "data: {}\n\n[DONE]\n\n", []got{msg("{}"), {Kind: Done, Data: "[DONE]", Nonstandard: true}}, false},
		{"bare JSON (11)", "data: {}\n\n{\"error\":{\"message\":\"x\"}}\n", []got{msg("{}"), {Kind: BareJSON, Data: `{"error":{"message":"x"}}`, Nonstandard: true}}, false},
		{"bare JSON, indented", "  {\"error\":1}\n\n", []got{{Kind: BareJSON, Data: `  {"error":1}`, Nonstandard: true}}, false},
		{"bare JSON, not ended (11)", "data: {}\n\n{\"error\":1}", []got{msg("{}"), {Kind: BareJSON, Data: `{"error":1}`, Unterminated: true, Nonstandard: true}}, false},
		{"bare JSON, cut", "{\"error\":", nil, true},
		{"error with data", "event: error\ndata: {\"m\":1}\n\n", []got{{Kind: Message, Name: "error", Data: `{"m":1}`}}, false},
		{"error with a comment only (12)", "event: error\n: worker died\n\n", []got{{Kind: Comment, Data: "worker died"}, {Kind: Message, Name: "error", Nonstandard: true}}, false},
		{"error alone (12)", "event: error\n\n", []got{{Kind: Message, Name: "error", Nonstandard: true}}, false},
		{"error alone, not ended (12)", "event: error", []got{{Kind: Message, Name: "error", Unterminated: true, Nonstandard: true}}, false},
		{"error with data like a comment", "event: error\ndata: : x\n\n", []got{{Kind: Message, Name: "error", Data: ": x"}}, false},
		{"large event (1)", "data: " + big + "\n\ndata: b\n\n", []got{msg(big), msg("b")}, false},
		{"UTF-8 over reads (24)", "data: {\"c\":\"你好 🌍\"}\n\n", []got{msg(`{"c":"你好 🌍"}`)}, false},
		{"invalid UTF-8 is kept", "data: \xff\xfe\n\n", []got{msg("\xff\xfe")}, false},
		{"NUL is kept", "data: a\x00b\n\n", []got{msg("a\x00b")}, false},
		{"HTML gives nothing", "<html>\n<body>\n</html>\n", nil, false},

		// The end of the stream.
		{"no blank line (9)", "data: {\"a\":1}\n", []got{{Kind: Message, Data: `{"a":1}`, Unterminated: true}}, false},
		{"no line end (9)", "data: {\"a\":1}", []got{{Kind: Message, Data: `{"a":1}`, Unterminated: true}}, false},
		{"lone CR at the end (9)", "data: {\"a\":1}\r", []got{{Kind: Message, Data: `{"a":1}`, Unterminated: true}}, false},
		{"several data lines (9)", "data: {\ndata: }", []got{{Kind: Message, Data: "{\n}", Unterminated: true}}, false},
		{"done not ended (9)", "data: [DONE]", []got{{Kind: Done, Data: "[DONE]", Unterminated: true}}, false},
		{"cut in the JSON (9)", "data: {\"a\":1}\n\ndata: {\"a\":", []got{msg(`{"a":1}`)}, true},
		{"cut in a number", "data: 12", nil, true},
		{"cut in the field", "data: {}\n\ndat", []got{msg("{}")}, true},
		{"cut after the name", "data: {}\n\nevent: mess", []got{msg("{}")}, true},
		{"comment not ended", ": x", []got{{Kind: Comment, Data: "x", Unterminated: true}}, false},
		{"event, then a comment not ended", "data: {}\n: x", []got{{Kind: Comment, Data: "x", Unterminated: true}, {Kind: Message, Data: "{}", Unterminated: true}}, false},
		{"no done (6)", "data: {\"finish_reason\":\"stop\"}\n\n", []got{msg(`{"finish_reason":"stop"}`)}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := everySplit(t, NewSSE, tt.body, Options{})
			if !slices.Equal(o.events, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", o, outcome{events: tt.want, err: io.EOF, cut: tt.cut})
			}
			if o.cut != tt.cut {
				t.Errorf("Truncated() = %t, want %t", o.cut, tt.cut)
			}
			if !isPlainEOF(o.err) {
				t.Errorf("ended with %v, want io.EOF", o.err)
			}
		})
	}
}

func TestSSEFailingRead(t *testing.T) {
	tests := []struct {
		name string
		body string
		want []got
		cut  bool
	}{
		{"between events", "data: {}\n\n", []got{msg("{}")}, false},
		{"after a whole event", "data: {}\n\ndata: {\"a\":1}\n", []got{msg("{}"), {Kind: Message, Data: `{"a":1}`, Unterminated: true}}, false},
		{"inside an event", "data: {}\n\ndata: {\"a\":", []got{msg("{}")}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := NewSSE(&pieces{parts: []string{tt.body}, err: errBroken}, Options{})
			o := drain(d)
			if !slices.Equal(o.events, tt.want) || o.cut != tt.cut {
				t.Errorf("got\n%s\nwant\n%s", o, outcome{events: tt.want, cut: tt.cut, err: errBroken})
			}
			if !errors.Is(o.err, errBroken) {
				t.Errorf("ended with %v, want it to wrap %v", o.err, errBroken)
			}
			if _, err := d.Next(); !errors.Is(err, errBroken) {
				t.Errorf("Next after the end: %v, want the same error", err)
			}
		})
	}
}

func TestCaps(t *testing.T) {
	long := strings.Repeat("x", 100)
	tests := []struct {
		name string
		make newDecoderFunc
		body string
		opt  Options
		want []got
		err  error
	}{
		{"line of the very size", NewSSE, "data: " + long[:94] + "\n\n", Options{MaxEventBytes: 100}, []got{msg(long[:94])}, io.EOF},
		{"line too long", NewSSE, "data: a\n\ndata: " + long + "\n\n", Options{MaxEventBytes: 100}, []got{msg("a")}, ErrEventTooLarge},
		{"line too long and never ended", NewSSE, "data: a\n\ndata: " + long, Options{MaxEventBytes: 100}, []got{msg("a")}, ErrEventTooLarge},
		{"comment too long", NewSSE, ":" + long + "\n\n", Options{MaxEventBytes: 100}, nil, ErrEventTooLarge},
		{"event of many lines", NewSSE, strings.Repeat("data: "+long[:50]+"\n", 3), Options{MaxEventBytes: 100}, nil, ErrEventTooLarge},
		{"event of many empty lines", NewSSE, strings.Repeat("data\n", 500), Options{MaxEventBytes: 100}, nil, ErrEventTooLarge},
		{"body too large", NewSSE, "data: a\n\ndata: b\n\ndata: c\n\n", Options{MaxBodyBytes: 20}, []got{msg("a"), msg("b")}, ErrBodyTooLarge},
		{"body of the very size", NewSSE, "data: a\n\ndata: b\n\n", Options{MaxBodyBytes: 18}, []got{msg("a"), msg("b")}, io.EOF},
		{"body cut after whole data", NewSSE, "data: {}\n\ndata: {}\n\n", Options{MaxBodyBytes: 18}, []got{msg("{}")}, ErrBodyTooLarge},
		{"NDJSON line too long", NewNDJSON, "{}\n" + long + "\n", Options{MaxEventBytes: 50}, []got{msg("{}")}, ErrEventTooLarge},
		{"NDJSON body too large", NewNDJSON, "{}\n{}\n{}\n", Options{MaxBodyBytes: 7}, []got{msg("{}"), msg("{}")}, ErrBodyTooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := everySplit(t, tt.make, tt.body, tt.opt)
			if !slices.Equal(o.events, tt.want) || !errors.Is(o.err, tt.err) {
				t.Errorf("got\n%s\nwant\n%s", o, outcome{events: tt.want, err: tt.err})
			}
		})
	}
}

func TestNoProgress(t *testing.T) {
	o := drain(NewSSE(emptyReader{}, Options{}))
	if !errors.Is(o.err, io.ErrNoProgress) {
		t.Errorf("a reader that returns nothing for ever ended with %v, want %v", o.err, io.ErrNoProgress)
	}
}

type emptyReader struct{}

func (emptyReader) Read([]byte) (int, error) { return 0, nil }

// An event is handed out when its end is there, without waiting for a line feed that may belong to the
// carriage return: no read may be made that is not needed.
func TestSSEHandsOutAtOnce(t *testing.T) {
	for _, body := range []string{"data: a\n\n", "data: a\r\n\r\n", "data: a\r\r", "data: a\r\n\r", ": ping\n", ": ping\r", "{}\n"} {
		p := &pieces{parts: []string{body}, err: errors.New("read on")}
		if _, err := NewSSE(p, Options{}).Next(); err != nil {
			t.Errorf("%q: %v", body, err)
		}
	}
}

func TestEventTimes(t *testing.T) {
	tests := []struct {
		name  string
		make  newDecoderFunc
		reads []string
		want  []int // the read that each event's time is from
	}{
		{"one read each", NewSSE, []string{"data: a\n\n", "data: b\n\n"}, []int{1, 2}},
		{"several in one read", NewSSE, []string{"data: a\n\ndata: b\n\n", "data: c\n\n"}, []int{1, 1, 2}},
		{"the data line counts, not its first byte", NewSSE, []string{"data: a", "b\n\n"}, []int{2}},
		{"blank line with the next event", NewSSE, []string{"data: a\n", "\ndata: b\n", "\n"}, []int{1, 2}},
		{"line end with the next event", NewSSE, []string{"data: a", "\n\ndata: b", "\n\n"}, []int{1, 2}},
		{"line end in small pieces", NewSSE, []string{"data: a", "\r", "\n", "\r", "\n"}, []int{1}},
		{"the last data line counts", NewSSE, []string{"data: a\n", "data: b\n", "\n"}, []int{2}},
		{"a name after the data does not", NewSSE, []string{"data: a\n", "event: x\n", "\n"}, []int{1}},
		{"a comment has its own", NewSSE, []string{"data: a\n", ": c\n", "\n"}, []int{2, 1}},
		{"an error without data", NewSSE, []string{"event: error\n", "\n"}, []int{1}},
		{"not ended", NewSSE, []string{"data: [DO", "NE]"}, []int{2}},
		{"not ended, end of line seen", NewSSE, []string{"data: [DONE]", "\n"}, []int{1}},
		{"NDJSON, line end cut", NewNDJSON, []string{"{}", "\r", "\n{}\r", "\n"}, []int{1, 3}},
		{"NDJSON", NewNDJSON, []string{"{}\n{}", "\n{", "}", "\r\n", "{}"}, []int{1, 1, 3, 5}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			clock := &stepClock{}
			d := tt.make(&pieces{parts: slices.Clone(tt.reads)}, Options{Arrival: clock.arrival})
			var reads []int
			for {
				ev, err := d.Next()
				if err != nil {
					break
				}
				n := readOf(ev.At)
				reads = append(reads, n)
				if int(ev.Lag) != n || ev.Clock != ClockKernel {
					t.Errorf("event of read %d has lag %d and clock %q", n, ev.Lag, ev.Clock)
				}
			}
			if !slices.Equal(reads, tt.want) {
				t.Errorf("events are of reads %v, want %v", reads, tt.want)
			}
		})
	}
}
