package stream

import (
	"strings"
	"testing"
	"testing/iotest"
)

// fuzzDecoder checks that a body of any bytes gives the same events however it is cut, that no event is
// larger than allowed or than the body, and that the end is an end.
func fuzzDecoder(f *testing.F, newDecoder newDecoderFunc) {
	f.Helper()
	for _, body := range []string{
		"", "data: a\n\n", "data: a\r\n\r\ndata: b\r\r", "\xef\xbb\xbf: c\n\n", "event: error\n\n", "{\"error\":1}", "data: {}", "data: [DONE]",
		"data: : x\n\n", "{}\r\n{}\n{", "data: 1\ndata: 2\n\n", "event: x\ndata", "\r\n\r\r\n\n", "data: {}\n: x", " \n",
	} {
		f.Add([]byte(body), uint16(3), uint16(40))
	}
	f.Fuzz(func(t *testing.T, body []byte, cut, limit uint16) {
		opt := Options{MaxEventBytes: int(limit), MaxBodyBytes: 4 * int64(limit)}
		s := string(body)
		want := drain(newDecoder(strings.NewReader(s), opt))
		at := 0
		if len(s) > 0 {
			at = int(cut) % len(s)
		}
		ways := map[string]outcome{
			"one byte a read": drain(newDecoder(iotest.OneByteReader(strings.NewReader(s)), opt)),
			"half a read":     drain(newDecoder(iotest.HalfReader(strings.NewReader(s)), opt)),
			"one cut":         drain(newDecoder(&pieces{parts: []string{s[:at], s[at:]}}, opt)),
			"data with error": drain(newDecoder(iotest.DataErrReader(strings.NewReader(s)), opt)),
		}
		for how, o := range ways {
			if o.String() != want.String() {
				t.Fatalf("%s gives\n%s\nthe whole body\n%s", how, o, want)
			}
		}
		total := 0
		for _, ev := range want.events {
			size := len(ev.Data)
			if limit > 0 && size > int(limit) {
				t.Errorf("event of %d bytes with a bound of %d", size, limit)
			}
			total += size + len(ev.Name)
		}
		if total > len(s) {
			t.Errorf("%d bytes of events from a body of %d", total, len(s))
		}
		if want.err == nil {
			t.Error("no end")
		}
	})
}

func FuzzSSE(f *testing.F)    { fuzzDecoder(f, NewSSE) }
func FuzzNDJSON(f *testing.F) { fuzzDecoder(f, NewNDJSON) }

func FuzzSniff(f *testing.F) {
	f.Add("text/event-stream", []byte("data: x"))
	f.Add("a/b;c", []byte("{}\n"))
	f.Fuzz(func(t *testing.T, contentType string, first []byte) {
		if s := Sniff(contentType, first).String(); s == "" {
			t.Error("no name")
		}
	})
}
