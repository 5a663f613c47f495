package collector

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// The default classic bounds, in seconds. None is a whole number: Prometheus 3 rewrites le="1" to le="1.0", and
// rules that name such a bound would match in one version only. Steps are ×2 in the tails and about ×1.4 where
// people set thresholds; whoever needs more resolution has the native buckets.

// gapBounds serve gaps between chunks and time per output token.
func gapBounds() []float64 {
	return []float64{
		0.001, 0.002, 0.004, 0.008, 0.012, 0.016, 0.024, 0.032, 0.048, 0.064, 0.096, 0.128, 0.192, 0.256,
		0.512, 1.024, 2.048, 5.12, 10.24, 40.96, 163.84,
	}
}

// firstTokenBounds serve everything that ends with the first output.
func firstTokenBounds() []float64 {
	return []float64{
		0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24, 0.32, 0.48, 0.64, 0.96, 1.28, 1.92, 2.56,
		5.12, 10.24, 20.48, 40.96, 163.84,
	}
}

// wholeBounds serve whole requests and whole probes.
func wholeBounds() []float64 {
	return []float64{
		0.02, 0.04, 0.08, 0.16, 0.32, 0.48, 0.64, 0.96, 1.28, 1.92, 2.56, 3.84, 5.12, 7.68, 10.24, 15.36,
		20.48, 40.96, 81.92, 163.84,
	}
}

// lagBounds serve the errors of the tool itself and the phases of a connection.
func lagBounds() []float64 {
	return []float64{
		0.000016, 0.000032, 0.000064, 0.000128, 0.000256, 0.000512, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032,
		0.064, 0.128, 0.256, 0.512, 1.024, 5.12, 40.96,
	}
}

// maxExtraBounds is how many thresholds a histogram takes: each is a series for every label set.
const maxExtraBounds = 32

// withExtra adds bounds to the defaults of a histogram: sorted, each once, the extra ones bit for bit as given.
func withExtra(metric string, defaults, extra []float64) ([]float64, error) {
	if len(extra) > maxExtraBounds {
		return nil, fmt.Errorf("metric %s: %d extra bucket bounds, at most %d are possible: use fewer different thresholds", metric, len(extra), maxExtraBounds)
	}
	for _, b := range extra {
		if math.IsNaN(b) || math.IsInf(b, 0) || b <= 0 {
			return nil, fmt.Errorf("metric %s: extra bucket bound %v: must be a positive number of seconds", metric, b)
		}
	}
	out := slices.Concat(defaults, extra)
	slices.Sort(out)
	return slices.Compact(out), nil
}

// boundsFor returns the bounds of every histogram of the table, by name without the namespace. Keys of extra may
// have the namespace or not.
func boundsFor(metrics []Metric, extra map[string][]float64) (map[string][]float64, error) {
	wanted := make(map[string][]float64, len(extra))
	for name, bounds := range extra {
		name = strings.TrimPrefix(name, Namespace)
		wanted[name] = append(wanted[name], bounds...)
	}
	out := make(map[string][]float64)
	for _, m := range metrics {
		if m.Type != Histogram {
			continue
		}
		name := strings.TrimPrefix(m.Name, Namespace)
		bounds, err := withExtra(name, m.Bounds, wanted[name])
		if err != nil {
			return nil, err
		}
		out[name] = bounds
		delete(wanted, name)
	}
	for name := range wanted {
		return nil, fmt.Errorf("extra bucket bounds for %q: there is no histogram of that name", name)
	}
	return out, nil
}
