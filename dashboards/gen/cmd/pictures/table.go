package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/llmcanary/llm_canary_exporter/dashboards/gen/grafana"
)

// line is a line of a table: labels, and values by the name of their column.
type line struct {
	labels map[string]string
	values map[string]float64
}

// merge joins the results of all queries as Grafana's transformation does: two lines become one if all that both
// have is equal.
func merge(results []result) []line {
	var lines []line
	for _, r := range results {
		name := "Value #" + r.target.RefID
		if len(results) == 1 {
			name = "Value"
		}
		for _, s := range r.series {
			if s.Empty() {
				continue
			}
			v := s.Points[len(s.Points)-1].Value
			if i := slices.IndexFunc(lines, func(l line) bool { return fits(l, s.Labels, name) }); i >= 0 {
				maps.Copy(lines[i].labels, s.Labels)
				lines[i].values[name] = v
				continue
			}
			lines = append(lines, line{labels: maps.Clone(s.Labels), values: map[string]float64{name: v}})
		}
	}
	return lines
}

func fits(l line, labels map[string]string, name string) bool {
	if _, taken := l.values[name]; taken {
		return false
	}
	for k, v := range labels {
		if have, ok := l.labels[k]; ok && have != v {
			return false
		}
	}
	return true
}

// grid draws a table panel.
func grid(p grafana.Panel, results []result) string {
	lines := merge(results)
	var rename map[string]string
	var index map[string]int
	for _, t := range p.Transformations {
		if t.ID == "organize" {
			rename, index = t.Options.RenameByName, t.Options.IndexByName
		}
	}
	fields := slices.SortedFunc(maps.Keys(rename), func(a, b string) int { return index[a] - index[b] })
	sort.SliceStable(lines, func(i, j int) bool {
		a, b := lines[i].labels, lines[j].labels
		return a["target"]+a["scenario"]+a["slo"] < b["target"]+b["scenario"]+b["slo"]
	})
	var out strings.Builder
	out.WriteString("<table class=grid><tr>")
	for _, f := range fields {
		fmt.Fprintf(&out, "<th>%s</th>", esc(rename[f]))
	}
	for _, l := range lines {
		out.WriteString("<tr>")
		for _, f := range fields {
			out.WriteString(cell(columnOf(p, rename[f]), l, f))
		}
	}
	out.WriteString("</table>")
	return out.String()
}

func cell(c columnConfig, l line, field string) string {
	v, ok := l.values[field]
	if !ok {
		return "<td>" + esc(l.labels[field]) + "</td>"
	}
	if math.IsNaN(v) {
		return "<td></td>"
	}
	text, background, ok := mapped(c.mappings, v)
	if !ok {
		text = format(v, c.unit)
	}
	if c.colored && background == "" {
		background = threshold(c.thresholds, v)
	}
	if !c.colored || background == "transparent" {
		return "<td>" + esc(text) + "</td>"
	}
	return fmt.Sprintf(`<td style="background:%s;color:#fff">%s</td>`, background, esc(text))
}
