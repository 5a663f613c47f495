package main

import (
	"encoding/json"
	"io"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober"
)

// planOutput is the form of plan --output=json: names as in the metrics, durations in seconds, and no money where
// there is no price.
type planOutput struct {
	Pairs        []planPair   `json:"pairs"`
	Targets      []planTarget `json:"targets"`
	Total        planSpending `json:"total"`
	PeakRequests int          `json:"peak_requests"`
}

type planPair struct {
	Target          string  `json:"target"`
	Scenario        string  `json:"scenario"`
	Type            string  `json:"type"`
	IntervalSeconds float64 `json:"interval_seconds,omitempty"`
	Schedule        string  `json:"schedule,omitempty"`
	planSpending
	Concurrency int `json:"concurrency"`
}

type planTarget struct {
	Target string `json:"target"`
	planSpending
	PeakRequests int `json:"peak_requests"`
}

type planSpending struct {
	ProbesPerDay   float64    `json:"probes_per_day"`
	RequestsPerDay float64    `json:"requests_per_day"`
	Expected       planTokens `json:"expected"`
	Worst          planTokens `json:"worst"`
}

type planTokens struct {
	PromptPerDay float64  `json:"prompt_tokens_per_day"`
	OutputPerDay float64  `json:"output_tokens_per_day"`
	MoneyPerDay  *float64 `json:"money_per_day,omitempty"`
}

func writePlanJSON(w io.Writer, plan prober.Plan, cfg *config.Config) error {
	out := planOutput{
		Pairs: []planPair{}, Targets: []planTarget{},
		Total: spendingJSON(plan.Total, anyPrice(cfg)), PeakRequests: plan.PeakRequests,
	}
	for _, p := range plan.Pairs {
		out.Pairs = append(out.Pairs, planPair{
			Target: p.Target, Scenario: p.Scenario, Type: p.Type, IntervalSeconds: p.Interval.Seconds(), Schedule: p.Schedule,
			planSpending: spendingJSON(p.Spending, priced(cfg, p.Target)), Concurrency: p.Concurrency,
		})
	}
	for _, t := range plan.Targets {
		out.Targets = append(out.Targets, planTarget{
			Target: t.Target, planSpending: spendingJSON(t.Spending, priced(cfg, t.Target)), PeakRequests: t.PeakRequests,
		})
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(out)
}

func spendingJSON(s prober.Spending, money bool) planSpending {
	return planSpending{
		ProbesPerDay: s.ProbesPerDay, RequestsPerDay: s.RequestsPerDay,
		Expected: tokensJSON(s.Expected, money), Worst: tokensJSON(s.Worst, money),
	}
}

func tokensJSON(t prober.Tokens, money bool) planTokens {
	out := planTokens{PromptPerDay: t.PromptPerDay, OutputPerDay: t.OutputPerDay}
	if money {
		out.MoneyPerDay = &t.MoneyPerDay
	}
	return out
}

// priced reports whether a target has a price, without which its money is not known.
func priced(cfg *config.Config, target string) bool {
	t := cfg.Target(target)
	return t != nil && t.Price != (config.Price{})
}

func anyPrice(cfg *config.Config) bool {
	for i := range cfg.Targets {
		if cfg.Targets[i].Price != (config.Price{}) {
			return true
		}
	}
	return false
}
