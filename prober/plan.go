package prober

import (
	"cmp"
	"slices"
	"time"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/engine"
	"github.com/llmcanary/llm_canary_exporter/prober/scenario"
)

// Plan is what a configuration will send.
type Plan struct {
	Pairs   []PlannedPair   // by target and scenario
	Targets []PlannedTarget // by target
	Total   Spending        // of all targets

	// PeakRequests is the most requests that can be in flight at once, all targets together.
	PeakRequests int
}

// PlannedPair is what one scenario sends to one target.
type PlannedPair struct {
	Target, Scenario, Type string

	Interval time.Duration // 0: by schedule
	Schedule string
	Spending
	Concurrency int // requests at once of one probe
}

// PlannedTarget is what is sent to one target.
type PlannedTarget struct {
	Target string
	Spending
	PeakRequests int // the most requests that can be in flight at once
}

// Spending is what is sent in a day. Expected counts what probes usually cost, Worst their upper bound.
type Spending struct {
	ProbesPerDay   float64
	RequestsPerDay float64
	Expected       Tokens
	Worst          Tokens
}

// Tokens are tokens in a day, and what they cost by the target's price; Money is 0 where no price is configured.
type Tokens struct {
	PromptPerDay float64
	OutputPerDay float64
	MoneyPerDay  float64
}

func (t Tokens) plus(o Tokens) Tokens {
	return Tokens{t.PromptPerDay + o.PromptPerDay, t.OutputPerDay + o.OutputPerDay, t.MoneyPerDay + o.MoneyPerDay}
}

func (s Spending) plus(o Spending) Spending {
	return Spending{
		ProbesPerDay: s.ProbesPerDay + o.ProbesPerDay, RequestsPerDay: s.RequestsPerDay + o.RequestsPerDay,
		Expected: s.Expected.plus(o.Expected), Worst: s.Worst.plus(o.Worst),
	}
}

// Plan returns what a configuration will send when every tick becomes a probe and every target is up. It needs no
// target; where a target of that name is known already, the limits of its model are taken into account.
func (p *Prober) Plan(c *config.Config) (Plan, error) {
	specs, err := p.buildSpecs(c)
	if err != nil {
		return Plan{}, err
	}
	var plan Plan
	var slots []int
	for i, t := range c.Targets {
		names, _, err := selection(c, i, specs)
		if err != nil {
			return Plan{}, err
		}
		slices.Sort(names)
		facts := p.factsOf(t)
		planned := PlannedTarget{Target: t.Name}
		var concurrency []int
		for _, name := range names {
			pair := planPair(t, specs[name], facts)
			plan.Pairs = append(plan.Pairs, pair)
			planned.Spending = planned.plus(pair.Spending)
			concurrency = append(concurrency, pair.Concurrency)
		}
		kept := largest(concurrency, limit(c.Global.MaxConcurrentProbesPerTarget, defaultConcurrencyPerTarget))
		planned.PeakRequests = sum(kept)
		slots = append(slots, kept...)
		plan.Targets = append(plan.Targets, planned)
		plan.Total = plan.Total.plus(planned.Spending)
	}
	plan.PeakRequests = sum(largest(slots, limit(c.Global.MaxConcurrentProbes, defaultConcurrency)))
	slices.SortFunc(plan.Targets, func(a, b PlannedTarget) int { return cmp.Compare(a.Target, b.Target) })
	slices.SortStableFunc(plan.Pairs, func(a, b PlannedPair) int { return cmp.Compare(a.Target, b.Target) })
	return plan, nil
}

func (p *Prober) factsOf(c config.Target) engine.Facts {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.targets[c.Name]; t != nil {
		return t.engine.Facts()
	}
	return engine.Facts{}
}

func planPair(t config.Target, s *spec, f engine.Facts) PlannedPair {
	worst := s.scenario.Cost(f)
	expected := worst
	if x, ok := s.scenario.(scenario.Forecaster); ok {
		expected = x.Expected(f)
	}
	n := probesPerDay(s)
	return PlannedPair{
		Target: t.Name, Scenario: s.config.Name, Type: s.typ.Name, Interval: s.interval, Schedule: s.config.Schedule,
		Concurrency: worst.Concurrency,
		Spending: Spending{
			ProbesPerDay: n, RequestsPerDay: n * float64(expected.Requests),
			Expected: tokens(expected, n, t.Price), Worst: tokens(worst, n, t.Price),
		},
	}
}

func tokens(c scenario.Cost, n float64, price config.Price) Tokens {
	t := Tokens{PromptPerDay: n * float64(c.PromptTokens), OutputPerDay: n * float64(c.OutputTokens)}
	t.MoneyPerDay = (t.PromptPerDay*price.PromptPerMillion + t.OutputPerDay*price.OutputPerMillion) / 1e6
	return t
}

// probesPerDay returns the ticks of a day; of a schedule, those of an average day of the next four weeks.
func probesPerDay(s *spec) float64 {
	const day = 24 * time.Hour
	if s.schedule == nil {
		return float64(day) / float64(s.interval)
	}
	const days, most = 28, 1_000_000
	now := time.Now()
	n := 0
	for t := s.schedule.Next(now); !t.IsZero() && t.Sub(now) <= days*day && n < most; t = s.schedule.Next(t) {
		n++
	}
	return float64(n) / days
}

// largest returns the n largest of list.
func largest(list []int, n int) []int {
	sorted := slices.Clone(list)
	slices.SortFunc(sorted, func(a, b int) int { return b - a })
	return sorted[:min(max(n, 0), len(sorted))]
}

func sum(list []int) int {
	n := 0
	for _, x := range list {
		n += x
	}
	return n
}
