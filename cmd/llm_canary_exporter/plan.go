package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/llmcanary/llm_canary_exporter/prober"
)

// runPlan shows what the configuration will send. Nothing is sent.
func runPlan(f *flags, o options) int {
	fail := func(err error) int {
		fmt.Fprintf(o.stderr, "%s: %v\n", programName, err)
		return exitUsage
	}
	cfg, err := loadConfig(f)
	if err != nil {
		return fail(err)
	}
	if len(cfg.Targets) == 0 {
		return fail(errors.New("no target to plan for: give --target=http://host:8000 or a --config.file with targets"))
	}
	p := newProber(nil, nil)
	defer p.Close()
	plan, err := p.Plan(cfg)
	if err != nil {
		return fail(cfg.Annotate(err))
	}
	if f.plan.output == "json" {
		e := json.NewEncoder(o.stdout)
		e.SetIndent("", "  ")
		err = e.Encode(plan)
	} else {
		err = writePlan(o.stdout, plan)
	}
	if err != nil {
		fmt.Fprintf(o.stderr, "%s: cannot write the plan: %v\n", programName, err)
		return exitFailed
	}
	return exitOK
}

func writePlan(w io.Writer, plan prober.Plan) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	money := plan.Total.Worst.MoneyPerDay > 0
	head := "TARGET\tSCENARIO\tEVERY\tPROBES/DAY\tREQUESTS/DAY\tPROMPT TOKENS/DAY\tOUTPUT TOKENS/DAY\tAT MOST\tAT ONCE\t"
	if money {
		head += "MONEY/DAY\t"
	}
	fmt.Fprintln(t, head)
	row := func(target, scenario, every string, s prober.Spending, atOnce int) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%d\t", target, scenario, every, s.ProbesPerDay, s.RequestsPerDay,
			s.Expected.PromptPerDay, s.Expected.OutputPerDay, s.Worst.PromptPerDay+s.Worst.OutputPerDay, atOnce)
		if money {
			fmt.Fprintf(t, "%.2f\t", s.Expected.MoneyPerDay)
		}
		fmt.Fprintln(t)
	}
	for _, p := range plan.Pairs {
		every := p.Schedule
		if p.Interval > 0 {
			every = shortDuration(p.Interval)
		}
		row(p.Target, p.Scenario, every, p.Spending, p.Concurrency)
	}
	for _, x := range plan.Targets {
		row(x.Target, "(all)", "", x.Spending, x.PeakRequests)
	}
	if len(plan.Targets) > 1 {
		row("(all)", "(all)", "", plan.Total, plan.PeakRequests)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\nTokens are what probes usually cost. AT MOST counts prompt and output in the worst case; AT ONCE is the most requests in flight.")
	return err
}

// shortDuration leaves out the zero parts: 5m, not 5m0s.
func shortDuration(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
