package stream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

const (
	// DefaultMaxEventBytes bounds one line and one event. Tool calls, Responses' closing event and
	// base64 images run to megabytes.
	DefaultMaxEventBytes = 16 << 20
	// DefaultMaxBodyBytes bounds one body.
	DefaultMaxBodyBytes = 64 << 20

	firstBufferBytes = 8 << 10
	minReadBytes     = 4 << 10 // room to offer to each read
	maxSniffBytes    = 4 << 10
	maxEmptyReads    = 100
)

var (
	// ErrEventTooLarge says that a line or an event passed Options.MaxEventBytes.
	ErrEventTooLarge = errors.New("event too large")
	// ErrBodyTooLarge says that a body passed Options.MaxBodyBytes.
	ErrBodyTooLarge = errors.New("body too large")
)

// Options bound a Decoder and tell it the time. The zero value is ready to use.
type Options struct {
	// MaxEventBytes bounds one line and the data of one event; 0 means DefaultMaxEventBytes.
	MaxEventBytes int
	// MaxBodyBytes bounds the whole body; 0 means DefaultMaxBodyBytes.
	MaxBodyBytes int64
	// Arrival is asked after each read of the body when its bytes came, usually Conn.LastArrival. nil, and
	// an answer whose At is zero, mean the time of the read on the user clock.
	Arrival func() Arrival
}

// Stats counts what a Decoder has seen.
type Stats struct {
	Messages     int64 // Message and BareJSON events
	Comments     int64 // Comment events
	IgnoredLines int64 // lines that are neither a known SSE field nor anything else known
	Bytes        int64 // bytes of the body
	Reads        int64 // reads of the body that returned bytes
}

// framing turns lines into events. Two kinds of it are known: sseFraming and ndjsonFraming.
type framing interface {
	// line takes the next whole line. ok says that ev is to be handed out now.
	line(line []byte, at Arrival) (ev Event, ok bool, err error)
	// tail takes what follows the last line end at the end of the stream; never empty.
	tail(line []byte, at Arrival) (ev Event, ok bool, err error)
	// flush hands out what the end of the stream left open. cut says that something was left open that is
	// not fit to be handed out.
	flush() (ev Event, ok, cut bool)
	// release forgets what the event handed out last refers to.
	release()
	// crEnds says whether a carriage return alone ends a line.
	crEnds() bool
	// ignoredLines counts the lines that meant nothing.
	ignoredLines() int64
}

// Decoder reads a streamed body event by event. It hands out an event as soon as its end is in the buffer,
// whatever read brought it, and the events do not depend on how the bytes were cut into reads. In a steady
// stream it allocates nothing. It must not be used concurrently.
type Decoder struct {
	r       io.Reader
	framing framing
	cr      bool
	opt     Options
	stats   Stats

	buf        []byte // buf[start:end] is read and not yet handed out
	start, end int
	scanned    int  // buf[start:scanned] holds no line end
	lf         int  // buf[scanned:lf] holds no line feed
	skipLF     bool // a line feed at start belongs to the carriage return before it

	newest  Arrival // of the last read
	older   Arrival // of the last byte of buf[start:settled], which holds no line end
	settled int
	readErr error // why there are no more bytes
	ended   bool  // the tail has been handled
	cut     bool
}

func newDecoder(r io.Reader, f framing, opt Options) *Decoder {
	return &Decoder{r: r, framing: f, cr: f.crEnds(), opt: opt.withDefaults()}
}

func (o Options) withDefaults() Options {
	if o.MaxEventBytes <= 0 {
		o.MaxEventBytes = DefaultMaxEventBytes
	}
	if o.MaxBodyBytes <= 0 {
		o.MaxBodyBytes = DefaultMaxBodyBytes
	}
	return o
}

// Next returns the next event. At the end of the body the error is io.EOF itself; a failing read's error is
// wrapped; ErrEventTooLarge and ErrBodyTooLarge are wrapped with the bound that was passed. Events that
// were complete before an error are handed out before it. After an error every call returns the same one.
func (d *Decoder) Next() (Event, error) {
	d.framing.release()
	for {
		line, at, ok := d.nextLine()
		if !ok {
			if d.readErr != nil {
				return d.finish()
			}
			if err := d.fill(); err != nil {
				return Event{}, err
			}
			continue
		}
		if len(line) > d.opt.MaxEventBytes {
			return Event{}, d.tooLarge()
		}
		ev, ok, err := d.framing.line(line, at)
		if err != nil {
			return Event{}, d.fail(err)
		}
		if ok {
			return d.count(ev), nil
		}
	}
}

// Truncated tells, after Next has returned an error, whether the body ended inside an event that was not
// fit to be handed out.
func (d *Decoder) Truncated() bool { return d.cut }

// Stats returns the counts so far.
func (d *Decoder) Stats() Stats {
	s := d.stats
	s.IgnoredLines = d.framing.ignoredLines()
	return s
}

// Sniff reads until it is sure what the body is, or 4 KiB are there, or the body ends, and consumes
// nothing: Next goes on from the first byte, and so does Rest. See the function Sniff for the rules. It
// waits for the first byte of text whatever the Content-Type says. The error is that of a read that failed
// before any byte; io.EOF for an empty body.
func (d *Decoder) Sniff(contentType string) (Format, error) {
	for {
		f, sure := sniff(contentType, d.buf[d.start:d.end])
		switch {
		case sure || d.end-d.start >= maxSniffBytes:
			return f, nil
		case d.readErr != nil && d.start == d.end:
			return f, d.readErr
		case d.readErr != nil:
			return f, nil
		}
		if err := d.fill(); err != nil {
			return f, err
		}
	}
}

// Rest returns a reader of what Next has not consumed yet, for bodies that are not a stream after all. The
// caller bounds it. The decoder must not be used after it.
func (d *Decoder) Rest() io.Reader {
	rest := bytes.NewReader(d.buf[d.start:d.end])
	if d.readErr != nil {
		return io.MultiReader(rest, failingReader{d.readErr})
	}
	return io.MultiReader(rest, d.r)
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// nextLine takes the next whole line out of the buffer, without its line end. at is the arrival of its last
// byte: that of the newest read, unless this brought nothing but the line end.
func (d *Decoder) nextLine() (line []byte, at Arrival, ok bool) {
	if d.skipLF && d.start < d.end {
		d.skipLF = false
		if d.buf[d.start] == '\n' {
			d.start++
			d.scanned = d.start
		}
	}
	stop, width := d.lineEnd()
	if width == 0 {
		return nil, Arrival{}, false
	}
	line = d.buf[d.start:stop]
	at = d.arrivalOf(stop)
	d.start = stop + width
	d.scanned = d.start
	return line, at, true
}

// lineEnd finds the end of the first line: its position and width, or a width of 0 if the buffer holds no
// line end. The position of the next line feed is remembered, so that no byte is looked at again and again
// in a buffer of many lines that end in carriage returns.
func (d *Decoder) lineEnd() (stop, width int) {
	if d.lf < d.scanned {
		d.lf = d.scanned
	}
	if d.lf < d.end && d.buf[d.lf] != '\n' {
		i := bytes.IndexByte(d.buf[d.lf:d.end], '\n')
		if i < 0 {
			d.lf = d.end
		} else {
			d.lf += i
		}
	}
	if d.cr {
		if i := bytes.IndexByte(d.buf[d.scanned:d.lf], '\r'); i >= 0 {
			d.skipLF = true // it may come with the next read; the line is whole without it
			return d.scanned + i, 1
		}
	}
	if d.lf < d.end {
		if !d.cr && d.lf > d.start && d.buf[d.lf-1] == '\r' {
			return d.lf - 1, 2
		}
		return d.lf, 1
	}
	d.scanned = d.end
	d.settle()
	return d.end, 0
}

// settle notes the arrival of the unfinished line in the buffer before more is read.
func (d *Decoder) settle() {
	if end := d.pendingEnd(); end > d.settled {
		d.older, d.settled = d.newest, end
	}
}

// pendingEnd is the end of what is known to belong to the unfinished line. A carriage return at its end is
// likely to be the first half of its line end and does not count.
func (d *Decoder) pendingEnd() int {
	if d.end > d.start && d.buf[d.end-1] == '\r' {
		return d.end - 1
	}
	return d.end
}

// arrivalOf returns the arrival of the byte before buf[stop].
func (d *Decoder) arrivalOf(stop int) Arrival {
	if stop > d.start && stop <= d.settled {
		return d.older
	}
	return d.newest
}

// fill reads more bytes. It records the end of the body, or a failure to read it, in readErr, and returns
// only errors of its own.
func (d *Decoder) fill() error {
	if d.pendingEnd()-d.start > d.opt.MaxEventBytes {
		return d.tooLarge()
	}
	d.makeRoom()
	for range maxEmptyReads {
		n, err := d.r.Read(d.buf[d.end:])
		if n > 0 {
			d.take(n)
		}
		if err != nil && d.readErr == nil {
			d.readErr = d.wrap(err)
		}
		if n > 0 || err != nil {
			return nil
		}
	}
	d.readErr = d.wrap(io.ErrNoProgress)
	return nil
}

// take accounts for n bytes that were read to the end of the buffer.
func (d *Decoder) take(n int) {
	if left := d.opt.MaxBodyBytes - d.stats.Bytes; int64(n) > left {
		n = int(left)
		d.readErr = fmt.Errorf("%w: more than %d bytes", ErrBodyTooLarge, d.opt.MaxBodyBytes)
		d.ended = true // what the bound cut is not a tail
	}
	at := Arrival{}
	if d.opt.Arrival != nil {
		at = d.opt.Arrival()
	}
	if at.At.IsZero() {
		at = Arrival{At: time.Now(), Clock: ClockUser}
	}
	d.newest = at
	d.end += n
	d.stats.Bytes += int64(n)
	d.stats.Reads++
}

// makeRoom moves the unread bytes to the front of the buffer, and doubles it if that is not enough.
func (d *Decoder) makeRoom() {
	if d.start > 0 && (d.start == d.end || len(d.buf)-d.end < minReadBytes) {
		copy(d.buf, d.buf[d.start:d.end])
		d.lf = max(d.lf-d.start, 0)
		d.scanned -= d.start
		d.settled = max(d.settled-d.start, 0)
		d.end -= d.start
		d.start = 0
	}
	if len(d.buf)-d.end >= minReadBytes {
		return
	}
	grown := make([]byte, max(firstBufferBytes, 2*len(d.buf)))
	copy(grown, d.buf[:d.end])
	d.buf = grown
}

// finish handles what the body left behind its last line end, once, and then returns the error it ended with.
func (d *Decoder) finish() (Event, error) {
	if d.pendingEnd()-d.start > d.opt.MaxEventBytes {
		return Event{}, d.tooLarge() // also where the bound on the body was passed in the same read
	}
	if d.ended {
		return Event{}, d.readErr
	}
	if d.start < d.end {
		tail, at := d.buf[d.start:d.end], d.arrivalOf(d.end)
		d.start = d.end
		ev, ok, err := d.framing.tail(tail, at)
		if err != nil {
			return Event{}, d.fail(err)
		}
		if ok {
			return d.count(ev), nil
		}
	}
	d.ended = true
	ev, ok, cut := d.framing.flush()
	d.cut = cut
	if ok {
		return d.count(ev), nil
	}
	return Event{}, d.readErr
}

// fail makes err the end of the stream.
func (d *Decoder) fail(err error) error {
	d.readErr = err
	d.ended = true
	d.start, d.scanned, d.lf = d.end, d.end, d.end
	d.skipLF = false
	return err
}

func (d *Decoder) tooLarge() error {
	return d.fail(fmt.Errorf("%w: more than %d bytes", ErrEventTooLarge, d.opt.MaxEventBytes))
}

func (d *Decoder) wrap(err error) error {
	if err == io.EOF { //nolint:errorlint // a reader's own io.EOF is the end; a wrapped one is somebody's failure
		return io.EOF
	}
	return fmt.Errorf("reading the body after %d bytes: %w", d.stats.Bytes, err)
}

func (d *Decoder) count(ev Event) Event {
	switch ev.Kind {
	case Comment:
		d.stats.Comments++
	case Message, BareJSON:
		d.stats.Messages++
	}
	return ev
}

// wholeJSON tells whether b, cut off by the end of a stream, is certain to be a whole JSON value: it is one,
// and not a number, of which digits may be missing.
func wholeJSON(b []byte) bool {
	b = bytes.TrimSpace(b)
	if len(b) == 0 || b[0] == '-' || (b[0] >= '0' && b[0] <= '9') {
		return false
	}
	return json.Valid(b)
}

// doneMark is the payload that ends a stream in OpenAI's protocols and their clones. It is not JSON.
const doneMark = "[DONE]"

func isDone(b []byte) bool { return string(bytes.TrimSpace(b)) == doneMark }
