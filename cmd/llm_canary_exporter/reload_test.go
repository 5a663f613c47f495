package main

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The tests here run alone: SIGHUP reaches every daemon of the process, and goroutines are counted.

const both = "scenarios: [steady, second]"

// steadyConfig probes with scenarios that tick evenly, not at random: waits are short.
func steadyConfig(targets ...string) string {
	return "scenarios:\n  - {name: steady, type: decode, interval: 1s, max_tokens: 4}\n  - {name: second, type: decode, interval: 1s, max_tokens: 4}\ntargets:\n" + strings.Join(targets, "")
}

func (p *process) reload() (status int, body string) {
	p.t.Helper()
	status, body, _ = p.request(http.MethodPost, "/-/reload")
	return status, body
}

func hangup(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

// What stays keeps its counters and goes on, what goes takes its series along, what is new is probed.
func TestReload(t *testing.T) {
	_, url := simulated(t)
	a, b, c := quickTarget("a", url, both), quickTarget("b", url, both), quickTarget("c", url, "scenarios: [steady]")
	for _, how := range []string{"HTTP", "SIGHUP"} {
		t.Run(how, func(t *testing.T) {
			config := file(t, "c.yml", steadyConfig(a, b))
			d := startDaemon(t, config, "--web.enable-lifecycle")
			counted := d.awaitAtLeast(1, "probes_total", "target", "a", "scenario", "steady")
			samples, _ := d.metrics().value("time_to_first_token_seconds", "target", "a", "scenario", "steady")
			d.awaitAtLeast(1, "probes_total", "target", "b", "scenario", "second")

			rewrite(t, config, steadyConfig(a, c))
			if how == "SIGHUP" {
				hangup(t)
			} else if status, body := d.reload(); status != http.StatusOK {
				t.Fatalf("status %d: %s", status, body)
			}
			d.awaitAtLeast(0, "probes_total", "target", "c", "scenario", "steady")
			page := d.page("/metrics")
			if strings.Contains(page, `target="b"`) {
				t.Errorf("the removed target still has series:\n%s", linesWith(page, `target="b"`))
			}
			if strings.Contains(page, `scenario="second",target="c"`) {
				t.Error("the new target has series of a scenario that it is not configured for")
			}
			if v, _ := d.metrics().value("time_to_first_token_seconds", "target", "a", "scenario", "steady"); v < samples {
				t.Errorf("a histogram of the unchanged target fell from %v to %v samples", samples, v)
			}
			// Each count that is seen until two more probes ran is at least the one before.
			last := counted
			eventually(t, func() string {
				v, ok := d.metrics().value("probes_total", "target", "a", "scenario", "steady")
				if !ok || v < last {
					t.Fatalf("the counter of the unchanged target fell from %v to %v (there: %v)", last, v, ok)
				}
				if last = v; v < counted+2 {
					return fmt.Sprintf("the unchanged target has %v probes after the reload, %v before", v, counted)
				}
				return ""
			})
			d.awaitValue(1, "probe_success", "target", "c", "scenario", "steady")
			if strings.Contains(d.page("/metrics"), `target="b"`) {
				t.Error("series of the removed target came back")
			}
			if text := d.page("/config"); !strings.Contains(text, "name: c\n") || strings.Contains(text, "name: b\n") {
				t.Errorf("/config is not the new configuration:\n%s", text)
			}
			for _, path := range []string{"/", "/targets?format=json", "/probes?format=json"} {
				if text := d.page(path); strings.Contains(text, `"b"`) || strings.Contains(text, ">b<") || strings.Contains(text, ">b <") {
					t.Errorf("%s still shows the removed target", path)
				}
			}
			if code := d.stop(); code != exitOK {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

func linesWith(text, part string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			out.WriteString(line)
		}
	}
	return out.String()
}

// A broken file changes nothing but the gauge, and a mended one is taken.
func TestReloadBroken(t *testing.T) {
	_, url := simulated(t)
	good := steadyConfig(quickTarget("a", url, both))
	config := file(t, "c.yml", good)
	d := startDaemon(t, config, "--web.enable-lifecycle")
	d.awaitAtLeast(1, "probes_total", "target", "a", "scenario", "steady")
	stamp, _ := d.metrics().value("config_last_reload_success_timestamp_seconds")
	for name, c := range map[string]struct{ text, says string }{
		"unknown field": {good + "colour: red\n", "colour"},
		"no YAML":       {"targets: [", config},
		"scenario type": {strings.Replace(good, "type: decode", "type: nonsense", 1), "nonsense"},
		"setting":       {strings.Replace(good, "max_tokens: 4", "max_tokens: -4", 1), "scenarios[0].max_tokens"},
		"target":        {strings.Replace(good, "http://", "ftp://", 1), "targets[0].url"},
		"credentials":   {strings.Replace(good, "{name: a,", "{name: a, tls_config: {ca_file: /does/not/exist},", 1), "/does/not/exist"},
	} {
		rewrite(t, config, c.text)
		status, body := d.reload()
		if status != http.StatusInternalServerError || !strings.Contains(body, c.says) {
			t.Errorf("%s: status %d, want 500 and %q in %q", name, status, c.says, body)
		}
		d.awaitValue(0, "config_last_reload_successful")
	}
	rewrite(t, config, good)
	if status, body := d.reload(); status != http.StatusOK {
		t.Fatalf("status %d: %s", status, body)
	}
	d.awaitValue(1, "config_last_reload_successful")

	if err := os.Remove(config); err != nil {
		t.Fatal(err)
	}
	hangup(t)
	d.awaitValue(0, "config_last_reload_successful")
	was, _ := d.metrics().value("probes_total", "target", "a", "scenario", "steady")
	d.awaitAtLeast(was+1, "probes_total", "target", "a", "scenario", "steady")
	if status, _ := d.get("/-/ready"); status != http.StatusOK {
		t.Errorf("/-/ready has status %d", status)
	}

	rewrite(t, config, good)
	hangup(t)
	d.awaitValue(1, "config_last_reload_successful")
	if now, _ := d.metrics().value("config_last_reload_success_timestamp_seconds"); !(now > stamp) {
		t.Errorf("the time of the last successful reload is %v, it was %v at the start", now, stamp)
	}
}

// The kind of histograms stays until the next start, and the log says so.
func TestReloadHistograms(t *testing.T) {
	_, url := simulated(t)
	text := steadyConfig(quickTarget("a", url, both))
	config := file(t, "c.yml", text)
	d := startDaemon(t, config, "--web.enable-lifecycle")
	for i, kind := range []string{"classic", "native", "both"} { // both is the default
		rewrite(t, config, "global: {histograms: "+kind+"}\n"+text)
		if status, body := d.reload(); status != http.StatusOK {
			t.Fatalf("status %d: %s", status, body)
		}
		if n := strings.Count(d.stderr.String(), "global.histograms changes with a restart only"); n != min(i+1, 2) {
			t.Errorf("%s: the log says %d times that a restart is needed:\n%s", kind, n, d.stderr)
		}
	}
}

// Reloads leave nothing behind and, however frequent, do not keep an unchanged target from being probed.
func TestManyReloads(t *testing.T) {
	_, url := simulated(t)
	before := runtime.NumGoroutine()
	a := quickTarget("a", url, both)
	config := file(t, "c.yml", steadyConfig(a))
	d := startDaemon(t, config, "--web.enable-lifecycle")
	began := d.awaitAtLeast(1, "probes_total", "target", "a", "scenario", "steady")
	running := runtime.NumGoroutine()
	deadline := time.Now().Add(patience)
	for i := 0; ; i++ {
		rewrite(t, config, steadyConfig(a, quickTarget(fmt.Sprintf("extra%d", i%7), url, both)))
		if status, body := d.reload(); status != http.StatusOK {
			t.Fatalf("reload %d: status %d: %s", i, status, body)
		}
		if i < 99 {
			continue
		}
		if v, _ := d.metrics().value("probes_total", "target", "a", "scenario", "steady"); v >= began+2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the unchanged target is not probed while the configuration is reloaded")
		}
	}
	rewrite(t, config, steadyConfig(a))
	if status, body := d.reload(); status != http.StatusOK {
		t.Fatalf("status %d: %s", status, body)
	}
	if page := d.page("/metrics"); strings.Contains(page, "extra") {
		t.Errorf("series of removed targets:\n%s", linesWith(page, "extra"))
	}
	// Two scenarios may be in the middle of a probe now that were not then: a few goroutines each, not a hundred.
	const slack = 30
	eventually(t, func() string {
		if n := runtime.NumGoroutine(); n > running+slack {
			return fmt.Sprintf("%d goroutines after the reloads, %d before", n, running)
		}
		return ""
	})
	if code := d.stop(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	eventually(t, func() string {
		if n := runtime.NumGoroutine(); n > before+5 { // those of the simulated engine's last connections
			return fmt.Sprintf("%d goroutines after the daemon, %d before", n, before)
		}
		return ""
	})
}

// SIGHUP during the end does not cut it short: the process would die of it.
func TestHangupWhileStopping(t *testing.T) {
	_, url := simulated(t, withFault("stall=1:1s"))
	d := startDaemon(t, file(t, "c.yml", steadyConfig(quickTarget("a", url, "scenarios: [steady]"))))
	d.awaitValue(1, "probe_running", "target", "a", "scenario", "steady")
	d.cancel()
	hangup(t)
	if code := d.stop(); code != exitOK {
		t.Errorf("exit code %d\n%s", code, d.stderr)
	}
}
