package collector

import "time"

// minLifetime is how long a gauge of a measurement is shown at least, however short the interval.
const minLifetime = 15 * time.Minute

// lifetime returns how old the last measurement of an expiring gauge may become. A wrong figure is worse than an
// absent one, so a figure that three probes in a row did not renew vanishes. Scenarios that run on a cron schedule
// have no interval: their figures stay until the scenario has run again (see pair.forget).
func (p *pair) lifetime(f *family) time.Duration {
	interval := p.Interval
	if f.Rotates {
		interval *= time.Duration(max(1, len(p.Variants)))
	}
	if interval <= 0 {
		return 0
	}
	return max(3*interval, minLifetime)
}

// expired reports whether the series is too old to be exported. The scope's lock is held.
func (x *series) expired(now time.Time) bool {
	if !x.family.Expires || x.scope.lifetime == nil {
		return false
	}
	limit := x.scope.lifetime(x.family)
	return limit > 0 && now.Sub(time.Unix(0, x.at)) > limit
}

// forget drops all expiring gauges of a scenario without interval, so that figures of its last run cannot be
// taken for those of a later run that failed.
func (p *pair) forget() {
	if p.Interval > 0 {
		return
	}
	for _, f := range p.collector.families {
		if f.Expires && f.tier == ofPair {
			p.scope.remove(f, func([]string) bool { return true })
		}
	}
}
