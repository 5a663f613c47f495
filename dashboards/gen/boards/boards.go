// Package boards describes the Grafana dashboards as code. Every panel is a literal of type panel; what all panels
// share (data source, no-data text, the list of metrics at the end of a description) is added in one place.
package boards

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// tag is carried by all dashboards; the links between them go by it.
const tag = "llm-canary"

// File is one dashboard as Grafana imports it.
type File struct {
	Name string // of the file
	JSON []byte
}

// board is one dashboard.
type board struct {
	file        string // name of the file without its extension; the uid is tag + "-" + file
	title       string
	description string
	from        string // start of the default time range
	variables   []cog.Builder[dashboard.VariableModel]
	annotations []cog.Builder[dashboard.AnnotationQuery]
	rows        []row
}

// row is a titled group of panels.
type row struct {
	title     string
	collapsed bool
	panels    []panel
}

// all returns the dashboards in the order in which people go through them.
func all() []board {
	return []board{overview(), latency(), scenarios(), gpu(), exporter()}
}

// Render builds all dashboards. The bytes are the same for every call.
func Render() ([]File, error) {
	var out []File
	for _, b := range all() {
		d, err := b.build()
		if err != nil {
			return nil, fmt.Errorf("dashboard %q: %w", b.title, err)
		}
		text, err := encode(d)
		if err != nil {
			return nil, fmt.Errorf("dashboard %q: %w", b.title, err)
		}
		out = append(out, File{Name: b.file + ".json", JSON: text})
	}
	return out, nil
}

// encode writes JSON as people read it: PromQL keeps its < and >.
func encode(d dashboard.Dashboard) ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(d); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return buf.Bytes(), nil
}

// build assembles the dashboard. Panel ids are given in order, so that links to a panel stay valid as long as no
// panel is put before it.
func (b board) build() (dashboard.Dashboard, error) {
	builder := dashboard.NewDashboardBuilder(b.title).
		Uid(tag+"-"+b.file).
		Description(b.description).
		Tags([]string{tag, "llm"}).
		Timezone("browser").
		Readonly().
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Time("now-"+b.from, "now").
		Refresh("30s").
		Variables(b.variables).
		Annotations(b.annotations).
		Links(links())
	var id uint32
	for _, r := range b.rows {
		rowBuilder := dashboard.NewRowBuilder(r.title)
		id++
		rowBuilder.Id(id)
		var built []cog.Builder[dashboard.Panel]
		for _, p := range r.panels {
			id++
			res, err := p.build(id)
			if err != nil {
				return dashboard.Dashboard{}, fmt.Errorf("panel %q: %w", p.title, err)
			}
			built = append(built, ready{res})
		}
		if r.collapsed {
			rowBuilder.Collapsed(true)
			for _, p := range built {
				rowBuilder.WithPanel(p)
			}
		}
		builder.WithRow(rowBuilder)
		if !r.collapsed {
			for _, p := range built {
				builder.WithPanel(p)
			}
		}
	}
	d, err := builder.Build()
	if err != nil {
		return dashboard.Dashboard{}, err
	}
	return d, nil
}

// links lead from each dashboard to all others, with the time range and the variables.
func links() []cog.Builder[dashboard.DashboardLink] {
	return []cog.Builder[dashboard.DashboardLink]{
		dashboard.NewDashboardLinkBuilder("LLM canary").
			Type(dashboard.DashboardLinkTypeDashboards).
			Tags([]string{tag}).
			AsDropdown(false).
			IncludeVars(true).
			KeepTime(true),
	}
}

// ready is a builder of something that is built already.
type ready struct{ panel dashboard.Panel }

func (r ready) Build() (dashboard.Panel, error) { return r.panel, nil }
