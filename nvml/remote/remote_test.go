package remote

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmcanary/llm_canary_exporter/nvml"
)

func parseFile(t *testing.T, name string) nvml.Snapshot {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	s, err := Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func want(t *testing.T, what string, got nvml.Value, v float64) {
	t.Helper()
	if f, ok := got.Get(); !ok || math.Abs(f-v) > 1e-6*math.Abs(v) {
		t.Errorf("%s: %v, %v; want %v", what, f, ok, v)
	}
}

func absent(t *testing.T, what string, got nvml.Value) {
	t.Helper()
	if f, ok := got.Get(); ok {
		t.Errorf("%s: %v, want it absent", what, f)
	}
}

func TestDCGM(t *testing.T) {
	s := parseFile(t, "dcgm_t4.txt")
	if len(s.GPUs) != 2 {
		t.Fatalf("%+v", s.GPUs)
	}
	g := s.GPUs[0]
	if g.GPU != (nvml.GPU{Index: 0, UUID: "GPU-20c56d28-0da5-6d26-a36a-e7af1ce2586e", Name: "Tesla T4"}) {
		t.Errorf("%+v", g.GPU)
	}
	want(t, "SM clock", g.SMClockHertz, 300e6)
	want(t, "energy", g.EnergyJoules, 128996.013)
	want(t, "free", g.Memory.Free, 15109*mib)
	want(t, "total, made of its parts", g.Memory.Total, 15109*mib)
	want(t, "power", g.PowerWatts, 8.969)
	want(t, "utilization", g.Utilization, 0)
	want(t, "power limit", s.GPUs[1].PowerLimitWatts, 70)
	absent(t, "utilization of the second", s.GPUs[1].Utilization)
}

func TestDCGMSentinel(t *testing.T) {
	s := parseFile(t, "dcgm_blank.txt")
	if len(s.GPUs) != 1 {
		t.Fatalf("%+v", s.GPUs)
	}
	absent(t, "memory temperature", s.GPUs[0].MemoryTemperatureCelsius)
	want(t, "memory clock", s.GPUs[0].MemoryClockHertz, 405e6)
}

func TestDCGMInMIGMode(t *testing.T) {
	s := parseFile(t, "dcgm_mig.txt")
	if len(s.GPUs) != 5 {
		t.Fatalf("%d GPUs", len(s.GPUs))
	}
	want(t, "utilization", s.GPUs[0].Utilization, 0.9)
	want(t, "used", s.GPUs[0].Memory.Used, 39000*mib)
	want(t, "total", s.GPUs[0].Memory.Total, 40536*mib)
	g := s.GPUs[3]
	if !g.MIGEnabled || len(g.MIG) != 3 {
		t.Fatalf("%+v", g)
	}
	absent(t, "utilization in MIG mode", g.Utilization)
	want(t, "memory over the instances", g.Memory.Used, 42*mib)
	for _, m := range g.MIG {
		if m.GPUInstance == 9 && m.Profile != "3g.20gb" {
			t.Errorf("%+v", m)
		}
	}
}

func TestNvidiaGPUExporter(t *testing.T) {
	s := parseFile(t, "nvidia_smi_h200.txt")
	if len(s.GPUs) != 1 || s.Driver != (nvml.Driver{Version: "590.48.01", CUDA: "13.1"}) {
		t.Fatalf("%+v", s)
	}
	g := s.GPUs[0]
	if g.GPU != (nvml.GPU{Index: 0, UUID: "GPU-00000000-0000-0000-0000-000000000000", Name: "NVIDIA H200", PCIBusID: "00000000:83:00.0"}) {
		t.Errorf("%+v", g.GPU)
	}
	want(t, "total", g.Memory.Total, 150754820096)
	want(t, "used", g.Memory.Used, 33934016512)
	want(t, "utilization", g.Utilization, 1)
	want(t, "memory utilization", g.MemoryUtilization, 0.07)
	want(t, "temperature", g.TemperatureCelsius, 52)

	s = parseFile(t, "nvidia_smi_h100_mig.txt")
	if len(s.GPUs) != 1 || !s.GPUs[0].MIGEnabled {
		t.Fatalf("%+v", s)
	}
	absent(t, "utilization in MIG mode", s.GPUs[0].Utilization)
	want(t, "used", s.GPUs[0].Memory.Used, 11665408*1000)
}

func TestPagesThatAreNone(t *testing.T) {
	for name, c := range map[string]struct{ page, says string }{
		"another exporter": {"up 1\n", "no GPU"},
		"HTML":             {"<html><body>hello</body></html>\n", "malformed"},
		"nothing":          {"", "no GPU"},
		"our own, down":    {"llm_canary_nvml_up 0\n", "nvml_up is 0"},
	} {
		if _, err := Parse(strings.NewReader(c.page)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q in it", name, err, c.says)
		}
	}
}

func TestManyGPUs(t *testing.T) {
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, "DCGM_FI_DEV_GPU_UTIL{gpu=\"%d\",UUID=\"GPU-%d\"} 1\n", i, i)
		fmt.Fprintf(&b, "DCGM_FI_DEV_FB_USED{gpu=\"0\",UUID=\"GPU-0\",GPU_I_ID=\"%d\"} 1\n", i)
	}
	s, err := Parse(strings.NewReader(b.String()))
	if err != nil || len(s.GPUs) != nvml.MaxGPUs {
		t.Errorf("%d GPUs, %v", len(s.GPUs), err)
	}
	for _, g := range s.GPUs {
		if len(g.MIG) > maxInstances {
			t.Errorf("%d GPU instances", len(g.MIG))
		}
	}
}

func TestSource(t *testing.T) {
	page, err := os.ReadFile("testdata/dcgm_mig.txt")
	if err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) })
	mux.HandleFunc("/huge", func(w http.ResponseWriter, _ *http.Request) {
		line := []byte(strings.Repeat("#", 1023) + "\n")
		for range 2 * MaxPage / len(line) {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	defer close(release)

	read := func(path string) (nvml.Snapshot, error) {
		timeout := time.Minute
		if path == "/slow" {
			timeout = 100 * time.Millisecond
		}
		src, err := New(strings.Replace(srv.URL, "http://", "http://user:secret@", 1)+path, srv.Client(), Options{Timeout: timeout})
		if err != nil {
			t.Fatal(err)
		}
		return src.Sample(context.Background())
	}
	s, err := read("/metrics")
	if err != nil || len(s.GPUs) != 5 || time.Since(s.Time) > time.Minute {
		t.Errorf("%+v, %v", s, err)
	}
	for path, says := range map[string]string{"/none": "404", "/huge": "larger than", "/slow": "deadline"} {
		_, err := read(path)
		var down *nvml.DownError
		if !errors.As(err, &down) || down.Reason != nvml.ReasonRemote || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", path, err)
		}
		if strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), path) {
			t.Errorf("the error names the wrong things: %v", err)
		}
	}
}

func TestBadURLs(t *testing.T) {
	for _, u := range []string{"", "host:9400/metrics", "file:///etc/passwd", "http://", "http://a:secret\x7f@b"} {
		if _, err := New(u, http.DefaultClient, Options{}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", u, err)
		}
	}
	if _, err := New("http://h/metrics", nil, Options{}); err == nil {
		t.Error("no client was accepted")
	}
}

func FuzzParse(f *testing.F) {
	pages, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, p := range pages {
		b, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Add("llm_canary_gpu_up{gpu=\"0\",uuid=\"GPU-a\"} 1\nllm_canary_gpu_memory_used_bytes{uuid=\"GPU-a\"} NaN\n")
	f.Fuzz(func(t *testing.T, page string) {
		s, err := Parse(strings.NewReader(page))
		if err != nil {
			return
		}
		if len(s.GPUs) == 0 || len(s.GPUs) > nvml.MaxGPUs {
			t.Errorf("%d GPUs without an error", len(s.GPUs))
		}
		for _, g := range s.GPUs {
			if g.UUID == "" {
				t.Error("a GPU without UUID")
			}
		}
	})
}
