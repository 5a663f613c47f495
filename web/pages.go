package web

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

//go:embed templates/*.html
var templateFiles embed.FS

// templates are parsed once; a page that does not parse is a fault of the build that every test run would show.
var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"seconds": seconds, "age": age, "pct": pct, "short": short, "deref": deref,
}).ParseFS(templateFiles, "templates/*.html"))

// maxListed bounds the rows of /probes.
const maxListed = 500

type page struct {
	Title, Version, MetricsPath string
	Now                         time.Time
	Refresh                     int // seconds; 0 = none
	Data                        any
}

func (h *handler) render(w http.ResponseWriter, name, title string, refresh int, data any) {
	var b bytes.Buffer
	p := page{Title: title, Version: h.Version, MetricsPath: h.MetricsPath, Now: h.Now(), Refresh: refresh, Data: data}
	if err := templates.ExecuteTemplate(&b, name, p); err != nil {
		text(w, http.StatusInternalServerError, "cannot draw the page: "+err.Error()+"\n")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(b.Bytes())
}

// statusTarget is one card of the status page.
type statusTarget struct {
	Name, URL, Engine, Version, Model string
	Pairs                             []statusRow
	Failing                           int
}

// statusRow is one scenario of a card.
type statusRow struct {
	PairStatus
	State  string // ok, failed, unsupported, waiting
	TTFT   *float64
	TPOT   *float64
	E2E    *float64
	Rate   *float64 // output tokens per second of the last probe
	Skips  int
	Recent []string // states of the newest results, oldest first
}

func (h *handler) status(w http.ResponseWriter, _ *http.Request) {
	found := h.History.Targets()
	var cards []*statusTarget
	byName := map[string]*statusTarget{}
	for _, p := range h.History.Pairs() {
		card := byName[p.Target]
		if card == nil {
			t := found[p.Target]
			card = &statusTarget{Name: p.Target, URL: t.URL, Engine: t.Engine, Version: t.Version, Model: t.Model}
			byName[p.Target] = card
			cards = append(cards, card)
		}
		row := h.statusRow(p)
		if row.State == "failed" {
			card.Failing++
		}
		card.Pairs = append(card.Pairs, row)
	}
	h.render(w, "status.html", "Status", 5, cards)
}

func (h *handler) statusRow(p PairStatus) statusRow {
	row := statusRow{PairStatus: p, State: state(p.Last)}
	for _, n := range p.Skips {
		row.Skips += n
	}
	recent := h.History.Results(Filter{Target: p.Target, Scenario: p.Scenario})
	for i := min(len(recent), 20) - 1; i >= 0; i-- {
		row.Recent = append(row.Recent, state(recent[i]))
	}
	if p.Last == nil {
		return row
	}
	if r := headline(p.Last); r != nil {
		row.TTFT, row.TPOT, row.E2E = r.TimeToFirstTokenSeconds, r.TimePerOutputTokenSeconds, r.E2ELatencySeconds
	}
	for _, v := range p.Last.Values {
		if v.Metric == "output_tokens_per_second" {
			row.Rate = result.Ptr(v.Figure)
			break
		}
	}
	return row
}

// headline is the request whose figures stand for the probe: the last successful one.
func headline(p *result.Probe) *result.Request {
	for i := len(p.Requests) - 1; i >= 0; i-- {
		if p.Requests[i].Outcome == result.Success {
			return &p.Requests[i]
		}
	}
	return nil
}

func state(p *result.Probe) string {
	switch {
	case p == nil:
		return "waiting"
	case p.Outcome == result.Failure:
		return "failed"
	case p.Outcome == result.Unsupported:
		return "unsupported"
	}
	return "ok"
}

func (h *handler) targets(w http.ResponseWriter, r *http.Request) {
	details := h.Backend.TargetDetails()
	if wantsJSON(r) {
		writeJSON(w, details)
		return
	}
	h.render(w, "targets.html", "Targets", 0, details)
}

type probesPage struct {
	Filter Filter
	Probes []*result.Probe
	More   int
}

func (h *handler) probes(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	f := Filter{Target: q.Get("target"), Scenario: q.Get("scenario"), FailuresOnly: q.Get("outcome") == "failure"}
	list := h.History.Results(f)
	more := max(0, len(list)-maxListed)
	list = list[:len(list)-more]
	if wantsJSON(r) {
		if list == nil {
			list = []*result.Probe{}
		}
		writeJSON(w, list)
		return
	}
	h.render(w, "probes.html", "Recent probes", 0, probesPage{Filter: f, Probes: list, More: more})
}

func (h *handler) probeDetail(w http.ResponseWriter, r *http.Request) {
	p := h.History.Result(r.PathValue("id"))
	if p == nil {
		text(w, http.StatusNotFound, "no such result: only the newest ones of each scenario are kept\n")
		return
	}
	if wantsJSON(r) {
		writeJSON(w, p)
		return
	}
	raw, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		text(w, http.StatusInternalServerError, "cannot write the result: "+err.Error()+"\n")
		return
	}
	h.render(w, "probe.html", "Probe "+p.ID, 0, struct {
		*result.Probe
		State, JSON string
	}{p, state(p), string(raw)})
}

func wantsJSON(r *http.Request) bool {
	return r.URL.Query().Get("format") == "json" || strings.HasPrefix(r.Header.Get("Accept"), "application/json")
}

func writeJSON(w http.ResponseWriter, v any) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		text(w, http.StatusInternalServerError, "cannot write JSON: "+err.Error()+"\n")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(b, '\n'))
}

// seconds writes a duration for people; an absent one is a dash.
func seconds(v *float64) string {
	if v == nil {
		return "–"
	}
	switch {
	case *v < 0.001:
		return fmt.Sprintf("%.0f µs", *v*1e6)
	case *v < 1:
		return fmt.Sprintf("%.3g ms", *v*1e3)
	}
	return fmt.Sprintf("%.3g s", *v)
}

func age(now, then time.Time) string {
	d := now.Sub(then)
	switch {
	case d < time.Second:
		return "just now"
	case d < time.Minute:
		return fmt.Sprintf("%.0f s ago", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%.0f min ago", d.Minutes())
	}
	return fmt.Sprintf("%.0f h ago", d.Hours())
}

func pct(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }

func short(v *float64) string {
	if v == nil {
		return "–"
	}
	return fmt.Sprintf("%.3g", *v)
}

func deref(v *int) string {
	if v == nil {
		return "–"
	}
	return fmt.Sprint(*v)
}
