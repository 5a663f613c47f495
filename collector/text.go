package collector

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// formatFloat writes a number as the text formats want it. OpenMetrics wants a point or an exponent in bounds and
// quantiles.
func formatFloat(v float64, openMetrics bool) string {
	return string(appendFloat(nil, v, openMetrics))
}

func appendFloat(to []byte, v float64, openMetrics bool) []byte {
	switch {
	case v >= 0 && v < 1e6 && v == math.Trunc(v):
		// Most values are small counts; beyond this the general form has an exponent.
		to = strconv.AppendUint(to, uint64(v), 10)
		if openMetrics {
			to = append(to, ".0"...)
		}
		return to
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

// textWriter writes families in one of the two text formats. The bytes are those that the library's encoder makes of
// the same families, but for the order of series within a family.
type textWriter struct {
	openMetrics bool
	buf         []byte
	prefix      []byte // of the bucket lines of a series
}

// takeAt is how much text is collected before it is written out.
const takeAt = 64 << 10

func (t *textWriter) end(*family) {}

func (t *textWriter) take(all bool) []byte {
	if len(t.buf) < takeAt && !all {
		return nil
	}
	text := t.buf
	t.buf = t.buf[:0]
	return text
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
	if x.text != "" {
		t.buf = append(t.buf, '{')
		t.buf = append(t.buf, x.text...)
	}
}

// simple writes a line with one value and the series' own labels.
func (t *textWriter) simple(f *family, suffix string, x *series, v float64) {
	t.begin(f, suffix, x)
	if x.text != "" {
		t.buf = append(t.buf, '}')
	}
	t.buf = append(t.buf, ' ')
	t.buf = appendFloat(t.buf, v, t.openMetrics)
	t.buf = append(t.buf, '\n')
}

// count writes a line with a whole number.
func (t *textWriter) count(f *family, x *series, n uint64) {
	t.begin(f, "_count", x)
	if x.text != "" {
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
	t.buckets(f, x)
	t.simple(f, "_sum", x, x.hist.sum)
	t.count(f, x, x.hist.count)
}

// buckets writes the cumulative buckets. They are nine tenths of a page: what all lines of a series have in common is
// put together once.
func (t *textWriter) buckets(f *family, x *series) {
	from := len(t.buf)
	t.begin(f, "_bucket", x)
	if x.text != "" {
		t.buf = append(t.buf, `,le="`...)
	} else {
		t.buf = append(t.buf, `{le="`...)
	}
	t.prefix = append(t.prefix[:0], t.buf[from:]...)
	t.buf = t.buf[:from]

	h, texts := x.hist, f.boundTexts
	if t.openMetrics {
		texts = f.boundTextsOM
	}
	// Exemplars need OpenMetrics; without classic buckets they are for protobuf alone.
	exemplars := t.openMetrics && len(h.ex) > 0 && len(f.bounds) > 0
	var sum uint64
	for i, le := range texts {
		if i < len(f.bounds) {
			sum += h.classic[i]
		} else {
			sum = h.count
		}
		t.buf = append(t.buf, t.prefix...)
		t.buf = append(t.buf, le...)
		t.buf = strconv.AppendUint(t.buf, sum, 10)
		if exemplars {
			if e := h.exemplarOf(i); e != nil {
				t.exemplar(e)
			}
		}
		t.buf = append(t.buf, '\n')
	}
}

func (t *textWriter) exemplar(e *exemplar) {
	t.buf = append(t.buf, ` # {trace_id="`...)
	t.buf = append(t.buf, e.trace...)
	t.buf = append(t.buf, `"} `...)
	t.buf = appendFloat(t.buf, e.value, true)
	t.buf = append(t.buf, ' ')
	t.buf = appendMillis(t.buf, e.at)
}

// appendMillis writes milliseconds of Unix time as seconds, in the form that appendFloat gives them: a page has up to
// 100,000 of them, and the general way takes five times as long.
func appendMillis(to []byte, ms int64) []byte {
	if ms < 1e12 || ms >= 1e13 { // not between 2001 and 2286
		return appendFloat(to, float64(ms)/1e3, true)
	}
	from := len(to)
	to = strconv.AppendInt(to, ms, 10)
	to = append(to, 0)
	copy(to[from+2:], to[from+1:])
	to[from+1] = '.'
	to = bytes.TrimRight(to, "0")
	to = bytes.TrimSuffix(to, []byte("."))
	return append(to, "e+09"...)
}
