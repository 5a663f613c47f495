package boards

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// namespace is the prefix of every metric of the exporter.
const namespace = "llm_canary_"

// scope is the set of label matchers that the variables of a dashboard give.
type scope string

// The scopes: the exporter as a process, one of its targets, a pair of target and scenario.
const (
	byExporter scope = `job=~"$job", instance=~"$instance"`
	byTarget   scope = byExporter + `, target=~"$target"`
	byPair     scope = byTarget + `, scenario=~"$scenario"`
)

// sel returns a selector of a metric, named without the namespace, with further matchers.
func (s scope) sel(metric string, matchers ...string) string {
	return s.raw(namespace+metric, matchers...)
}

// raw is sel for the whole name of a metric.
func (s scope) raw(metric string, matchers ...string) string {
	return metric + "{" + strings.Join(append([]string{string(s)}, matchers...), ", ") + "}"
}

// The matchers that switch between classic and native histograms. The variable histogram is `.+` (whatever there
// is), `.*` (classic) or `none` (native). Classic series have a label le, native ones have not, which is "" to a
// matcher: `.+` lets both through, `.*` only what has the label, `none` only what has it not.
const (
	classicOnly = `le=~"$histogram"`
	nativeOnly  = `le!~"$histogram"`
)

// quantile is a quantile of a histogram over the window, by the labels named in by ("" for none). It works for
// classic and native histograms: where both exist, the classic ones are shown unless the variable says otherwise.
func (s scope) quantile(q float64, by, metric string, matchers ...string) string {
	return fmt.Sprintf("histogram_quantile(%v, %s)\nor\nhistogram_quantile(%v, %s)",
		q, agg("sum", join("le", by), "rate("+s.sel(metric+"_bucket", append(matchers, classicOnly)...)+"[$window])"),
		q, agg("sum", by, "rate("+s.sel(metric, append(matchers, nativeOnly)...)+"[$window])"))
}

// mean is the mean of what a histogram observed in the window. Classic and native histograms have the same sum and
// count, so that no matcher has to tell them apart.
func (s scope) mean(by, metric string, matchers ...string) string {
	native := agg("sum", by, "rate("+s.sel(metric, append(matchers, nativeOnly)...)+"[$window])")
	return fmt.Sprintf("%s\n/\n(%s > 0)\nor\nhistogram_sum(%s)\n/\n(histogram_count(%s) > 0)",
		agg("sum", by, "rate("+s.sel(metric+"_sum", matchers...)+"[$window])"),
		agg("sum", by, "rate("+s.sel(metric+"_count", matchers...)+"[$window])"), native, native)
}

// agg is an aggregation by labels, or over everything.
func agg(op, by, expr string) string {
	if by == "" {
		return op + "(" + expr + ")"
	}
	return op + " by (" + by + ") (" + expr + ")"
}

// grown is the increase of a counter over the window.
func (s scope) grown(by, metric string, matchers ...string) string {
	return s.grownIn("$window", by, metric, matchers...)
}

// events is the increase of a counter in each step, where there is any: bars that stand where something happened. The
// counters that it is for exist at 0 before the first event.
func (s scope) events(by, metric string) string {
	return s.grownIn("$__rate_interval", by, metric) + " > 0"
}

// births is events for counters of which a series appears with its first event: increase() does not see that one, so
// that a series which was not there before counts with all that it has.
func (s scope) births(by, metric string, matchers ...string) string {
	counter := s.sel(metric, matchers...)
	return agg("sum", by, "\n  ("+counter+" unless "+counter+" offset $__rate_interval)\n  or\n  increase("+counter+"[$__rate_interval])\n") + " > 0"
}

// grownIn is the increase of a counter over a range.
func (s scope) grownIn(window, by, metric string, matchers ...string) string {
	return agg("sum", by, "increase("+s.sel(metric, matchers...)+"["+window+"])")
}

// rate is the rate of a counter that grows all the time, such as those of engines and GPUs.
func (s scope) rate(by, metric string, matchers ...string) string {
	return agg("sum", by, "rate("+s.sel(metric, matchers...)+"[$__rate_interval])")
}

// last is a gauge. Two exporters that watch the same target give one series: the worse of the two where more is
// worse, see least.
func (s scope) last(by, metric string, matchers ...string) string {
	return agg("max", by, s.sel(metric, matchers...))
}

// least is last for gauges of which less is worse.
func (s scope) least(by, metric string, matchers ...string) string {
	return agg("min", by, s.sel(metric, matchers...))
}

// share is part ÷ whole, absent where the whole is nothing.
func share(part, whole string) string {
	return part + "\n/\n(" + whole + " > 0)"
}

// rest is 1 − part ÷ whole.
func rest(part, whole string) string {
	return "1 - " + share(part, whole)
}

// join lists labels.
func join(labels ...string) string {
	labels = slices.DeleteFunc(labels, func(l string) bool { return l == "" })
	return strings.Join(labels, ", ")
}

// sloLine is the threshold of the SLOs on a latency, to be drawn as a line. The metric of a threshold is told by the
// name of the SLO: pattern is a part of it. An SLO has one threshold for all its scenarios.
func (s scope) sloLine(pattern string) query {
	matchers := []string{`slo=~"(?i).*(` + pattern + `).*"`}
	if pattern == sloFirstToken {
		matchers = append(matchers, `slo!~"(?i).*(`+sloFirstContent+`).*"`)
	}
	return query{
		expr:   s.last("target, slo", "slo_threshold_seconds", matchers...),
		legend: "SLO {{slo}} of {{target}}", ref: sloRef,
	}
}

// How SLOs on a latency are named.
const (
	sloFirstToken   = "ttft|first_token"
	sloFirstContent = "content"
	sloPerToken     = "tpot|per_output_token"
	sloMaxGap       = "itl|max_inter|gap"
	sloWhole        = "e2e"
)

var (
	nameOf = regexp.MustCompile(`\b[a-zA-Z_:][a-zA-Z0-9_:]*\{`)
	suffix = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// metricsOf lists the metrics that expressions read, as their documentation names them.
func metricsOf(exprs ...string) []string {
	var out []string
	for _, e := range exprs {
		for _, name := range nameOf.FindAllString(e, -1) {
			name = suffix.ReplaceAllString(strings.TrimSuffix(name, "{"), "")
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}
