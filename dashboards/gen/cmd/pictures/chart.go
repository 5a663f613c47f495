package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmcanary/llm_canary_exporter/dashboards/gen/grafana"
	"github.com/llmcanary/llm_canary_exporter/dashboards/gen/promapi"
)

// plot is the area of a chart: it turns times and values into pixels.
type plot struct {
	from, to     time.Time
	low, high    float64
	log          bool
	x0, x1, y, h float64
}

func (p plot) px(t time.Time) float64 {
	return p.x0 + (p.x1-p.x0)*float64(t.Sub(p.from))/float64(p.to.Sub(p.from))
}

func (p plot) py(v float64) float64 {
	low, high := p.low, p.high
	if p.log {
		low, high, v = math.Log10(low), math.Log10(high), math.Log10(max(v, p.low))
	}
	return p.y + p.h - p.h*(v-low)/(high-low)
}

// curve is a series of a chart, ready to draw.
type curve struct {
	name, color string
	points      []promapi.Point
	slo         bool
}

// curves collects the series of all queries.
func curves(results []result) []curve {
	var out []curve
	for _, r := range results {
		for _, s := range r.series {
			if s.Empty() {
				continue
			}
			c := curve{name: legend(r.target, s.Labels), points: s.Points, slo: r.target.RefID == "SLO"}
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b curve) int {
		if a.slo != b.slo {
			return map[bool]int{false: -1, true: 1}[a.slo]
		}
		return 0
	})
	for i := range out {
		out[i].color = palette(i)
		if out[i].slo {
			out[i].color = color("red")
		}
	}
	return out
}

const legendLine = 17

// chart draws a time series panel.
func (d drawer) chart(p grafana.Panel, results []result, windows []span, w, h int) string {
	lines := curves(results)
	rows := min(len(lines), max(2, (h-120)/legendLine/2))
	f := p.FieldConfig.Defaults
	area := plot{
		from: d.from, to: d.to, log: f.Custom.ScaleDistribution.Type == "log",
		x0: 70, x1: float64(w - 14), y: 6, h: float64(h - 40 - rows*legendLine),
	}
	stacked := f.Custom.Stacking.Mode == "normal"
	area.low, area.high = limits(lines, f, stacked, area.log)

	var svg strings.Builder
	svg.WriteString(area.axes(f.Unit) + area.windows(windows))
	if f.Custom.ThresholdsStyle.Mode != "" && f.Custom.ThresholdsStyle.Mode != "off" {
		for _, s := range f.Thresholds.Steps {
			if s.Value != nil && *s.Value >= area.low && *s.Value <= area.high {
				y := area.py(*s.Value)
				fmt.Fprintf(&svg, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="%s" stroke-dasharray="8 6"/>`, area.x0, area.x1, y, y, color(s.Color))
			}
		}
	}
	svg.WriteString(area.draw(lines, stacked, f.Custom.DrawStyle == "bars", d.settings.Step))
	return fmt.Sprintf(`<svg width="%d" height="%d">%s</svg>`, w, h-8-rows*legendLine, svg.String()) + legendTable(lines, rows, f.Unit)
}

// limits are the ends of the axis of values.
func limits(lines []curve, f grafana.Field, stacked, log bool) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	sums := map[int64]float64{}
	for _, l := range lines {
		for _, p := range l.points {
			if math.IsNaN(p.Value) || math.IsInf(p.Value, 0) || log && p.Value <= 0 {
				continue
			}
			low, high = min(low, p.Value), max(high, p.Value)
			if stacked && !l.slo {
				sums[p.Time.UnixMilli()] += p.Value
				high = max(high, sums[p.Time.UnixMilli()])
			}
		}
	}
	if log {
		return math.Pow(10, math.Floor(math.Log10(low))), math.Pow(10, math.Ceil(math.Log10(high*1.0001)))
	}
	if f.Min != nil || stacked {
		low = min(low, 0)
	}
	if high <= low {
		high = low + 1
	}
	high += (high - low) * 0.06
	if f.Max != nil {
		high = max(*f.Max, high)
		if high < *f.Max*1.1 {
			high = *f.Max * 1.02
		}
	}
	return low, high
}

// ticks are round values along an axis.
func ticks(low, high float64, n int) []float64 {
	step := (high - low) / float64(n)
	mag := math.Pow(10, math.Floor(math.Log10(step)))
	for _, m := range []float64{1, 2, 2.5, 5, 10} {
		if m*mag >= step {
			step = m * mag
			break
		}
	}
	var out []float64
	for v := math.Ceil(low/step) * step; v <= high; v += step {
		if math.Abs(v) < step*1e-9 {
			v = 0
		}
		out = append(out, v)
	}
	return out
}

// axes draws the grid with its numbers and times.
func (p plot) axes(unit string) string {
	var out strings.Builder
	var values []float64
	if p.log {
		values = decades(p.low, p.high)
		for len(values) > 1 && p.py(values[0])-p.py(values[1]) < 12 {
			values = every(values, 3)
		}
	} else {
		scale := 1.0
		for unit == "bytes" && p.high/scale >= 1024 {
			scale *= 1024
		}
		for _, v := range ticks(p.low/scale, p.high/scale, 5) {
			values = append(values, v*scale)
		}
	}
	for _, v := range values {
		y := p.py(v)
		fmt.Fprintf(&out, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="#e6e7e8"/><text x="%.1f" y="%.1f" text-anchor="end">%s</text>`,
			p.x0, p.x1, y, y, p.x0-6, y+4, esc(format(v, unit)))
	}
	return out.String() + p.times()
}

// times draws the axis of time.
func (p plot) times() string {
	var out strings.Builder
	step := p.to.Sub(p.from) / 6
	for _, round := range []time.Duration{10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour} {
		if round >= step {
			step = round
			break
		}
	}
	for t := p.from.Truncate(step).Add(step); t.Before(p.to); t = t.Add(step) {
		x := p.px(t)
		if x < p.x0+24 || x > p.x1-24 {
			continue // its label would be cut
		}
		fmt.Fprintf(&out, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="#f0f0f1"/><text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`,
			x, x, p.y, p.y+p.h, x, p.y+p.h+16, t.Format("15:04:05"))
	}
	return out.String()
}

// windows shades what annotations mark.
func (p plot) windows(spans []span) string {
	var out strings.Builder
	for _, s := range spans {
		x := p.px(s.from)
		fmt.Fprintf(&out, `<rect x="%.1f" width="%.1f" y="%.1f" height="%.1f" fill="%s" opacity="0.18"/><line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="%s" stroke-dasharray="3 3"/>`,
			x, max(p.px(s.to)-x, 1.5), p.y, p.h, s.color, x, x, p.y, p.y+p.h, s.color)
	}
	return out.String()
}

// draw draws the series: lines, stacked areas, or stacked bars.
func (p plot) draw(lines []curve, stacked, bars bool, step time.Duration) string {
	var out strings.Builder
	below := map[int64]float64{}
	width := max((p.px(p.from.Add(step))-p.px(p.from))*0.8, 1)
	for _, l := range lines {
		var path, fill strings.Builder
		var last time.Time
		for _, pt := range l.points {
			if math.IsNaN(pt.Value) || math.IsInf(pt.Value, 0) {
				continue
			}
			v := pt.Value
			key := pt.Time.UnixMilli()
			x := p.px(pt.Time)
			if stacked && !l.slo {
				bottom := below[key]
				v += bottom
				below[key] = v
				if bars {
					fmt.Fprintf(&fill, `<rect x="%.1f" width="%.1f" y="%.1f" height="%.1f" fill="%s" opacity="0.8"/>`, x-width/2, width, p.py(v), p.py(bottom)-p.py(v), l.color)
					continue
				}
				fmt.Fprintf(&fill, `<rect x="%.1f" width="%.1f" y="%.1f" height="%.1f" fill="%s" opacity="0.3"/>`, x-width/2, width*1.25, p.py(v), p.py(bottom)-p.py(v), l.color)
			}
			op := "L"
			if last.IsZero() || pt.Time.Sub(last) > step*3/2 {
				op = "M"
				fmt.Fprintf(&fill, `<circle cx="%.1f" cy="%.1f" r="1.3" fill="%s"/>`, x, p.py(v), l.color)
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", op, x, p.py(v))
			last = pt.Time
		}
		out.WriteString(fill.String())
		dash := ""
		if l.slo {
			dash = ` stroke-dasharray="8 6" stroke-width="2"`
		}
		fmt.Fprintf(&out, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"%s/>`, path.String(), l.color, dash)
	}
	return out.String()
}

// legendTable names the series with their last and highest values.
func legendTable(lines []curve, rows int, unit string) string {
	var out strings.Builder
	out.WriteString("<table class=legend>")
	for i, l := range lines {
		if i == rows-1 && len(lines) > rows {
			fmt.Fprintf(&out, "<tr><td>… and %d more", len(lines)-i)
			break
		}
		last, highest := math.NaN(), math.Inf(-1)
		for _, p := range l.points {
			if !math.IsNaN(p.Value) {
				last, highest = p.Value, max(highest, p.Value)
			}
		}
		fmt.Fprintf(&out, `<tr><td><i style="background:%s"></i>%s<td>last %s<td>max %s`, l.color, esc(l.name), esc(format(last, unit)), esc(format(highest, unit)))
	}
	out.WriteString("</table>")
	return out.String()
}

// timeline draws a state timeline panel.
func (d drawer) timeline(p grafana.Panel, results []result, windows []span, w, h int) string {
	lines := curves(results)
	slices.SortStableFunc(lines, func(a, b curve) int { return strings.Compare(a.name, b.name) })
	area := plot{from: d.from, to: d.to, x0: 230, x1: float64(w - 14), y: 6, h: float64(h - 34)}
	height := area.h / float64(len(lines))
	var svg strings.Builder
	svg.WriteString(area.times() + area.windows(windows))
	width := area.px(d.from.Add(d.settings.Step)) - area.px(d.from)
	for i, l := range lines {
		y := area.y + float64(i)*height
		fmt.Fprintf(&svg, `<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`, area.x0-8, y+height*0.6, esc(l.name))
		for j := 0; j < len(l.points); {
			first := l.points[j]
			end := first.Time
			for ; j < len(l.points) && l.points[j].Value == first.Value && l.points[j].Time.Sub(end) <= d.settings.Step; j++ {
				end = l.points[j].Time
			}
			_, c, ok := mapped(p.FieldConfig.Defaults.Mappings, first.Value)
			if !ok {
				c = threshold(p.FieldConfig.Defaults.Thresholds, first.Value)
			}
			x := area.px(first.Time)
			fmt.Fprintf(&svg, `<rect x="%.1f" width="%.1f" y="%.1f" height="%.1f" fill="%s"/>`, x, min(area.px(end)+width, area.x1)-x, y+1, height*0.85, c)
		}
	}
	return fmt.Sprintf(`<svg width="%d" height="%d">%s</svg>`, w, h, svg.String())
}

// heatCell is a cell of a heatmap.
type heatCell struct {
	at           time.Time
	lower, upper float64
	count        float64
}

// heatCells takes classic buckets apart, which count all below their bound, and native ones as they are.
func heatCells(results []result) []heatCell {
	var out []heatCell
	type bound struct {
		le     float64
		series promapi.Series
	}
	var bounds []bound
	for _, r := range results {
		for _, s := range r.series {
			for _, c := range s.Cells {
				out = append(out, heatCell{c.Time, c.Lower, c.Upper, c.Count})
			}
			if le, err := strconv.ParseFloat(s.Labels["le"], 64); err == nil {
				bounds = append(bounds, bound{le, s})
			}
		}
	}
	slices.SortFunc(bounds, func(a, b bound) int { return int(math.Copysign(1, a.le-b.le)) })
	below := map[int64]float64{}
	lower := 0.0
	for _, b := range bounds {
		for _, p := range b.series.Points {
			key := p.Time.UnixMilli()
			if n := p.Value - below[key]; n > 1e-9 {
				out = append(out, heatCell{p.Time, lower, b.le, n})
			}
			below[key] = max(below[key], p.Value)
		}
		lower = b.le
	}
	return out
}

// heatmap draws a heatmap panel on a logarithmic axis.
func (d drawer) heatmap(p grafana.Panel, results []result, windows []span, w, h int) string {
	cells := heatCells(results)
	area := plot{from: d.from, to: d.to, log: true, x0: 70, x1: float64(w - 14), y: 6, h: float64(h - 34)}
	area.low, area.high = math.Inf(1), 0
	most := 0.0
	for _, c := range cells {
		if c.count <= 0 || math.IsInf(c.upper, 0) {
			continue
		}
		area.low, area.high, most = min(area.low, max(c.lower, c.upper/2)), max(area.high, c.upper), max(most, c.count)
	}
	if most == 0 {
		return "<div class=none>" + esc(p.FieldConfig.Defaults.NoValue) + "</div>"
	}
	area.low, area.high = math.Pow(10, math.Floor(math.Log10(area.low)*2)/2), math.Pow(10, math.Ceil(math.Log10(area.high)*2)/2)
	if area.high <= area.low {
		area.high = area.low * 10
	}
	var svg strings.Builder
	width := area.px(d.from.Add(d.settings.Step)) - area.px(d.from)
	for _, v := range decades(area.low, area.high) {
		y := area.py(v)
		fmt.Fprintf(&svg, `<text x="%.1f" y="%.1f" text-anchor="end">%s</text><line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="#e6e7e8"/>`,
			area.x0-6, y+4, esc(format(v, "s")), area.x0, area.x1, y, y)
	}
	svg.WriteString(area.times())
	for _, c := range cells {
		upper := min(c.upper, area.high)
		y := area.py(upper)
		fmt.Fprintf(&svg, `<rect x="%.1f" width="%.1f" y="%.1f" height="%.1f" fill="%s"/>`,
			area.px(c.at)-width, max(width-0.5, 0.8), y, max(area.py(max(c.lower, area.low))-y-0.5, 1), turbo(math.Sqrt(c.count/most)))
	}
	svg.WriteString(area.windows(windows))
	return fmt.Sprintf(`<svg width="%d" height="%d">%s</svg>`, w, h, svg.String())
}

// every leaves every nth value.
func every(values []float64, n int) []float64 {
	var out []float64
	for i := 0; i < len(values); i += n {
		out = append(out, values[i])
	}
	return out
}

// decades are the round values of a logarithmic axis.
func decades(low, high float64) []float64 {
	var out []float64
	for power := math.Pow(10, math.Floor(math.Log10(low))); power <= high; power *= 10 {
		for _, m := range []float64{1, 2, 5} {
			if v := m * power; v >= low*0.999 && v <= high*1.001 {
				out = append(out, v)
			}
		}
	}
	return out
}

// turbo is a scale of colours from blue over green to red.
func turbo(v float64) string {
	hue := 240 * (1 - min(max(v, 0), 1))
	return fmt.Sprintf("hsl(%.0f 75%% 50%%)", hue)
}
