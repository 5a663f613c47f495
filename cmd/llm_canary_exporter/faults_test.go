package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmcanary/llm_canary_exporter/sim"
)

// faultyTargets is a configuration of one target for each of the engines, probed with one scenario that
// ticks evenly: waits are short.
func faultyTargets(targets map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "global: {max_concurrent_probes: 100, stall_timeout: 1s, first_token_timeout: 5s, timeout: 20s}\n")
	b.WriteString("scenarios: [{name: steady, type: decode, interval: 1s, max_tokens: 8}]\ntargets:\n")
	for name, url := range targets {
		b.WriteString(quickTarget(name, url, "scenarios: [steady]"))
	}
	return b.String()
}

// Every kind of failure is counted under its reason, and none of them gives a latency.
func TestDaemonCountsFailures(t *testing.T) {
	t.Parallel()
	reasons := map[string]struct{ fault, reason string }{
		"cut_eof":     {"cut_eof=2", "truncated"},
		"cut_close":   {"cut_close=2", "truncated"},
		"cut_reset":   {"cut_reset=2", "connection_reset"},
		"stall":       {"stall=2:1m", "timeout_stall"},
		"html":        {"html", "not_a_stream"},
		"empty":       {"empty", "empty_output"},
		"error_after": {"error_after=2", "stream_error"},
		"error_raw":   {"error_raw=2", "stream_error"},
		"no_finish":   {"no_finish", "truncated"},
		"status_500":  {"status=500", "http_5xx"},
		"status_401":  {"status=401", "http_401"},
		"redirect":    {"redirect=http%3A%2F%2F127.0.0.1%3A1%2F", "not_a_stream"},
	}
	targets := map[string]string{"refused": "http://" + closedPort(t)}
	for name, x := range reasons {
		_, targets[name] = simulated(t, withFault(x.fault))
	}
	reasons["refused"] = struct{ fault, reason string }{"", "connect"}
	d := startDaemon(t, file(t, "c.yml", faultyTargets(targets)))
	for name, x := range reasons {
		eventually(t, func() string {
			m := d.metrics()
			if n, _ := m.value("probe_failures_total", "target", name, "reason", x.reason); n >= 2 {
				return ""
			}
			return fmt.Sprintf("%s: no two failures with reason %s:\n%s", name, x.reason, nonzero(d.page("/metrics"), "llm_canary_probe_failures_total", name))
		})
	}
	// A page is written family by family: a probe that ends meanwhile is in the later ones only. So the counts are
	// looked at again if they differ; those that are wrong stay so.
	var page string
	eventually(t, func() string {
		page = d.page("/metrics")
		m, err := parse(page)
		if err != nil {
			return err.Error()
		}
		for name, x := range reasons {
			of := []string{"target", name, "scenario", "steady"}
			probes, _ := m.value("probes_total", of...)
			failures, _ := m.value("probe_failures_total", append([]string{"reason", x.reason}, of...)...)
			row, _ := m.value("probe_consecutive_failures", of...)
			if probes != failures || row != probes {
				return fmt.Sprintf("%s: %v of %v probes failed with reason %s, %v in a row:\n%s", name, failures, probes, x.reason, row, nonzero(page, "llm_canary_probe_failures_total", name))
			}
		}
		return ""
	})
	m, err := parse(page)
	if err != nil {
		t.Fatal(err)
	}
	for name := range reasons {
		of := []string{"target", name, "scenario", "steady"}
		if v, ok := m.value("probe_success", of...); !ok || v != 0 {
			t.Errorf("%s: probe_success is %v (there: %v)", name, v, ok)
		}
		for _, family := range []string{"time_to_first_token_seconds", "time_to_first_content_seconds", "time_per_output_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds"} {
			if v, _ := m.value(family, of...); v > 0 {
				t.Errorf("%s: %v samples of %s", name, v, family)
			}
		}
		for _, gauge := range []string{"output_tokens_per_second", "probe_last_success_timestamp_seconds"} {
			if v, there := m.value(gauge, of...); there {
				t.Errorf("%s: %s is %v", name, gauge, v)
			}
		}
	}
}

// nonzero returns the series of a family and target that are not 0.
func nonzero(page, family, target string) string {
	var out strings.Builder
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, family+"{") && strings.Contains(line, `target="`+target+`"`) && !strings.HasSuffix(line, " 0\n") {
			out.WriteString(line)
		}
	}
	return out.String()
}

// A target that breaks and recovers: no sample while it is broken, new ones after.
func TestDaemonThroughAnOutage(t *testing.T) {
	t.Parallel()
	engine, url := simulated(t)
	d := startDaemon(t, file(t, "c.yml", faultyTargets(map[string]string{"t": url})))
	d.awaitAtLeast(1, "time_to_first_token_seconds", "target", "t")
	for _, x := range []struct{ fault, reason string }{{"error_after=3", "stream_error"}, {"cut_close=3", "truncated"}} {
		breakIt(t, engine, x.fault)
		d.awaitAtLeast(1, "probe_failures_total", "target", "t", "reason", x.reason)
		samples := d.awaitAtLeast(1, "time_to_first_token_seconds", "target", "t")
		d.awaitAtLeast(2, "probe_failures_total", "target", "t", "reason", x.reason)
		m := d.metrics()
		if now, _ := m.value("time_to_first_token_seconds", "target", "t"); now != samples {
			t.Errorf("%s: %v samples of the time to the first token, %v before", x.fault, now, samples)
		}
		if v, _ := m.value("probe_success", "target", "t"); v != 0 {
			t.Errorf("%s: probe_success is %v", x.fault, v)
		}
		breakIt(t, engine)
		d.awaitAtLeast(samples+1, "time_to_first_token_seconds", "target", "t")
		d.awaitValue(1, "probe_success", "target", "t")
		d.awaitValue(0, "probe_consecutive_failures", "target", "t")
	}
	status, page := d.get("/probes?outcome=failure")
	if status != http.StatusOK || !strings.Contains(page, "stream_error") || !strings.Contains(page, "truncated") {
		t.Errorf("status %d: the failures are not listed:\n%s", status, page)
	}
}

func breakIt(t *testing.T, engine *sim.Server, faults ...string) {
	t.Helper()
	rules := []sim.FaultRule{}
	for _, f := range faults {
		rules = append(rules, sim.FaultRule{Fault: f, Probability: 1})
	}
	if err := engine.SetFaults(rules); err != nil {
		t.Fatal(err)
	}
}

// A target that asks for a pause gets it: ticks are skipped, no request is sent, and after it the target is probed again.
func TestDaemonBacksOff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ fault, reason string }{
		{"status=429;retry_after=3", "http_429"},
		{"status=503;retry_after=3", "http_503"},
	} {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			engine, url := simulated(t, withFault(c.fault))
			d := startDaemon(t, file(t, "c.yml", faultyTargets(map[string]string{"t": url})))
			d.awaitAtLeast(1, "probe_failures_total", "target", "t", "reason", c.reason)
			refused := engine.Records()[0].Received
			breakIt(t, engine)
			d.awaitAtLeast(1, "probe_skips_total", "target", "t", "scenario", "steady", "reason", "backoff")
			d.awaitValue(1, "probe_success", "target", "t", "scenario", "steady")
			records := engine.Records()
			if len(records) < 2 {
				t.Fatalf("%d requests", len(records))
			}
			if pause := records[1].Received.Sub(refused); pause < 3*time.Second {
				t.Errorf("the next request came after %s, the target had asked for 3 s", pause)
			}
			if v, _ := d.metrics().value("probe_failures_total", "target", "t", "reason", c.reason); v != 1 {
				t.Errorf("%v failures: skipped ticks are no failures", v)
			}
		})
	}
}
