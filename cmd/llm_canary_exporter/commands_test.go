package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
)

const minimalConfig = `
scenarios:
  - {name: chat, type: chat, interval: 30s, max_tokens: 64}
  - {name: talk, type: decode, interval: 2m, max_tokens: 100}
targets:
  - name: a
    url: http://a.example.org:8000
    scenarios: [chat, talk]
    price: {prompt_per_million: 2, output_per_million: 10}
  - name: b
    url: http://b.example.org:8000
    scenarios: [chat]
`

func TestCheck(t *testing.T) {
	t.Parallel()
	good := file(t, "good.yml", minimalConfig)
	goodWeb := file(t, "web.yml", "basic_auth_users: {}\n")
	badWeb := file(t, "badweb.yml", "tls_server_config: {cert_file: missing.pem, key_file: missing.key}\n")
	unknownWeb := file(t, "unknownweb.yml", "nonsense: 1\n")
	write := func(text string) string { return file(t, "bad.yml", text) }
	for _, c := range []struct {
		name string
		args []string
		code int
		says []string // on stdout if the code is 0, else on stderr; FILE stands for the path of the configuration
	}{
		{"valid", []string{"--config.file=" + good}, exitOK, []string{"FILE: valid", "2 targets"}},
		{"valid with web", []string{"--config.file=" + good, "--web.config.file=" + goodWeb}, exitOK, []string{"FILE: valid", goodWeb + ": valid web"}},
		{"web alone", []string{"--web.config.file=" + goodWeb}, exitOK, []string{goodWeb + ": valid web"}},
		{"target alone", []string{"--target=http://127.0.0.1:8000"}, exitOK, []string{"command line: valid, 1 target"}},
		{"nothing", nil, exitUsage, []string{"nothing to check"}},
		{"missing file", []string{"--config.file=/does/not/exist.yml"}, exitUsage, []string{"FILE"}},
		{"web certificate missing", []string{"--web.config.file=" + badWeb}, exitUsage, []string{badWeb, "missing.pem"}},
		{"web unknown field", []string{"--config.file=" + good, "--web.config.file=" + unknownWeb}, exitUsage, []string{unknownWeb, "nonsense"}},
		{
			"unknown field",
			[]string{"--config.file=" + write("targets:\n  - name: a\n    url: http://a:1\n    colour: red\n")},
			exitUsage, []string{"FILE:4", "colour"},
		},
		{
			"wrong type",
			[]string{"--config.file=" + write("targets:\n  - name: a\n    url: http://a:1\nglobal:\n  timeout: soon\n")},
			exitUsage, []string{"FILE:5", "soon"},
		},
		{
			"wrong value",
			[]string{"--config.file=" + write("targets:\n  - name: a\n    url: gopher://a\n")},
			exitUsage, []string{"FILE:3", "targets[0].url"},
		},
		{
			"what only the scenario type knows",
			[]string{"--config.file=" + write("targets: [{name: a, url: 'http://a:1'}]\nscenarios:\n  - name: ladder\n    type: prefill\n    lengths:\n      - 1024\n      - 512\n")},
			exitUsage, []string{"FILE:7", "lengths[1]"},
		},
		{
			"unknown type",
			[]string{"--config.file=" + write("targets: [{name: a, url: 'http://a:1'}]\nscenarios:\n  - name: x\n    type: chatter\n")},
			exitUsage, []string{"FILE:4", "chatter"},
		},
		{
			"bad schedule",
			[]string{"--config.file=" + write("targets: [{name: a, url: 'http://a:1'}]\nscenarios:\n  - name: x\n    type: chat\n    schedule: '61 * * * *'\n")},
			exitUsage, []string{"FILE:5", "schedule"},
		},
		{
			"two errors",
			[]string{"--config.file=" + write("targets:\n  - name: a\n    url: http://a:1\n    scenarios: [nope]\n  - name: a\n    url: http://b:1\n")},
			exitUsage, []string{"FILE:4", "nope", "FILE:5", "targets[1].name"},
		},
		{"no YAML", []string{"--config.file=" + write("targets: [\n")}, exitUsage, []string{"FILE"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := command(t, append([]string{"check"}, c.args...)...)
			said := stdout
			if c.code != exitOK {
				said = stderr
				if strings.Contains(stdout, "FILE: valid,") {
					t.Errorf("says on stdout that it is valid: %q", stdout)
				}
			}
			path := ""
			for _, a := range c.args {
				if p, is := strings.CutPrefix(a, "--config.file="); is {
					path = p
				}
			}
			for _, want := range c.says {
				want = strings.ReplaceAll(want, "FILE", path)
				if !strings.Contains(said, want) {
					t.Errorf("%q is not in %q", want, said)
				}
			}
			if code != c.code {
				t.Errorf("exit code %d, want %d\n%s%s", code, c.code, stdout, stderr)
			}
		})
	}
}

// A valid configuration with something odd in it is valid: the oddity is said on stderr.
func TestCheckWarns(t *testing.T) {
	t.Parallel()
	config := file(t, "c.yml", "targets: [{name: a, url: 'http://a:1'}]\nscenarios:\n  - {name: chat, type: chat, interval: 5s, timeout: 20s, first_token_timeout: 10s}\n")
	code, stdout, stderr := command(t, "check", "--config.file="+config)
	if code != exitOK || !strings.Contains(stdout, "valid") || !strings.Contains(stderr, `warning: scenario "chat"`) {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}

// The secret of a broken configuration does not get into an error.
func TestCheckHidesSecrets(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"targets:\n  - {name: a, url: 'http://me:hunter2@a:1'}\n",
		"targets:\n  - {name: a, url: 'http://a:1', authorization: {credentials: hunter2}, basic_auth: {username: u, password: hunter2}}\n",
	} {
		code, stdout, stderr := command(t, "check", "--config.file="+file(t, "c.yml", text))
		if code != exitUsage || strings.Contains(stdout+stderr, "hunter2") {
			t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
		}
	}
}

func TestPlanTable(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := command(t, "plan", "--config.file="+file(t, "c.yml", minimalConfig))
	if code != exitOK || stderr != "" {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(stdout) {
		if f := strings.Fields(line); len(f) > 2 && f[0] != "Tokens" {
			rows[f[0]+" "+f[1]] = f[2:]
		}
	}
	// A day has 2880 half minutes and 720 times two minutes; an answer has at most max_tokens.
	for row, want := range map[string][]string{
		"a chat":      {"30s", "2880", "2880", "", fmt.Sprint(2880 * 64)},
		"a talk":      {"2m", "720", "720", "", fmt.Sprint(720 * 100)},
		"a (all)":     {"3600", "3600", "", fmt.Sprint(2880*64 + 720*100)},
		"b chat":      {"30s", "2880", "2880", "", fmt.Sprint(2880 * 64)},
		"(all) (all)": {"6480", "6480", "", fmt.Sprint(2*2880*64 + 720*100)},
	} {
		got := rows[row]
		if len(got) < len(want) {
			t.Errorf("row %q is %v", row, got)
			continue
		}
		for i, w := range want {
			if w != "" && got[i] != w {
				t.Errorf("row %q: column %d is %q, want %q: %v", row, i, got[i], w, got)
			}
		}
	}
	if got := rows["b chat"]; !strings.Contains(stdout, "MONEY/DAY") || len(got) == 0 || got[len(got)-1] != "-" {
		t.Errorf("no money although a has a price, or some for b, which has none:\n%s", stdout)
	}
	free := strings.ReplaceAll(minimalConfig, "    price: {prompt_per_million: 2, output_per_million: 10}\n", "")
	if _, stdout, _ := command(t, "plan", "--config.file="+file(t, "free.yml", free)); strings.Contains(stdout, "MONEY") {
		t.Errorf("money although there is no price:\n%s", stdout)
	}
}

// planDocument is what plan --output=json documents.
type planDocument struct {
	Pairs []struct {
		Target, Scenario, Type string
		IntervalSeconds        float64 `json:"interval_seconds"`
		Schedule               string  `json:"schedule"`
		spendingDocument
		Concurrency int `json:"concurrency"`
	} `json:"pairs"`
	Targets []struct {
		Target string `json:"target"`
		spendingDocument
		PeakRequests int `json:"peak_requests"`
	} `json:"targets"`
	Total        spendingDocument `json:"total"`
	PeakRequests int              `json:"peak_requests"`
}

type spendingDocument struct {
	ProbesPerDay   float64        `json:"probes_per_day"`
	RequestsPerDay float64        `json:"requests_per_day"`
	Expected       tokensDocument `json:"expected"`
	Worst          tokensDocument `json:"worst"`
}

type tokensDocument struct {
	Prompt float64  `json:"prompt_tokens_per_day"`
	Output float64  `json:"output_tokens_per_day"`
	Money  *float64 `json:"money_per_day"`
}

func TestPlanJSON(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := command(t, "plan", "--output=json", "--config.file="+file(t, "c.yml", minimalConfig))
	if code != exitOK || stderr != "" {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	d := json.NewDecoder(strings.NewReader(stdout))
	d.DisallowUnknownFields()
	var plan planDocument
	if err := d.Decode(&plan); err != nil || d.More() {
		t.Fatalf("not one object of the documented form: %v\n%s", err, stdout)
	}
	if len(plan.Pairs) != 3 || len(plan.Targets) != 2 {
		t.Fatalf("%d pairs and %d targets\n%s", len(plan.Pairs), len(plan.Targets), stdout)
	}
	talk := plan.Pairs[1]
	if talk.Target != "a" || talk.Scenario != "talk" || talk.Type != "decode" || talk.IntervalSeconds != 120 || talk.ProbesPerDay != 720 ||
		talk.RequestsPerDay != 720 || talk.Concurrency != 1 || talk.Expected.Output != 72000 || talk.Worst.Output != 72000 ||
		!(talk.Expected.Prompt > 0) || talk.Worst.Prompt < talk.Expected.Prompt {
		t.Errorf("talk on a: %+v", talk)
	}
	// 2 for a million prompt tokens, 10 for a million output tokens.
	if want := (2*talk.Expected.Prompt + 10*talk.Expected.Output) / 1e6; talk.Expected.Money == nil || math.Abs(*talk.Expected.Money-want) > 1e-9 {
		t.Errorf("talk on a costs %v, want %v", talk.Expected.Money, want)
	}
	a, b := plan.Targets[0], plan.Targets[1]
	if a.Target != "a" || a.ProbesPerDay != 3600 || a.PeakRequests != 2 || a.Expected.Money == nil {
		t.Errorf("a: %+v", a)
	}
	if b.Target != "b" || b.ProbesPerDay != 2880 || b.Expected.Money != nil || b.Worst.Money != nil {
		t.Errorf("b, which has no price: %+v", b)
	}
	if plan.Total.ProbesPerDay != 6480 || plan.PeakRequests != 3 || plan.Total.Worst.Output != a.Worst.Output+b.Worst.Output ||
		plan.Total.Expected.Money == nil || *plan.Total.Expected.Money != *a.Expected.Money {
		t.Errorf("total: %+v, %d at once", plan.Total, plan.PeakRequests)
	}
	scheduled := file(t, "s.yml", "scenarios: [{name: nightly, type: chat, schedule: '0 3 * * *'}]\ntargets: [{name: a, url: 'http://a:1', scenarios: [nightly]}]\n")
	_, stdout, _ = command(t, "plan", "--output=json", "--config.file="+scheduled)
	if strings.Contains(stdout, "money") || strings.Contains(stdout, "interval_seconds") || !strings.Contains(stdout, `"schedule": "0 3 * * *"`) || !strings.Contains(stdout, `"probes_per_day": 1,`) {
		t.Errorf("a scenario on a schedule, without a price:\n%s", stdout)
	}
}

func TestPlanUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"plan"},
		{"plan", "--config.file=" + file(t, "c.yml", "scenarios: [{name: x, type: prefill, lengths: [1]}]\ntargets: [{name: a, url: 'http://a:1'}]\n")},
		{"plan", "--output=xml", "--target=http://a:1"},
	} {
		if code, stdout, stderr := command(t, args...); code != exitUsage || stdout != "" || stderr == "" {
			t.Errorf("%v: exit code %d\n%s%s", args, code, stdout, stderr)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--version"}, {"probe", "--version"}} {
		code, stdout, stderr := command(t, args...)
		if code != exitOK || !strings.HasPrefix(stdout, programName+", version ") || stderr != "" {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"--help"}, []string{"usage: " + programName, "--web.listen-address", "--config.file", "--[no-]collector.go", "demo", "probe", "check", "plan", "sim"}},
		{[]string{"-h"}, []string{"usage: " + programName}},
		{[]string{"help"}, []string{"usage: " + programName}},
		{[]string{"probe", "--help"}, []string{"usage: " + programName + " probe", "--scenario", "--count", "--output"}},
		{[]string{"help", "sim"}, []string{"--sim.fault", "--sim.listen-address"}},
	} {
		code, stdout, stderr := command(t, c.args...)
		if code != exitOK || stderr != "" {
			t.Errorf("%v: exit code %d, stderr %q", c.args, code, stderr)
		}
		for _, want := range c.says {
			if !strings.Contains(stdout, want) {
				t.Errorf("%v: %q is not in\n%s", c.args, want, stdout)
			}
		}
		if n := strings.Count(stdout, "usage: "); n > 1 {
			t.Errorf("%v: the help comes %d times", c.args, n)
		}
	}
}

// kingpin writes these to the standard output of the process, whatever run was told.
func TestHelpOfTheBinary(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"--help-long"}, []string{"--sim.fault", "--scenario"}},
		{[]string{"--help-man"}, []string{".TH " + programName, "--web.listen-address", "--sim.fault"}},
		{[]string{"--completion-script-bash"}, []string{"--completion-bash", programName}},
		{[]string{"--completion-script-zsh"}, []string{"--completion-bash", programName}},
		{[]string{"--completion-bash", "--web."}, []string{"--web.listen-address", "--web.config.file"}},
		{[]string{"--completion-bash"}, []string{"probe", "plan"}},
	} {
		code, stdout, stderr := binary(t, c.args...)
		if code != exitOK || stderr != "" {
			t.Errorf("%v: exit code %d, stderr %q", c.args, code, stderr)
		}
		for _, want := range c.says {
			if !strings.Contains(stdout, want) {
				t.Errorf("%v: %q is not in\n%s", c.args, want, stdout)
			}
		}
	}
	if code, stdout, stderr := binary(t, "--no-such-flag"); code != exitUsage || stdout != "" || !strings.Contains(stderr, "no-such-flag") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// The generators of help and completion do not end the process that run is called from.
func TestTerminateReturns(t *testing.T) {
	t.Parallel()
	if code, _, stderr := command(t, "--completion-script-bash"); code != exitOK || stderr != "" {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	busy := start(t, "sim", "sim", "--sim.listen-address=127.0.0.1:0").address["sim"]
	_, url := simulated(t)
	badScenario := file(t, "c.yml", "scenarios: [{name: x, type: prefill, lengths: [1]}]\ntargets: [{name: a, url: 'http://a:1'}]\n")
	badWeb := file(t, "web.yml", "nonsense: 1\n")
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--no-such-flag"}, "no-such-flag"},
		{[]string{"nonsense"}, "nonsense"},
		{[]string{"check", "--no-such-flag"}, "no-such-flag"},
		{[]string{"--log.level=loud", "--target=" + url}, "loud"},
		{[]string{"--log.format=xml", "--target=" + url}, "xml"},
		{nil, "no target to probe"},
		{[]string{"--config.file=" + file(t, "empty.yml", "")}, "no target to probe"},
		{[]string{"--target=" + url, "--target=" + url + "/"}, "already"},
		{[]string{"--target=" + url, "--web.telemetry-path=metrics"}, "--web.telemetry-path"},
		{[]string{"--target=" + url, "--web.telemetry-path=/"}, "--web.telemetry-path"},
		{[]string{"--target=" + url, "--web.telemetry-path=/-/ready"}, "--web.telemetry-path"},
		{[]string{"--target=" + url, "--web.listen-address=" + busy}, "--web.listen-address=" + busy},
		{[]string{"--target=" + url, "--web.listen-address=127.0.0.1:0", "--web.listen-address=" + busy}, "--web.listen-address=" + busy},
		{[]string{"--target=" + url, "--web.config.file=" + badWeb}, badWeb},
		{[]string{"--config.file=" + badScenario, "--web.listen-address=127.0.0.1:0"}, "lengths[0]"},
		{[]string{"sim", "--sim.listen-address=" + busy}, busy},
		{[]string{"sim", "--sim.listen-address=127.0.0.1:0", "--sim.prefill-rate=0"}, "--sim.prefill-rate"},
		{[]string{"sim", "--sim.listen-address=127.0.0.1:0", "--sim.fault=nonsense"}, "nonsense"},
		{[]string{"demo", "--target=" + url}, "demo"},
		{[]string{"demo", "--web.listen-address=" + busy}, busy},
	} {
		code, stdout, stderr := command(t, c.args...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, c.says) {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q, want %q in it", c.args, code, stdout, stderr, c.says)
		}
	}
}

func TestSim(t *testing.T) {
	t.Parallel()
	p := start(t, "sim", "sim", "--sim.listen-address=127.0.0.1:0", "--sim.model=my-model", "--sim.step=1ms", "--sim.fault=status=503")
	var models struct{ Data []struct{ ID string } }
	if err := json.Unmarshal([]byte(p.page("/v1/models")), &models); err != nil || len(models.Data) != 1 || models.Data[0].ID != "my-model" {
		t.Errorf("models: %+v, %v", models, err)
	}
	code, stdout, _ := command(t, "probe", "--target="+p.base, "--scenario=chat", "--output=json")
	if probes := jsonLines(t, stdout); code != exitFailed || *probes[0].Reason != "http_503" {
		t.Errorf("the fault of the command line does not strike: %s", stdout)
	}
	if code := p.stop(); code != exitOK {
		t.Errorf("exit code %d\n%s", code, p.stderr)
	}
	if status, _ := p.get("/v1/models"); status != 0 {
		t.Errorf("still answers with status %d", status)
	}
}
