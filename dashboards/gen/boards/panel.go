package boards

import (
	"fmt"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// kind is how a panel draws.
type kind int

// The kinds of panels.
const (
	lines kind = iota
	bars       // stacked
	areas      // stacked
	number
	grid // a table
	heat
	timeline
)

// sloRef is the query whose lines are thresholds.
const sloRef = "SLO"

// query is one PromQL expression of a panel.
type query struct {
	expr     string
	legend   string
	ref      string // A, B, … if empty
	exemplar bool
	series   bool // in a heatmap: native histograms, which come as they are
}

// column is a column of a table.
type column struct {
	field  string // label, or "Value #A"
	title  string // hidden if empty
	unit   string
	limits []limit
	values map[string]dashboard.ValueMappingResult
	links  bool // leads to the other dashboards with this target
}

// limit is a threshold: from this value on, this colour.
type limit struct {
	from  float64
	color string
}

// panel is one panel. Title, description, unit and the no-data text are required.
type panel struct {
	kind        kind
	title       string
	description string // the metrics are added to it
	unit        string
	noData      string
	width       uint32 // of 24
	height      uint32
	queries     []query
	base        string  // colour below the first limit
	limits      []limit // thresholds, ascending
	limitLines  bool    // draw them
	min, max    *float64
	log         bool // logarithmic axis
	decimals    *float64
	values      map[string]dashboard.ValueMappingResult
	columns     []column
	sort        string // column of a table, descending
}

const defaultNoData = "Nothing measured in this window"

// build makes the panel as Grafana has it.
func (p panel) build(id uint32) (dashboard.Panel, error) {
	res, err := p.visualization()
	if err != nil {
		return dashboard.Panel{}, err
	}
	exprs := make([]string, 0, len(p.queries))
	for i, q := range p.queries {
		exprs = append(exprs, q.expr)
		target, err := q.build(p.kind, i)
		if err != nil {
			return dashboard.Panel{}, fmt.Errorf("query %d: %w", i, err)
		}
		res.Targets = append(res.Targets, target)
	}
	if p.kind == bars {
		res.Interval = ptr("1m") // so that one event is one bar, and not one in each of several steps
	}
	height := p.height
	if height == 0 {
		height = 8
	}
	res.Id = &id
	res.Title = &p.title
	res.Description = ptr(strings.TrimSpace(p.description) + "\n\n" + metricLine(exprs))
	res.Datasource = ptr(source())
	res.GridPos = &dashboard.GridPos{W: p.width, H: height}
	p.fields(&res)
	return res, nil
}

// metricLine ends a description.
func metricLine(exprs []string) string {
	names := metricsOf(exprs...)
	label := "Metric"
	if len(names) > 1 {
		label = "Metrics"
	}
	return label + ": `" + strings.Join(names, "`, `") + "`"
}

// fields sets what belongs to the values: unit, thresholds, mappings, overrides.
func (p panel) fields(res *dashboard.Panel) {
	if res.FieldConfig == nil {
		res.FieldConfig = dashboard.NewFieldConfigSource()
	}
	d := &res.FieldConfig.Defaults
	d.Unit = &p.unit
	d.NoValue = ptr(defaultNoData)
	if p.noData != "" {
		d.NoValue = &p.noData
	}
	d.Min, d.Max, d.Decimals = p.min, p.max, p.decimals
	base := p.base
	if base == "" {
		base = "green"
	}
	d.Thresholds = thresholds(base, p.limits)
	if p.values != nil {
		d.Mappings = mappings(p.values)
	}
	switch p.kind {
	case number, timeline:
		d.Color = &dashboard.FieldColor{Mode: dashboard.FieldColorModeIdThresholds}
	case lines, bars, areas:
		d.Color = &dashboard.FieldColor{Mode: dashboard.FieldColorModeIdPaletteClassic}
		for _, q := range p.queries {
			if q.ref == sloRef {
				res.FieldConfig.Overrides = append(res.FieldConfig.Overrides, sloStyle())
			}
		}
	case grid:
		for _, c := range p.columns {
			res.FieldConfig.Overrides = append(res.FieldConfig.Overrides, c.override()...)
		}
		res.Transformations = p.transformations()
	case heat:
	}
}

// sloStyle draws thresholds as dashed red lines without a fill.
func sloStyle() dashboard.DashboardFieldConfigSourceOverrides {
	return dashboard.DashboardFieldConfigSourceOverrides{
		Matcher: dashboard.MatcherConfig{Id: "byFrameRefID", Options: sloRef},
		Properties: []dashboard.DynamicConfigValue{
			{Id: "color", Value: map[string]string{"mode": "fixed", "fixedColor": "red"}},
			{Id: "custom.lineStyle", Value: map[string]any{"fill": "dash", "dash": []int{8, 6}}},
			{Id: "custom.fillOpacity", Value: 0},
			{Id: "custom.lineWidth", Value: 2},
		},
	}
}

func thresholds(base string, limits []limit) *dashboard.ThresholdsConfig {
	steps := []dashboard.Threshold{{Value: nil, Color: base}}
	for _, l := range limits {
		steps = append(steps, dashboard.Threshold{Value: &l.from, Color: l.color})
	}
	return &dashboard.ThresholdsConfig{Mode: dashboard.ThresholdsModeAbsolute, Steps: steps}
}

func mappings(values map[string]dashboard.ValueMappingResult) []dashboard.ValueMapping {
	return []dashboard.ValueMapping{{
		ValueMap: &dashboard.ValueMap{Type: dashboard.MappingTypeValueToText, Options: values},
	}}
}

// shown is a text with a colour in place of a value.
func shown(text, color string) dashboard.ValueMappingResult {
	return dashboard.ValueMappingResult{Text: &text, Color: &color}
}

// visualization makes the part of a panel that only its kind has.
func (p panel) visualization() (dashboard.Panel, error) {
	switch p.kind {
	case number:
		return stat.NewPanelBuilder().
			ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
			ColorMode(common.BigValueColorModeBackground).
			GraphMode(common.BigValueGraphModeNone).
			TextMode(common.BigValueTextModeAuto).
			Build()
	case grid:
		b := table.NewPanelBuilder().CellHeight(common.TableCellHeightSm).Filterable(true).
			Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{}))
		if p.sort != "" {
			b.SortBy([]cog.Builder[common.TableSortByFieldState]{
				common.NewTableSortByFieldStateBuilder().DisplayName(p.sort).Desc(true),
			})
		}
		return b.Build()
	case heat:
		return heatmap.NewPanelBuilder().
			Calculate(false).
			Color(heatmap.NewHeatmapColorOptionsBuilder().
				Mode(heatmap.HeatmapColorModeScheme).Scheme("Turbo").Scale(heatmap.HeatmapColorScaleExponential).Exponent(0.5).Steps(64)).
			YAxis(heatmap.NewYAxisConfigBuilder().Unit(p.unit).AxisPlacement(common.AxisPlacementLeft)).
			CellGap(1).
			ShowLegend().
			ExemplarsColor("rgba(255,0,255,0.7)").
			Tooltip(heatmap.NewHeatmapTooltipBuilder().Mode(common.TooltipDisplayModeSingle).YHistogram(true)).
			Build()
	case timeline:
		return statetimeline.NewPanelBuilder().
			MergeValues(true).
			ShowValue(common.VisibilityModeNever).
			RowHeight(0.85).
			FillOpacity(80).
			LineWidth(0).
			Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom)).
			Build()
	case lines, bars, areas:
	}
	return p.graph()
}

// graph makes the kinds that draw over time.
func (p panel) graph() (dashboard.Panel, error) {
	b := timeseries.NewPanelBuilder().
		LineWidth(1).
		FillOpacity(0).
		ShowPoints(common.VisibilityModeAuto).
		Legend(common.NewVizLegendOptionsBuilder().
			ShowLegend(true).
			DisplayMode(common.LegendDisplayModeTable).
			Placement(common.LegendPlacementBottom).
			Calcs([]string{"lastNotNull", "max"})).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	if p.limitLines {
		b.ThresholdsStyle(common.NewGraphThresholdsStyleConfigBuilder().Mode(common.GraphThresholdsStyleModeDashed))
	}
	if p.log {
		b.ScaleDistribution(common.NewScaleDistributionConfigBuilder().Type(common.ScaleDistributionLog).Log(10))
	}
	switch p.kind {
	case bars:
		b.DrawStyle(common.GraphDrawStyleBars).FillOpacity(80).
			Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal).Group("A"))
	case areas:
		b.FillOpacity(30).
			Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal).Group("A"))
	case lines, number, grid, heat, timeline:
	}
	return b.Build()
}

// build makes the query as Grafana has it.
func (q query) build(k kind, i int) (variants.Dataquery, error) {
	ref := q.ref
	if ref == "" {
		ref = string(rune('A' + i))
	}
	b := prometheus.NewDataqueryBuilder().
		Expr(q.expr).
		RefId(ref).
		Datasource(source()).
		EditorMode(prometheus.QueryEditorModeCode)
	switch k {
	case grid:
		b.Instant().Format(prometheus.PromQueryFormatTable)
	case number:
		b.Instant().LegendFormat(q.legend)
	case heat:
		b.Range().LegendFormat("{{le}}")
		if !q.series {
			b.Format(prometheus.PromQueryFormatHeatmap)
		}
	case lines, bars, areas, timeline:
		b.Range().LegendFormat(q.legend)
	}
	if q.exemplar {
		b.Exemplar(true)
	}
	return b.Build()
}

// transformations join the queries of a table by their labels and leave the columns that are asked for.
func (p panel) transformations() []dashboard.DataTransformerConfig {
	rename, index, exclude := map[string]string{}, map[string]int{}, map[string]bool{"Time": true}
	for i, c := range p.columns {
		if c.title == "" {
			exclude[c.field] = true
			continue
		}
		rename[c.field], index[c.field] = c.title, i
	}
	return []dashboard.DataTransformerConfig{
		{Id: "merge", Options: map[string]any{}},
		{Id: "organize", Options: map[string]any{"renameByName": rename, "indexByName": index, "excludeByName": exclude}},
	}
}

// override sets unit, thresholds and links of a column.
func (c column) override() []dashboard.DashboardFieldConfigSourceOverrides {
	var props []dashboard.DynamicConfigValue
	if c.unit != "" {
		props = append(props, dashboard.DynamicConfigValue{Id: "unit", Value: c.unit})
	}
	if c.limits != nil {
		props = append(
			props,
			dashboard.DynamicConfigValue{Id: "thresholds", Value: thresholds("transparent", c.limits)},
			dashboard.DynamicConfigValue{Id: "custom.cellOptions", Value: map[string]string{"type": "color-background", "mode": "basic"}},
		)
	}
	if c.values != nil {
		props = append(props, dashboard.DynamicConfigValue{Id: "mappings", Value: mappings(c.values)})
	}
	if c.links {
		var to []map[string]any
		for _, b := range []struct{ title, file string }{{"Latency", "latency"}, {"Scenarios", "scenarios"}, {"Long context and GPU", "gpu"}} {
			to = append(to, map[string]any{
				"title": b.title,
				"url":   "/d/" + tag + "-" + b.file + "?var-target=${__value.raw}&${datasource:queryparam}&${job:queryparam}&${instance:queryparam}&${__url_time_range}",
			})
		}
		props = append(props, dashboard.DynamicConfigValue{Id: "links", Value: to})
	}
	if props == nil {
		return nil
	}
	return []dashboard.DashboardFieldConfigSourceOverrides{{
		Matcher: dashboard.MatcherConfig{Id: "byName", Options: c.title}, Properties: props,
	}}
}
