package enginemetrics

import (
	"errors"
	"fmt"
	"strings"
)

// ErrUnknownDialect says that a page is a metrics page of something that is in none of the tables.
var ErrUnknownDialect = errors.New("no engine's metric names on the page")

// dialect is what one kind of engine calls its metrics. A new one is one file and one line in dialects.
type dialect struct {
	name string
	// prefixes are the forms in which the names of this dialect are prefixed, tried in order. The rows name metrics
	// without their prefix.
	prefixes []string
	// signs are names (without prefix) one of which has to be on the page. Empty: any name with the prefix will do.
	signs []string
	// models are the labels that tell the model, tried in order.
	models []string
	// variant names the generation of the names; nil if there is only one.
	variant func(*view) string
	rows    []rule
}

// rule is one figure, or several that have to come from one place.
type rule struct {
	figures []Figure
	from    []tuple // tried in order
	// expected says whether a page like this one should give the figures; nil: never complained about.
	expected func(*view) bool
	unit     []string // of PrefixUnit, one for each tuple
}

// tuple holds a source for each figure of a row.
type tuple []source

// figure is a row of one figure with its candidates in order.
func figure(f Figure, expected func(*view) bool, from ...source) rule {
	r := rule{figures: []Figure{f}, expected: expected}
	for _, s := range from {
		r.from = append(r.from, tuple{s})
	}
	return r
}

// prefixCache is the row of queries and hits in tokens: each argument is a pair of queries and hits.
func prefixCache(expected func(*view) bool, pairs ...tuple) rule {
	return rule{figures: []Figure{PrefixCacheQueries, PrefixCacheHits}, expected: expected, from: pairs}
}

// dialects is the table, in the order of detection: names of an engine win over those of what stands around it.
func dialects() []dialect {
	return []dialect{
		vllm(), sglang(), lmdeploy(), trtllm(), tgi(), llamacpp(), tritonTRTLLM(), dynamo(), triton(), litellm(), nim(), trtllmBare(),
	}
}

// Dialects returns the names of the dialects that are known.
func Dialects() []string {
	var out []string
	for _, d := range dialects() {
		if len(out) == 0 || out[len(out)-1] != d.name {
			out = append(out, d.name)
		}
	}
	return out
}

// Detect returns the name of the page's dialect, empty if there is none. The dialect is a matter of names: several
// engines speak vllm.
func Detect(f Page) string {
	if d, _, ok := detect(f); ok {
		return d.name
	}
	return ""
}

func detect(f Page) (dialect, string, bool) {
	for _, d := range dialects() {
		for _, prefix := range d.prefixes {
			if d.speaks(f, prefix) {
				return d, prefix, true
			}
		}
	}
	return dialect{}, "", false
}

func (d dialect) speaks(f Page, prefix string) bool {
	if len(d.signs) == 0 {
		for name := range f.samples {
			if strings.HasPrefix(name, prefix) {
				return true
			}
		}
		for name := range f.types {
			if strings.HasPrefix(name, prefix) {
				return true
			}
		}
		return false
	}
	for _, sign := range d.signs {
		if f.declares(prefix + sign) {
			return true
		}
	}
	return false
}

// declares reports whether the page has the name, as samples or as a family without any.
func (f Page) declares(name string) bool {
	for _, n := range []string{name, name + "_total", name + "_count"} {
		if len(f.samples[n]) > 0 || f.types[n] != "" {
			return true
		}
	}
	return false
}

// Hint is what is known of a target beside its page.
type Hint struct {
	Engine  string // as detected or configured; empty or openai: unknown
	Version string
	Model   string // on a page of several models only this one's figures are taken
}

// Normalise takes the figures out of a page. It returns ErrUnknownDialect for a page of something else.
func Normalise(f Page, h Hint) (*Normalised, error) {
	d, prefix, ok := detect(f)
	if !ok {
		return nil, fmt.Errorf("%w (%d other names)", ErrUnknownDialect, f.Len())
	}
	v := newView(f, d, prefix, h.Model)
	n := &Normalised{Dialect: d.name, Model: v.model(), Why: map[Figure]string{}, Odd: map[Figure]string{}}
	if d.variant != nil {
		n.Variant = d.variant(v)
	}
	if start := f.samples["process_start_time_seconds"]; len(start) == 1 && finite(start[0].Value) {
		n.ProcessStart = &start[0].Value
	}
	for _, r := range d.rows {
		n.fill(v, r)
	}
	n.missing(v, d)
	return n, nil
}

// fill takes a row's figures from the first tuple that gives all of them, else what the first one gives.
func (n *Normalised) fill(v *view, r rule) {
	for i, t := range r.from {
		if got := t.read(v); got.complete() || len(r.from) == 1 {
			n.take(r, i, got)
			return
		}
	}
	for i, t := range r.from {
		if got := t.read(v); got.any() {
			n.take(r, i, got)
			return
		}
	}
}

type reading struct {
	value float64
	from  string // names of the page
	ok    bool
	odd   string // why there is no value although the names are there
}

type readings []reading

func (t tuple) read(v *view) readings {
	out := make(readings, len(t))
	for i, s := range t {
		out[i] = s(v)
	}
	return out
}

func (r readings) complete() bool {
	for _, x := range r {
		if !x.ok {
			return false
		}
	}
	return true
}

func (r readings) any() bool {
	for _, x := range r {
		if x.ok || x.odd != "" {
			return true
		}
	}
	return false
}

func (n *Normalised) take(r rule, i int, got readings) {
	for j, f := range r.figures {
		x := got[j]
		if x.ok {
			x = checked(f, x)
		}
		if x.odd != "" {
			n.Odd[f] = x.odd
		}
		if !x.ok {
			continue
		}
		*n.field(f) = &x.value
		n.Why[f] = x.from
		if f == PrefixCacheQueries || f == PrefixCacheHits {
			n.PrefixUnit = "tokens"
			if i < len(r.unit) {
				n.PrefixUnit = r.unit[i]
			}
		}
	}
}

// checked refuses what the figure cannot be. A usage of 43 is a percentage of a server that has its own idea of
// the name; nothing tells 0.9 % from 90 % there, so no such value is converted.
func checked(f Figure, x reading) reading {
	switch {
	case !finite(x.value): // a sum of huge values
		return reading{odd: fmt.Sprintf("%s is %g", x.from, x.value)}
	case x.value < 0:
		return reading{odd: fmt.Sprintf("%s is %g, below 0", x.from, x.value)}
	case f == KVCacheUsage && x.value > 1+1e-9:
		return reading{odd: fmt.Sprintf("%s is %g, above 1", x.from, x.value)}
	case f == KVCacheUsage:
		x.value = min(x.value, 1)
	}
	return x
}

func (n *Normalised) missing(v *view, d dialect) {
	lacks := map[Figure]bool{}
	for _, r := range d.rows {
		if r.expected == nil || !r.expected(v) {
			continue
		}
		for _, f := range r.figures {
			lacks[f] = n.Get(f) == nil
		}
	}
	for _, f := range Figures() {
		if lacks[f] {
			n.Missing = append(n.Missing, f)
		}
	}
}
