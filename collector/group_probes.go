package collector

import (
	"math"
	"time"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// probeGroup holds what is said of whole probes and of their cadence.
func probeGroup() group {
	labels := []string{"target", "scenario"}
	byReason := []string{"target", "scenario", "reason"}
	return group{
		title: "Probes",
		intro: "Counters exist at 0 for every pair of target and scenario, and for every reason, from the start: `increase()` sees the first failure.",
		metrics: []Metric{
			{
				Name: "probes_total", Type: Counter, Labels: labels,
				Help: "Probes that were run.",
			},
			{
				Name: "probe_failures_total", Type: Counter, Labels: byReason,
				Help:    "Probes that failed, by the reason of the first failure in them.",
				Example: `sum by (target, scenario) (increase(llm_canary_probe_failures_total{reason=~"truncated|stream_error|timeout_stall|connection_reset"}[15m])) >= 2`,
			},
			{
				Name: "probe_skips_total", Type: Counter, Labels: byReason,
				Help: "Ticks of the cadence that did not become a probe, by reason.",
			},
			{
				Name: "probe_success", Type: Gauge, Labels: labels,
				Help:   "Whether the last probe succeeded (1) or failed (0).",
				Detail: "Absent before the first probe ends and while the target cannot do what the scenario asks for.",
			},
			{
				Name: "probe_last_run_timestamp_seconds", Type: Gauge, Labels: labels, Unit: "seconds",
				Help: "When the last probe ended, in Unix time.", Detail: "Absent before the first one.",
			},
			{
				Name: "probe_last_success_timestamp_seconds", Type: Gauge, Labels: labels, Unit: "seconds",
				Help: "When the last successful probe ended, in Unix time.", Detail: "Absent before the first one.",
				Example: `time() - llm_canary_probe_last_success_timestamp_seconds > 3 * llm_canary_probe_interval_seconds`,
			},
			{
				Name: "probe_interval_seconds", Type: Gauge, Labels: labels, Unit: "seconds",
				Help:   "Mean time between two probes, as configured.",
				Detail: "Absent for scenarios that run on a cron schedule.",
			},
			{
				Name: "probe_consecutive_failures", Type: Gauge, Labels: labels,
				Help: "Failed probes since the last one that did not fail.",
			},
			{
				Name: "probe_running", Type: Gauge, Labels: labels,
				Help:   "Whether a probe runs now (1) or not (0).",
				Detail: "For annotations in dashboards: what else happened while a heavy scenario ran.",
			},
			{
				Name: "probe_duration_seconds", Type: Histogram, Labels: labels, Unit: "seconds", Bounds: wholeBounds(),
				Help: "How long successful probes took, with all their requests.",
			},
			{
				Name: "schedule_lag_seconds", Type: Histogram, Labels: []string{"target"}, Unit: "seconds", Bounds: lagBounds(),
				Help:   "How much later than scheduled probes started.",
				Detail: "Of all probes that a cadence asked for. Large values mean that the exporter is overloaded, or that its limits of concurrency are too tight.",
			},
			{
				Name: "client_lag_seconds", Type: Histogram, Labels: []string{"target"}, Unit: "seconds", Bounds: lagBounds(),
				Help:   "The longest time in each request between the kernel's receipt of bytes and our reading of them.",
				Detail: "The tool's own delay, of all requests. Latencies are taken from the kernel's time stamps and do not contain it. Absent where the platform has no such stamps.",
			},
		},
		added:    addProbes,
		finished: finishProbe,
	}
}

func addProbes(p *pair) {
	p.scope.get(p.family("probes_total"))
	for _, r := range result.Reasons() {
		p.scope.get(p.family("probe_failures_total"), string(r))
	}
	for _, r := range result.SkipReasons() {
		p.scope.get(p.family("probe_skips_total"), string(r))
	}
	p.scope.get(p.family("probe_consecutive_failures"))
	p.setRunning()
	interval := p.family("probe_interval_seconds")
	if p.Interval > 0 {
		p.scope.set(interval, p.Interval.Seconds(), p.collector.now())
	} else {
		p.scope.remove(interval, func([]string) bool { return true })
	}
}

func finishProbe(p *pair, r *result.Probe) {
	p.running = max(0, p.running-1)
	p.setRunning()
	p.scope.add(p.family("probes_total"), 1)
	end := r.StartTime
	if finite(r.DurationSeconds) {
		end = end.Add(time.Duration(math.Round(r.DurationSeconds * float64(time.Second))))
	}
	p.setTime("probe_last_run_timestamp_seconds", end)

	success := p.family("probe_success")
	switch r.Outcome {
	case result.Success:
		p.consecutive = 0
		p.scope.set(success, 1, end)
		p.setTime("probe_last_success_timestamp_seconds", end)
		p.observe(p.scope, p.family("probe_duration_seconds"), r.DurationSeconds, "")
	case result.Unsupported:
		p.consecutive = 0
		p.scope.remove(success, func([]string) bool { return true })
	default:
		p.consecutive++
		p.scope.set(success, 0, end)
		p.scope.add(p.family("probe_failures_total"), 1, p.reason(r.Reason))
	}
	p.scope.set(p.family("probe_consecutive_failures"), float64(p.consecutive), end)

	lag := p.target.scope
	p.observeIf(lag, p.family("schedule_lag_seconds"), r.ScheduleLagSeconds, "")
	for i := range r.Requests {
		p.observeIf(lag, p.family("client_lag_seconds"), r.Requests[i].ClientLagMax, "")
	}
}

// setTime moves a time stamp forward; results may arrive out of order.
func (p *pair) setTime(name string, t time.Time) {
	x := p.scope.get(p.family(name))
	x.value = max(x.value, float64(t.UnixMilli())/1e3)
}

func (p *pair) setRunning() {
	running := 0.0
	if p.running > 0 {
		running = 1
	}
	p.scope.set(p.family("probe_running"), running, p.collector.now())
}
