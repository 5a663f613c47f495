package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/llmcanary/llm_canary_exporter/dashboards/gen/grafana"
)

// marker stands in docs/dashboards.md where the generated part begins.
const marker = "<!-- Generated from the dashboards by 'go run .' in dashboards/gen. -->\n"

var metricEnding = regexp.MustCompile(`\n\nMetrics?: (.*)$`)

// describe renders what each panel of each dashboard shows, as Markdown.
func describe(all []grafana.Dashboard) string {
	var out strings.Builder
	for _, d := range all {
		fmt.Fprintf(&out, "\n## %s\n\n%s\n\nFile `dashboards/%s`, uid `%s`.\n\n![%s](images/dashboard-%s.png)\n",
			d.Title, d.Description, d.File, d.UID, d.Title, strings.TrimSuffix(d.File, ".json"))
		for _, p := range d.Panels {
			if p.Type == "row" {
				fmt.Fprintf(&out, "\n### %s\n\n", rowTitle(d, p))
				for _, inner := range p.Panels {
					item(&out, inner)
				}
				continue
			}
			item(&out, p)
		}
	}
	return out.String()
}

// rowTitle keeps headings of the page apart: rows of two dashboards may have the same title.
func rowTitle(d grafana.Dashboard, row grafana.Panel) string {
	_, name, _ := strings.Cut(d.Title, " / ")
	return name + ": " + row.Title
}

func item(out *strings.Builder, p grafana.Panel) {
	text := metricEnding.ReplaceAllString(p.Description, "")
	fmt.Fprintf(out, "- **%s.** %s\n", p.Title, text)
}

// renew replaces the generated part of a page.
func renew(page, generated string) (string, error) {
	head, _, ok := strings.Cut(page, marker)
	if !ok {
		return "", fmt.Errorf("the page has no line %q", strings.TrimSpace(marker))
	}
	return head + marker + generated, nil
}
