package prober

import (
	"math"
	"testing"
	"time"

	"github.com/llmcanary/llm_canary_exporter/config"
)

func TestPlan(t *testing.T) {
	nightly := config.Scenario{Name: "nightly", Type: "off", Schedule: "0 3 * * *"}
	c := conf([]string{"b", "a"}, sc("even", time.Minute), sc("chat", 30*time.Second), nightly)
	c.Targets[0].Scenarios = []string{"even", "nightly"}
	c.Targets[0].Price = config.Price{PromptPerMillion: 2, OutputPerMillion: 10}
	h := newHouse(t, nil)
	p, err := h.Plan(c)
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		target, scenario string
		probes           float64
	}
	want := []row{{"a", "chat", 2880}, {"a", "even", 1440}, {"a", "nightly", 1}, {"b", "even", 1440}, {"b", "nightly", 1}}
	for i, w := range want {
		if got := p.Pairs[i]; got.Target != w.target || got.Scenario != w.scenario || math.Abs(got.ProbesPerDay-w.probes) > 1e-9 {
			t.Errorf("row %d: %+v, want %+v", i, got, w)
		}
	}
	chat := p.Pairs[0]
	if chat.Expected.OutputPerDay != 2880*64 || chat.Expected.PromptPerDay >= chat.Worst.PromptPerDay || chat.Expected.MoneyPerDay != 0 {
		t.Errorf("chat: %+v", chat)
	}
	even := p.Pairs[3]
	if money := (1440*10*2 + 1440*5*10) / 1e6; even.Expected.PromptPerDay != 14400 || math.Abs(even.Expected.MoneyPerDay-money) > 1e-12 {
		t.Errorf("even on b: %+v, want %v of money", even, money)
	}
	if got := p.Targets[1]; got.Target != "b" || got.ProbesPerDay != 1441 || got.PeakRequests != 6 {
		t.Errorf("target b: %+v", got)
	}
	if p.PeakRequests != 7+6 || p.Total.ProbesPerDay != 2880+1441*2 {
		t.Errorf("total: peak %d, %+v", p.PeakRequests, p.Total)
	}
	c.Global.MaxConcurrentProbes, c.Global.MaxConcurrentProbesPerTarget = 2, 1
	if p, err = h.Plan(c); err != nil || p.PeakRequests != 6 || p.Targets[0].PeakRequests != 3 {
		t.Errorf("with fewer slots: peak %d, %v", p.PeakRequests, err)
	}
}
