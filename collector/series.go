package collector

import (
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// family is a row of the table with what is needed to export it. It is never modified after New.
type family struct {
	Metric
	index      int
	desc       *prometheus.Desc
	tier       tier
	extra      []string // labels beyond those of the tier
	bounds     []float64
	native     bool
	traceLabel string // "trace_id", so that exemplars can point to it

	// boundTexts are the bounds and +Inf as they end the labels of a bucket's line, in the two text formats.
	boundTexts, boundTextsOM []string
}

// tier says with what a series lives and dies.
type tier int

const (
	ofExporter tier = iota // no base label
	ofTarget               // label target
	ofPair                 // labels target and scenario
)

// newFamily prepares a row for export.
func newFamily(m Metric, index int, bounds []float64, native bool) *family {
	f := &family{Metric: m, index: index, bounds: bounds, native: native, traceLabel: "trace_id", extra: m.Labels}
	f.desc = prometheus.NewDesc(m.Name, m.Help, m.Labels, nil)
	for len(f.extra) > 0 && (f.extra[0] == "target" || f.extra[0] == "scenario") {
		f.tier++
		f.extra = f.extra[1:]
	}
	for _, b := range append(slices.Clone(bounds), math.Inf(1)) {
		f.boundTexts = append(f.boundTexts, formatFloat(b, false)+`"} `)
		f.boundTextsOM = append(f.boundTextsOM, formatFloat(b, true)+`"} `)
	}
	return f
}

// series is one series, or one histogram. Its scope's lock protects value, at and hist.
type series struct {
	family *family
	scope  *scope
	labels *labelSet
	text   string // labels.text and labels.wire, one step nearer for the writers of pages
	wire   string
	value  float64
	at     int64 // when an expiring gauge was measured, Unix nanoseconds
	hist   *histogram
}

// Desc implements prometheus.Metric.
func (s *series) Desc() *prometheus.Desc { return s.family.desc }

// Write implements prometheus.Metric.
func (s *series) Write(out *dto.Metric) error {
	s.scope.mu.Lock()
	defer s.scope.mu.Unlock()
	out.Label = s.labels.pairs
	switch s.family.Type {
	case Counter:
		out.Counter = &dto.Counter{Value: proto.Float64(s.value), CreatedTimestamp: s.scope.created}
	case Gauge:
		out.Gauge = &dto.Gauge{Value: proto.Float64(s.value)}
	case Histogram:
		out.Histogram = s.hist.write(s.family, s.scope.created)
	}
	return nil
}

// labelSet is one combination of label values of a scope. Sets are shared by all families with the same labels.
type labelSet struct {
	names  []string         // of the labels beyond the scope's
	values []string         // in the same order
	pairs  []*dto.LabelPair // all labels, sorted by name; never modified
	text   string           // the same in the text formats, without braces
	wire   string           // the same in protobuf, as fields of a metric
}

// scope holds the series of one tier: of a pair, of a target or of the exporter.
type scope struct {
	mu     sync.Mutex
	base   []*dto.LabelPair
	series [][]*series // by family
	sets   []*labelSet
	names  []*dto.LabelPair // label pairs beyond the base, shared by the sets

	// created is when the scope began, and with it all its counts, whenever their series appeared: a reader that
	// knows it sees the first event of a series, too.
	created *timestamppb.Timestamp

	// lifetime tells for how long an expiring gauge is shown; nil where there are none.
	lifetime func(*family) time.Duration
}

// newScope makes an empty scope with base labels.
func newScope(families int, created time.Time, base ...*dto.LabelPair) *scope {
	return &scope{base: base, series: make([][]*series, families), created: timestamppb.New(created)}
}

// labelPair makes a pair of a configured value, which is kept whole: two targets must not become one.
func labelPair(name, value string) *dto.LabelPair {
	return &dto.LabelPair{Name: &name, Value: proto.String(strings.ToValidUTF8(value, "\uFFFD"))}
}

// maxLabelValue is the longest label value: some come from servers.
const maxLabelValue = 256

// labelValue makes any string a legal label value of bounded length.
func labelValue(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) > maxLabelValue {
		s = strings.ToValidUTF8(s[:maxLabelValue], "")
	}
	return s
}

// get returns the series of a family with the values of its further labels, and makes it if there is none.
func (s *scope) get(f *family, values ...string) *series {
	for _, x := range s.series[f.index] {
		if slices.Equal(x.labels.values, values) {
			return x
		}
	}
	x := &series{family: f, scope: s, labels: s.labelsFor(f, slices.Clone(values))}
	x.text, x.wire = x.labels.text, x.labels.wire
	if f.Type == Histogram {
		x.hist = &histogram{}
	}
	s.series[f.index] = append(s.series[f.index], x)
	return x
}

// labelsFor returns the shared set of label values.
func (s *scope) labelsFor(f *family, values []string) *labelSet {
	for _, set := range s.sets {
		if slices.Equal(set.values, values) && slices.Equal(set.names, f.extra) {
			return set
		}
	}
	set := &labelSet{names: f.extra, values: values, pairs: slices.Clone(s.base)}
	for i, name := range f.extra {
		set.pairs = append(set.pairs, s.pair(name, values[i]))
	}
	slices.SortFunc(set.pairs, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
	set.text, set.wire = labelText(set.pairs), labelWire(set.pairs)
	s.sets = append(s.sets, set)
	return set
}

// pair returns a shared label pair.
func (s *scope) pair(name, value string) *dto.LabelPair {
	value = labelValue(value)
	for _, p := range s.names {
		if p.GetName() == name && p.GetValue() == value {
			return p
		}
	}
	p := labelPair(name, value)
	s.names = append(s.names, p)
	return p
}

// add increases a counter.
func (s *scope) add(f *family, by float64, values ...string) { s.get(f, values...).value += by }

// set sets a gauge, measured at the given time.
func (s *scope) set(f *family, v float64, at time.Time, values ...string) {
	x := s.get(f, values...)
	x.value, x.at = v, at.UnixNano()
}

// remove deletes the series of a family that match.
func (s *scope) remove(f *family, match func(values []string) bool) {
	s.series[f.index] = slices.DeleteFunc(s.series[f.index], func(x *series) bool { return match(x.labels.values) })
}

// removeValue deletes the series of every family whose label of that name has a value that is not kept.
func (s *scope) removeValue(name string, keep func(string) bool) {
	for i, list := range s.series {
		s.series[i] = slices.DeleteFunc(list, func(x *series) bool {
			at := slices.Index(x.family.extra, name)
			return at >= 0 && !keep(x.labels.values[at])
		})
	}
	s.sets = slices.DeleteFunc(s.sets, func(set *labelSet) bool {
		at := slices.Index(set.names, name)
		return at >= 0 && !keep(set.values[at])
	})
	s.names = slices.DeleteFunc(s.names, func(p *dto.LabelPair) bool {
		return p.GetName() == name && !keep(p.GetValue())
	})
}

// finite says whether v can be exported: what is not a number says nothing and would spoil every sum.
func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
