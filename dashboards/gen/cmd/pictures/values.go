package main

import (
	"encoding/json"
	"fmt"
	"html"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/llmcanary/llm_canary_exporter/dashboards/gen/grafana"
)

func esc(s string) string { return html.EscapeString(s) }

// color turns Grafana's names of colours into those of the page.
func color(name string) string {
	known := map[string]string{
		"green": "#56a64b", "orange": "#ff9830", "dark-orange": "#e0752d", "red": "#e02f44", "yellow": "#f2cc0c",
		"blue": "#3274d9", "purple": "#a352cc", "transparent": "transparent",
	}
	if c, ok := known[name]; ok {
		return c
	}
	return name
}

// palette colours the series of a chart.
func palette(i int) string {
	colors := []string{
		"#56a64b", "#e5ac0e", "#3274d9", "#e0752d", "#c4162a", "#6d1f62", "#0a437c", "#584477", "#b7dbab", "#f29191",
		"#5195ce", "#f4d598", "#70dbed", "#f9934e", "#ba43a9", "#705da0",
	}
	return colors[i%len(colors)]
}

// prefixed writes a value with a unit of which 1000 are the next.
func prefixed(v float64, base float64, units ...string) string {
	i := 0
	for math.Abs(v) >= base && i < len(units)-1 {
		v /= base
		i++
	}
	return short(v) + units[i]
}

// short writes a number with three digits.
func short(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a >= 100 || v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.01:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

// format writes a value in a unit of Grafana.
func format(v float64, unit string) string {
	switch unit {
	case "percentunit":
		return short(v*100) + "%"
	case "s":
		switch a := math.Abs(v); {
		case a == 0:
			return "0 s"
		case a < 1e-3:
			return short(v*1e6) + " µs"
		case a < 1:
			return short(v*1e3) + " ms"
		case a < 120:
			return short(v) + " s"
		case a < 7200:
			return short(v/60) + " min"
		}
		return short(v/3600) + " h"
	case "bytes":
		return prefixed(v, 1024, " B", " KiB", " MiB", " GiB", " TiB")
	case "Bps":
		return prefixed(v, 1000, " B/s", " kB/s", " MB/s", " GB/s")
	case "hertz":
		return prefixed(v, 1000, " Hz", " kHz", " MHz", " GHz")
	case "reqps":
		return short(v) + " req/s"
	case "celsius":
		return short(v) + " °C"
	case "watt":
		return short(v) + " W"
	}
	if suffix, ok := strings.CutPrefix(unit, "suffix:"); ok {
		return prefixed(v, 1e4, "", " k") + suffix
	}
	return prefixed(v, 1e4, "", " k")
}

// threshold is the colour that a value has by its thresholds.
func threshold(steps grafana.Thresholds, v float64) string {
	c := ""
	for _, s := range steps.Steps {
		if s.Value == nil || v >= *s.Value {
			c = s.Color
		}
	}
	return color(c)
}

// mapped is the text and the colour that a value is shown as.
func mapped(mappings []grafana.Mapping, v float64) (text, c string, ok bool) {
	for _, m := range mappings {
		if o, found := m.Options[strconv.FormatFloat(v, 'f', -1, 64)]; found {
			return o.Text, color(o.Color), true
		}
	}
	return "", "", false
}

var legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)

// legend fills labels into the name of a series.
func legend(t grafana.Target, labels map[string]string) string {
	if t.LegendFormat == "" {
		return fmt.Sprint(labels)
	}
	return legendLabel.ReplaceAllStringFunc(t.LegendFormat, func(m string) string { return labels[m[2:len(m)-2]] })
}

// number draws a stat panel.
func number(p grafana.Panel, results []result) string {
	f := p.FieldConfig.Defaults
	for _, r := range results {
		for _, s := range r.series {
			if s.Empty() {
				continue
			}
			v := s.Points[len(s.Points)-1].Value
			text, c, ok := mapped(f.Mappings, v)
			if !ok {
				text, c = format(v, f.Unit), threshold(f.Thresholds, v)
			}
			return fmt.Sprintf(`<div class=big style="background:%s">%s</div>`, c, esc(text))
		}
	}
	return ""
}

// columnConfig is what overrides say of a column of a table.
type columnConfig struct {
	unit       string
	thresholds grafana.Thresholds
	mappings   []grafana.Mapping
	colored    bool
}

func columnOf(p grafana.Panel, title string) columnConfig {
	c := columnConfig{unit: p.FieldConfig.Defaults.Unit}
	for _, o := range p.FieldConfig.Overrides {
		if o.Matcher.ID != "byName" || o.Matcher.Options != title {
			continue
		}
		for _, prop := range o.Properties {
			switch prop.ID {
			case "unit":
				_ = json.Unmarshal(prop.Value, &c.unit)
			case "thresholds":
				_ = json.Unmarshal(prop.Value, &c.thresholds)
				c.colored = true
			case "mappings":
				_ = json.Unmarshal(prop.Value, &c.mappings)
			}
		}
	}
	return c
}
