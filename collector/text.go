package collector

import (
	"bytes"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// formatFloat writes a number as the text formats want it. OpenMetrics wants a point or an exponent in bounds and
// quantiles.
func formatFloat(v float64, openMetrics bool) string {
	return string(appendFloat(nil, v, openMetrics))
}

func appendFloat(to []byte, v float64, openMetrics bool) []byte {
	switch {
	case math.IsInf(v, 1):
		return append(to, "+Inf"...)
	case math.IsInf(v, -1):
		return append(to, "-Inf"...)
	case math.IsNaN(v):
		return append(to, "NaN"...)
	}
	from := len(to)
	to = strconv.AppendFloat(to, v, 'g', -1, 64)
	if openMetrics && !bytes.ContainsAny(to[from:], "e.") {
		to = append(to, ".0"...)
	}
	return to
}

// labelText returns a="x",b="y" with values escaped.
func labelText(pairs []*dto.LabelPair) string {
	escape := strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
	var b strings.Builder
	for i, p := range pairs {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(p.GetName())
		b.WriteString(`="`)
		b.WriteString(escape.Replace(p.GetValue()))
		b.WriteByte('"')
	}
	return b.String()
}

// textWriter writes a page in one of the two text formats. The bytes are those that the library's encoder makes of
// the same families, but for the order of series within a family; it exists since that encoder and the registry take
// seconds for 100 targets with every scenario, and this takes a few dozen milliseconds.
type textWriter struct {
	w           io.Writer
	openMetrics bool
	buf         []byte
	err         error // the first one of w; nothing is written after it
}

// flushAt is how much text is collected before it is written.
const flushAt = 64 << 10

// family writes all visible series of a family. Text is only written out while no scope is locked: a slow reader of
// the page must not hold up a probe.
func (t *textWriter) family(f *family, scopes []*scope, now time.Time) {
	started := false
	for _, s := range scopes {
		if t.err != nil {
			return
		}
		s.mu.Lock()
		for _, x := range s.series[f.index] {
			if x.expired(now) {
				continue
			}
			if !started {
				t.head(f)
				started = true
			}
			t.series(f, x)
		}
		s.mu.Unlock()
		if len(t.buf) >= flushAt {
			t.flush()
		}
	}
}

// flush writes what was collected.
func (t *textWriter) flush() {
	if t.err == nil {
		_, t.err = t.w.Write(t.buf)
	}
	t.buf = t.buf[:0]
}

func (t *textWriter) head(f *family) {
	name, help := f.Name, strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	if t.openMetrics {
		help = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
		if f.Type == Counter {
			name = strings.TrimSuffix(name, "_total")
		}
	}
	t.buf = append(t.buf, "# HELP "...)
	t.buf = append(t.buf, name...)
	t.buf = append(t.buf, ' ')
	t.buf = append(t.buf, help.Replace(f.Help)...)
	t.buf = append(t.buf, "\n# TYPE "...)
	t.buf = append(t.buf, name...)
	t.buf = append(t.buf, ' ')
	t.buf = append(t.buf, f.Type...)
	t.buf = append(t.buf, '\n')
}

// begin starts a line: the name, and the labels without the closing brace.
func (t *textWriter) begin(f *family, suffix string, x *series) {
	t.buf = append(t.buf, f.Name...)
	t.buf = append(t.buf, suffix...)
	if x.labels.text != "" {
		t.buf = append(t.buf, '{')
		t.buf = append(t.buf, x.labels.text...)
	}
}

// simple writes a line with one value and the series' own labels.
func (t *textWriter) simple(f *family, suffix string, x *series, v float64) {
	t.begin(f, suffix, x)
	if x.labels.text != "" {
		t.buf = append(t.buf, '}')
	}
	t.buf = append(t.buf, ' ')
	t.buf = appendFloat(t.buf, v, t.openMetrics)
	t.buf = append(t.buf, '\n')
}

// count writes a line with a whole number.
func (t *textWriter) count(f *family, x *series, n uint64) {
	t.begin(f, "_count", x)
	if x.labels.text != "" {
		t.buf = append(t.buf, '}')
	}
	t.buf = append(t.buf, ' ')
	t.buf = strconv.AppendUint(t.buf, n, 10)
	t.buf = append(t.buf, '\n')
}

func (t *textWriter) series(f *family, x *series) {
	if f.Type != Histogram {
		t.simple(f, "", x, x.value)
		return
	}
	texts := f.boundTexts
	if t.openMetrics {
		texts = f.boundTextsOM
	}
	h := x.hist
	var sum uint64
	for i, le := range texts {
		sum += h.classic[i]
		t.bucket(f, x, le, sum, i)
	}
	t.bucket(f, x, "+Inf", h.count, len(texts))
	t.simple(f, "_sum", x, h.sum)
	t.count(f, x, h.count)
}

func (t *textWriter) bucket(f *family, x *series, le string, cumulative uint64, index int) {
	t.begin(f, "_bucket", x)
	if x.labels.text != "" {
		t.buf = append(t.buf, `,le="`...)
	} else {
		t.buf = append(t.buf, `{le="`...)
	}
	t.buf = append(t.buf, le...)
	t.buf = append(t.buf, `"} `...)
	t.buf = strconv.AppendUint(t.buf, cumulative, 10)
	// Exemplars need OpenMetrics; a histogram without classic buckets has none in text.
	if e := x.hist.exemplarOf(index); t.openMetrics && e != nil && len(f.bounds) > 0 {
		t.exemplar(e)
	}
	t.buf = append(t.buf, '\n')
}

func (t *textWriter) exemplar(e *exemplar) {
	t.buf = append(t.buf, ` # {trace_id="`...)
	t.buf = append(t.buf, e.trace...)
	t.buf = append(t.buf, `"} `...)
	t.buf = appendFloat(t.buf, e.value, true)
	t.buf = append(t.buf, ' ')
	t.buf = appendFloat(t.buf, float64(time.Unix(0, e.at).UnixNano())/1e9, true)
}
