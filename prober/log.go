package prober

import (
	"time"

	"github.com/go-kit/log/level"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// failureLog keeps a pair that fails all the time from filling the log.
type failureLog struct {
	reason   result.Reason
	since    time.Time // of the first failure in a row
	row      int       // failures in a row, whatever the reason
	logged   time.Time
	repeated int // not logged since
}

// failed takes a failure, and says whether to log it, and how many of its kind were not.
func (l *failureLog) failed(r result.Reason, now time.Time) (repeated int, log bool) {
	if l.row == 0 {
		l.since = now
	}
	l.row++
	if r == l.reason && now.Sub(l.logged) < repeatedLogPeriod {
		l.repeated++
		return 0, false
	}
	repeated = l.repeated
	if r != l.reason {
		repeated = 0
	}
	l.reason, l.logged, l.repeated = r, now, 0
	return repeated, true
}

// succeeded takes a success, and says whether it ends a row of failures.
func (l *failureLog) succeeded() (before failureLog, recovered bool) {
	before = *l
	*l = failureLog{}
	return before, before.row > 0
}

// log writes a line about a probe of the cadence: failures at info, unless they repeat; successes at debug.
func (p *Prober) log(pr *pair, r *result.Probe) {
	now := time.Now()
	s := pr.state
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Outcome == result.Failure {
		if repeated, yes := s.failures.failed(r.Reason, now); yes {
			level.Info(p.logger).Log("msg", "probe failed", "target", r.Target, "scenario", r.Scenario, "reason", r.Reason,
				"detail", r.Detail, "id", r.ID, "duration_seconds", r.DurationSeconds,
				"failures_in_a_row", s.failures.row, "same_not_logged", repeated)
		}
		return
	}
	if before, recovered := s.failures.succeeded(); recovered {
		level.Info(p.logger).Log("msg", "probe works again", "target", r.Target, "scenario", r.Scenario, "outcome", r.Outcome,
			"failures", before.row, "last_reason", before.reason, "failed_for", now.Sub(before.since).Round(time.Second))
	}
	if r.Outcome == result.Unsupported {
		level.Info(p.logger).Log("msg", "the target cannot do this scenario; it is skipped, and tried again in a day",
			"target", r.Target, "scenario", r.Scenario, "detail", r.Detail, "id", r.ID)
		return
	}
	level.Debug(p.logger).Log("msg", "probe finished", "target", r.Target, "scenario", r.Scenario, "outcome", r.Outcome,
		"detail", r.Detail, "id", r.ID, "duration_seconds", r.DurationSeconds)
}
