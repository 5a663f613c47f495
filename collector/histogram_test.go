package collector

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// nativeCounts returns the populated buckets of a native histogram by index.
func nativeCounts(h *dto.Histogram) map[int]int64 {
	out := map[int]int64{}
	index, delta, n := 0, 0, int64(0)
	for _, span := range h.GetPositiveSpan() {
		index += int(span.GetOffset())
		for range span.GetLength() {
			n += h.GetPositiveDelta()[delta]
			delta++
			if n != 0 {
				out[index] = n
			}
			index++
		}
	}
	return out
}

// TestHistogramIsLikeTheLibrarys feeds the same figures to the library's histogram, which nobody here wrote.
func TestHistogramIsLikeTheLibrarys(t *testing.T) {
	bounds := gapBounds()
	random := rand.New(rand.NewPCG(1, 2))
	for name, draw := range map[string]func() float64{
		"narrow":    func() float64 { return 0.02 * (1 + random.ExpFloat64()) },
		"on bounds": func() float64 { return bounds[random.IntN(len(bounds))] },
		"powers":    func() float64 { return math.Ldexp(1, random.IntN(18)-10) },
		"native bounds": func() float64 {
			x := math.Exp2(float64(random.IntN(100)-50) / 8)
			return []float64{x, math.Nextafter(x, 0), math.Nextafter(x, 1e9)}[random.IntN(3)]
		},
		"with zeros": func() float64 { return max(0, random.NormFloat64()) },
	} {
		t.Run(name, func(t *testing.T) {
			library := prometheus.NewHistogram(prometheus.HistogramOpts{
				Name: "x", Buckets: bounds,
				NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 1000,
			})
			m := Metric{Name: "x", Type: Histogram, Help: "x"}
			f := newFamily(m, 0, bounds, true)
			var own histogram
			for range 2000 {
				v := draw()
				library.Observe(v)
				own.observe(f, v, "", time.Now())
			}
			var out dto.Metric
			if err := library.Write(&out); err != nil {
				t.Fatal(err)
			}
			want, got := out.Histogram, own.write(f, nil)
			if got.GetSampleCount() != want.GetSampleCount() || math.Abs(got.GetSampleSum()-want.GetSampleSum()) > 1e-6*want.GetSampleSum() {
				t.Errorf("count %d and sum %v, want %d and %v", got.GetSampleCount(), got.GetSampleSum(), want.GetSampleCount(), want.GetSampleSum())
			}
			for i, b := range want.Bucket {
				if !proto.Equal(b, got.Bucket[i]) {
					t.Errorf("bucket %d: %v, want %v", i, got.Bucket[i], b)
				}
			}
			if got.GetSchema() != want.GetSchema() || got.GetZeroCount() != want.GetZeroCount() || got.GetZeroThreshold() != want.GetZeroThreshold() {
				t.Errorf("schema %d, zero %d within %v; want %d, %d within %v", got.GetSchema(), got.GetZeroCount(), got.GetZeroThreshold(),
					want.GetSchema(), want.GetZeroCount(), want.GetZeroThreshold())
			}
			g, w := nativeCounts(got), nativeCounts(want)
			if len(g) != len(w) {
				t.Errorf("%d native buckets, want %d", len(g), len(w))
			}
			for i, n := range w {
				if g[i] != n {
					t.Errorf("native bucket %d: %d, want %d", i, g[i], n)
				}
			}
		})
	}
}

func TestNativeBucketsAreBounded(t *testing.T) {
	f := newFamily(Metric{Name: "x", Type: Histogram, Help: "x"}, 0, nil, true)
	var h histogram
	random := rand.New(rand.NewPCG(3, 4))
	values := make([]float64, 5000)
	for i := range values {
		values[i] = math.Exp2(random.Float64()*120 - 60)
		h.observe(f, values[i], "", time.Time{})
	}
	out := h.write(f, nil)
	if len(h.native.counts) > maxNativeBuckets || len(nativeCounts(out)) > maxNativeBuckets {
		t.Errorf("%d buckets, want at most %d", len(h.native.counts), maxNativeBuckets)
	}
	// Every observation is in the bucket that the exposed schema says.
	want := map[int]int64{}
	for _, v := range values {
		want[int(math.Ceil(math.Log2(v)*math.Exp2(float64(out.GetSchema()))))]++
	}
	got := nativeCounts(out)
	for i, n := range want {
		if got[i] != n {
			t.Errorf("schema %d, bucket %d: %d, want %d", out.GetSchema(), i, got[i], n)
		}
	}
	if out.GetSchema() >= nativeSchema || out.GetSampleCount() != 5000 {
		t.Errorf("schema %d and count %d, want a lower schema than %d and 5000", out.GetSchema(), out.GetSampleCount(), nativeSchema)
	}
}

func TestDefaultBounds(t *testing.T) {
	first := map[string]float64{
		"llm_canary_inter_token_latency_seconds": 0.001, "llm_canary_time_per_output_token_seconds": 0.001,
		"llm_canary_max_inter_token_latency_seconds": 0.001, "llm_canary_time_to_first_token_seconds": 0.005,
		"llm_canary_time_to_first_content_seconds": 0.005,
	}
	seen := 0
	for _, m := range Metrics() {
		if m.Type != Histogram {
			continue
		}
		if want, ok := first[m.Name]; ok {
			seen++
			if m.Bounds[0] != want || m.Bounds[len(m.Bounds)-1] < 160 {
				t.Errorf("%s: bounds from %v to %v, want from %v to at least 160", m.Name, m.Bounds[0], m.Bounds[len(m.Bounds)-1], want)
			}
		}
		if !slices.IsSorted(m.Bounds) || len(slices.Compact(slices.Clone(m.Bounds))) != len(m.Bounds) {
			t.Errorf("%s: bounds are not sorted or not unique: %v", m.Name, m.Bounds)
		}
		for _, b := range m.Bounds {
			if b == math.Trunc(b) {
				t.Errorf("%s: bound %v is a whole number", m.Name, b)
			}
		}
	}
	if seen != len(first) {
		t.Errorf("%d of %d histograms are in the table", seen, len(first))
	}
}

func TestExtraBoundsAreExact(t *testing.T) {
	extra := []float64{0.3, 0.30000000000000004, 0.04, 5, 0.3}
	c, reg, clock := newTest(t, Options{ExtraBounds: map[string][]float64{
		"time_to_first_token_seconds": extra, "llm_canary_e2e_request_latency_seconds": {0.7},
	}})
	c.PairAdded(chatPair("a"))
	p := chatSuccess(clock, "a")
	p.Requests[0].TimeToFirstTokenSeconds = result.Ptr(0.3) // on a threshold: met
	c.ProbeFinished(p)
	families := gather(t, reg)
	var got []float64
	for _, b := range families["llm_canary_time_to_first_token_seconds"].Metric[0].Histogram.Bucket {
		if !math.IsInf(b.GetUpperBound(), 1) {
			got = append(got, b.GetUpperBound())
		}
		if want := b.GetUpperBound() >= 0.3; (b.GetCumulativeCount() == 1) != want {
			t.Errorf("bucket %v: %d", b.GetUpperBound(), b.GetCumulativeCount())
		}
	}
	for _, b := range extra {
		if !slices.Contains(got, b) {
			t.Errorf("no bucket for %v", b)
		}
	}
	if !slices.IsSorted(got) || len(got) != len(firstTokenBounds())+3 {
		t.Errorf("bounds %v: want %d, sorted, each once", got, len(firstTokenBounds())+3)
	}
	for _, b := range families["llm_canary_time_to_first_content_seconds"].Metric[0].Histogram.Bucket {
		if b.GetUpperBound() == 5 {
			t.Error("a threshold of one metric became a bound of another")
		}
	}
}

func TestKindsOfBuckets(t *testing.T) {
	for mode, want := range map[string]struct{ classic, native bool }{
		"classic": {true, false}, "native": {false, true}, "both": {true, true}, "": {true, true},
	} {
		c, reg, clock := newTest(t, Options{Histograms: mode})
		c.PairAdded(chatPair("a"))
		c.ProbeFinished(chatSuccess(clock, "a"))
		for name, f := range gather(t, reg) {
			if f.GetType() != dto.MetricType_HISTOGRAM {
				continue
			}
			h := f.Metric[0].Histogram
			if got := len(h.Bucket) > 0; got != want.classic {
				t.Errorf("%q: %s: classic buckets: %v", mode, name, got)
			}
			if got := h.Schema != nil && len(h.PositiveSpan) > 0; got != want.native {
				t.Errorf("%q: %s: native buckets: %v", mode, name, got)
			}
			if h.GetCreatedTimestamp() == nil {
				t.Errorf("%q: %s: no created timestamp", mode, name)
			}
		}
	}
}

func TestExemplarsAreFew(t *testing.T) {
	f := newFamily(Metric{Name: "x", Type: Histogram, Help: "x"}, 0, gapBounds(), true)
	var h histogram
	for i, b := range append(gapBounds(), 1000) {
		h.observe(f, b, "trace", time.Unix(int64(i), 0))
		h.observe(f, b, "", time.Unix(int64(i), 0))
	}
	h.observe(f, 1000, "newest", time.Unix(1000, 0))
	for _, e := range h.ex { // the oldest made way
		if e.at < int64(len(gapBounds())+1-maxExemplars)*1000 {
			t.Errorf("exemplar of second %v is kept, newer ones are not", e.at/1000)
		}
	}
	if len(h.ex) != maxExemplars {
		t.Errorf("%d exemplars, want %d", len(h.ex), maxExemplars)
	}
	if e := h.exemplarOf(len(gapBounds())); e == nil || e.trace != "newest" {
		t.Errorf("exemplar of the last bucket is %v, want the newest", e)
	}
	out := h.write(f, nil)
	if last := out.Bucket[len(out.Bucket)-1]; !math.IsInf(last.GetUpperBound(), 1) || last.GetExemplar() == nil || last.GetCumulativeCount() != h.count {
		t.Errorf("last bucket %v, want +Inf with an exemplar", last)
	}
	if !slices.IsSortedFunc(out.Exemplars, func(a, b *dto.Exemplar) int { return a.Timestamp.AsTime().Compare(b.Timestamp.AsTime()) }) {
		t.Error("exemplars are not in order of time")
	}
	h.observe(f, 1000, string(make([]byte, 65)), time.Unix(2000, 0))
	if e := h.exemplarOf(len(gapBounds())); e.trace != "newest" {
		t.Error("an oversize trace ID became an exemplar")
	}
}
