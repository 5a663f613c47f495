package enginemetrics

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"mime"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Limits of a page. They are far above what any engine serves.
const (
	MaxPageBytes = 8 << 20 // of the page as text, after decompression
	maxBadLines  = 1000    // a page with more of them is not a metrics page
	maxSeries    = 200_000 // kept of one page
	chunkBytes   = 64 << 10
)

// Errors that say what a page is instead of a metrics page. Parse wraps them with what it saw.
var (
	ErrJSON      = errors.New("JSON where Prometheus text was expected")
	ErrHTML      = errors.New("HTML where Prometheus text was expected")
	ErrEmpty     = errors.New("empty page")
	ErrTooLarge  = errors.New("page too large")
	ErrMalformed = errors.New("not a metrics page")
)

// Label is a label of a sample.
type Label struct{ Name, Value string }

// Sample is one line of a page: a value and its labels.
type Sample struct {
	Labels []Label // in the page's order
	Value  float64 // may be NaN or infinite
}

// Get returns the value of a label, empty if the sample has none of that name.
func (s Sample) Get(name string) string {
	for _, l := range s.Labels {
		if l.Name == name {
			return l.Value
		}
	}
	return ""
}

// Page holds the samples of a page under their names as written, so that the sum of a histogram stands under
// name_sum. Buckets of histograms are left out: nothing here reads them.
type Page struct {
	samples map[string][]Sample
	types   map[string]string // by family name, from TYPE lines
}

// Samples returns the samples of that very name.
func (p Page) Samples(name string) []Sample { return p.samples[name] }

// Type returns what the page says the family's type is, empty if it does not.
func (p Page) Type(family string) string { return p.types[family] }

// Len returns the number of names with samples.
func (p Page) Len() int { return len(p.samples) }

// Report says what Parse had to overlook.
type Report struct {
	BadLines   int    // lines that are no samples and were skipped
	FirstBad   string // why the first of them was
	Duplicates int    // samples whose name and labels had been seen before on the page; the first one counts
}

// Parse reads a page in the Prometheus text format or in OpenMetrics. A malformed line is skipped and counted; it
// never costs the rest of the page. An error means that there is nothing to use.
//
// Every sample is parsed by itself, without its TYPE line: so one broken or repeated TYPE cannot hide the samples
// that follow it, and a page that is cut short still gives all that precedes the cut.
func Parse(page []byte, contentType string) (Page, Report, error) {
	if len(page) > MaxPageBytes {
		return Page{}, Report{}, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, MaxPageBytes)
	}
	page = bytes.TrimPrefix(page, []byte("\xef\xbb\xbf"))
	if err := recognise(page, contentType); err != nil {
		return Page{}, Report{}, err
	}
	p := parser{
		text:     expfmt.NewTextParser(model.UTF8Validation),
		families: Page{samples: map[string][]Sample{}, types: map[string]string{}},
		seen:     map[string]bool{},
		open:     isOpenMetrics(contentType, page),
	}
	if err := p.page(page); err != nil {
		return Page{}, p.report, err
	}
	if len(p.families.samples) == 0 && len(p.families.types) == 0 {
		if p.report.BadLines > 0 {
			return Page{}, p.report, fmt.Errorf("%w: %s", ErrMalformed, p.report.FirstBad)
		}
		return Page{}, p.report, ErrEmpty
	}
	return p.families, p.report, nil
}

// recognise tells apart what is served under a metrics path and is no metrics page.
func recognise(page []byte, contentType string) error {
	kind, _, _ := mime.ParseMediaType(contentType)
	body := bytes.TrimLeft(page, " \t\r\n")
	switch {
	case len(body) == 0:
		return ErrEmpty
	case kind == "application/json", body[0] == '[', body[0] == '{' && looksLikeObject(body):
		return ErrJSON
	case kind == "text/html", body[0] == '<':
		return ErrHTML
	}
	return nil
}

// looksLikeObject tells a JSON object from a line that begins with a quoted metric name: {"name",label="value"} 1.
func looksLikeObject(body []byte) bool {
	rest := bytes.TrimLeft(body[1:], " \t\r\n")
	if len(rest) == 0 || rest[0] == '}' {
		return true
	}
	if rest[0] != '"' {
		return false
	}
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case '"':
			rest = bytes.TrimLeft(rest[i+1:], " \t\r\n")
			return len(rest) > 0 && rest[0] == ':'
		}
	}
	return false
}

// isOpenMetrics trusts the content type and, where a proxy has lost it, the mark at the end of the page.
func isOpenMetrics(contentType string, page []byte) bool {
	kind, _, _ := mime.ParseMediaType(contentType)
	return kind == "application/openmetrics-text" || bytes.HasSuffix(bytes.TrimRight(page, "\r\n"), []byte("\n# EOF"))
}

type parser struct {
	text     expfmt.TextParser
	families Page
	report   Report
	seen     map[string]bool
	series   int
	open     bool // OpenMetrics
}

// page parses the page in pieces of whole lines, which bounds what the text parser holds at a time.
func (p *parser) page(page []byte) error {
	chunk := make([]byte, 0, min(len(page)+1, chunkBytes))
	for len(page) > 0 {
		var line []byte
		line, page, _ = bytes.Cut(page, []byte("\n"))
		line = bytes.TrimRight(line, " \t\r")
		if len(line) == 0 {
			continue
		}
		if line[0] == '#' {
			if p.open && string(line) == "# EOF" {
				break
			}
			p.comment(string(line))
			continue
		}
		if p.open {
			line = cutOpenMetrics(line)
		}
		if len(chunk)+len(line)+1 > chunkBytes {
			if err := p.chunk(chunk); err != nil {
				return err
			}
			chunk = chunk[:0]
		}
		chunk = append(append(chunk, line...), '\n')
	}
	return p.chunk(chunk)
}

// comment keeps the first type of each family. Repeated and odd comments are nothing to complain about.
func (p *parser) comment(line string) {
	f := strings.Fields(line)
	if len(f) != 4 || f[0] != "#" || f[1] != "TYPE" || p.series+len(p.families.types) > maxSeries {
		return
	}
	name := strings.Trim(f[2], `"`)
	if _, known := p.families.types[name]; !known {
		p.families.types[strings.Clone(name)] = strings.Clone(strings.ToLower(f[3]))
	}
}

// chunk parses whole lines. After a bad line it goes on with the next one, so that every line is parsed at most
// twice however many are bad.
func (p *parser) chunk(chunk []byte) error {
	for len(chunk) > 0 {
		families, err := p.text.TextToMetricFamilies(bytes.NewReader(chunk))
		if err == nil {
			return p.take(families)
		}
		good, bad, rest := splitAtLine(chunk, err)
		p.bad(bad, err)
		if p.report.BadLines > maxBadLines {
			return fmt.Errorf("%w: more than %d bad lines, the first: %s", ErrMalformed, maxBadLines, p.report.FirstBad)
		}
		// What the parser returns beside an error may hold half of the bad line: only whole lines are taken.
		if len(good) > 0 {
			families, err := p.text.TextToMetricFamilies(bytes.NewReader(good))
			if err != nil {
				return fmt.Errorf("%w: %w", ErrMalformed, err)
			}
			if err := p.take(families); err != nil {
				return err
			}
		}
		chunk = rest
	}
	return nil
}

// splitAtLine cuts a chunk around the line that an error names.
func splitAtLine(chunk []byte, err error) (good, bad, rest []byte) {
	line := 1
	var at expfmt.ParseError
	if errors.As(err, &at) {
		line = max(at.Line, 1)
	}
	begin := 0
	for range line - 1 {
		i := bytes.IndexByte(chunk[begin:], '\n')
		if i < 0 || begin+i+1 >= len(chunk) {
			break
		}
		begin += i + 1
	}
	end := len(chunk)
	if i := bytes.IndexByte(chunk[begin:], '\n'); i >= 0 {
		end = begin + i + 1
	}
	return chunk[:begin], chunk[begin:end], chunk[end:]
}

func (p *parser) bad(line []byte, err error) {
	p.report.BadLines++
	if p.report.FirstBad != "" {
		return
	}
	text := strings.ToValidUTF8(string(line[:min(len(line), 80)]), "?")
	reason := err.Error()
	var at expfmt.ParseError
	if errors.As(err, &at) {
		reason = at.Msg
	}
	p.report.FirstBad = fmt.Sprintf("%q: %.120s", strings.TrimSpace(text), reason)
}

func (p *parser) take(families map[string]*dto.MetricFamily) error {
	for name, family := range families {
		if strings.HasSuffix(name, "_bucket") {
			continue
		}
		for _, m := range family.GetMetric() {
			if m.GetUntyped() == nil {
				continue
			}
			s := Sample{Value: m.GetUntyped().GetValue(), Labels: make([]Label, len(m.GetLabel()))}
			for i, l := range m.GetLabel() {
				s.Labels[i] = Label{Name: l.GetName(), Value: l.GetValue()}
			}
			key := seriesKey(name, s.Labels)
			if p.seen[key] {
				p.report.Duplicates++
				continue
			}
			if p.series++; p.series > maxSeries {
				return fmt.Errorf("%w: more than %d series", ErrTooLarge, maxSeries)
			}
			p.seen[key] = true
			p.families.samples[name] = append(p.families.samples[name], s)
		}
	}
	return nil
}

// seriesKey is equal for samples of the same name and labels, in whatever order they are written.
func seriesKey(name string, labels []Label) string {
	sorted := make([]Label, len(labels))
	copy(sorted, labels)
	for i := 1; i < len(sorted); i++ {
		for j := i; j > 0 && sorted[j].Name < sorted[j-1].Name; j-- {
			sorted[j], sorted[j-1] = sorted[j-1], sorted[j]
		}
	}
	var b strings.Builder
	b.WriteString(name)
	for _, l := range sorted {
		b.WriteByte(0xff)
		b.WriteString(l.Name)
		b.WriteByte(0xfe)
		b.WriteString(l.Value)
	}
	return b.String()
}

// cutOpenMetrics leaves of a sample its name, labels and value: the timestamp is in seconds there and the exemplar
// is unknown to the text format, and neither is of use here.
func cutOpenMetrics(line []byte) []byte {
	end := 0
	if i := bytes.IndexAny(line, "{ "); i >= 0 && line[i] == '{' {
		end = labelsEnd(line, i)
	}
	if end < 0 {
		return line
	}
	rest := line[end:]
	if i := bytes.Index(rest, []byte(" # ")); i >= 0 {
		rest = rest[:i]
	}
	fields := bytes.Fields(rest)
	keep := 1 // the value
	if end == 0 {
		keep = 2 // the name and the value
	}
	if len(fields) != keep+1 {
		return line[:end+len(rest)]
	}
	return line[:end+bytes.LastIndexByte(bytes.TrimRight(rest, " \t"), ' ')]
}

// labelsEnd returns the index after the brace that closes the labels, or -1.
func labelsEnd(line []byte, open int) int {
	quoted := false
	for i := open; i < len(line); i++ {
		switch c := line[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == '}' && !quoted:
			return i + 1
		}
	}
	return -1
}

// finite reports whether a value is a number.
func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
