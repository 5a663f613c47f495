package collector

import (
	"cmp"
	"io"
	"slices"
	"time"
)

// A page is written straight from the series. The registry and the library's encoder take more than a second for 100
// targets with every scenario, and 160 MiB of garbage for each scrape; this takes a twentieth of the time. What is
// written is the same: tests compare both ways.

// encoder writes series in one of the exposition formats into a buffer of its own.
type encoder interface {
	// head begins a family.
	head(f *family)
	// series adds a series of the family. The lock of its scope is held.
	series(f *family, x *series)
	// end ends a family.
	end(f *family)
	// take returns what should be written out by now, which may be nothing, or all that is left. It is valid until
	// the next call.
	take(all bool) []byte
}

// writePage writes all series that are visible now, family by family in order of their names.
func (c *Collector) writePage(w io.Writer, e encoder) error {
	now, scopes := c.now(), c.allScopes()
	for _, f := range c.sorted {
		if err := writeFamily(w, e, f, scopes, now); err != nil {
			return err
		}
	}
	return writeOut(w, e.take(true))
}

// writeFamily writes all visible series of a family. It writes out only while no scope is locked: a slow reader of
// the page must not hold up a probe.
func writeFamily(w io.Writer, e encoder, f *family, scopes []*scope, now time.Time) error {
	started := false
	for _, s := range scopes {
		s.mu.Lock()
		for _, x := range s.series[f.index] {
			if f.Expires && x.expired(now) {
				continue
			}
			if !started {
				e.head(f)
				started = true
			}
			e.series(f, x)
		}
		s.mu.Unlock()
		if err := writeOut(w, e.take(false)); err != nil {
			return err
		}
	}
	if started {
		e.end(f)
	}
	return writeOut(w, e.take(false))
}

func writeOut(w io.Writer, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	_, err := w.Write(p)
	return err
}

// sortFamilies returns the families in the order of exposition.
func sortFamilies(families []*family) []*family {
	return slices.SortedFunc(slices.Values(families), func(a, b *family) int { return cmp.Compare(a.Name, b.Name) })
}

// WriteText writes all series in the Prometheus text format, or in OpenMetrics without its end mark. Errors are
// those of w.
func (c *Collector) WriteText(w io.Writer, openMetrics bool) error {
	return c.writePage(w, &textWriter{openMetrics: openMetrics})
}

// WriteProtobuf writes all series as length-delimited protobuf messages, which alone carry native histograms. Errors
// are those of w.
func (c *Collector) WriteProtobuf(w io.Writer) error {
	// A family has to be complete before it is written: that is megabytes in a large fleet, worth keeping.
	e, ok := c.protoWriters.Get().(*protoWriter)
	if !ok {
		e = &protoWriter{}
	}
	defer func() {
		e.ended = false
		c.protoWriters.Put(e)
	}()
	return c.writePage(w, e)
}
