// Command check sends every expression of every dashboard, with its variables filled in, to a Prometheus and fails
// if one is refused or gives no data. Expressions that cannot give data there are named in a table with the reason.
//
//	check -prometheus URL [-job JOB] [-complete] [-dashboards DIR] [-histogram .+|.*|none] [-window 5m] [-since 3m]
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/llmcanary/llm_canary_exporter/dashboards/gen/grafana"
	"github.com/llmcanary/llm_canary_exporter/dashboards/gen/promapi"
)

func main() {
	var c checker
	flag.StringVar(&c.client.URL, "prometheus", "http://127.0.0.1:9090", "base URL of Prometheus")
	dir := flag.String("dashboards", "..", "folder of the dashboards")
	histogram := flag.String("histogram", ".+", "value of the variable histogram")
	window := flag.String("window", "5m", "value of the variable window")
	job := flag.String("job", ".+", "value of the variable job")
	flag.BoolVar(&c.complete, "complete", false, "the exporter has every metric: no excuse for one that is missing")
	flag.DurationVar(&c.settings.Range, "since", 3*time.Minute, "time range, up to now")
	flag.DurationVar(&c.settings.Scrape, "scrape", 2*time.Second, "scrape interval of that Prometheus")
	flag.DurationVar(&c.settings.Step, "step", 5*time.Second, "step of ranges")
	flag.Parse()
	c.client.HTTP = &http.Client{Timeout: 30 * time.Second}
	c.settings.Variables = map[string]string{"histogram": *histogram, "window": *window, "job": *job}
	c.now = time.Now()

	all, err := grafana.Load(*dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(2)
	}
	if !c.run(context.Background(), all, os.Stdout) {
		os.Exit(1)
	}
}

// checker sends the expressions to one Prometheus.
type checker struct {
	client   promapi.Client
	settings grafana.Settings
	now      time.Time
	complete bool
}

// run checks all dashboards and reports on w. It is false if an expression was refused or gave nothing unexpectedly.
func (c checker) run(ctx context.Context, all []grafana.Dashboard, w io.Writer) bool {
	var withData, excused, refused, missing int
	for _, d := range all {
		values := d.Values(c.settings)
		results := map[string]bool{} // panels of heatmaps: one of the two kinds is enough
		for _, q := range d.Queries() {
			expr, err := grafana.Fill(q.Expr, values)
			found := 0
			if err == nil {
				found, err = c.ask(ctx, q, expr)
			}
			excuse, yet := excuseFor(q, expr, c.complete)
			switch {
			case err != nil:
				refused++
				fmt.Fprintf(w, "REFUSED %s: %v\n%s\n", q, err, expr)
			case found > 0:
				withData++
				if yet {
					fmt.Fprintf(w, "NOTE %s has data: %q can go from the table of excuses\n", q, excuse)
				}
				results[q.Panel] = true
			case heatmap(d, q):
			case excuse != "":
				excused++
				fmt.Fprintf(w, "no data %s: %s\n", q, excuse)
			default:
				missing++
				fmt.Fprintf(w, "MISSING %s\n%s\n", q, expr)
			}
		}
		for _, p := range d.All() {
			if p.Type == "heatmap" && !results[p.Title] {
				missing++
				fmt.Fprintf(w, "MISSING %s / %s: neither classic nor native\n", d.File, p.Title)
			}
		}
	}
	fmt.Fprintf(w, "%d expressions with data, %d that cannot have any here, %d refused, %d without data\n", withData, excused, refused, missing)
	return refused == 0 && missing == 0
}

// heatmap says whether a query belongs to a heatmap: it has one for each kind of histograms.
func heatmap(d grafana.Dashboard, q grafana.Query) bool {
	for _, p := range d.All() {
		if p.Title == q.Panel {
			return p.Type == "heatmap"
		}
	}
	return false
}

// ask returns how many series with a figure an expression gives.
func (c checker) ask(ctx context.Context, q grafana.Query, expr string) (int, error) {
	var found []promapi.Series
	var err error
	if q.Instant {
		found, err = c.client.Query(ctx, expr, c.now)
	} else {
		found, err = c.client.Range(ctx, expr, c.now.Add(-c.settings.Range), c.now, c.settings.Step)
	}
	n := 0
	for _, s := range found {
		if !s.Empty() {
			n++
		}
	}
	return n, err
}
