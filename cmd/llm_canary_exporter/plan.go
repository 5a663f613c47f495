package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/llmcanary/llm_canary_exporter/config"
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
	p := newProber(nil, nil, nil)
	defer p.Close()
	plan, err := p.Plan(cfg)
	if err != nil {
		return fail(cfg.Annotate(err))
	}
	if f.plan.output == "json" {
		err = writePlanJSON(o.stdout, plan, cfg)
	} else {
		err = writePlan(o.stdout, plan, cfg)
	}
	if err != nil {
		fmt.Fprintf(o.stderr, "%s: cannot write the plan: %v\n", programName, err)
		return exitFailed
	}
	return exitOK
}

func writePlan(w io.Writer, plan prober.Plan, cfg *config.Config) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	money := anyPrice(cfg)
	head := "TARGET\tSCENARIO\tEVERY\tPROBES/DAY\tREQUESTS/DAY\tPROMPT TOKENS/DAY\tOUTPUT TOKENS/DAY\tAT MOST\tAT ONCE\t"
	if money {
		head += "MONEY/DAY\t"
	}
	fmt.Fprintln(t, head)
	row := func(target, scenario, every string, s prober.Spending, atOnce int, known bool) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%d\t", target, scenario, every, s.ProbesPerDay, s.RequestsPerDay,
			s.Expected.PromptPerDay, s.Expected.OutputPerDay, s.Worst.PromptPerDay+s.Worst.OutputPerDay, atOnce)
		switch {
		case money && known:
			fmt.Fprintf(t, "%.2f\t", s.Expected.MoneyPerDay)
		case money:
			fmt.Fprint(t, "-\t")
		}
		fmt.Fprintln(t)
	}
	for _, p := range plan.Pairs {
		every := p.Schedule
		if p.Interval > 0 {
			every = shortDuration(p.Interval)
		}
		row(p.Target, p.Scenario, every, p.Spending, p.Concurrency, priced(cfg, p.Target))
	}
	for _, x := range plan.Targets {
		row(x.Target, "(all)", "", x.Spending, x.PeakRequests, priced(cfg, x.Target))
	}
	if len(plan.Targets) > 1 {
		row("(all)", "(all)", "", plan.Total, plan.PeakRequests, money)
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
