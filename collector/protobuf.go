package collector

import (
	"math"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// protoWriter writes families as length-delimited messages io.prometheus.client.MetricFamily. The numbers of the
// fields are those of that format's definition (package dto).
type protoWriter struct {
	family []byte // begins with room for its length
	ended  bool

	metric, part, sub, leaf []byte // messages in the making, each inside the one before
}

// Field numbers.
const (
	familyName, familyHelp, familyType, familyMetric                    = 1, 2, 3, 4
	metricLabel, metricGauge, metricCounter, metricHistogram            = 1, 2, 3, 7
	nameField, valueField                                               = 1, 2 // of a label pair
	simpleValue, counterCreated                                         = 1, 3 // of a counter or gauge
	histogramCount, histogramSum, histogramBucket, histogramSchema      = 1, 2, 3, 5
	histogramZeroThreshold, histogramZeroCount                          = 6, 7
	histogramSpan, histogramDelta, histogramCreated, histogramExemplars = 12, 13, 15, 16
	bucketCount, bucketBound, bucketExemplar                            = 1, 2, 3
	spanOffset, spanLength                                              = 1, 2
	exemplarLabel, exemplarValue, exemplarTime                          = 1, 2, 3
	timeSeconds, timeNanos                                              = 1, 2
)

func appendText(to []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(to, field, protowire.BytesType), s)
}

func appendMessage(to []byte, field protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, field, protowire.BytesType), m)
}

func appendUint(to []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(to, field, protowire.VarintType), v)
}

func appendSigned(to []byte, field protowire.Number, v int64) []byte {
	return appendUint(to, field, protowire.EncodeZigZag(v))
}

func appendDouble(to []byte, field protowire.Number, v float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(to, field, protowire.Fixed64Type), math.Float64bits(v))
}

// labelWire returns label pairs as fields of a metric.
func labelWire(pairs []*dto.LabelPair) string {
	var out, pair []byte
	for _, p := range pairs {
		pair = appendText(pair[:0], nameField, p.GetName())
		pair = appendText(pair, valueField, p.GetValue())
		out = appendMessage(out, metricLabel, pair)
	}
	return string(out)
}

// appendTime leaves out fields that are 0, as the format does for time stamps.
func appendTime(to []byte, seconds int64, nanos int32) []byte {
	if seconds != 0 {
		to = appendUint(to, timeSeconds, uint64(seconds))
	}
	if nanos != 0 {
		to = appendUint(to, timeNanos, uint64(nanos))
	}
	return to
}

func appendCreated(to []byte, field protowire.Number, t *timestamppb.Timestamp) []byte {
	var stamp [24]byte
	return appendMessage(to, field, appendTime(stamp[:0], t.GetSeconds(), t.GetNanos()))
}

func (t *protoWriter) head(f *family) {
	kind := map[Type]dto.MetricType{Counter: dto.MetricType_COUNTER, Gauge: dto.MetricType_GAUGE, Histogram: dto.MetricType_HISTOGRAM}[f.Type]
	t.family = appendText(append(t.family[:0], make([]byte, lengthRoom)...), familyName, f.Name)
	t.family = appendText(t.family, familyHelp, f.Help)
	t.family = appendUint(t.family, familyType, uint64(kind))
}

func (t *protoWriter) end(*family) { t.ended = true }

// lengthRoom is the room for the length of a family, which is known at its end and comes before it.
const lengthRoom = 10

// take returns a whole family.
func (t *protoWriter) take(bool) []byte {
	if !t.ended {
		return nil
	}
	t.ended = false
	length := uint64(len(t.family) - lengthRoom)
	from := lengthRoom - protowire.SizeVarint(length)
	protowire.AppendVarint(t.family[:from], length)
	return t.family[from:]
}

func (t *protoWriter) series(f *family, x *series) {
	t.metric = append(t.metric[:0], x.wire...)
	t.part = t.part[:0]
	switch f.Type {
	case Counter:
		t.part = appendDouble(t.part, simpleValue, x.value)
		t.part = appendCreated(t.part, counterCreated, x.scope.created)
		t.metric = appendMessage(t.metric, metricCounter, t.part)
	case Gauge:
		t.part = appendDouble(t.part, simpleValue, x.value)
		t.metric = appendMessage(t.metric, metricGauge, t.part)
	case Histogram:
		t.histogram(f, x)
		t.metric = appendMessage(t.metric, metricHistogram, t.part)
	}
	t.family = appendMessage(t.family, familyMetric, t.metric)
}

func (t *protoWriter) histogram(f *family, x *series) {
	h := x.hist
	t.part = appendUint(t.part, histogramCount, h.count)
	t.part = appendDouble(t.part, histogramSum, h.sum)
	if len(f.bounds) > 0 {
		t.classic(f, h)
	}
	if f.native {
		t.native(&h.native)
	}
	t.part = appendCreated(t.part, histogramCreated, x.scope.created)
	if f.native {
		for _, e := range h.inOrder() {
			t.part = appendMessage(t.part, histogramExemplars, t.exemplar(f, e))
		}
	}
}

func (t *protoWriter) classic(f *family, h *histogram) {
	var sum uint64
	for i, bound := range f.bounds {
		sum += h.classic[i]
		t.bucket(f, sum, bound, h.exemplarOf(i))
	}
	// The +Inf bucket is implied unless it has an exemplar.
	if e := h.exemplarOf(len(f.bounds)); e != nil {
		t.bucket(f, h.count, math.Inf(1), e)
	}
}

func (t *protoWriter) bucket(f *family, cumulative uint64, bound float64, e *exemplar) {
	t.sub = appendUint(t.sub[:0], bucketCount, cumulative)
	t.sub = appendDouble(t.sub, bucketBound, bound)
	if e != nil {
		t.sub = appendMessage(t.sub, bucketExemplar, t.exemplar(f, *e))
	}
	t.part = appendMessage(t.part, histogramBucket, t.sub)
}

func (t *protoWriter) native(n *nativeBuckets) {
	t.part = appendSigned(t.part, histogramSchema, int64(n.schema()))
	t.part = appendDouble(t.part, histogramZeroThreshold, nativeZeroThreshold)
	t.part = appendUint(t.part, histogramZeroCount, n.zero)
	for offset, length := range n.spans() {
		t.sub = appendSigned(t.sub[:0], spanOffset, int64(offset))
		t.sub = appendUint(t.sub, spanLength, uint64(length))
		t.part = appendMessage(t.part, histogramSpan, t.sub)
	}
	var previous uint64
	for _, c := range n.counts {
		if c != 0 {
			t.part = appendSigned(t.part, histogramDelta, int64(c)-int64(previous))
			previous = c
		}
	}
}

// exemplar returns the message of an exemplar, valid until the next call.
func (t *protoWriter) exemplar(f *family, e exemplar) []byte {
	var label [128]byte
	text := appendText(label[:0], nameField, f.traceLabel)
	text = appendText(text, valueField, e.trace)
	t.leaf = appendMessage(t.leaf[:0], exemplarLabel, text)
	t.leaf = appendDouble(t.leaf, exemplarValue, e.value)
	at := time.UnixMilli(e.at)
	var stamp [24]byte
	t.leaf = appendMessage(t.leaf, exemplarTime, appendTime(stamp[:0], at.Unix(), int32(at.Nanosecond())))
	return t.leaf
}
