package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"github.com/llmcanary/llm_canary_exporter/dashboards/gen/boards"
	"github.com/llmcanary/llm_canary_exporter/dashboards/gen/grafana"
)

const committed = ".."

func load(t *testing.T) []grafana.Dashboard {
	t.Helper()
	all, err := grafana.Load(committed)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func settings() grafana.Settings {
	return grafana.Settings{Step: 15 * time.Second, Scrape: 15 * time.Second, Range: 6 * time.Hour}
}

// eachPanel runs a check for every panel of every dashboard.
func eachPanel(t *testing.T, check func(t *testing.T, d grafana.Dashboard, p grafana.Panel)) {
	t.Helper()
	for _, d := range load(t) {
		for _, p := range d.All() {
			t.Run(d.File+"/"+p.Title, func(t *testing.T) { check(t, d, p) })
		}
	}
}

func TestCommittedDashboardsAreCurrent(t *testing.T) {
	files, err := boards.Render()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name)
		got, err := os.ReadFile(filepath.Join(committed, f.Name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, f.JSON) {
			t.Errorf("%s differs from what is generated: run 'go run .' in dashboards/gen and commit it", f.Name)
		}
	}
	for _, d := range load(t) {
		if !slices.Contains(names, d.File) {
			t.Errorf("%s is committed and not generated", d.File)
		}
	}
}

func TestWriteGivesTheSameFiles(t *testing.T) {
	dir := t.TempDir()
	const page = "../../docs/dashboards.md"
	before, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "page.md")
	if err := os.WriteFile(copied, before, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := write(dir, copied); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(copied); err != nil || !bytes.Equal(before, after) {
		t.Errorf("%s is not current: run 'go run .' in dashboards/gen and commit it (%v)", page, err)
	}
	if err := os.WriteFile(copied, []byte("# no marker\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := write(dir, copied); err == nil || !strings.Contains(err.Error(), "Generated from the dashboards") {
		t.Errorf("a page without the marker gave the error %v", err)
	}
	for _, d := range load(t) {
		a, errA := os.ReadFile(filepath.Join(dir, d.File))
		b, errB := os.ReadFile(filepath.Join(committed, d.File))
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: written file differs (%v, %v)", d.File, errA, errB)
		}
	}
}

func TestDashboardsAreWhole(t *testing.T) {
	uid := regexp.MustCompile(`^[a-z0-9-]{1,40}$`)
	seen := map[string]string{}
	for _, d := range load(t) {
		t.Run(d.File, func(t *testing.T) {
			switch {
			case !uid.MatchString(d.UID):
				t.Errorf("uid %q", d.UID)
			case seen[d.UID] != "":
				t.Errorf("uid %q is also that of %s", d.UID, seen[d.UID])
			}
			seen[d.UID] = d.File
			if d.UID != "llm-canary-"+strings.TrimSuffix(d.File, ".json") {
				t.Errorf("uid %q does not go with the file: links to it would break when it is renamed", d.UID)
			}
			if d.Title == "" || d.Description == "" || d.Refresh == "" || d.Timezone != "browser" || d.GraphTooltip != 1 {
				t.Errorf("title %q, description %q, refresh %q, timezone %q, graphTooltip %d: all wanted, with timezone browser and a shared crosshair",
					d.Title, d.Description, d.Refresh, d.Timezone, d.GraphTooltip)
			}
			if !slices.Contains(d.Tags, "llm-canary") {
				t.Errorf("tags %q", d.Tags)
			}
			if len(d.Links) != 1 || d.Links[0].Type != "dashboards" || !slices.Contains(d.Links[0].Tags, "llm-canary") || !d.Links[0].IncludeVars || !d.Links[0].KeepTime {
				t.Errorf("links %+v: wanted one by tag that keeps time and variables", d.Links)
			}
			if len(d.Annotations.List) == 0 {
				t.Error("no annotations")
			}
		})
	}
}

// A link that keeps variables is of use only if the variables have the same names everywhere.
func TestVariablesAreShared(t *testing.T) {
	wanted := []string{"datasource", "job", "instance", "target", "scenario", "window", "histogram"}
	for _, d := range load(t) {
		var names []string
		for _, v := range d.Templating.List {
			names = append(names, v.Name)
		}
		for _, w := range wanted {
			if !slices.Contains(names, w) {
				t.Errorf("%s: no variable %s", d.File, w)
			}
		}
	}
}

func TestPanelsDoNotOverlap(t *testing.T) {
	for _, d := range load(t) {
		cells := map[[2]int]string{}
		ids := map[uint32]string{}
		for _, p := range slices.Concat(d.Panels, d.All()) {
			if p.Type == "row" {
				p.GridPos.H = 1
			} else if ids[p.ID] != "" && ids[p.ID] != p.Title {
				t.Errorf("%s: panels %q and %q have the id %d", d.File, ids[p.ID], p.Title, p.ID)
			}
			ids[p.ID] = p.Title
			g := p.GridPos
			if g.X+g.W > 24 || g.W == 0 || g.H == 0 {
				t.Errorf("%s: %q stands at %+v", d.File, p.Title, g)
			}
			for x := g.X; x < g.X+g.W; x++ {
				for y := g.Y; y < g.Y+g.H; y++ {
					if other := cells[[2]int{x, y}]; other != "" && other != p.Title {
						t.Fatalf("%s: %q lies over %q", d.File, p.Title, other)
					}
					cells[[2]int{x, y}] = p.Title
				}
			}
		}
	}
}

// Rows are filled: a hole in the grid is a panel that is too narrow.
func TestRowsAreFilled(t *testing.T) {
	for _, d := range load(t) {
		width := map[int]int{}
		for _, p := range d.All() {
			width[p.GridPos.Y] += p.GridPos.W
		}
		for y, w := range width {
			if w != 24 {
				t.Errorf("%s: panels at y %d are %d wide together, wanted 24", d.File, y, w)
			}
		}
	}
}

func TestPanelsSayWhatTheyShow(t *testing.T) {
	titles := map[string]bool{}
	eachPanel(t, func(t *testing.T, d grafana.Dashboard, p grafana.Panel) {
		if titles[d.File+p.Title] {
			t.Error("the title is used twice")
		}
		titles[d.File+p.Title] = true
		f := p.FieldConfig.Defaults
		if f.Unit == "" {
			t.Error("no unit")
		}
		if f.NoValue == "" {
			t.Error("no text for no data")
		}
		last := p.Description[strings.LastIndex(p.Description, "\n")+1:]
		if !regexp.MustCompile("^Metrics?: `[^`]+`(, `[^`]+`)*$").MatchString(last) {
			t.Errorf("the description ends with %q, wanted the metrics", last)
		}
		if len(p.Description) < len(last)+20 {
			t.Errorf("description %q says nothing", p.Description)
		}
		for _, target := range p.Targets {
			for _, name := range metricNames(t, fill(t, d, target.Expr)) {
				if base := histogramSuffix.ReplaceAllString(name, ""); !strings.Contains(last, "`"+name+"`") && !strings.Contains(last, "`"+base+"`") {
					t.Errorf("the description ends with %q and leaves %s out", last, name)
				}
			}
		}
	})
}

// Panels with a latency that an SLO can be set on draw its threshold.
func TestLatenciesHaveTheirThreshold(t *testing.T) {
	latency := regexp.MustCompile(`quantile\(.*llm_canary_(time_to_first_token|time_to_first_content|time_per_output_token|e2e_request_latency|max_inter_token_latency)_seconds`)
	without := map[string]string{
		"Time to first token: this client and the server itself": "compares two sources, the objective is on the panels above",
	}
	eachPanel(t, func(t *testing.T, _ grafana.Dashboard, p grafana.Panel) {
		var isLatency, hasSLO bool
		for _, target := range p.Targets {
			isLatency = isLatency || latency.MatchString(strings.ReplaceAll(target.Expr, "\n", " "))
			hasSLO = hasSLO || strings.Contains(target.Expr, "llm_canary_slo_threshold_seconds")
		}
		if p.Type == "timeseries" && isLatency && !hasSLO && without[p.Title] == "" {
			t.Error("a latency without the thresholds of its objectives")
		}
	})
}

// The SDK refuses fields that Grafana's schema does not have. Its error is not nil when all is well, so the text counts.
func TestDashboardsFitTheSchema(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	for _, d := range load(t) {
		text, err := os.ReadFile(filepath.Join(committed, d.File))
		if err != nil {
			t.Fatal(err)
		}
		var strict dashboard.Dashboard
		if err := strict.UnmarshalJSONStrict(text); err != nil && err.Error() != "" {
			t.Errorf("%s: %v", d.File, err)
		}
		unknown := bytes.Replace(text, []byte(`"refresh"`), []byte(`"refreshes"`), 1)
		if err := new(dashboard.Dashboard).UnmarshalJSONStrict(unknown); err == nil || !strings.Contains(err.Error(), "refreshes") {
			t.Errorf("%s: a field that does not exist gave the error %v", d.File, err)
		}
	}
}
