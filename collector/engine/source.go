package enginemetrics

import (
	"fmt"
	"slices"
	"strings"
)

// view is a page as one dialect sees it.
type view struct {
	families Page
	prefix   string
	label    string // that tells models apart and has the value of only on this page; empty: nothing is filtered
	only     string
	models   []string
}

func newView(f Page, d dialect, prefix, model string) *view {
	v := &view{families: f, prefix: prefix, models: d.models}
	if model == "" {
		return v
	}
	for _, label := range d.models {
		for name, samples := range f.samples {
			if strings.HasPrefix(name, prefix) && slices.ContainsFunc(samples, func(s Sample) bool { return s.Get(label) == model }) {
				v.label, v.only = label, model
				return v
			}
		}
	}
	return v
}

// model returns the model that the page's figures are of, empty if there is none or if there are several.
func (v *view) model() string {
	if v.only != "" {
		return v.only
	}
	found := ""
	for _, label := range v.models {
		for name, samples := range v.families.samples {
			if !strings.HasPrefix(name, v.prefix) {
				continue
			}
			for _, s := range samples {
				m := s.Get(label)
				if m == "" || m == "undefined" || m == "None" {
					continue
				}
				if found != "" && found != m {
					return ""
				}
				found = m
			}
		}
		if found != "" {
			return found
		}
	}
	return ""
}

// samples returns the samples of a name that are of the target's model, with or without _total: client libraries
// differ in who adds it. The name that was found is returned in full.
func (v *view) samples(name string) ([]Sample, string) {
	name = v.prefix + name
	for _, n := range []string{name, name + "_total"} {
		all := v.families.samples[n]
		if len(all) == 0 {
			continue
		}
		if v.label == "" {
			return all, n
		}
		var mine []Sample
		for _, s := range all {
			if m := s.Get(v.label); m == "" || m == v.only {
				mine = append(mine, s)
			}
		}
		return mine, n
	}
	return nil, name
}

// declares reports whether the page has the name in any form, with or without samples.
func (v *view) declares(names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return v.families.declares(v.prefix + n) })
}

// has returns a condition for rows: the page declares one of the names.
func has(names ...string) func(*view) bool {
	return func(v *view) bool { return v.declares(names...) }
}

func always(*view) bool { return true }

// source reads one figure from a page.
type source func(*view) reading

// match is a condition on a label.
type match struct{ label, value string }

func (m match) String() string { return fmt.Sprintf("%s=%q", m.label, m.value) }

// where selects the samples that fulfil the matches.
func where(samples []Sample, matches []match) []Sample {
	if len(matches) == 0 {
		return samples
	}
	var out []Sample
	for _, s := range samples {
		if !slices.ContainsFunc(matches, func(m match) bool { return s.Get(m.label) != m.value }) {
			out = append(out, s)
		}
	}
	return out
}

func described(name string, matches []match) string {
	if len(matches) == 0 {
		return name
	}
	parts := make([]string, len(matches))
	for i, m := range matches {
		parts[i] = m.String()
	}
	return name + "{" + strings.Join(parts, ",") + "}"
}

// selection reads the samples of a name, checked to be numbers, and folds them.
func selection(name string, matches []match, fold func([]Sample) float64) source {
	return func(v *view) reading {
		samples, found := v.samples(name)
		samples = where(samples, matches)
		if len(samples) == 0 {
			return reading{}
		}
		for _, s := range samples {
			// A sum over ranks of which one is unknown is unknown, and so is the fullest of them.
			if !finite(s.Value) {
				return reading{odd: fmt.Sprintf("%s is %g", found, s.Value)}
			}
		}
		return reading{value: fold(samples), from: described(found, matches), ok: true}
	}
}

// sum adds the samples of all ranks, replicas and reasons: for counters, and for gauges that count.
func sum(name string, matches ...match) source {
	return selection(name, matches, func(samples []Sample) float64 {
		total := 0.0
		for _, s := range samples {
			total += s.Value
		}
		return total
	})
}

// highest takes the largest sample: for shares, which must not be added, and of which the fullest rank is the one
// that makes requests wait.
func highest(name string, matches ...match) source {
	return selection(name, matches, func(samples []Sample) float64 {
		top := samples[0].Value
		for _, s := range samples[1:] {
			top = max(top, s.Value)
		}
		return top
	})
}

// sumOnce adds up, but takes samples that differ only in the named labels for reports of one thing: of those the
// largest counts. The ranks of a tensor-parallel group all tell the queue of the group.
func sumOnce(name string, same []string, matches ...match) source {
	return selection(name, matches, func(samples []Sample) float64 {
		groups := map[string]float64{}
		for _, s := range samples {
			rest := slices.DeleteFunc(slices.Clone(s.Labels), func(l Label) bool { return slices.Contains(same, l.Name) })
			key := seriesKey("", rest)
			if old, ok := groups[key]; !ok || s.Value > old {
				groups[key] = s.Value
			}
		}
		total := 0.0
		for _, x := range groups {
			total += x
		}
		return total
	})
}

// declaredOnly marks a figure's source that has no sample yet.
const declaredOnly = " (declared, nothing counted yet)"

// orZero reads 0 where the page declares the family of a counter and has no sample of it: client libraries make the
// sample of a labelled counter when it first counts.
func orZero(name string, s source) source {
	return func(v *view) reading {
		if r := s(v); r.ok || r.odd != "" {
			return r
		}
		for _, n := range []string{v.prefix + name, v.prefix + name + "_total"} {
			if v.families.types[n] != "" && len(v.families.samples[n]) == 0 {
				return reading{from: n + declaredOnly, ok: true}
			}
		}
		return reading{}
	}
}

// plus adds all of the sources; without the first there is no figure, the others may be absent.
func plus(first source, others ...source) source {
	return func(v *view) reading {
		total := first(v)
		if !total.ok {
			return total
		}
		for _, s := range others {
			r := s(v)
			if r.odd != "" {
				return r
			}
			if r.ok {
				total.value += r.value
				total.from += " + " + r.from
			}
		}
		return total
	}
}

// both adds two sources that are needed both.
func both(a, b source) source {
	return func(v *view) reading {
		x, y := a(v), b(v)
		switch {
		case !x.ok:
			return x
		case !y.ok:
			return y
		}
		return reading{value: x.value + y.value, from: x.from + " + " + y.from, ok: true}
	}
}

// ratio divides two sources; there is none of nothing.
func ratio(a, b source) source {
	return func(v *view) reading {
		x, y := a(v), b(v)
		switch {
		case !x.ok:
			return x
		case !y.ok:
			return y
		case y.value <= 0:
			return reading{}
		}
		return reading{value: x.value / y.value, from: x.from + " / " + y.from, ok: true}
	}
}

// given reads a source only where a condition on the page holds.
func given(condition func(*view) bool, s source) source {
	return func(v *view) reading {
		if !condition(v) {
			return reading{}
		}
		return s(v)
	}
}
