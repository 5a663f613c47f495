package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"

	"github.com/llmcanary/llm_canary_exporter/sim"
)

// patience bounds every wait. It is never used up where things work, however slow the machine is.
const patience = 30 * time.Second

// asBinary makes the test binary behave as the program.
const asBinary = "LLM_CANARY_TEST_AS_BINARY"

func TestMain(m *testing.M) {
	if os.Getenv(asBinary) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// binary runs the program in a process of its own.
func binary(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asBinary+"=1", "GORACE=atexit_sleep_ms=0")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// output is what a command writes. It may be read while the command writes.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// command runs a command that ends by itself.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return commandUntil(t, t.Context(), args...)
}

func commandUntil(t *testing.T, ctx context.Context, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	var out, errs output
	code = run(ctx, args, options{stdout: &out, stderr: &errs})
	return code, out.String(), errs.String()
}

// simulated starts a quick simulated engine on a loopback port.
func simulated(t *testing.T, change ...func(*sim.Config)) (*sim.Server, string) {
	t.Helper()
	c := sim.DefaultConfig()
	c.StepBase, c.PrefillPerToken = 2*time.Millisecond, 2*time.Microsecond
	c.StepPerSeq, c.StepPerContextToken = 0, 0
	for _, f := range change {
		f(&c)
	}
	engine, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(engine.Handler())
	t.Cleanup(func() {
		engine.Close() // first: it aborts the requests for which Close of the server waits
		server.CloseClientConnections()
		server.Close()
	})
	return engine, server.URL
}

func withFault(faults ...string) func(*sim.Config) {
	return func(c *sim.Config) {
		for _, f := range faults {
			c.Faults = append(c.Faults, sim.FaultRule{Fault: f, Probability: 1})
		}
	}
}

// file writes a file into a folder of the test.
func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	rewrite(t, path, content)
	return path
}

func rewrite(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// eventually polls until f returns an empty string; else what it returned last is the failure.
func eventually(t *testing.T, f func() (missing string)) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		missing := f()
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still after %s: %s", patience, missing)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// process is a daemon, demo or sim that runs in this process.
type process struct {
	t       *testing.T
	base    string            // of its pages
	address map[string]string // everything that it listens on
	cancel  context.CancelFunc
	ended   chan struct{}
	code    int // once ended is closed
	stdout  *output
	stderr  *output
}

// start runs a command that goes on until it is stopped, and waits until it listens on what.
func start(t *testing.T, what string, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{t: t, address: map[string]string{}, cancel: cancel, ended: make(chan struct{}), stdout: &output{}, stderr: &output{}}
	type listening struct{ what, address string }
	listens := make(chan listening, 8)
	go func() {
		defer close(p.ended)
		p.code = run(ctx, args, options{
			stdout: p.stdout, stderr: p.stderr,
			onListen: func(what string, a net.Addr) { listens <- listening{what, a.String()} },
		})
	}()
	t.Cleanup(func() { p.stop() })
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for p.address[what] == "" {
		select {
		case l := <-listens:
			p.address[l.what] = l.address
		case <-p.ended:
			t.Fatalf("%v ended with code %d before it listened:\n%s", args, p.code, p.stderr)
		case <-timer.C:
			t.Fatalf("%v does not listen:\n%s", args, p.stderr)
		}
	}
	p.base = "http://" + p.address[what]
	return p
}

// daemon starts the daemon with a configuration file on a free port.
func startDaemon(t *testing.T, config string, args ...string) *process {
	t.Helper()
	return start(t, "web", append([]string{"--web.listen-address=127.0.0.1:0", "--config.file=" + config}, args...)...)
}

// stop ends the process in order and returns its exit code.
func (p *process) stop() int {
	p.t.Helper()
	p.cancel()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("does not stop:\n%s", p.stderr)
	}
	return p.code
}

// client keeps no connection, so that none outlives its test.
var client = &http.Client{
	Timeout:   patience,
	Transport: &http.Transport{DisableKeepAlives: true},
}

// request returns the answer, or status 0 and the error.
func (p *process) request(method, path string) (status int, body string, header http.Header) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, p.base+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error(), nil
	}
	return resp.StatusCode, string(b), resp.Header
}

func (p *process) get(path string) (status int, body string) {
	p.t.Helper()
	status, body, _ = p.request(http.MethodGet, path)
	return status, body
}

// page returns a page that must be there.
func (p *process) page(path string) string {
	p.t.Helper()
	status, body := p.get(path)
	if status != http.StatusOK {
		p.t.Fatalf("GET %s: status %d, %s\n%s", path, status, body, p.stderr)
	}
	return body
}

// families are the metrics of a page, by name.
type families map[string]*dto.MetricFamily

func parse(text string) (families, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(strings.NewReader(text))
}

func (p *process) metrics() families {
	p.t.Helper()
	f, err := parse(p.page("/metrics"))
	if err != nil {
		p.t.Fatalf("/metrics cannot be parsed: %v", err)
	}
	return f
}

// value returns the series of that name whose labels contain all of the pairs: a counter's or gauge's value, a
// histogram's count.
func (f families) value(name string, pairs ...string) (float64, bool) {
	if !strings.HasPrefix(name, "llm_canary_") {
		name = "llm_canary_" + name
	}
	mf := f[name]
	if mf == nil {
		return 0, false
	}
	for _, m := range mf.Metric {
		if !hasLabels(m, pairs) {
			continue
		}
		switch {
		case m.Counter != nil:
			return m.Counter.GetValue(), true
		case m.Gauge != nil:
			return m.Gauge.GetValue(), true
		case m.Histogram != nil:
			return float64(m.Histogram.GetSampleCount()), true
		}
	}
	return 0, false
}

func hasLabels(m *dto.Metric, pairs []string) bool {
	labels := map[string]string{}
	for _, l := range m.Label {
		labels[l.GetName()] = l.GetValue()
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if v, ok := labels[pairs[i]]; !ok || v != pairs[i+1] {
			return false
		}
	}
	return true
}

// awaitAtLeast polls until a series is there and at least least, and returns it.
func (p *process) awaitAtLeast(least float64, name string, pairs ...string) float64 {
	p.t.Helper()
	var got float64
	eventually(p.t, func() string {
		v, ok := p.metrics().value(name, pairs...)
		if got = v; ok && v >= least {
			return ""
		}
		return fmt.Sprintf("%s%v is %v (there: %v), not at least %v\n%s", name, pairs, v, ok, least, p.stderr)
	})
	return got
}

func (p *process) awaitValue(want float64, name string, pairs ...string) {
	p.t.Helper()
	eventually(p.t, func() string {
		if v, ok := p.metrics().value(name, pairs...); !ok || v != want {
			return fmt.Sprintf("%s%v is %v (there: %v), not %v\n%s", name, pairs, v, ok, want, p.stderr)
		}
		return ""
	})
}

var errWrite = errors.New("no space left on device")

// fullDisk is an output that cannot be written.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errWrite }

// closedPort returns a loopback address that refuses connections.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
