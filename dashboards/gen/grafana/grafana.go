// Package grafana reads dashboards as Grafana does: panels in rows, the queries of panels, variables and annotations,
// and fills variables into expressions. Only what the checks and the pictures need of it is here.
package grafana

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Dashboard is a dashboard of schema version 1.
type Dashboard struct {
	UID           string   `json:"uid"`
	Title         string   `json:"title"`
	Description   string   `json:"description"`
	Tags          []string `json:"tags"`
	Timezone      string   `json:"timezone"`
	Editable      *bool    `json:"editable"`
	GraphTooltip  int      `json:"graphTooltip"`
	Refresh       string   `json:"refresh"`
	SchemaVersion int      `json:"schemaVersion"`
	Panels        []Panel  `json:"panels"`
	Links         []Link   `json:"links"`
	Templating    struct {
		List []Variable `json:"list"`
	} `json:"templating"`
	Annotations struct {
		List []Annotation `json:"list"`
	} `json:"annotations"`

	File string `json:"-"` // name of the file
}

// Panel is a panel or a row.
type Panel struct {
	ID              uint32           `json:"id"`
	Type            string           `json:"type"`
	Title           string           `json:"title"`
	Description     string           `json:"description"`
	Collapsed       bool             `json:"collapsed"`
	Panels          []Panel          `json:"panels"`
	Datasource      *Source          `json:"datasource"`
	Targets         []Target         `json:"targets"`
	GridPos         GridPos          `json:"gridPos"`
	FieldConfig     FieldConfig      `json:"fieldConfig"`
	Transformations []Transformation `json:"transformations"`
}

// GridPos is where a panel stands, in columns (of 24) and rows (of 30 pixels).
type GridPos struct{ H, W, X, Y int }

// Source is a data source.
type Source struct{ Type, UID string }

// Target is a query of a panel.
type Target struct {
	Expr         string  `json:"expr"`
	RefID        string  `json:"refId"`
	LegendFormat string  `json:"legendFormat"`
	Format       string  `json:"format"`
	Instant      bool    `json:"instant"`
	Range        bool    `json:"range"`
	Exemplar     bool    `json:"exemplar"`
	Datasource   *Source `json:"datasource"`
}

// FieldConfig is how values are shown.
type FieldConfig struct {
	Defaults  Field      `json:"defaults"`
	Overrides []Override `json:"overrides"`
}

// Field is the configuration of a field.
type Field struct {
	Unit       string     `json:"unit"`
	NoValue    string     `json:"noValue"`
	Min        *float64   `json:"min"`
	Max        *float64   `json:"max"`
	Decimals   *float64   `json:"decimals"`
	Mappings   []Mapping  `json:"mappings"`
	Thresholds Thresholds `json:"thresholds"`
	Custom     struct {
		DrawStyle         string                `json:"drawStyle"`
		FillOpacity       float64               `json:"fillOpacity"`
		Stacking          struct{ Mode string } `json:"stacking"`
		ScaleDistribution struct{ Type string } `json:"scaleDistribution"`
		ThresholdsStyle   struct{ Mode string } `json:"thresholdsStyle"`
	} `json:"custom"`
}

// Mapping shows values as texts.
type Mapping struct {
	Type    string                                  `json:"type"`
	Options map[string]struct{ Text, Color string } `json:"options"`
}

// Thresholds are colours from a value on. The first step has no value.
type Thresholds struct {
	Steps []struct {
		Value *float64
		Color string
	}
}

// Override changes the configuration of some fields.
type Override struct {
	Matcher struct {
		ID      string `json:"id"`
		Options any    `json:"options"`
	} `json:"matcher"`
	Properties []struct {
		ID    string          `json:"id"`
		Value json.RawMessage `json:"value"`
	} `json:"properties"`
}

// Transformation changes the results of queries.
type Transformation struct {
	ID      string `json:"id"`
	Options struct {
		RenameByName  map[string]string `json:"renameByName"`
		IndexByName   map[string]int    `json:"indexByName"`
		ExcludeByName map[string]bool   `json:"excludeByName"`
	} `json:"options"`
}

// Link leads to other dashboards.
type Link struct {
	Type        string   `json:"type"`
	Tags        []string `json:"tags"`
	IncludeVars bool     `json:"includeVars"`
	KeepTime    bool     `json:"keepTime"`
}

// Variable is a template variable.
type Variable struct {
	Name       string `json:"name"`
	Label      string `json:"label"`
	Type       string `json:"type"`
	Query      any    `json:"query"`
	Multi      bool   `json:"multi"`
	IncludeAll bool   `json:"includeAll"`
	AllValue   string `json:"allValue"`
	Refresh    int    `json:"refresh"`
	Datasource *Source
	Current    struct {
		Value any `json:"value"`
	} `json:"current"`
}

// Annotation is a query whose results are drawn over all panels.
type Annotation struct {
	Name       string  `json:"name"`
	Enable     bool    `json:"enable"`
	Expr       string  `json:"expr"`
	IconColor  string  `json:"iconColor"`
	Datasource *Source `json:"datasource"`
	Target     Target  `json:"target"`
}

// Load reads all dashboards of a folder, in the order of their files.
func Load(dir string) ([]Dashboard, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("list dashboards: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no dashboard in %s", dir)
	}
	var out []Dashboard
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read dashboard: %w", err)
		}
		d, err := Parse(filepath.Base(file), text)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// Parse reads one dashboard.
func Parse(file string, text []byte) (Dashboard, error) {
	d := Dashboard{File: file}
	if err := json.Unmarshal(text, &d); err != nil {
		return Dashboard{}, fmt.Errorf("dashboard %s: %w", file, err)
	}
	return d, nil
}

// All returns the panels of a dashboard without its rows.
func (d Dashboard) All() []Panel {
	var out []Panel
	for _, p := range d.Panels {
		if p.Type == "row" {
			out = append(out, p.Panels...)
			continue
		}
		out = append(out, p)
	}
	return out
}

// Query is an expression and where it is from.
type Query struct {
	Dashboard, Panel, Ref string
	Expr                  string
	Instant               bool
}

// String names the query as tables and messages do.
func (q Query) String() string { return q.Dashboard + " / " + q.Panel + " / " + q.Ref }

// Queries returns the expressions of panels, annotations and variables. Those of variables are the selectors from
// which values are taken.
func (d Dashboard) Queries() []Query {
	var out []Query
	for _, p := range d.All() {
		for _, t := range p.Targets {
			out = append(out, Query{Dashboard: d.File, Panel: p.Title, Ref: t.RefID, Expr: t.Expr, Instant: t.Instant})
		}
	}
	for _, a := range d.Annotations.List {
		out = append(out, Query{Dashboard: d.File, Panel: "annotation " + a.Name, Ref: a.Target.RefID, Expr: a.Target.Expr})
	}
	for _, v := range d.Templating.List {
		if selector, ok := v.Selector(); ok {
			out = append(out, Query{Dashboard: d.File, Panel: "variable " + v.Name, Ref: "A", Expr: selector, Instant: true})
		}
	}
	return out
}

var labelValues = regexp.MustCompile(`^label_values\((.*), *([a-z_]+)\)$`)

// Selector is the selector from whose series a variable takes its values.
func (v Variable) Selector() (string, bool) {
	text, ok := v.Query.(string)
	if v.Type != "query" || !ok {
		return "", false
	}
	m := labelValues.FindStringSubmatch(text)
	if m == nil {
		return "", false
	}
	return m[1], true
}

// Settings are what variables are set to.
type Settings struct {
	Variables map[string]string // over the defaults of the dashboard
	Step      time.Duration
	Scrape    time.Duration // interval of scrapes
	Range     time.Duration // of the dashboard
}

// Values returns the values of all variables of a dashboard and of Grafana's own.
func (d Dashboard) Values(s Settings) map[string]string {
	out := make(map[string]string)
	for _, v := range d.Templating.List {
		value, _ := v.Current.Value.(string)
		if v.IncludeAll && value == "$__all" {
			value = v.AllValue
		}
		out[v.Name] = value
	}
	maps.Copy(out, s.Variables)
	rate := max(4*s.Scrape, s.Step+s.Scrape)
	for name, value := range map[string]time.Duration{
		"__rate_interval": rate, "__range": s.Range, "__interval": s.Step,
	} {
		out[name] = fmt.Sprintf("%ds", int(value.Seconds()))
	}
	return out
}

// Fill puts values into an expression. A variable that has no value stays and is reported.
func Fill(expr string, values map[string]string) (string, error) {
	var missing []string
	names := slices.SortedFunc(maps.Keys(values), func(a, b string) int { return len(b) - len(a) })
	for _, name := range names {
		expr = strings.ReplaceAll(expr, "${"+name+"}", values[name])
		expr = strings.ReplaceAll(expr, "$"+name, values[name])
	}
	for _, m := range regexp.MustCompile(`\$\{?\w+`).FindAllString(expr, -1) {
		missing = append(missing, m)
	}
	if missing != nil {
		return expr, fmt.Errorf("no value for %s", strings.Join(missing, ", "))
	}
	return expr, nil
}
