package stream

import (
	"io"
	"slices"
	"testing"
)

func TestNDJSONFraming(t *testing.T) {
	tests := []struct {
		name string
		body string
		want []got
		cut  bool
	}{
		{"empty body", "", nil, false},
		{"LF", "{\"a\":1}\n{\"b\":2}\n", []got{msg(`{"a":1}`), msg(`{"b":2}`)}, false},
		{"CRLF", "{\"a\":1}\r\n{\"b\":2}\r\n", []got{msg(`{"a":1}`), msg(`{"b":2}`)}, false},
		{"a lone CR ends nothing", "{\"a\":\r1}\n", []got{msg("{\"a\":\r1}")}, false},
		{"blank lines", "\n\r\n{\"a\":1}\n \n\n{\"b\":2}\n\n", []got{msg(`{"a":1}`), msg(`{"b":2}`)}, false},
		{"byte order mark", "\xef\xbb\xbf{}\n{}\n", []got{msg("{}"), msg("{}")}, false},
		{"white space is kept", " {\"a\": 1} \n", []got{msg(` {"a": 1} `)}, false},
		{"not JSON is the caller's to find", "oops\n", []got{msg("oops")}, false},
		{"done", "{}\n[DONE]\n", []got{msg("{}"), {Kind: Done, Data: "[DONE]"}}, false},
		{"last line not ended", "{}\n{\"done\":true}", []got{msg("{}"), {Kind: Message, Data: `{"done":true}`, Unterminated: true}}, false},
		{"last line not ended, CR", "{}\r\n{}\r", []got{msg("{}"), {Kind: Message, Data: "{}", Unterminated: true}}, false},
		{"last line cut", "{}\n{\"done\":tr", []got{msg("{}")}, true},
		{"last line cut in a number", "12", nil, true},
		{"white space at the end", "{}\n  ", []got{msg("{}")}, false},
		{"CR at the end", "{}\n\r", []got{msg("{}")}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := everySplit(t, NewNDJSON, tt.body, Options{})
			if !slices.Equal(o.events, tt.want) || o.cut != tt.cut || !isPlainEOF(o.err) {
				t.Errorf("got\n%s\nwant\n%s", o, outcome{events: tt.want, err: io.EOF, cut: tt.cut})
			}
		})
	}
}
