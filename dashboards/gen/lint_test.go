package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llmcanary/llm_canary_exporter/dashboards/gen/grafana"
)

// The rules of Grafana's dashboard-linter, each as a test under the rule's name.

var (
	histogramSuffix = regexp.MustCompile(`_(bucket|sum|count)$`)
	legendLabel     = regexp.MustCompile(`\{\{(\w+)\}\}`)
)

func fill(t *testing.T, d grafana.Dashboard, expr string) string {
	t.Helper()
	filled, err := grafana.Fill(expr, d.Values(settings()))
	if err != nil {
		t.Errorf("%s: %v", expr, err)
	}
	return filled
}

func parse(t *testing.T, expr string) parser.Expr {
	t.Helper()
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Fatalf("%s\n%v", expr, err)
	}
	return e
}

// selectors returns the selectors of an expression that was filled.
func selectors(t *testing.T, expr string) []*parser.VectorSelector {
	t.Helper()
	var out []*parser.VectorSelector
	parser.Inspect(parse(t, expr), func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			out = append(out, v)
		}
		return nil
	})
	return out
}

// metricNames returns the metrics that an expression reads. A selector by a pattern of names has none.
func metricNames(t *testing.T, expr string) []string {
	t.Helper()
	var out []string
	for _, v := range selectors(t, expr) {
		if v.Name != "" {
			out = append(out, v.Name)
		}
	}
	return out
}

// eachQuery runs a check for every expression, those of annotations and variables included.
func eachQuery(t *testing.T, check func(t *testing.T, d grafana.Dashboard, q grafana.Query)) {
	t.Helper()
	for _, d := range load(t) {
		for _, q := range d.Queries() {
			t.Run(q.String(), func(t *testing.T) { check(t, d, q) })
		}
	}
}

func TestLintTemplateDatasource(t *testing.T) {
	for _, d := range load(t) {
		var found int
		for _, v := range d.Templating.List {
			if v.Type != "datasource" {
				continue
			}
			found++
			if v.Name != "datasource" || v.Label != "Data source" || v.Query != "prometheus" {
				t.Errorf("%s: data source variable %q labelled %q of type %v", d.File, v.Name, v.Label, v.Query)
			}
		}
		if found != 1 {
			t.Errorf("%s: %d data source variables, wanted one", d.File, found)
		}
	}
}

// template-job-rule and template-instance-rule; target and scenario are held to the same.
func TestLintTemplateJobAndInstance(t *testing.T) {
	for _, d := range load(t) {
		for _, name := range []string{"job", "instance", "target", "scenario"} {
			var ok bool
			for _, v := range d.Templating.List {
				ok = ok || v.Name == name && v.Type == "query" && v.Multi && v.IncludeAll && v.AllValue == ".+" &&
					v.Datasource != nil && v.Datasource.UID == "${datasource}"
			}
			if !ok {
				t.Errorf("%s: variable %s is to be a query on ${datasource}, multi, with all as .+", d.File, name)
			}
		}
	}
}

func TestLintTemplateLabelPromQLAndReload(t *testing.T) {
	for _, d := range load(t) {
		for _, v := range d.Templating.List {
			if v.Type != "query" {
				continue
			}
			selector, ok := v.Selector()
			if !ok {
				t.Errorf("%s: variable %s: %v is no label_values", d.File, v.Name, v.Query)
				continue
			}
			parse(t, fill(t, d, selector))
			if v.Refresh != 2 {
				t.Errorf("%s: variable %s is not refreshed when the time range changes", d.File, v.Name)
			}
		}
	}
}

func TestLintPanelDatasource(t *testing.T) {
	source := func(s *grafana.Source) bool {
		return s != nil && s.Type == "prometheus" && s.UID == "${datasource}"
	}
	eachPanel(t, func(t *testing.T, _ grafana.Dashboard, p grafana.Panel) {
		if !source(p.Datasource) {
			t.Errorf("data source of the panel: %+v", p.Datasource)
		}
		for _, target := range p.Targets {
			if !source(target.Datasource) {
				t.Errorf("data source of query %s: %+v", target.RefID, target.Datasource)
			}
		}
	})
}

func TestLintPanelTitleDescriptionUnitsTargets(t *testing.T) {
	eachPanel(t, func(t *testing.T, _ grafana.Dashboard, p grafana.Panel) {
		if p.Title == "" || p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
			t.Errorf("title %q, description %q, unit %q, %d queries", p.Title, p.Description, p.FieldConfig.Defaults.Unit, len(p.Targets))
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			if refs[target.RefID] {
				t.Errorf("two queries %s", target.RefID)
			}
			refs[target.RefID] = true
			if strings.TrimSpace(target.Expr) == "" {
				t.Errorf("query %s is empty", target.RefID)
			}
			if target.Instant == target.Range {
				t.Errorf("query %s: instant %v, range %v", target.RefID, target.Instant, target.Range)
			}
		}
	})
}

func TestLintTargetPromQL(t *testing.T) {
	for _, histogram := range []string{".+", ".*", "none"} {
		for _, d := range load(t) {
			s := settings()
			s.Variables = map[string]string{"histogram": histogram}
			for _, q := range d.Queries() {
				filled, err := grafana.Fill(q.Expr, d.Values(s))
				if err != nil {
					t.Errorf("%s: %v", q, err)
				}
				parse(t, filled)
			}
		}
	}
}

// target-job-rule and target-instance-rule: every selector is limited to the chosen exporters.
func TestLintTargetJobAndInstance(t *testing.T) {
	eachQuery(t, func(t *testing.T, _ grafana.Dashboard, q grafana.Query) {
		if strings.HasPrefix(q.Panel, "variable ") {
			return // each narrows the next
		}
		// Values that stand for themselves, so that matchers show which variable they are from.
		values := map[string]string{"__rate_interval": "5m", "__range": "1h", "window": "1h"}
		for _, name := range []string{"job", "instance", "target", "scenario", "histogram", "gpu", "probe"} {
			values[name] = "var_" + name
		}
		filled, err := grafana.Fill(q.Expr, values)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range selectors(t, filled) {
			if strings.Contains(v.String(), "vllm|sglang") {
				continue // metrics of the servers themselves, from other jobs
			}
			if v.Name == "ALERTS" {
				continue // of the Prometheus
			}
			for _, name := range []string{"job", "instance"} {
				if !hasMatcher(v, name, labels.MatchRegexp, "var_"+name) {
					t.Errorf("%s is not limited by $%s", v, name)
				}
			}
		}
	})
}

// steady is what grows all the time.
var steady = regexp.MustCompile(`llm_canary_(engine|gpu)_|process_`)

func heatOrBars(d grafana.Dashboard, title string) bool {
	for _, p := range d.All() {
		if p.Title == title {
			return p.Type == "heatmap" || p.FieldConfig.Defaults.Custom.DrawStyle == "bars"
		}
	}
	return false
}

func hasMatcher(v *parser.VectorSelector, name string, kind labels.MatchType, value string) bool {
	for _, m := range v.LabelMatchers {
		if m.Name == name && m.Type == kind && m.Value == value {
			return true
		}
	}
	return false
}

// target-rate-interval-rule, as far as it holds here: what limits the window of a rate is the cadence of probes and
// not the scrape interval, so it is $window or the whole $__range. Cells of heatmaps, bars of events and what grows all
// the time (engines, GPUs, the process) use $__rate_interval. Only annotations name a time.
func TestLintTargetRateInterval(t *testing.T) {
	eachQuery(t, func(t *testing.T, d grafana.Dashboard, q grafana.Query) {
		if strings.HasPrefix(q.Panel, "annotation ") {
			return
		}
		for _, m := range regexp.MustCompile(`\[([^\]]*)\]`).FindAllStringSubmatch(q.Expr, -1) {
			switch m[1] {
			case "$window", "$__range", "$__rate_interval":
			default:
				t.Errorf("a range of %s", m[1])
			}
		}
		if strings.Contains(q.Expr, "$__rate_interval") && !steady.MatchString(q.Expr) && !heatOrBars(d, q.Panel) {
			t.Errorf("$__rate_interval on something that grows with probes: %s", q.Expr)
		}
	})
}

// Counters are read through rate, increase or changes and histograms through their functions: a raw total tells
// nothing. (The linter's counter-aggregation rules.)
func TestLintCountersAreRates(t *testing.T) {
	eachQuery(t, func(t *testing.T, d grafana.Dashboard, q grafana.Query) {
		if strings.HasPrefix(q.Panel, "variable ") {
			return
		}
		parser.Inspect(parse(t, fill(t, d, q.Expr)), func(n parser.Node, path []parser.Node) error {
			v, ok := n.(*parser.VectorSelector)
			if !ok || !strings.HasSuffix(v.Name, "_total") && !strings.HasSuffix(v.Name, "_bucket") {
				return nil
			}
			if _, isRange := path[len(path)-1].(*parser.MatrixSelector); isRange {
				return nil
			}
			if a, isAgg := path[len(path)-1].(*parser.AggregateExpr); isAgg && a.Op == parser.COUNT {
				return nil
			}
			if b, isBinary := path[len(path)-1].(*parser.BinaryExpr); isBinary && b.Op == parser.LUNLESS {
				return nil // whether a series was there before
			}
			t.Errorf("%s is read without a rate", v)
			return nil
		})
	})
}

func TestLintUneditable(t *testing.T) {
	for _, d := range load(t) {
		if d.Editable == nil || *d.Editable {
			t.Errorf("%s is editable", d.File)
		}
	}
}
