package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/llmcanary/llm_canary_exporter/sim"
)

const planted = "hunter2-planted-secret"

// quickScenarios are the built-in types at the quickest cadence, with short answers.
const quickScenarios = `
scenarios:
  - {name: chat, type: chat, interval: 1s, max_tokens: 8}
  - {name: prefill, type: prefill, interval: 1s, lengths: [128, 512]}
  - {name: decode, type: decode, interval: 1s, max_tokens: 16}
`

// quickTarget is one target of a configuration with quickScenarios.
func quickTarget(name, url, more string) string {
	if more != "" {
		more = ", " + more
	}
	return fmt.Sprintf("  - {name: %s, url: %q%s}\n", name, url, more)
}

func TestDaemon(t *testing.T) {
	t.Parallel()
	engine, target := simulated(t, func(c *sim.Config) { c.APIKey = planted })
	config := file(t, "c.yml", quickScenarios+"targets:\n"+quickTarget("t", target, "authorization: {credentials: "+planted+"}"))
	d := startDaemon(t, config)
	for _, scenario := range []string{"chat", "prefill", "decode"} {
		d.awaitValue(1, "probe_success", "target", "t", "scenario", scenario)
		d.awaitAtLeast(1, "probes_total", "target", "t", "scenario", scenario)
	}
	d.awaitValue(1, "target_info", "target", "t", "url", target, "engine", "vllm", "model", "sim-8b", "protocol", "openai_chat")

	t.Run("health", func(t *testing.T) {
		for path, want := range map[string]string{"/-/healthy": "healthy\n", "/-/ready": "ready\n"} {
			if got := d.page(path); got != want {
				t.Errorf("%s says %q", path, got)
			}
		}
	})
	t.Run("figures", func(t *testing.T) {
		for name, scenario := range map[string]string{
			"time_to_first_token_seconds": "chat", "time_per_output_token_seconds": "decode", "output_tokens_per_second": "decode",
			"e2e_request_latency_seconds": "prefill", "prompt_tokens_total": "prefill", "generation_tokens_total": "chat",
		} {
			d.awaitAtLeast(1, name, "target", "t", "scenario", scenario)
		}
		m := d.metrics()
		if v, ok := m.value("probe_consecutive_failures", "target", "t", "scenario", "chat"); !ok || v != 0 {
			t.Errorf("probe_consecutive_failures is %v (there: %v)", v, ok)
		}
		if v, ok := m.value("config_last_reload_successful"); !ok || v != 1 {
			t.Errorf("config_last_reload_successful is %v (there: %v)", v, ok)
		}
	})
	t.Run("pages", func(t *testing.T) { checkPages(t, d, target) })
	t.Run("config", func(t *testing.T) {
		text := d.page("/config")
		if !strings.Contains(text, "<secret>") || !strings.Contains(text, "name: t\n") || !strings.Contains(text, "interval: 1s") {
			t.Errorf("not the configuration:\n%s", text)
		}
	})
	t.Run("probe", func(t *testing.T) { checkProbeEndpoint(t, d, target) })
	t.Run("secret", func(t *testing.T) {
		for _, path := range []string{"/", "/metrics", "/config", "/targets", "/targets?format=json", "/probes", "/probes?format=json"} {
			if strings.Contains(d.page(path), planted) {
				t.Errorf("the secret is on %s", path)
			}
		}
	})
	t.Run("refused", func(t *testing.T) {
		for _, c := range []struct {
			method, path string
			status       int
		}{
			{http.MethodGet, "/nothing", http.StatusNotFound},
			{http.MethodGet, "/probes/nothing", http.StatusNotFound},
			{http.MethodGet, "/debug/pprof/", http.StatusNotFound},
			{http.MethodPost, "/-/reload", http.StatusForbidden},
			{http.MethodGet, "/-/reload", http.StatusMethodNotAllowed},
			{http.MethodPost, "/metrics", http.StatusMethodNotAllowed},
		} {
			if status, body, _ := d.request(c.method, c.path); status != c.status {
				t.Errorf("%s %s: status %d, want %d: %s", c.method, c.path, status, c.status, body)
			}
		}
	})
	if code := d.stop(); code != exitOK {
		t.Errorf("exit code %d\n%s", code, d.stderr)
	}
	if status, _ := d.get("/-/healthy"); status != 0 {
		t.Errorf("still answers with status %d", status)
	}
	if log := d.stderr.String(); strings.Contains(log, planted) || d.stdout.String() != "" {
		t.Errorf("the secret is in the log, or something is on stdout (%q):\n%s", d.stdout, log)
	}
	// Each request of the probes arrived, and none was cut off.
	for _, r := range engine.Records() {
		if r.Aborted {
			t.Errorf("request %s was aborted", r.ID)
		}
	}
}

func checkPages(t *testing.T, d *process, target string) {
	status := d.page("/")
	for _, want := range []string{target, "chat", "prefill", "decode", "sim-8b", "vllm"} {
		if !strings.Contains(status, want) {
			t.Errorf("the status page does not say %q", want)
		}
	}
	var targets []struct {
		Name, URL, Engine, Model string
		Detected                 bool
	}
	if err := json.Unmarshal([]byte(d.page("/targets?format=json")), &targets); err != nil {
		t.Fatal(err)
	}
	if len(targets) != 1 || targets[0].Name != "t" || targets[0].URL != target || targets[0].Engine != "vllm" || !targets[0].Detected {
		t.Errorf("/targets: %+v", targets)
	}
	var probes []struct {
		ID, Target, Scenario, Outcome string
	}
	if err := json.Unmarshal([]byte(d.page("/probes?scenario=chat&format=json")), &probes); err != nil {
		t.Fatal(err)
	}
	if len(probes) == 0 {
		t.Fatal("/probes lists nothing")
	}
	for _, p := range probes {
		if p.Scenario != "chat" || p.Outcome != "success" {
			t.Errorf("/probes?scenario=chat lists %+v", p)
		}
	}
	id := probes[0].ID
	if page := d.page("/probes/" + id); !strings.Contains(page, id) || !strings.Contains(page, "time_to_first_token_seconds") {
		t.Errorf("/probes/%s:\n%s", id, page)
	}
	var one struct{ ID string }
	if err := json.Unmarshal([]byte(d.page("/probes/"+id+"?format=json")), &one); err != nil || one.ID != id {
		t.Errorf("/probes/%s as JSON: %+v, %v", id, one, err)
	}
	if list := d.page("/probes"); !strings.Contains(list, "/probes/") {
		t.Errorf("/probes has no links:\n%s", list)
	}
}

func checkProbeEndpoint(t *testing.T, d *process, target string) {
	before, _ := d.metrics().value("probes_total", "target", "t", "scenario", "chat")
	for _, name := range []string{"t", target, target + "/", target + "/v1"} {
		m, err := parse(d.page("/probe?scenario=chat&target=" + url.QueryEscape(name)))
		if err != nil {
			t.Fatal(err)
		}
		if f := m["probe_success"]; f == nil || f.Metric[0].Gauge.GetValue() != 1 {
			t.Errorf("/probe of %s: probe_success is %v", name, f)
		}
		if v, ok := m.value("time_to_first_token_seconds", "target", "t", "scenario", "chat"); !ok || v != 1 {
			t.Errorf("/probe of %s: %v samples of the time to the first token (there: %v)", name, v, ok)
		}
	}
	for _, query := range []string{"", "?target=t", "?scenario=chat", "?target=t&scenario=nope", "?target=http://127.0.0.1:1&scenario=chat", "?target=t&target=t&scenario=chat"} {
		if status, body := d.get("/probe" + query); status != http.StatusBadRequest {
			t.Errorf("/probe%s: status %d, %s", query, status, body)
		}
	}
	// The cadence of the pair goes on meanwhile: at one probe a second, and none of those asked for counts.
	if after, _ := d.metrics().value("probes_total", "target", "t", "scenario", "chat"); after < before {
		t.Errorf("probes_total fell from %v to %v", before, after)
	}
}

// At the end: not ready while probes still run, pages are served, running probes finish, exit code 0.
func TestDaemonStopsInOrder(t *testing.T) {
	t.Parallel()
	engine, target := simulated(t, withFault("stall=2:2s"))
	config := file(t, "c.yml", "scenarios: [{name: chat, type: chat, interval: 1s, max_tokens: 8}]\ntargets: [{name: t, url: '"+target+"', scenarios: [chat]}]\n")
	d := startDaemon(t, config)
	d.awaitValue(1, "probe_running", "target", "t", "scenario", "chat")
	eventually(t, func() string {
		if engine.Stats().Running+len(engine.Records()) == 0 {
			return "no request has arrived"
		}
		return ""
	})
	d.cancel()
	eventually(t, func() string {
		status, body := d.get("/-/ready")
		if status == http.StatusServiceUnavailable {
			return ""
		}
		return fmt.Sprintf("/-/ready has status %d: %s", status, body)
	})
	select {
	case <-d.ended:
		t.Fatal("the daemon did not wait for the running probe")
	default:
	}
	if status, _ := d.get("/metrics"); status != http.StatusOK {
		t.Errorf("/metrics has status %d while the last probe runs", status)
	}
	if code := d.stop(); code != exitOK {
		t.Errorf("exit code %d\n%s", code, d.stderr)
	}
	// The server notes the end of an answer a moment after the client has read it.
	eventually(t, func() string {
		records := engine.Records()
		if last := records[len(records)-1]; last.Aborted || last.FinishReason == "" || last.Ended.IsZero() {
			return fmt.Sprintf("the last request was cut off: %+v", last)
		}
		return ""
	})
}

// A probe that goes on for longer than the grace is cut off; that is no error.
func TestDaemonGraceEnds(t *testing.T) {
	t.Parallel()
	engine, target := simulated(t, withFault("hang"))
	config := file(t, "c.yml", "global: {shutdown_grace: 100ms}\nscenarios: [{name: chat, type: chat, interval: 1s}]\ntargets: [{name: t, url: '"+target+"', scenarios: [chat]}]\n")
	d := startDaemon(t, config)
	eventually(t, func() string {
		if len(engine.Records()) == 0 {
			return "no request has arrived"
		}
		return ""
	})
	began := time.Now()
	if code := d.stop(); code != exitOK {
		t.Errorf("exit code %d\n%s", code, d.stderr)
	}
	if took := time.Since(began); took > patience/2 { // the first token may take 30 s
		t.Errorf("took %s to stop", took)
	}
}

// Flags of the web server, and targets of the command line beside those of the file.
func TestDaemonFlags(t *testing.T) {
	t.Parallel()
	_, first := simulated(t)
	_, second := simulated(t)
	config := file(t, "c.yml", quickScenarios+"targets:\n"+quickTarget("t", first, ""))
	d := startDaemon(t, config, "--target="+second, "--web.telemetry-path=/figures", "--web.enable-pprof", "--no-collector.go", "--no-collector.process", "--log.format=json", "--log.level=debug")
	text := d.page("/figures")
	if strings.Contains(text, "\ngo_") || strings.Contains(text, "\nprocess_") {
		t.Error("metrics of a collector that is off")
	}
	for _, name := range []string{"t", strings.TrimPrefix(second, "http://")} {
		if !strings.Contains(text, `target="`+name+`"`) {
			t.Errorf("nothing of target %s", name)
		}
	}
	if status, _ := d.get("/metrics"); status != http.StatusNotFound {
		t.Errorf("/metrics has status %d", status)
	}
	if !strings.Contains(d.page("/debug/pprof/"), "goroutine") {
		t.Error("no profiles")
	}
	d.stop()
	for line := range strings.Lines(d.stderr.String()) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil || v["ts"] == nil || v["level"] == nil || v["msg"] == nil {
			t.Errorf("not a line of JSON with ts, level and msg: %q (%v)", line, err)
		}
	}
}

// The web configuration guards every page.
func TestDaemonWebConfig(t *testing.T) {
	t.Parallel()
	_, target := simulated(t)
	const canary = "$2a$04$ugXnP42kYgF9hA.Unj5QoO6daJ0U8fHSLgIhhymNenpaxwTxnKEE6" // bcrypt of "canary", at the least cost
	web := file(t, "web.yml", "basic_auth_users:\n  prometheus: "+canary+"\n")
	d := start(t, "web", "--web.listen-address=127.0.0.1:0", "--web.config.file="+web, "--target="+target)
	for _, path := range []string{"/", "/metrics", "/config", "/probe?target=t&scenario=chat"} {
		if status, _ := d.get(path); status != http.StatusUnauthorized {
			t.Errorf("%s without a password has status %d", path, status)
		}
	}
	d.base = strings.Replace(d.base, "http://", "http://prometheus:canary@", 1)
	if text := d.page("/metrics"); !strings.Contains(text, "llm_canary_build_info") {
		t.Error("no metrics with the password")
	}
}

func TestDaemonLog(t *testing.T) {
	t.Parallel()
	_, target := simulated(t)
	d := start(t, "web", "--web.listen-address=127.0.0.1:0", "--target="+target)
	d.page("/-/healthy")
	d.stop()
	for line := range strings.Lines(d.stderr.String()) {
		keys := map[string]int{}
		for _, m := range regexp.MustCompile(`(?:^| )(\w+)=("(?:[^"\\]|\\.)*"|\S*)`).FindAllStringSubmatch(line, -1) {
			keys[m[1]]++
		}
		if keys["ts"] != 1 || keys["level"] != 1 || keys["msg"] != 1 || keys["caller"] != 1 || keys["time"] > 0 {
			t.Errorf("not a line of logfmt with one ts, level, msg and caller: %q", line)
		}
	}
}

// The demo needs nothing but itself.
func TestDemo(t *testing.T) {
	t.Parallel()
	d := start(t, "web", "demo", "--web.listen-address=127.0.0.1:0")
	for _, scenario := range []string{"chat", "prefill", "decode"} {
		d.awaitValue(1, "probe_success", "target", "demo", "scenario", scenario)
	}
	if !strings.Contains(d.page("/"), "demo") {
		t.Error("the status page does not show the target")
	}
	if code := d.stop(); code != exitOK {
		t.Errorf("exit code %d\n%s", code, d.stderr)
	}
}

// A GPU node's exporter has no targets, and says so in its file; a file that forgot them is refused (TestUsageErrors).
func TestDaemonWithoutTargets(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, file(t, "none.yml", "targets: []\n"))
	d.awaitValue(1, "config_last_reload_successful")
	if got := d.page("/-/ready"); got != "ready\n" {
		t.Errorf("/-/ready says %q", got)
	}
	if code := d.stop(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}
