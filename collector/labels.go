package collector

import (
	"slices"

	"github.com/go-kit/log/level"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// other stands for a label value that the pair did not announce.
const other = "other"

// family returns a row of the table by its name without the namespace.
func (p *pair) family(name string) *family { return p.collector.byName[name] }

// variant returns the label value for a variant: itself if the pair announced it.
func (p *pair) variant(v string) string {
	if v == "" && len(p.Variants) == 1 {
		return p.Variants[0]
	}
	if slices.Contains(p.Variants, v) {
		return v
	}
	return p.dropped("variant", v)
}

// hasCheck says whether the pair announced a check of a variant; any check if name is empty.
func (p *pair) hasCheck(variant, name string) bool {
	return slices.ContainsFunc(p.Checks, func(c result.CheckName) bool {
		return c.Variant == variant && (name == "" || c.Name == name)
	})
}

// isFigureLabel says whether a value of the label variant belongs to a figure that has a list of its own.
func (c *Collector) isFigureLabel(v string) bool {
	return slices.ContainsFunc(c.figures, func(x figure) bool { return x.label == "variant" && slices.Contains(x.allowed, v) })
}

// checkLabels returns the label values variant and check of a check.
func (p *pair) checkLabels(c result.Check) (variant, check string) {
	if p.hasCheck(c.Variant, c.Name) {
		return c.Variant, c.Name
	}
	return p.variant(c.Variant), p.dropped("check", c.Name)
}

// dropped counts a label value that is not exported, and returns what stands in its place.
func (p *pair) dropped(label, value string) string {
	c := p.collector
	c.countSelf("exporter_label_values_dropped_total", label)
	c.logOnce("label "+label+"\x00"+p.Type, "label value is not one that the scenario announced", p, label, value)
	return other
}

// rejected counts a figure that is not exported.
func (p *pair) rejected(metric, reason string, figure float64) {
	c := p.collector
	c.countSelf("exporter_figures_dropped_total", reason)
	c.logOnce("figure "+metric+"\x00"+reason, "figure is not exported: "+reason, p, "metric", metric, "figure", figure)
}

// maxLogged bounds what is remembered of lines logged once.
const maxLogged = 1000

// logOnce logs the first occurrence of a kind of problem.
func (c *Collector) logOnce(kind, msg string, p *pair, keyvals ...any) {
	c.self.mu.Lock()
	seen := c.logged[kind] || len(c.logged) >= maxLogged
	if !seen {
		c.logged[kind] = true
	}
	c.self.mu.Unlock()
	if seen {
		return
	}
	keyvals = append([]any{"msg", msg, "target", p.Target, "scenario", p.Scenario}, keyvals...)
	level.Warn(c.logger).Log(keyvals...)
}

// observe feeds a histogram of the scope, unless the figure is impossible.
func (p *pair) observe(s *scope, f *family, v float64, trace string, labels ...string) {
	if p.usable(f, v) {
		s.get(f, labels...).hist.observe(f, v, trace, p.collector.now())
	}
}

// observeIf feeds a histogram with a figure that may not have been measured.
func (p *pair) observeIf(s *scope, f *family, v *float64, trace string, labels ...string) {
	if v != nil {
		p.observe(s, f, *v, trace, labels...)
	}
}

// usable says whether a figure can be exported, and counts it if not.
func (p *pair) usable(f *family, v float64) bool {
	switch {
	case !finite(v):
		p.rejected(f.Name, "not_finite", v)
		return false
	case v < 0 && f.Type != Gauge:
		p.rejected(f.Name, "negative", v)
		return false
	}
	return true
}
