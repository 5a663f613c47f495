package stream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Kind says what an Event is.
type Kind uint8

// The kinds of events.
const (
	// Message is an event with data, or one that names itself an error.
	Message Kind = iota
	// Comment is a keep-alive. It is no output and no event of the protocol; it shows that the server is alive.
	Comment
	// BareJSON is a line of JSON without "data:" in an SSE stream: some servers write errors that way.
	BareJSON
	// Done is the [DONE] that ends OpenAI-style streams.
	Done
)

// Event is one event of a stream. Its slices are valid until the next call of Next.
type Event struct {
	Kind Kind
	Name []byte // of the event: field; empty if there was none
	Data []byte // the payload, byte for byte; data lines joined with \n

	// Arrival is when the last byte of the data arrived, which may be long before the blank line that ends the
	// event. Events that came in one read share its arrival.
	Arrival

	Unterminated bool // the stream ended without the blank line (or newline) that ends the event
	Nonstandard  bool // readable, but not as the format says
}

// The caps of what is read.
const (
	DefaultMaxEventBytes = 16 << 20
	DefaultMaxBodyBytes  = 64 << 20
)

// Errors of a stream that is too large. Any other error of Next is the reader's own, or io.EOF.
var (
	ErrEventTooLarge = errors.New("event is larger than the limit")
	ErrBodyTooLarge  = errors.New("body is larger than the limit")
)

// Options are the settings of a Decoder.
type Options struct {
	MaxEventBytes int            // of one line and of one event; 0 = DefaultMaxEventBytes
	MaxBodyBytes  int64          // of the whole body; 0 = DefaultMaxBodyBytes
	Arrival       func() Arrival // of the newest read of the connection below; nil = the time of the read
}

// Decoder takes a stream apart. It is not safe for concurrent use. In steady state it allocates nothing.
//
// One limit stands outside of it: net/http's reader of chunked bodies may hold back bytes when the header of the
// next chunk arrives without its data. Servers write both at once.
type Decoder struct {
	r      io.Reader
	opt    Options
	decode func(*Decoder) (Event, bool, error)

	buf        []byte
	start, end int // the unread bytes
	scanned    int // bytes from start on that hold no line end
	fresh      int // where the newest read begins in buf
	cur, prev  Arrival
	err        error // of the reader, once it has ended

	skipLF bool // the last line ended in CR: a LF that follows belongs to it
	first  bool // no line was read yet: a byte order mark may come

	name, data []byte
	hasData    bool
	dataAt     Arrival

	bodyBytes        int64
	events, comments int
	dropped          bool
}

// NewSSE returns a decoder of server-sent events, following the WHATWG rules where servers do and being more
// lenient where they do not: any line end, a missing space after the colon, bare JSON lines, a last event without
// its blank line.
func NewSSE(r io.Reader, o Options) *Decoder { return newDecoder(r, o, (*Decoder).nextSSE) }

// NewNDJSON returns a decoder of newline-delimited JSON.
func NewNDJSON(r io.Reader, o Options) *Decoder { return newDecoder(r, o, (*Decoder).nextNDJSON) }

func newDecoder(r io.Reader, o Options, decode func(*Decoder) (Event, bool, error)) *Decoder {
	if o.MaxEventBytes <= 0 {
		o.MaxEventBytes = DefaultMaxEventBytes
	}
	if o.MaxBodyBytes <= 0 {
		o.MaxBodyBytes = DefaultMaxBodyBytes
	}
	if o.Arrival == nil {
		o.Arrival = func() Arrival { return Arrival{At: time.Now(), Clock: ClockUser} }
	}
	return &Decoder{r: r, opt: o, decode: decode, buf: make([]byte, 4096), first: true}
}

// Next returns the next event. After an error, io.EOF included, it returns the same error again.
func (d *Decoder) Next() (Event, error) {
	for {
		ev, ok, err := d.decode(d)
		if err != nil {
			return Event{}, err
		}
		if !ok {
			continue
		}
		if ev.Kind == Comment {
			d.comments++
		} else {
			d.events++
		}
		return ev, nil
	}
}

// Events returns how many events other than comments were returned.
func (d *Decoder) Events() int { return d.events }

// Comments returns how many comments were returned.
func (d *Decoder) Comments() int { return d.comments }

// BodyBytes returns how many bytes were read.
func (d *Decoder) BodyBytes() int64 { return d.bodyBytes }

// Dropped reports whether the stream ended inside an event, whose bytes were dropped.
func (d *Decoder) Dropped() bool { return d.dropped }

// nextSSE reads one line; ok says whether it completed an event.
func (d *Decoder) nextSSE() (ev Event, ok bool, err error) {
	line, at, whole, err := d.line(true)
	if err != nil {
		return d.endSSE(err)
	}
	if d.first {
		d.first = false
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	if len(line) == 0 {
		ev, ok = d.dispatch(false)
		return ev, ok, nil
	}
	switch line[0] {
	case ':':
		return Event{Kind: Comment, Data: line[1:], Arrival: at}, true, nil
	case '{':
		if !whole && !json.Valid(line) {
			d.dropped = true
			return Event{}, false, nil
		}
		return Event{Kind: BareJSON, Data: line, Arrival: at, Nonstandard: true, Unterminated: !whole}, true, nil
	}
	return Event{}, false, d.field(line, at)
}

func (d *Decoder) field(line []byte, at Arrival) error {
	name, value, _ := bytes.Cut(line, []byte(":"))
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	switch string(name) {
	case "data":
		if len(d.data)+len(value)+1 > d.opt.MaxEventBytes {
			d.fail(fmt.Errorf("%w of %d bytes", ErrEventTooLarge, d.opt.MaxEventBytes))
			return d.err
		}
		if d.hasData {
			d.data = append(d.data, '\n')
		}
		d.data = append(d.data, value...)
		d.hasData, d.dataAt = true, at
	case "event":
		d.name = append(d.name[:0], value...)
		if !d.hasData {
			d.dataAt = at
		}
	}
	return nil
}

// dispatch makes an event of the fields so far. The fields are forgotten by the next line's.
func (d *Decoder) dispatch(unterminated bool) (Event, bool) {
	ev := Event{Kind: Message, Name: d.name, Data: d.data, Arrival: d.dataAt, Unterminated: unterminated}
	has, isError := d.hasData, string(d.name) == "error"
	d.name, d.data, d.hasData = d.name[:0], d.data[:0], false
	if !has {
		// WHATWG drops an event without data. One that is named error still says that the request failed.
		return ev, isError
	}
	payload := bytes.TrimSpace(ev.Data)
	switch {
	case string(payload) == "[DONE]":
		ev.Kind = Done
	case len(payload) > 0 && payload[0] == ':': // a gateway wrapped a comment into data
		ev.Kind, ev.Nonstandard = Comment, true
	case len(payload) == 0 && !isError:
		return ev, false
	}
	return ev, true
}

// endSSE returns the event that the stream ended in, if it is whole, and else the reader's error.
func (d *Decoder) endSSE(err error) (Event, bool, error) {
	if !d.hasData && string(d.name) != "error" {
		return Event{}, false, err
	}
	if payload := bytes.TrimSpace(d.data); !d.hasData || json.Valid(payload) || string(payload) == "[DONE]" {
		ev, ok := d.dispatch(true)
		return ev, ok, nil
	}
	d.hasData, d.name, d.dropped = false, d.name[:0], true
	return Event{}, false, err
}

// nextNDJSON reads one line.
func (d *Decoder) nextNDJSON() (Event, bool, error) {
	line, at, whole, err := d.line(false)
	if err != nil {
		return Event{}, false, err
	}
	if d.first {
		d.first = false
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return Event{}, false, nil
	}
	if !whole && !json.Valid(line) {
		d.dropped = true
		return Event{}, false, nil
	}
	return Event{Kind: Message, Data: line, Arrival: at, Unterminated: !whole}, true, nil
}

// line returns the next line without its end, and when its last byte arrived. At the end of the stream the rest
// is a line that is not whole. With cr, a CR ends a line too: at once, a LF that follows is swallowed later, so
// that an event is never held back by the other half of a CRLF.
func (d *Decoder) line(cr bool) (line []byte, at Arrival, whole bool, err error) {
	for {
		if d.skipLF && d.start < d.end {
			if d.buf[d.start] == '\n' {
				d.start++
			}
			d.skipLF = false
		}
		if i := lineEnd(d.buf[d.start+d.scanned:d.end], cr); i >= 0 {
			stop := d.start + d.scanned + i
			line, at = d.buf[d.start:stop], d.arrivalOf(stop-1)
			d.skipLF = d.buf[stop] == '\r'
			d.start, d.scanned = stop+1, 0
			return line, at, true, nil
		}
		d.scanned = d.end - d.start
		if d.err != nil {
			if d.scanned == 0 {
				return nil, Arrival{}, false, d.err
			}
			line, at = d.buf[d.start:d.end], d.arrivalOf(d.end-1)
			d.start, d.scanned = d.end, 0
			return line, at, false, nil
		}
		d.fill()
	}
}

func lineEnd(b []byte, cr bool) int {
	lf := bytes.IndexByte(b, '\n')
	if !cr {
		return lf
	}
	if lf >= 0 {
		b = b[:lf]
	}
	if i := bytes.IndexByte(b, '\r'); i >= 0 {
		return i
	}
	return lf
}

// arrivalOf returns when the byte at that index arrived. Only the newest two reads are told apart: bytes before
// the newest read belong to a line that the read before it has ended or carried on.
func (d *Decoder) arrivalOf(i int) Arrival {
	if i >= d.fresh {
		return d.cur
	}
	return d.prev
}

// fill reads more bytes behind the unread ones. An error is kept for when they are used up.
func (d *Decoder) fill() {
	if d.start > 0 {
		copy(d.buf, d.buf[d.start:d.end])
		d.end -= d.start
		d.start = 0
	}
	if d.end >= d.opt.MaxEventBytes {
		d.fail(fmt.Errorf("%w of %d bytes", ErrEventTooLarge, d.opt.MaxEventBytes))
		return
	}
	if d.end == len(d.buf) {
		d.buf = append(d.buf, make([]byte, len(d.buf))...)
	}
	room := min(len(d.buf), d.opt.MaxEventBytes)
	for range 100 { // a reader may return nothing a few times
		n, err := d.r.Read(d.buf[d.end:room])
		if n > 0 {
			d.prev, d.cur, d.fresh = d.cur, d.opt.Arrival(), d.end
			d.end += n
			d.bodyBytes += int64(n)
		}
		switch {
		case d.bodyBytes > d.opt.MaxBodyBytes:
			d.fail(fmt.Errorf("%w of %d bytes", ErrBodyTooLarge, d.opt.MaxBodyBytes))
			return
		case err != nil:
			d.err = err
			return
		case n > 0:
			return
		}
	}
	d.err = io.ErrNoProgress
}

// fail ends the stream and drops what is not read yet: it is not worth keeping.
func (d *Decoder) fail(err error) {
	d.err, d.start, d.end, d.scanned = err, 0, 0, 0
	d.hasData, d.name = false, d.name[:0]
	d.dropped = true
}
