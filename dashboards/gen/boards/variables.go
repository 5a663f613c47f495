package boards

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
)

// source is the data source that the variable of that name chooses.
func source() common.DataSourceRef {
	return common.DataSourceRef{Type: ptr("prometheus"), Uid: ptr("${datasource}")}
}

func ptr[T any](v T) *T { return &v }

func text(s string) dashboard.StringOrMap { return dashboard.StringOrMap{String: &s} }

func option(label, value string) dashboard.VariableOption {
	return dashboard.VariableOption{
		Selected: ptr(true),
		Text:     dashboard.StringOrArrayOfString{String: &label},
		Value:    dashboard.StringOrArrayOfString{String: &value},
	}
}

// datasourceVar chooses the Prometheus.
func datasourceVar() cog.Builder[dashboard.VariableModel] {
	return dashboard.NewDatasourceVariableBuilder("datasource").
		Label("Data source").
		Type("prometheus")
}

// labelVar chooses values of a label; all of them by default.
func labelVar(name, label, query, description string) cog.Builder[dashboard.VariableModel] {
	return dashboard.NewQueryVariableBuilder(name).
		Label(label).
		Description(description).
		Datasource(source()).
		Query(text(query)).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortAlphabeticalAsc).
		Multi(true).
		IncludeAll(true).
		AllValue(".+").
		Current(option("All", "$__all"))
}

// choiceVar chooses one of fixed values, given as "label : value" or "value", the first by default.
func choiceVar(name, label, description, values string, current dashboard.VariableOption) cog.Builder[dashboard.VariableModel] {
	return dashboard.NewCustomVariableBuilder(name).
		Label(label).
		Description(description).
		Values(text(values)).
		AllowCustomValue(false).
		Current(current)
}

// windowVar is the range over which rates and quantiles are taken. It is not tied to the scrape interval, as
// $__rate_interval is, since what limits it is the cadence of the probes.
func windowVar(current string) cog.Builder[dashboard.VariableModel] {
	return dashboard.NewIntervalVariableBuilder("window").
		Label("Window").
		Description("Range over which rates and quantiles are taken. A window has to hold a few probes: at least three times the interval of the scenarios that are looked at.").
		Values(text("5m,15m,30m,1h,3h,6h,1d")).
		Auto(false).
		Current(option(current, current))
}

// processVars choose the exporter.
func processVars() []cog.Builder[dashboard.VariableModel] {
	return []cog.Builder[dashboard.VariableModel]{
		datasourceVar(),
		labelVar("job", "Job", "label_values(llm_canary_build_info, job)", "Scrape job of the exporter."),
		labelVar("instance", "Exporter", `label_values(llm_canary_build_info{job=~"$job"}, instance)`, "Exporter that probes."),
		labelVar("target", "Target", `label_values(llm_canary_probes_total{`+string(byExporter)+`}, target)`, "Inference server that is probed."),
	}
}

// pairVars choose pairs of target and scenario, and how histograms are read.
func pairVars(window string) []cog.Builder[dashboard.VariableModel] {
	return append(
		processVars(),
		labelVar("scenario", "Scenario", `label_values(llm_canary_probes_total{`+string(byTarget)+`}, scenario)`, "Scenario by its name in the configuration."),
		windowVar(window),
		histogramVar(),
	)
}

// histogramVar is explained at classicOnly.
func histogramVar() cog.Builder[dashboard.VariableModel] {
	return choiceVar("histogram", "Histograms",
		"Which kind of histograms is read. auto: classic ones where Prometheus has them, else native ones.",
		`auto : .+, classic : .*, native : none`, option("auto", ".+"))
}

// windowScenarioVar chooses whose probes are drawn as windows.
func windowScenarioVar() cog.Builder[dashboard.VariableModel] {
	return dashboard.NewQueryVariableBuilder("probe").
		Label("Show probes of").
		Description("Scenario whose probes are drawn as windows over all panels.").
		Datasource(source()).
		Query(text(`label_values(llm_canary_probes_total{` + string(byTarget) + `}, scenario)`)).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortAlphabeticalAsc).
		Current(option("long_context", "long_context"))
}

// annotation draws when an expression holds. Points at most one step apart become one window.
func annotation(name, color string, on bool, expr, title string, labels string) cog.Builder[dashboard.AnnotationQuery] {
	return dashboard.NewAnnotationQueryBuilder().
		Name(name).
		Datasource(source()).
		Enable(on).
		Hide(false).
		IconColor(color).
		Expr(expr).
		TitleFormat(title).
		TextFormat(labels).
		Target(prometheus.NewDataqueryBuilder().Expr(expr).RefId("Anno").Range()).
		Step("15s")
}

// events are annotations of which all dashboards have use.
func events() []cog.Builder[dashboard.AnnotationQuery] {
	return []cog.Builder[dashboard.AnnotationQuery]{
		annotation("Model or version changed", "purple", true,
			fmt.Sprintf("count by (target, engine, version, model) (%s)\nunless\ncount by (target, engine, version, model) (%s offset 2m)\nand on (target)\ncount by (target) (%s offset 2m)",
				byTarget.sel("target_info"), byTarget.sel("target_info"), byTarget.sel("target_info")),
			"{{target}} changed", "now {{engine}} {{version}}, {{model}}"),
		annotation("Configuration reloaded", "blue", false,
			"changes("+byExporter.sel("config_last_reload_success_timestamp_seconds")+"[2m]) > 0",
			"Configuration reloaded", "{{instance}}"),
		annotation("Exporter started", "dark-orange", true,
			own("changes("+byExporter.raw("process_start_time_seconds")+"[2m]) > 0"),
			"Exporter started", "{{instance}}"),
	}
}

// probeWindows marks the time in which probes of the chosen scenario ran.
func probeWindows() cog.Builder[dashboard.AnnotationQuery] {
	return annotation("Probe windows", "orange", true,
		agg("max", "target, scenario", byTarget.sel("probe_running", `scenario=~"$probe"`))+" == 1",
		"{{scenario}} on {{target}}", "probe running")
}
