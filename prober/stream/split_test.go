package stream

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// got is an Event without its time, in a form that can be compared and printed.
type got struct {
	Kind         Kind
	Name, Data   string
	Unterminated bool
	Nonstandard  bool
}

// outcome is everything that a decoder says about a body.
type outcome struct {
	events []got
	err    error
	cut    bool
}

func (o outcome) String() string {
	var b strings.Builder
	for _, e := range o.events {
		fmt.Fprintf(&b, "%s name=%q data=%q unterminated=%t nonstandard=%t\n", e.Kind, e.Name, e.Data, e.Unterminated, e.Nonstandard)
	}
	fmt.Fprintf(&b, "cut=%t err=%v", o.cut, o.err)
	return b.String()
}

func drain(d *Decoder) outcome {
	var o outcome
	for {
		ev, err := d.Next()
		if err != nil {
			o.err, o.cut = err, d.Truncated()
			return o
		}
		o.events = append(o.events, got{ev.Kind, string(ev.Name), string(ev.Data), ev.Unterminated, ev.Nonstandard})
	}
}

// pieces is a reader that hands out one piece a read.
type pieces struct {
	parts []string
	err   error // after the last piece; nil means io.EOF
	done  int
}

func (p *pieces) Read(b []byte) (int, error) {
	for len(p.parts) > 0 && p.parts[0] == "" {
		p.parts = p.parts[1:]
	}
	if len(p.parts) == 0 {
		if p.err != nil {
			return 0, p.err
		}
		return 0, io.EOF
	}
	n := copy(b, p.parts[0])
	p.parts[0] = p.parts[0][n:]
	if p.parts[0] == "" {
		p.done++
	}
	return n, nil
}

type newDecoderFunc func(io.Reader, Options) *Decoder

// everySplit decodes body whole and cut into reads in many ways, fails the test if any way gives another
// outcome, and returns the outcome.
func everySplit(t *testing.T, newDecoder newDecoderFunc, body string, opt Options) outcome {
	t.Helper()
	want := drain(newDecoder(strings.NewReader(body), opt))
	check := func(how string, r io.Reader) {
		t.Helper()
		if o := drain(newDecoder(r, opt)); o.String() != want.String() {
			t.Fatalf("%s gives another outcome\n%s\nthan the whole body\n%s", how, o, want)
		}
	}
	check("one byte a read", iotest.OneByteReader(strings.NewReader(body)))
	check("half a read", iotest.HalfReader(strings.NewReader(body)))
	check("data with the error", iotest.DataErrReader(strings.NewReader(body)))
	check("one byte, data with the error", iotest.DataErrReader(iotest.OneByteReader(strings.NewReader(body))))
	cuts := 200
	if len(body) > 20<<10 {
		cuts = 10
	}
	step := 1 + len(body)/cuts
	for i := 1; i < len(body); i += step {
		check(fmt.Sprintf("a cut at byte %d", i), &pieces{parts: []string{body[:i], body[i:]}})
	}
	if len(body) <= 40 {
		for i := 1; i < len(body); i++ {
			for j := i + 1; j < len(body); j++ {
				check(fmt.Sprintf("cuts at bytes %d and %d", i, j), &pieces{parts: []string{body[:i], body[i:j], body[j:]}})
			}
		}
	}
	return want
}

// stepClock gives the n-th read the time base + n seconds.
type stepClock struct{ reads int }

var stepBase = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func (c *stepClock) arrival() Arrival {
	c.reads++
	return Arrival{At: stepBase.Add(time.Duration(c.reads) * time.Second), Lag: time.Duration(c.reads), Clock: ClockKernel}
}

// readOf returns the number of the read that a stepClock gave at to.
func readOf(at time.Time) int { return int(at.Sub(stepBase) / time.Second) }

func isPlainEOF(err error) bool { return err == io.EOF } //nolint:errorlint // the contract is io.EOF itself

var errBroken = errors.New("broken")
