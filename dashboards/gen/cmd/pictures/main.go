// Command pictures draws the dashboards for the documentation: one HTML page for each, from the same queries as
// Grafana would send. It is no Grafana: it draws what the panels of these dashboards need, so that a reader sees what
// they hold. scripts/dashboard-pictures turns the pages into PNG files.
//
//	pictures -prometheus URL -out DIR [-dashboards DIR] [-job JOB] [-only NAME,…] [-window 5m] [-since 10m]
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/llmcanary/llm_canary_exporter/dashboards/gen/grafana"
	"github.com/llmcanary/llm_canary_exporter/dashboards/gen/promapi"
)

func main() {
	var d drawer
	flag.StringVar(&d.client.URL, "prometheus", "http://127.0.0.1:9090", "base URL of Prometheus")
	dir := flag.String("dashboards", "..", "folder of the dashboards")
	out := flag.String("out", "", "folder for the pages")
	window := flag.String("window", "5m", "value of the variable window")
	job := flag.String("job", ".+", "value of the variable job")
	only := flag.String("only", "", "names of the dashboards to draw, separated by commas; all if empty")
	since := flag.Duration("since", 10*time.Minute, "time range, up to now")
	flag.DurationVar(&d.settings.Scrape, "scrape", 2*time.Second, "scrape interval of that Prometheus")
	flag.Parse()
	d.client.HTTP = &http.Client{Timeout: 30 * time.Second}
	d.to = time.Now().Truncate(time.Second)
	d.from = d.to.Add(-*since)
	d.settings.Range = *since
	d.settings.Step = max((*since / 240).Round(time.Second), time.Second)
	d.settings.Variables = map[string]string{"window": *window, "job": *job}
	if err := d.drawAll(context.Background(), *dir, *out, *only); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// drawer draws dashboards with the data of one Prometheus.
type drawer struct {
	client   promapi.Client
	settings grafana.Settings
	from, to time.Time
}

// result is what a query of a panel gave.
type result struct {
	target grafana.Target
	series []promapi.Series
}

// Sizes in pixels, as Grafana lays dashboards out.
const (
	pageWidth  = 1680
	margin     = 8
	cellHeight = 30
)

// drawAll writes a page for each dashboard and says how high each is, for the screenshot.
func (d drawer) drawAll(ctx context.Context, dir, out, only string) error {
	all, err := grafana.Load(dir)
	if err != nil {
		return err
	}
	for _, b := range all {
		name := strings.TrimSuffix(b.File, ".json")
		if only != "" && !slices.Contains(strings.Split(only, ","), name) {
			continue
		}
		page, height, err := d.page(ctx, b)
		if err != nil {
			return fmt.Errorf("dashboard %s: %w", b.File, err)
		}
		name += ".html"
		if err := os.WriteFile(filepath.Join(out, name), []byte(page), 0o644); err != nil {
			return fmt.Errorf("write page: %w", err)
		}
		fmt.Println(name, pageWidth, height)
	}
	return nil
}

const style = `<!DOCTYPE html><meta charset="utf-8"><style>
*{box-sizing:border-box}body{margin:0;background:#f4f5f5;font:13px Inter,"DejaVu Sans",Helvetica,sans-serif;color:#24292e;width:1680px;position:relative}
h1{position:absolute;left:12px;top:8px;margin:0;font-size:20px}
.vars{position:absolute;right:12px;top:12px;color:#565c66}
.vars b{border:1px solid #c7c9cc;background:#fff;padding:3px 8px;margin-left:2px;margin-right:10px;font-weight:500}
.row{position:absolute;font-weight:600;font-size:15px;padding-top:6px}
.panel{position:absolute;background:#fff;border:1px solid #d9dadc;border-radius:2px;overflow:hidden}
.title{font-weight:600;padding:5px 8px;white-space:nowrap;height:28px}
.none{color:#7b8087;text-align:center;padding-top:60px}
.big{position:absolute;inset:28px 0 0 0;display:flex;align-items:center;justify-content:center;font-size:34px;font-weight:600;color:#fff}
.legend{padding:0 10px;font-size:11px;line-height:16px}.legend i{display:inline-block;width:12px;height:3px;margin-right:6px;vertical-align:middle}
.legend td{padding:0 10px 0 0;white-space:nowrap}.legend td:first-child{max-width:420px;overflow:hidden;text-overflow:ellipsis}
table.grid{border-collapse:collapse;width:100%;font-size:12px}.grid th{text-align:left;color:#1f62e0;font-weight:500}
.grid th,.grid td{padding:3px 8px;border-bottom:1px solid #e6e7e8;white-space:nowrap}
svg{display:block}svg text{font-size:11px;fill:#565c66}
</style>`

// page draws a dashboard; it returns the page and its height.
func (d drawer) page(ctx context.Context, b grafana.Dashboard) (string, int, error) {
	values := b.Values(d.settings)
	windows, err := d.annotations(ctx, b, values)
	if err != nil {
		return "", 0, err
	}
	const top = 48
	var out strings.Builder
	out.WriteString(style)
	fmt.Fprintf(&out, "<h1>%s</h1><div class=vars>", esc(b.Title))
	for _, v := range b.Templating.List {
		if v.Name == "datasource" || v.Name == "job" {
			continue
		}
		value := values[v.Name]
		switch {
		case v.Name == "histogram":
			value = "auto"
		case value == ".+":
			value = "All"
		}
		fmt.Fprintf(&out, "%s <b>%s</b>", esc(v.Label), esc(value))
	}
	out.WriteString("</div>")
	bottom := 0
	for _, p := range b.Panels {
		if p.Type == "row" {
			fmt.Fprintf(&out, `<div class=row style="left:12px;top:%dpx">⌄ %s</div>`, top+p.GridPos.Y*(cellHeight+margin), esc(p.Title))
		}
	}
	for _, p := range b.All() {
		results, err := d.ask(ctx, p, values)
		if err != nil {
			return "", 0, fmt.Errorf("panel %q: %w", p.Title, err)
		}
		box := place(p.GridPos, top)
		bottom = max(bottom, box.y+box.h)
		fmt.Fprintf(&out, `<div class=panel style="left:%dpx;top:%dpx;width:%dpx;height:%dpx"><div class=title>%s</div>%s</div>`,
			box.x, box.y, box.w, box.h, esc(p.Title), d.body(p, results, windows, box.w, box.h-30))
		out.WriteByte('\n')
	}
	return out.String(), bottom + margin, nil
}

type box struct{ x, y, w, h int }

func place(g grafana.GridPos, top int) box {
	column := float64(pageWidth-margin) / 24
	return box{
		x: margin + int(float64(g.X)*column), y: top + g.Y*(cellHeight+margin),
		w: int(float64(g.W)*column) - margin, h: g.H*(cellHeight+margin) - margin,
	}
}

// ask sends the queries of a panel.
func (d drawer) ask(ctx context.Context, p grafana.Panel, values map[string]string) ([]result, error) {
	var out []result
	for _, t := range p.Targets {
		expr, err := grafana.Fill(t.Expr, values)
		if err != nil {
			return nil, err
		}
		r := result{target: t}
		if t.Instant {
			r.series, err = d.client.Query(ctx, expr, d.to)
		} else {
			r.series, err = d.client.Range(ctx, expr, d.from, d.to, d.settings.Step)
		}
		if err != nil {
			return nil, fmt.Errorf("query %s: %w", t.RefID, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// span is a window that an annotation draws.
type span struct {
	from, to time.Time
	color    string
}

// annotations finds the windows of the annotations that are on: points at most one step apart are one window.
func (d drawer) annotations(ctx context.Context, b grafana.Dashboard, values map[string]string) ([]span, error) {
	var out []span
	for _, a := range b.Annotations.List {
		if !a.Enable {
			continue
		}
		expr, err := grafana.Fill(a.Target.Expr, values)
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %w", a.Name, err)
		}
		series, err := d.client.Range(ctx, expr, d.from, d.to, d.settings.Step)
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %w", a.Name, err)
		}
		for _, s := range series {
			for i, p := range s.Points {
				if i > 0 && p.Time.Sub(s.Points[i-1].Time) <= d.settings.Step {
					out[len(out)-1].to = p.Time
					continue
				}
				out = append(out, span{from: p.Time, to: p.Time, color: color(a.IconColor)})
			}
		}
	}
	return out, nil
}

// body draws what is in a panel.
func (d drawer) body(p grafana.Panel, results []result, windows []span, w, h int) string {
	empty := true
	for _, r := range results {
		for _, s := range r.series {
			empty = empty && (s.Empty() || r.target.RefID == "SLO")
		}
	}
	if empty {
		return "<div class=none>" + esc(p.FieldConfig.Defaults.NoValue) + "</div>"
	}
	switch p.Type {
	case "stat":
		return number(p, results)
	case "table":
		return grid(p, results)
	case "heatmap":
		return d.heatmap(p, results, windows, w, h)
	case "state-timeline":
		return d.timeline(p, results, windows, w, h)
	default:
		return d.chart(p, results, windows, w, h)
	}
}
