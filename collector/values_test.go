package collector

import (
	"strings"
	"testing"
	"time"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

func TestFiguresExpire(t *testing.T) {
	pairs := map[string]struct {
		pair     result.Pair
		metric   string
		lifetime time.Duration
	}{
		"short interval": {result.Pair{Interval: 30 * time.Second, Variants: []string{"default"}}, "output_tokens_per_second", 15 * time.Minute},
		"long interval":  {result.Pair{Interval: 10 * time.Minute, Variants: []string{"default"}}, "output_tokens_per_second", 30 * time.Minute},
		"in turn":        {result.Pair{Interval: 10 * time.Minute, Variants: []string{"default", "b", "c"}}, "speculative_acceptance_ratio", 90 * time.Minute},
	}
	for name, x := range pairs {
		t.Run(name, func(t *testing.T) {
			c, reg, clock := newTest(t, Options{})
			x.pair.Target, x.pair.Scenario = "a", "chat"
			c.PairAdded(x.pair)
			p := chatSuccess(clock, "a")
			p.Values = result.Values{{Metric: x.metric, Label: "default", Figure: 2}}
			c.ProbeFinished(p)
			clock.t = clock.t.Add(x.lifetime)
			wantValue(t, reg, 2, x.metric)
			clock.t = clock.t.Add(time.Second)
			wantAbsent(t, reg, x.metric)
			wantAbsent(t, reg, "probe_gpu_utilization_max_ratio")
			wantAbsent(t, reg, "probe_engine_requests_running")
			wantValue(t, reg, 1, "probe_success") // says what it says with its time stamp
			var b strings.Builder
			if err := c.WriteText(&b, false); err != nil || strings.Contains(b.String(), x.metric) {
				t.Errorf("the text page still has %s (error %v)", x.metric, err)
			}
			c.ProbeFinished(p)
			wantValue(t, reg, 2, x.metric)
		})
	}
}

func TestFiguresOfScheduledScenarios(t *testing.T) {
	c, reg, clock := newTest(t, Options{})
	c.PairAdded(result.Pair{Target: "a", Scenario: "ramp", Type: "ramp", Variants: []string{"default"}})
	probe := func(outcome result.Outcome, reason result.Reason, values ...result.Value) {
		c.ProbeFinished(&result.Probe{Target: "a", Scenario: "ramp", Outcome: outcome, Reason: reason, StartTime: at(clock), Values: values})
	}
	probe(result.Success, "", result.Value{Metric: "ramp_max_requests_per_second", Figure: 12}, result.Value{Metric: "ramp_stop_info", Label: "completed", Figure: 1})
	clock.t = clock.t.Add(8 * 24 * time.Hour)
	wantValue(t, reg, 12, "ramp_max_requests_per_second")
	probe(result.Failure, result.ReasonConnect, result.Value{Metric: "ramp_max_requests_per_second", Figure: 1})
	wantAbsent(t, reg, "ramp_max_requests_per_second") // neither last week's nor what a broken run says
	wantAbsent(t, reg, "ramp_stop_info")
}

func TestFiguresOfFailedProbes(t *testing.T) {
	c, reg, clock := newTest(t, Options{})
	c.PairAdded(result.Pair{Target: "a", Scenario: "cache", Type: "prefix_cache", Interval: time.Minute, Variants: []string{"cold", "warm"}})
	c.PairAdded(result.Pair{Target: "a", Scenario: "ramp", Type: "ramp", Interval: time.Minute})
	probe := func(scenario string, reason result.Reason, v result.Value) {
		c.ProbeFinished(&result.Probe{Target: "a", Scenario: scenario, Outcome: result.Failure, Reason: reason, StartTime: at(clock), Values: result.Values{v}})
	}
	hit := func(x float64) result.Value {
		return result.Value{Metric: "prefix_cache_hit_ratio", Label: "usage", Figure: x}
	}
	probe("cache", result.ReasonTruncated, hit(0.5))
	wantAbsent(t, reg, "prefix_cache_hit_ratio")
	probe("cache", result.ReasonWrongAnswer, hit(0)) // the very collapse that an alert looks for
	wantValue(t, reg, 0, "prefix_cache_hit_ratio", "source", "usage")

	// One reason at a time.
	probe("ramp", result.ReasonWrongAnswer, result.Value{Metric: "ramp_stop_info", Label: "completed", Figure: 1})
	probe("ramp", result.ReasonWrongAnswer, result.Value{Metric: "ramp_stop_info", Label: "guard_ttft", Figure: 1})
	wantAbsent(t, reg, "ramp_stop_info", "reason", "completed")
	wantValue(t, reg, 1, "ramp_stop_info", "reason", "guard_ttft")
}

func TestTwoScenariosOfOneType(t *testing.T) {
	c, reg, clock := newTest(t, Options{})
	for i, name := range []string{"cache", "cache_long"} {
		c.PairAdded(result.Pair{Target: "a", Scenario: name, Type: "prefix_cache", Interval: time.Minute, Variants: []string{"warm"}})
		c.ProbeFinished(&result.Probe{
			Target: "a", Scenario: name, Outcome: result.Success, StartTime: at(clock),
			Values: result.Values{{Metric: "prefix_cache_hit_ratio", Label: "usage", Figure: float64(i)}},
		})
	}
	wantValue(t, reg, 0, "prefix_cache_hit_ratio", "target", "a", "scenario", "cache")
	wantValue(t, reg, 1, "prefix_cache_hit_ratio", "target", "a", "scenario", "cache_long")
}
