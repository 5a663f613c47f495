package collector

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"sort"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Why an own histogram: 100 targets with every scenario make about 20,000 of them. With the library's (built for
// concurrent observers: two sets of counts, a concurrent map per set) they take 122 MiB of live heap; one observer
// at a time under the pair's lock needs a slice. What is exposed is the same, bucket by bucket (see the tests).

const (
	// nativeSchema gives buckets that grow by 2^(1/8) = 1.0905: the finest schema whose factor is below 1.1.
	nativeSchema = 3
	// maxNativeBuckets is the longest span of native buckets. A longer one is halved in resolution, which keeps
	// every count: no counter reset, unlike a library histogram that starts again.
	maxNativeBuckets = 160
	// nativeZeroThreshold is the width of the zero bucket: the library's default.
	nativeZeroThreshold = 0x1p-128
	// maxExemplars is how many exemplars a histogram keeps, at most one for each classic bucket.
	maxExemplars = 5
)

// histogram counts observations of one series. The owner's lock protects it.
type histogram struct {
	sum     float64
	count   uint64
	classic []uint64 // not cumulative; one more than there are bounds
	native  nativeBuckets
	ex      []exemplar
}

// exemplar points from a bucket to the trace of one observation.
type exemplar struct {
	bucket int
	value  float64
	at     int64 // Unix milliseconds
	trace  string
}

// observe counts v, which must be finite and not negative.
func (h *histogram) observe(f *family, v float64, trace string, now time.Time) {
	h.sum += v
	h.count++
	if h.classic == nil {
		h.classic = make([]uint64, len(f.bounds)+1)
	}
	bucket := sort.SearchFloat64s(f.bounds, v)
	h.classic[bucket]++
	if f.native {
		h.native.observe(v)
	}
	// The limit of OpenMetrics is 128 characters for an exemplar's labels; a trace ID has 32.
	if trace != "" && len(trace) <= 64 {
		h.remember(exemplar{bucket: bucket, value: v, at: now.UnixMilli(), trace: trace})
	}
}

// remember keeps e in place of an older one of the same bucket, or else of the oldest.
func (h *histogram) remember(e exemplar) {
	oldest := 0
	for i := range h.ex {
		if h.ex[i].bucket == e.bucket {
			h.ex[i] = e
			return
		}
		if h.ex[i].at < h.ex[oldest].at {
			oldest = i
		}
	}
	if len(h.ex) < maxExemplars {
		h.ex = append(h.ex, e)
		return
	}
	h.ex[oldest] = e
}

// exemplarOf returns the exemplar of a classic bucket, or nil.
func (h *histogram) exemplarOf(bucket int) *exemplar {
	for i := range h.ex {
		if h.ex[i].bucket == bucket {
			return &h.ex[i]
		}
	}
	return nil
}

// inOrder returns the exemplars by time, as native histograms expose them. It sorts them in place.
func (h *histogram) inOrder() []exemplar {
	slices.SortStableFunc(h.ex, func(a, b exemplar) int { return cmp.Compare(a.at, b.at) })
	return h.ex
}

// write fills in the exposition form.
func (h *histogram) write(f *family, created *timestamppb.Timestamp) *dto.Histogram {
	out := &dto.Histogram{SampleCount: proto.Uint64(h.count), SampleSum: proto.Float64(h.sum), CreatedTimestamp: created}
	if len(f.bounds) > 0 {
		h.writeClassic(f, out)
	}
	if f.native {
		h.native.write(out)
		for _, e := range h.inOrder() {
			out.Exemplars = append(out.Exemplars, e.write(f))
		}
	}
	return out
}

func (h *histogram) writeClassic(f *family, out *dto.Histogram) {
	// One allocation for all buckets: a page has hundreds of thousands.
	buckets := make([]dto.Bucket, len(f.bounds))
	counts := make([]uint64, len(f.bounds))
	out.Bucket = make([]*dto.Bucket, len(f.bounds))
	var sum uint64
	for i := range buckets {
		sum += h.classic[i]
		counts[i] = sum
		buckets[i].CumulativeCount = &counts[i]
		buckets[i].UpperBound = &f.bounds[i]
		out.Bucket[i] = &buckets[i]
	}
	for i := range h.ex {
		e := h.ex[i].write(f)
		if b := h.ex[i].bucket; b < len(buckets) {
			buckets[b].Exemplar = e
			continue
		}
		// The +Inf bucket is implied unless it has an exemplar.
		out.Bucket = append(out.Bucket, &dto.Bucket{
			CumulativeCount: proto.Uint64(h.count), UpperBound: proto.Float64(math.Inf(1)), Exemplar: e,
		})
	}
}

func (e exemplar) write(f *family) *dto.Exemplar {
	return &dto.Exemplar{
		Label:     []*dto.LabelPair{{Name: &f.traceLabel, Value: proto.String(e.trace)}},
		Value:     proto.Float64(e.value),
		Timestamp: timestamppb.New(time.UnixMilli(e.at)),
	}
}

// nativeBuckets are the populated exponential buckets: bucket i holds (2^((i-1)/2^schema), 2^(i/2^schema)].
type nativeBuckets struct {
	zero    uint64
	first   int      // index of counts[0]
	coarser int      // how often the resolution was halved: the schema is nativeSchema − coarser
	counts  []uint64 // from the lowest populated bucket to the highest
}

// observe counts v.
func (n *nativeBuckets) observe(v float64) {
	if v <= nativeZeroThreshold {
		n.zero++
		return
	}
	i := bucketIndex(v)
	for range n.coarser {
		i = halve(i)
	}
	if len(n.counts) == 0 {
		n.first = i
	}
	for max(n.first+len(n.counts), i+1)-min(n.first, i) > maxNativeBuckets {
		n.coarsen()
		i = halve(i)
	}
	if i < n.first {
		n.counts = append(make([]uint64, n.first-i), n.counts...)
		n.first = i
	}
	if missing := i - (n.first + len(n.counts)) + 1; missing > 0 {
		n.counts = append(n.counts, make([]uint64, missing)...)
	}
	n.counts[i-n.first]++
}

// coarsen merges each two neighbouring buckets.
func (n *nativeBuckets) coarsen() {
	first := halve(n.first)
	merged := make([]uint64, halve(n.first+len(n.counts)-1)-first+1)
	for i, c := range n.counts {
		merged[halve(n.first+i)-first] += c
	}
	n.first, n.counts = first, merged
	n.coarser++
}

// halve returns the index of the bucket of half the resolution that holds bucket i: ceil(i/2).
func halve(i int) int { return (i + 1) >> 1 }

// bucketIndex returns the smallest i with v <= 2^(i/8). The bounds within a power of two are those of the format:
// exact for the comparison, where a logarithm would be off by one near a bound.
func bucketIndex(v float64) int {
	frac, exp := math.Frexp(v) // frac in [0.5, 1)
	bounds := [1 << nativeSchema]float64{
		0.5, 0.5452538663326288, 0.5946035575013605, 0.6484197773255048,
		0.7071067811865475, 0.7711054127039704, 0.8408964152537144, 0.9170040432046711,
	}
	return sort.SearchFloat64s(bounds[:], frac) + (exp-1)<<nativeSchema
}

// schema says how fine the buckets are.
func (n *nativeBuckets) schema() int { return nativeSchema - n.coarser }

// spans yields the runs of populated buckets: how many indexes lie between one and the run before (or 0), and how
// many buckets it has.
func (n *nativeBuckets) spans() iter.Seq2[int, int] {
	return func(yield func(offset, length int) bool) {
		next := 0
		for i := 0; i < len(n.counts); {
			if n.counts[i] == 0 {
				i++
				continue
			}
			from := i
			for i < len(n.counts) && n.counts[i] != 0 {
				i++
			}
			if !yield(n.first+from-next, i-from) {
				return
			}
			next = n.first + i
		}
	}
}

// write fills in spans of populated buckets and the differences between their counts.
func (n *nativeBuckets) write(out *dto.Histogram) {
	out.Schema = proto.Int32(int32(n.schema()))
	out.ZeroThreshold = proto.Float64(nativeZeroThreshold)
	out.ZeroCount = proto.Uint64(n.zero)
	for offset, length := range n.spans() {
		out.PositiveSpan = append(out.PositiveSpan, &dto.BucketSpan{Offset: proto.Int32(int32(offset)), Length: proto.Uint32(uint32(length))})
	}
	var previous uint64
	for _, c := range n.counts {
		if c != 0 {
			out.PositiveDelta = append(out.PositiveDelta, int64(c)-int64(previous))
			previous = c
		}
	}
}
