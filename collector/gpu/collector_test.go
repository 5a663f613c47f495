package gpu

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"github.com/llmcanary/llm_canary_exporter/nvml"
	"github.com/llmcanary/llm_canary_exporter/nvml/remote"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// fixed is a Source that always has the same state.
type fixed struct{ s *nvml.State }

func (f fixed) State() *nvml.State { return f.s }

// fullGPU returns a GPU that has every figure.
func fullGPU() nvml.Sample {
	at := time.Unix(1790000000, 0)
	return nvml.Sample{
		GPU:    nvml.GPU{Index: 0, UUID: "GPU-0a", Name: "NVIDIA H200", PCIBusID: "00000000:83:00.0"},
		Memory: nvml.Memory{Total: nvml.Of(1000), Used: nvml.Of(300), Free: nvml.Of(600), Reserved: nvml.Of(100)},

		Utilization: nvml.Of(0.5), MemoryUtilization: nvml.Of(0.25),
		Activity:   nvml.Activity{Graphics: nvml.Of(0.6), SM: nvml.Of(0.4), SMOccupancy: nvml.Of(0.3), Tensor: nvml.Of(0.2), DRAM: nvml.Of(0.1), Seconds: 1},
		PowerWatts: nvml.Of(350), PowerLimitWatts: nvml.Of(700), EnergyJoules: nvml.Of(123456.789),
		TemperatureCelsius: nvml.Of(52), MemoryTemperatureCelsius: nvml.Of(60),
		GraphicsClockHertz: nvml.Of(1.98e9), SMClockHertz: nvml.Of(1.98e9), MemoryClockHertz: nvml.Of(3.2e9),
		ClockEventReasons: nvml.Of(0x44),
		ECC:               nvml.ECC{CorrectedVolatile: nvml.Of(1), UncorrectedVolatile: nvml.Of(0), CorrectedAggregate: nvml.Of(5), UncorrectedAggregate: nvml.Of(2)},
		RemappedRows:      nvml.RemappedRows{Correctable: nvml.Of(1), Uncorrectable: nvml.Of(2), Pending: nvml.Of(1), Failure: nvml.Of(0)},
		RecoveryAction:    nvml.Of(0),
		PCIeTransmitBytes: nvml.Of(10), PCIeReceiveBytes: nvml.Of(20), PCIeReplays: nvml.Of(3),
		NVLinkTransmitBytes: nvml.Of(30), NVLinkReceiveBytes: nvml.Of(40),
		XidsWatched: true, Xids: []nvml.Xid{{Code: 79}, {Code: 13, Count: 2, Last: at}},
		Processes: []nvml.Process{
			{PID: 42, Name: "VLLM::EngineCor", MemoryUsedBytes: nvml.Of(200), GPUInstance: 1},
			{PID: 42, Name: "VLLM::EngineCor", MemoryUsedBytes: nvml.Of(50), GPUInstance: 2},
			{PID: 7, Name: "", MemoryUsedBytes: nvml.Of(10)},
			{PID: 8, Name: "third", MemoryUsedBytes: nvml.Of(5)},
			{PID: 9, Name: "unknown"},
		},
	}
}

func fullState() *nvml.State {
	mig := nvml.Sample{
		GPU: nvml.GPU{Index: 1, UUID: "GPU-1b", Name: "NVIDIA H100 80GB HBM3"}, MIGEnabled: true,
		Memory: nvml.Memory{Total: nvml.Of(1000), Used: nvml.Of(30)},
		MIG: []nvml.MIGInstance{
			{
				GPUInstance: 3, Profile: "1g.10gb", UUIDs: []string{"MIG-1"}, Memory: nvml.Memory{Total: nvml.Of(100), Used: nvml.Of(10), Free: nvml.Of(90)},
				Activity: nvml.Activity{Graphics: nvml.Of(0.6), SM: nvml.Of(0.5), SMOccupancy: nvml.Of(0.4), Tensor: nvml.Of(0.3), DRAM: nvml.Of(0.2), Seconds: 1},
			},
			{GPUInstance: 5, Profile: "2g.20gb", UUIDs: []string{"MIG-2", "MIG-3"}, Memory: nvml.Memory{Total: nvml.Of(200), Used: nvml.Of(20), Free: nvml.Of(180)}},
		},
	}
	lost := nvml.Sample{
		GPU: nvml.GPU{Index: 2, UUID: "GPU-2c", Name: "NVIDIA H200"}, Lost: "gpu_is_lost",
		Xids: []nvml.Xid{{Code: 48}, {Code: 79, Count: 1, Last: time.Unix(1790000001, 0)}},
	}
	return &nvml.State{
		Up: true,
		Snapshot: nvml.Snapshot{
			Driver: nvml.Driver{Version: "590.48.01", CUDA: "13.1"},
			GPUs:   []nvml.Sample{fullGPU(), mig, lost},
		},
		Totals: []nvml.Totals{{
			UtilizationSeconds: nvml.Of(30), MemoryUtilizationSeconds: nvml.Of(15), SampledSeconds: nvml.Of(60),
			GraphicsSeconds: nvml.Of(1), SMSeconds: nvml.Of(2), SMOccupancySeconds: nvml.Of(3), TensorSeconds: nvml.Of(4), DRAMSeconds: nvml.Of(5),
			ActivitySampledSeconds: nvml.Of(59), MemoryUsedMax: nvml.Of(310), UtilizationMax: nvml.Of(1), MemoryUtilizationMax: nvml.Of(0.75), PowerMax: nvml.Of(400),
		}, {MemoryUsedMax: nvml.Of(30)}, {}},
		LastSuccess: time.Unix(1790000002, 0), LastDuration: 1500 * time.Microsecond,
		Cycles: 100, Failures: map[nvml.Reason]uint64{nvml.ReasonTimeout: 2},
	}
}

func page(t *testing.T, s *nvml.State, o Options) []byte {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(New(fixed{s}, o))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func TestGolden(t *testing.T) {
	const file = "testdata/full.prom"
	got := page(t, fullState(), Options{MaxProcesses: 2})
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the page differs from %s (go test -update writes it):\n%s", file, got)
	}
}

func TestLint(t *testing.T) {
	problems, err := testutil.CollectAndLint(New(fixed{fullState()}, Options{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// Every family is exposed by a host that has everything, under the labels and the
// type that Families says.
func TestFamilies(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(New(fixed{fullState()}, Options{}))
	got, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]Family{}
	for _, f := range Families() {
		if _, twice := listed[f.Name]; twice {
			t.Errorf("%s is listed twice", f.Name)
		}
		listed[f.Name] = f
		if !strings.HasSuffix(f.Help, ".") {
			t.Errorf("the help of %s is no sentence", f.Name)
		}
	}
	for _, mf := range got {
		f, ok := listed[mf.GetName()]
		if !ok {
			t.Errorf("%s is not listed", mf.GetName())
			continue
		}
		delete(listed, mf.GetName())
		if string(f.Type) != strings.ToLower(mf.GetType().String()) {
			t.Errorf("%s is a %s, listed as %s", f.Name, mf.GetType(), f.Type)
		}
		var labels []string
		for _, l := range mf.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		want := slices.Sorted(slices.Values(f.Labels))
		if !slices.Equal(labels, want) {
			t.Errorf("%s has the labels %v, listed %v", f.Name, labels, want)
		}
	}
	for name := range listed {
		t.Errorf("%s is listed and never exposed", name)
	}
}

func TestDown(t *testing.T) {
	s := &nvml.State{Reason: nvml.ReasonLibraryMissing, Detail: errors.New("x").Error(), Cycles: 3, Failures: map[nvml.Reason]uint64{nvml.ReasonLibraryMissing: 3}}
	got := string(page(t, s, Options{}))
	for _, line := range []string{
		"llm_canary_nvml_up 0\n", "llm_canary_nvml_samples_total 3\n",
		`llm_canary_nvml_sample_failures_total{reason="library_not_found"} 3` + "\n",
		`llm_canary_nvml_sample_failures_total{reason="timeout"} 0` + "\n",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("the page lacks %q", line)
		}
	}
	for _, name := range []string{"llm_canary_gpu_", "last_success_timestamp", "duration"} {
		if strings.Contains(got, name) {
			t.Errorf("the page has %s while nothing was ever read:\n%s", name, got)
		}
	}
}

// A GPU that is lost keeps its identity and its Xids, and hides no other GPU.
func TestLost(t *testing.T) {
	got := string(page(t, fullState(), Options{}))
	for _, line := range []string{
		`llm_canary_gpu_up{gpu="0",uuid="GPU-0a"} 1`, `llm_canary_gpu_up{gpu="2",uuid="GPU-2c"} 0`,
		`llm_canary_gpu_xid_errors_total{gpu="2",uuid="GPU-2c",xid="79"} 1`,
		`llm_canary_gpu_power_watts{gpu="0",uuid="GPU-0a"} 350`,
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("the page lacks %q", line)
		}
	}
	for line := range strings.Lines(got) {
		if strings.Contains(line, "GPU-2c") && !strings.Contains(line, "_up{") && !strings.Contains(line, "_info{") && !strings.Contains(line, "_xid_") {
			t.Errorf("a figure of a lost GPU: %s", line)
		}
	}
}

// What this collector writes is what package remote reads.
func TestRemoteReadsOurPage(t *testing.T) {
	s, err := remote.Parse(bytes.NewReader(page(t, fullState(), Options{})))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.GPUs) != 3 || s.GPUs[2].Lost == "" || s.Driver.Version != "590.48.01" {
		t.Fatalf("%+v", s)
	}
	got, want := s.GPUs[0], fullGPU()
	// Lists are not read; the rest must be the same.
	want.ECC, want.RemappedRows.Correctable, want.RemappedRows.Uncorrectable = nvml.ECC{}, nvml.Value{}, nvml.Value{}
	want.ClockEventReasons, want.XidsWatched, want.Xids, want.Processes = nvml.Value{}, false, nil, nil
	want.Activity.Seconds = 0
	if g, w := format(got), format(want); g != w {
		t.Errorf("read\n%s\nwrote\n%s", g, w)
	}
}

func format(s nvml.Sample) string {
	return strings.ReplaceAll(strings.TrimSpace(fmt.Sprintf("%+v", s)), " ", "\n")
}

func BenchmarkCollect8GPUs(b *testing.B) {
	s := fullState()
	s.Snapshot.GPUs, s.Totals = nil, nil
	for i := range 8 {
		g := fullGPU()
		g.Index = i
		g.UUID += string(rune('a' + i))
		s.Snapshot.GPUs = append(s.Snapshot.GPUs, g)
		s.Totals = append(s.Totals, fullState().Totals[0])
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(New(fixed{s}, Options{}))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := reg.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
