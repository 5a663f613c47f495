package stream

import (
	"bytes"
	"fmt"
	"io"
)

const (
	byteOrderMark = "\xef\xbb\xbf"
	errorName     = "error"
)

// NewSSE returns a decoder of a Server-Sent Events body.
//
// It follows the WHATWG specification of event streams (line ends LF, CRLF and CR; one leading byte order
// mark; an optional space after the colon; data lines joined with LF) and departs from it where LLM servers
// do, so that nothing they say is lost: comments are handed out; an event named "error" is handed out even
// without data; a line of bare JSON is; a last event that lacks its blank line is, if its data is whole.
// The fields id and retry mean nothing to a probe and are skipped.
func NewSSE(r io.Reader, opt Options) *Decoder {
	opt = opt.withDefaults()
	return newDecoder(r, &sseFraming{max: opt.MaxEventBytes}, opt)
}

// sseFraming gathers the fields of one event at a time.
type sseFraming struct {
	max     int
	begun   bool // the byte order mark, if any, has passed
	ignored int64

	data    []byte
	name    []byte
	hasData bool
	hasName bool
	at      Arrival // of the last data line, or of the event line while there is none
	spent   bool    // the event was handed out; its data is kept until the next call only
	cutTail bool    // the stream ended inside a line that means nothing yet
}

func (f *sseFraming) crEnds() bool { return true }

func (f *sseFraming) ignoredLines() int64 { return f.ignored }

func (f *sseFraming) release() {
	if f.spent {
		f.reset()
	}
}

func (f *sseFraming) reset() {
	f.data, f.name = f.data[:0], f.name[:0]
	f.hasData, f.hasName, f.spent = false, false, false
}

func (f *sseFraming) line(line []byte, at Arrival) (Event, bool, error) {
	if !f.begun {
		f.begun = true
		line = bytes.TrimPrefix(line, []byte(byteOrderMark))
	}
	if len(line) == 0 {
		ev, ok := f.dispatch()
		return ev, ok, nil
	}
	field, value, colon := cutField(line)
	switch {
	case colon && len(field) == 0:
		return stamped(Event{Kind: Comment, Data: value}, at), true, nil
	case string(field) == "data":
		return Event{}, false, f.addData(value, at)
	case string(field) == "event":
		f.name, f.hasName = append(f.name[:0], value...), true
		if !f.hasData {
			f.at = at
		}
	case string(field) == "id" || string(field) == "retry":
	case beginsObject(line):
		return stamped(Event{Kind: BareJSON, Data: line, Nonstandard: true}, at), true, nil
	case isDone(line):
		return stamped(Event{Kind: Done, Data: line, Nonstandard: true}, at), true, nil
	default:
		f.ignored++
	}
	return Event{}, false, nil
}

func (f *sseFraming) addData(value []byte, at Arrival) error {
	if f.hasData {
		f.data = append(f.data, '\n')
	}
	if len(f.data)+len(value) > f.max {
		return fmt.Errorf("%w: more than %d bytes", ErrEventTooLarge, f.max)
	}
	f.data = append(f.data, value...)
	f.hasData, f.at = true, at
	return nil
}

// dispatch ends the event that was gathered. ok is false if there was nothing to it.
func (f *sseFraming) dispatch() (ev Event, ok bool) {
	if !f.hasData && !f.hasName {
		return Event{}, false
	}
	ev = f.classify()
	f.spent = true
	return ev, true
}

// classify makes an event of what was gathered. An error is an error whatever its data looks like. A comment
// wrapped into data, empty data and a name without data are keep-alives: they show life and carry nothing.
func (f *sseFraming) classify() Event {
	ev := stamped(Event{Kind: Message, Name: f.name, Data: f.data}, f.at)
	text := bytes.TrimSpace(f.data)
	switch {
	case string(f.name) == errorName:
		ev.Nonstandard = !f.hasData
	case len(text) == 0 || text[0] == ':':
		ev.Kind, ev.Nonstandard = Comment, true
	case string(text) == doneMark:
		ev.Kind = Done
	}
	return ev
}

// tail takes a last line without a line end. A comment or an error that the end cut is still one.
func (f *sseFraming) tail(line []byte, at Arrival) (Event, bool, error) {
	ignored := f.ignored
	ev, ok, err := f.line(line, at)
	if err != nil {
		return ev, ok, err
	}
	ev.Unterminated = ok
	if ok && ev.Kind == BareJSON && !wholeJSON(ev.Data) {
		ok = false
		f.ignored++
	}
	if f.ignored > ignored {
		f.ignored = ignored
		f.cutTail = true
	}
	return ev, ok, nil
}

func (f *sseFraming) flush() (ev Event, ok, cut bool) {
	f.release()
	ev, ok = f.dispatch()
	if !ok {
		return Event{}, false, f.cutTail
	}
	ev.Unterminated = true
	switch {
	case ev.Kind == Done, string(ev.Name) == errorName:
		return ev, true, f.cutTail
	case ev.Kind == Message && wholeJSON(ev.Data):
		return ev, true, f.cutTail
	}
	return Event{}, false, true
}

// beginsObject tells whether a line begins with a brace.
func beginsObject(line []byte) bool {
	line = bytes.TrimLeft(line, " \t")
	return len(line) > 0 && line[0] == '{'
}

// cutField splits a line at its first colon and drops one space after it. Without a colon the whole line is
// the field's name.
func cutField(line []byte) (field, value []byte, colon bool) {
	field, value, colon = bytes.Cut(line, []byte{':'})
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	return field, value, colon
}

func stamped(ev Event, at Arrival) Event {
	ev.stamp(at)
	return ev
}
