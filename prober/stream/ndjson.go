package stream

import (
	"bytes"
	"io"
)

// NewNDJSON returns a decoder of a body of newline-delimited JSON: one value a line, LF or CRLF, blank lines
// skipped. That a line is JSON is for the caller to find out, except for a last one without line end: that
// is handed out only if it is whole.
func NewNDJSON(r io.Reader, opt Options) *Decoder {
	return newDecoder(r, &ndjsonFraming{}, opt)
}

type ndjsonFraming struct {
	begun bool // the byte order mark, if any, has passed
	cut   bool
}

func (f *ndjsonFraming) crEnds() bool { return false }

func (f *ndjsonFraming) ignoredLines() int64 { return 0 }

func (f *ndjsonFraming) release() {}

func (f *ndjsonFraming) line(line []byte, at Arrival) (Event, bool, error) {
	if !f.begun {
		f.begun = true
		line = bytes.TrimPrefix(line, []byte(byteOrderMark))
	}
	switch {
	case len(bytes.TrimSpace(line)) == 0:
		return Event{}, false, nil
	case isDone(line):
		return stamped(Event{Kind: Done, Data: line}, at), true, nil
	default:
		return stamped(Event{Kind: Message, Data: line}, at), true, nil
	}
}

func (f *ndjsonFraming) tail(line []byte, at Arrival) (Event, bool, error) {
	ev, ok, err := f.line(bytes.TrimSuffix(line, []byte{'\r'}), at)
	if !ok || err != nil {
		return ev, ok, err
	}
	ev.Unterminated = true
	if ev.Kind == Message && !wholeJSON(ev.Data) {
		f.cut = true
		return Event{}, false, nil
	}
	return ev, true, nil
}

func (f *ndjsonFraming) flush() (ev Event, ok, cut bool) { return Event{}, false, f.cut }
