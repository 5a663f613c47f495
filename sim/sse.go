package sim

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// errCut ends a stream whose connection is gone on purpose.
var errCut = errors.New("sim: connection cut by a fault")

const dripBytes = 16

// wireWriter frames events, writes them as the faults want, and records when.
// It is used by one goroutine.
type wireWriter struct {
	ctx  context.Context
	w    http.ResponseWriter
	rc   *http.ResponseController
	f    *faults
	gz   *gzip.Writer
	recs *records
	rec  *Record

	wroteHeaders bool
	frame        []byte
	held         []byte // of a buffered answer
	heldEvents   []RecordEvent
}

func (w *wireWriter) headers(contentType string) error {
	if w.wroteHeaders {
		return nil
	}
	w.wroteHeaders = true
	h := w.w.Header()
	if w.f.contentType != "" {
		contentType = w.f.contentType
	}
	h.Set("Content-Type", contentType)
	if w.f.gzip {
		h.Set("Content-Encoding", "gzip")
		w.gz = gzip.NewWriter(w.w)
	}
	w.recs.update(w.rec, func(r *Record) { r.Status = http.StatusOK })
	before := time.Now()
	w.w.WriteHeader(http.StatusOK)
	if w.f.buffered {
		return nil
	}
	err := w.rc.Flush()
	w.recs.add(w.rec, RecordEvent{Kind: EventHeaders, Before: before, After: time.Now()})
	if err == nil && w.f.bom {
		_, err = io.WriteString(w.w, "\ufeff")
	}
	return err
}

func (w *wireWriter) newline() string {
	switch {
	case w.f.crlf:
		return "\r\n"
	case w.f.cr:
		return "\r"
	default:
		return "\n"
	}
}

// event writes one SSE event; open leaves out the blank line after it.
func (w *wireWriter) event(ev RecordEvent, data []byte, open bool) error {
	if err := w.headers("text/event-stream; charset=utf-8"); err != nil {
		return err
	}
	nl := w.newline()
	prefix := "data: "
	if w.f.noSpace {
		prefix = "data:"
	}
	b := append(w.frame[:0], prefix...)
	if i := bytes.IndexByte(data, ',') + 1; w.f.multiline && i > 0 {
		b = append(append(append(b, data[:i]...), nl...), prefix...)
		data = data[i:]
	}
	b = append(b, data...)
	if !open {
		b = append(append(b, nl...), nl...)
	}
	w.frame = b
	return w.raw(ev, b)
}

// lines writes bytes that are no data event; line ends are adapted.
func (w *wireWriter) lines(kind EventKind, text string) error {
	if err := w.headers("text/event-stream; charset=utf-8"); err != nil {
		return err
	}
	return w.raw(RecordEvent{Kind: kind}, bytes.ReplaceAll([]byte(text), []byte("\n"), []byte(w.newline())))
}

// raw writes bytes and records the write.
func (w *wireWriter) raw(ev RecordEvent, b []byte) error {
	if w.f.buffered {
		w.held = append(w.held, b...)
		w.heldEvents = append(w.heldEvents, ev)
		return nil
	}
	ev.Before = time.Now()
	err := w.send(b)
	ev.After = time.Now()
	if err == nil {
		w.recs.add(w.rec, ev)
	}
	return err
}

func (w *wireWriter) send(b []byte) error {
	for w.f.drip > 0 && len(b) > dripBytes {
		if err := w.flush(b[:dripBytes]); err != nil {
			return err
		}
		b = b[dripBytes:]
		if err := sleep(w.ctx, w.f.drip); err != nil {
			return err
		}
	}
	return w.flush(b)
}

func (w *wireWriter) flush(b []byte) error {
	if w.gz == nil {
		if _, err := w.w.Write(b); err != nil {
			return err
		}
		return w.rc.Flush()
	}
	if _, err := w.gz.Write(b); err != nil {
		return err
	}
	if err := w.gz.Flush(); err != nil {
		return err
	}
	return w.rc.Flush()
}

// close ends the body: what was held goes out in one write.
func (w *wireWriter) close() error {
	var err error
	if w.f.buffered {
		before := time.Now()
		err = w.send(w.held)
		now := time.Now()
		for _, ev := range w.heldEvents {
			ev.Before, ev.After = before, now
			if err == nil {
				w.recs.add(w.rec, ev)
			}
		}
	}
	if w.gz != nil {
		err = errors.Join(err, w.gz.Close())
	}
	return err
}

// cut drops the connection under the answer, by RST or by FIN.
func (w *wireWriter) cut(reset bool) error {
	conn, _, err := w.rc.Hijack()
	if err != nil {
		return err
	}
	raw := conn
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
		raw = t.NetConn()
	}
	if tcp, ok := raw.(*net.TCPConn); ok && reset {
		if err := tcp.SetLinger(0); err != nil {
			return err
		}
	}
	if err := raw.Close(); err != nil {
		return err
	}
	return errCut
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
