package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// table writes results for people, one line per request. The columns have fixed widths, so that each line can be
// written as soon as its probe is done.
type table struct {
	w      io.Writer
	headed bool
}

func newTable(w io.Writer) *table { return &table{w: w} }

var tableColumns = []struct {
	title string
	width int // negative: left-aligned
}{
	{"SCENARIO", -18},
	{"VARIANT", -18},
	{"OUTCOME", -20},
	{"PROMPT", 7},
	{"CACHED", 7},
	{"OUTPUT", 7},
	{"TTFT", 9},
	{"TPOT", 9},
	{"MAX GAP", 9},
	{"E2E", 9},
}

func (t *table) line(cells []string) error {
	var b strings.Builder
	for i, c := range tableColumns {
		pad := strings.Repeat(" ", max(0, abs(c.width)-utf8.RuneCountInString(cells[i])))
		if i > 0 {
			b.WriteString("  ")
		}
		if c.width < 0 {
			b.WriteString(cells[i] + pad)
		} else {
			b.WriteString(pad + cells[i])
		}
	}
	_, err := fmt.Fprintln(t.w, strings.TrimRight(b.String(), " "))
	return err
}

// probe writes the lines of one result.
func (t *table) probe(p *result.Probe) error {
	if !t.headed {
		t.headed = true
		titles := make([]string, len(tableColumns))
		for i, c := range tableColumns {
			titles[i] = c.title
		}
		if err := t.line(titles); err != nil {
			return err
		}
	}
	if len(p.Requests) == 0 {
		if err := t.line([]string{p.Scenario, "", outcome(p.Outcome, p.Reason), "", "", "", "", "", "", ""}); err != nil {
			return err
		}
	}
	for i := range p.Requests {
		r := &p.Requests[i]
		if err := t.line([]string{
			p.Scenario, r.Variant, outcome(r.Outcome, r.Reason),
			count(r.PromptTokens), count(r.CachedPromptTokens), count(r.CompletionTokens),
			millis(r.TimeToFirstTokenSeconds), millis(r.TimePerOutputTokenSeconds),
			millis(maxGap(r.InterChunkLatenciesSeconds)), millis(r.E2ELatencySeconds),
		}); err != nil {
			return err
		}
	}
	return t.remarks(p)
}

// remarks writes what the columns do not hold: derived figures, broken checks, why it failed.
func (t *table) remarks(p *result.Probe) error {
	var lines []string
	for _, v := range p.Values {
		name := v.Metric
		if v.Label != "" {
			name += "{" + v.Label + "}"
		}
		lines = append(lines, fmt.Sprintf("%s = %.4g", name, v.Figure))
	}
	for _, c := range p.Checks {
		if !c.OK {
			lines = append(lines, fmt.Sprintf("check %s of %s fails: %s", c.Name, c.Variant, c.Detail))
		}
	}
	if p.Outcome != result.Success && p.Detail != "" {
		lines = append(lines, string(p.Outcome)+": "+p.Detail)
	}
	for i := range p.Requests {
		if r := &p.Requests[i]; len(r.Anomalies) > 0 {
			lines = append(lines, fmt.Sprintf("anomalies of %s: %v", r.Variant, r.Anomalies))
		}
	}
	for _, l := range lines {
		if _, err := fmt.Fprintln(t.w, "  "+l); err != nil {
			return err
		}
	}
	return nil
}

func outcome(o result.Outcome, r result.Reason) string {
	if r != result.ReasonNone {
		return string(r)
	}
	return string(o)
}

func count(v *int) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprint(*v)
}

func millis(v *float64) string {
	if v == nil {
		return "-"
	}
	if *v >= 10 {
		return fmt.Sprintf("%.2f s", *v)
	}
	return fmt.Sprintf("%.2f ms", *v*1000)
}

func maxGap(gaps []float64) *float64 {
	if len(gaps) == 0 {
		return nil
	}
	return result.Ptr(slices.Max(gaps))
}

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}
