//go:build linux && cgo

package nvml

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-kit/log"
)

// flat returns the figures of a sample that are present.
func flat(s *Sample) map[string]float64 {
	m := map[string]float64{}
	put := func(name string, v Value) {
		if f, ok := v.Get(); ok {
			m[name] = f
		}
	}
	put("memory_total", s.Memory.Total)
	put("memory_used", s.Memory.Used)
	put("memory_reserved", s.Memory.Reserved)
	put("utilization", s.Utilization)
	put("graphics", s.Activity.Graphics)
	put("sm", s.Activity.SM)
	put("occupancy", s.Activity.SMOccupancy)
	put("tensor", s.Activity.Tensor)
	put("dram", s.Activity.DRAM)
	put("power", s.PowerWatts)
	put("limit", s.PowerLimitWatts)
	put("energy", s.EnergyJoules)
	put("temperature", s.TemperatureCelsius)
	put("clock", s.SMClockHertz)
	put("reasons", s.ClockEventReasons)
	put("ecc", s.ECC.UncorrectedVolatile)
	put("rows", s.RemappedRows.Correctable)
	put("pcie_tx", s.PCIeTransmitBytes)
	put("nvlink_tx", s.NVLinkTransmitBytes)
	for i, g := range s.MIG {
		put(fmt.Sprintf("mig%d_used", i), g.Memory.Used)
		put(fmt.Sprintf("mig%d_sm", i), g.Activity.SM)
	}
	if s.XidsWatched {
		m["xids"] = float64(len(s.Xids))
	}
	if s.Processes != nil {
		m["processes"] = float64(len(s.Processes))
	}
	return m
}

// Names of the environment variables that make this test binary a helper.
const (
	helperLibrary = "NVML_TEST_LIBRARY"
	helperOutput  = "NVML_TEST_OUTPUT"
)

type helperResult struct {
	GPUs []map[string]float64
	Lost []string
	Err  string
}

// TestHelperProcess is not a test: the others run it in a process of its own, since a
// missing function ends the process and a process can bind one library only.
func TestHelperProcess(t *testing.T) {
	lib := os.Getenv(helperLibrary)
	if lib == "" {
		t.Skip("only a helper of other tests")
	}
	src := NewLocal(LocalOptions{LibraryPath: lib, Processes: true, SlowEvery: time.Nanosecond})
	var res helperResult
	for range 2 { // GPM needs two samples
		time.Sleep(gpmMinGap + 10*time.Millisecond)
		s, err := src.Sample(context.Background())
		res = helperResult{}
		if err != nil {
			res.Err = err.Error()
			break
		}
		for i := range s.GPUs {
			res.GPUs = append(res.GPUs, flat(&s.GPUs[i]))
			res.Lost = append(res.Lost, s.GPUs[i].Lost)
		}
	}
	if err := src.Close(); err != nil {
		t.Error(err)
	}
	b, err := json.Marshal(res)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(os.Getenv(helperOutput), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// helper runs TestHelperProcess with a library and control lines.
func helper(t *testing.T, lib string, lines ...string) helperResult {
	t.Helper()
	dir := t.TempDir()
	writeControl(t, filepath.Join(dir, "control"), lines...)
	out := filepath.Join(dir, "out")
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelperProcess$")
	cmd.Env = append(os.Environ(), helperLibrary+"="+lib, helperOutput+"="+out, controlEnv+"="+filepath.Join(dir, "control"))
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the process ended with %v:\n%s", err, text)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var res helperResult
	if err := json.Unmarshal(b, &res); err != nil {
		t.Fatal(err)
	}
	return res
}

// everything makes the fake GPUs have every figure; GPU 1 is in MIG mode.
func everything() []string {
	return []string{
		"count 2", "gpu.0.field.82 u 60", "gpu.0.field.197 l 1000", "gpu.0.field.198 l 2000",
		"gpu.0.field.94 u 3", "gpu.0.field.138 l 10", "gpu.0.field.139 l 20", "gpu.0.field.230 u 0",
		"gpu.0.proc.0 100 1000", "gpu.1.mig 1", "gpu.1.slot.1 3 1g.10gb 1000", "gpu.1.slot.4 5 2g.20gb 2000",
	}
}

func TestEveryFigure(t *testing.T) {
	res := helper(t, fakeLibrary(t), everything()...)
	if len(res.GPUs) != 2 {
		t.Fatalf("%+v", res)
	}
	for _, name := range []string{
		"memory_total", "memory_used", "memory_reserved", "utilization", "graphics", "sm", "occupancy",
		"tensor", "dram", "power", "limit", "energy", "temperature", "clock", "reasons", "ecc", "rows",
		"pcie_tx", "nvlink_tx", "xids", "processes",
	} {
		if _, ok := res.GPUs[0][name]; !ok {
			t.Errorf("GPU 0 lacks %s", name)
		}
	}
	// The fake answers 10 times the metric's id, in percent.
	for name, v := range map[string]float64{"graphics": 0.1, "sm": 0.2, "occupancy": 0.3, "tensor": 0.5, "dram": 0, "nvlink_tx": 10240} {
		if res.GPUs[0][name] != v {
			t.Errorf("%s: %v, want %v", name, res.GPUs[0][name], v)
		}
	}
}

// Without any one function the process lives on and loses only what that function
// tells.
func TestMissingSymbols(t *testing.T) {
	lost := map[string][]string{
		symMemoryV2: {"memory_reserved"}, symUtilization: {"utilization"}, symPower: {"power"},
		symPowerLimit: {"limit"}, symEnergy: {"energy"}, symClock: {"clock"}, symECC: {"ecc"},
		symRemappedRows: {"rows"}, symFieldValues: {"nvlink_tx", "pcie_tx"},
		symGPMSupport: gpmNames(), symGPMAlloc: gpmNames(), symGPMFree: gpmNames(),
		symGPMSample: gpmNames(), symGPMMetrics: gpmNames(),
		symEventSetCreate: {"xids"}, symEventSetFree: {"xids"}, symRegisterEvents: {"xids"},
		// These have a stand-in, or concern identity or MIG only.
		symMemory: nil, symTemperature: nil, symTemperatureV: nil, symEventReasons: nil, symThrottleReasons: nil,
		symProcesses: nil, symProcessesV2: nil, symProcessesV3: nil, symEventSetWait: nil, symEventSetWaitV2: nil,
		symSupportedEventTypes: nil, symDriverVersion: nil, symNVMLVersion: nil, symCudaVersion: nil,
		symName: nil, symPCIInfo: nil, symMIGMode: nil, symMIGCount: nil, symMIGHandle: nil,
		symGPUInstance: nil, symGPMMIGSample: nil,
	}
	whole := helper(t, fakeLibrary(t), everything()...)
	// Ten libraries, each without some functions that do not hide one another's use.
	const libraries = 10
	all := optionalSymbols()
	for i := range libraries {
		var omit, absent []string
		for j := i; j < len(all); j += libraries {
			names, known := lost[all[j]]
			if !known {
				t.Fatalf("this test does not know %s", all[j])
			}
			omit = append(omit, all[j])
			absent = append(absent, names...)
		}
		t.Run(strings.Join(omit, "+"), func(t *testing.T) {
			t.Parallel()
			res := helper(t, fakeLibrary(t, omit...), everything()...)
			if res.Err != "" || len(res.GPUs) != 2 {
				t.Fatalf("%+v", res)
			}
			for name := range whole.GPUs[0] {
				_, ok := res.GPUs[0][name]
				if want := !slices.Contains(absent, name); ok != want {
					t.Errorf("%s is there: %v, want %v", name, ok, want)
				}
			}
		})
	}
	t.Run("all of them", func(t *testing.T) {
		t.Parallel()
		res := helper(t, fakeLibrary(t, optionalSymbols()...), everything()...)
		if !slices.Equal(res.Lost, []string{"unreadable", "unreadable"}) {
			t.Errorf("%+v", res)
		}
	})
	for _, sym := range requiredSymbols() {
		t.Run(sym, func(t *testing.T) {
			t.Parallel()
			res := helper(t, fakeLibrary(t, sym), everything()...)
			if !strings.Contains(res.Err, string(ReasonLibraryUnusable)) || !strings.Contains(res.Err, sym) {
				t.Errorf("%+v", res)
			}
		})
	}
}

func gpmNames() []string { return []string{"graphics", "sm", "occupancy", "tensor", "dram"} }

func TestNotSupported(t *testing.T) {
	var refused []string
	for _, sym := range optionalSymbols() {
		if sym != symPower {
			refused = append(refused, "gpu.0.ret."+sym+" 3")
		}
	}
	res := helper(t, fakeLibrary(t), append(refused, "count 1")...)
	if len(res.GPUs) != 1 || len(res.GPUs[0]) != 1 || res.GPUs[0]["power"] != 250 {
		t.Errorf("%+v", res)
	}
}

func TestInitFailures(t *testing.T) {
	for code, reason := range map[Code]Reason{
		codeVersionMismatch: ReasonVersionMismatch, codeDriverNotLoaded: ReasonDriverMissing,
		codeNoPermission: ReasonNoPermission, codeUnknown: ReasonUnknown,
	} {
		src, set := openFake(t, LocalOptions{}, fmt.Sprintf("ret.nvmlInit_v2 %d", code))
		var down *DownError
		if _, err := src.Sample(context.Background()); !errors.As(err, &down) || down.Reason != reason || down.Hint == "" {
			t.Errorf("code %s: %v", code, err)
		}
		// The driver comes up: no restart is needed.
		set("count 1")
		if s := sampleOnce(t, src); len(s.GPUs) != 1 {
			t.Errorf("after code %s: %+v", code, s)
		}
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestLibraryMissing(t *testing.T) {
	src := NewLocal(LocalOptions{LibraryPath: filepath.Join(t.TempDir(), "libnvidia-ml.so.1")})
	_, err := src.Sample(context.Background())
	var down *DownError
	if !errors.As(err, &down) || down.Reason != ReasonLibraryMissing || !strings.Contains(err.Error(), "No such file") {
		t.Errorf("%v", err)
	}
	if err := src.Close(); err != nil {
		t.Error(err)
	}
}

func TestNoGPU(t *testing.T) {
	src, set := openFake(t, LocalOptions{}, "count 0")
	var down *DownError
	if _, err := src.Sample(context.Background()); !errors.As(err, &down) || down.Reason != ReasonNoGPU {
		t.Errorf("%v", err)
	}
	set("count 2", "gpu.0.ret.nvmlDeviceGetHandleByIndex_v2 4")
	// One that the process may not use is no fault.
	if s := sampleOnce(t, src); len(s.GPUs) != 1 || s.GPUs[0].Index != 1 {
		t.Errorf("%+v", s)
	}
}

func TestLostGPU(t *testing.T) {
	src, set := openFake(t, LocalOptions{SlowEvery: time.Nanosecond}, "count 3")
	if s := sampleOnce(t, src); len(s.GPUs) != 3 {
		t.Fatalf("%+v", s)
	}
	set("count 3", "gpu.1.lost 15")
	for range 2 {
		s := sampleOnce(t, src)
		for i, lost := range []string{"", "gpu_is_lost", ""} {
			g := s.GPUs[i]
			if g.Lost != lost || g.UUID != fakeUUID(i) || g.PowerWatts.Valid() != (lost == "") {
				t.Errorf("GPU %d: %+v", i, g)
			}
		}
	}
	set("count 3")
	if s := sampleOnce(t, src); s.GPUs[1].Lost != "" || !s.GPUs[1].PowerWatts.Valid() {
		t.Errorf("not found again: %+v", s.GPUs[1])
	}
	// A driver that is unloaded, and comes back with one GPU less.
	set("count 3", "ret.nvmlDeviceGetPowerUsage 1")
	var down *DownError
	if _, err := src.Sample(context.Background()); !errors.As(err, &down) {
		t.Errorf("%v", err)
	}
	set("count 2")
	s := sampleOnce(t, src)
	if len(s.GPUs) != 3 || s.GPUs[2].Lost == "" || s.GPUs[0].Lost != "" {
		t.Errorf("%+v", s.GPUs)
	}
}

func TestExclude(t *testing.T) {
	src, _ := openFake(t, LocalOptions{Exclude: []string{strings.ToUpper(fakeUUID(0))}}, "count 2")
	if s := sampleOnce(t, src); len(s.GPUs) != 1 || s.GPUs[0].Index != 1 {
		t.Errorf("%+v", s.GPUs)
	}
}

func TestFieldsAndCounters(t *testing.T) {
	src, set := openFake(t, LocalOptions{},
		"gpu.0.field.197 u 4294967000", "gpu.0.field.198 l 5000", "gpu.0.field.202 l 700", "gpu.0.field.82 x 1")
	s := sampleOnce(t, src)
	want(t, "PCIe sent", s.GPUs[0].PCIeTransmitBytes, 4294967000)
	want(t, "NVLink 5", s.GPUs[0].NVLinkTransmitBytes, 700)
	absent(t, "a type that is not known", s.GPUs[0].MemoryTemperatureCelsius)
	set("gpu.0.field.197 u 704", "gpu.0.field.198 l 6000", "gpu.0.field.202 l 800")
	for range 3 { // stale bytes in the buffer would add up
		s = sampleOnce(t, src)
		want(t, "PCIe sent after a wrap", s.GPUs[0].PCIeTransmitBytes, 4294968000)
		want(t, "PCIe received", s.GPUs[0].PCIeReceiveBytes, 6000)
		want(t, "NVLink 5", s.GPUs[0].NVLinkTransmitBytes, 800)
	}
}

func TestMIG(t *testing.T) {
	src, set := openFake(t, LocalOptions{SlowEvery: time.Nanosecond}, "gpu.0.mig 1",
		"gpu.0.slot.1 3 1g.10gb 1000", "gpu.0.slot.4 5 1c.2g.20gb 2000", "gpu.0.slot.6 5 1c.2g.20gb 2000")
	sampleOnce(t, src)
	time.Sleep(gpmMinGap + 10*time.Millisecond)
	g := sampleOnce(t, src).GPUs[0]
	absent(t, "utilization, of which the driver says 0", g.Utilization)
	absent(t, "activity of the whole GPU", g.Activity.SM)
	if !g.MIGEnabled || len(g.MIG) != 2 {
		t.Fatalf("%+v", g.MIG)
	}
	if m := g.MIG[0]; m.GPUInstance != 3 || m.Profile != "1g.10gb" || !slices.Equal(m.UUIDs, []string{"MIG-0-1"}) {
		t.Errorf("%+v", m)
	}
	if m := g.MIG[1]; m.GPUInstance != 5 || m.Profile != "2g.20gb" || !slices.Equal(m.UUIDs, []string{"MIG-0-4", "MIG-0-6"}) {
		t.Errorf("%+v", m)
	}
	want(t, "memory", g.MIG[1].Memory.Used, 2000)
	want(t, "SM activity", g.MIG[1].Activity.SM, 0.25)
	// MIG is turned off: what was not supported then is asked for again.
	set("count 1")
	g = sampleOnce(t, src).GPUs[0]
	if g.MIGEnabled || len(g.MIG) != 0 {
		t.Errorf("%+v", g.MIG)
	}
	want(t, "utilization", g.Utilization, 0.5)
}

func TestGPMBatchThatLies(t *testing.T) {
	src, _ := openFake(t, LocalOptions{}, "gpmbatch 0")
	sampleOnce(t, src)
	for range 2 {
		time.Sleep(gpmMinGap + 10*time.Millisecond)
		g := sampleOnce(t, src).GPUs[0]
		want(t, "SM", g.Activity.SM, 0.2)
		want(t, "tensor", g.Activity.Tensor, 0.5)
	}
	// Too soon for a new average: absent rather than old.
	absent(t, "SM", sampleOnce(t, src).GPUs[0].Activity.SM)
}

func TestProcesses(t *testing.T) {
	proc := t.TempDir()
	if err := os.MkdirAll(filepath.Join(proc, "42"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(proc, "42", "comm"), []byte("python3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	src, _ := openFake(t, LocalOptions{Processes: true, ProcRoot: proc},
		"gpu.0.proc.0 41 1000", "gpu.0.proc.1 42 5000", "gpu.0.proc.2 43 18446744073709551615", "gpu.0.proc.3 4294967294 7")
	p := sampleOnce(t, src).GPUs[0].Processes
	p[2].Name = "changed" // the caller's own
	if again := sampleOnce(t, src).GPUs[0].Processes; again[2].Name != "" {
		t.Errorf("two snapshots share %+v", again)
	}
	if len(p) != 3 || p[0].PID != 42 || p[0].Name != "python3" || p[1].PID != 41 || p[1].Name != "" || p[2].MemoryUsedBytes.Valid() {
		t.Errorf("%+v", p)
	}
}

func TestXidEvents(t *testing.T) {
	var buf bytes.Buffer
	src, set := openFake(t, LocalOptions{Logger: log.NewLogfmtLogger(log.NewSyncWriter(&buf))}, "count 2")
	g := sampleOnce(t, src).GPUs[1]
	waitFor(t, "the event loop", func() bool { g = sampleOnce(t, src).GPUs[1]; return g.XidsWatched })
	if len(g.Xids) != len(watchedXids()) {
		t.Errorf("%+v", g.Xids)
	}
	set("count 2", "xid.1 1 79", "xid.2 1 13", "xid.3 1 79")
	find := func(code uint64) Xid {
		for _, x := range sampleOnce(t, src).GPUs[1].Xids {
			if x.Code == code {
				return x
			}
		}
		return Xid{}
	}
	waitFor(t, "two events of code 79", func() bool { return find(79).Count == 2 })
	if x := find(13); x.Count != 1 || time.Since(x.Last) > time.Minute {
		t.Errorf("%+v", x)
	}
	for _, x := range sampleOnce(t, src).GPUs[0].Xids {
		if x.Count != 0 {
			t.Errorf("the other GPU has %+v", x)
		}
	}
}

func waitFor(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within 10 s", what)
		}
	}
}

// A call that hangs inside the driver is abandoned, blocks neither readers nor the
// end, and reading goes on once it returns.
func TestHang(t *testing.T) {
	src, set := openFake(t, LocalOptions{}, "count 2")
	s, err := NewSampler(src, SamplerOptions{Interval: MinInterval, Timeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	waitFor(t, "sample", func() bool { return s.State().Up })
	set("count 2", "hang nvmlDeviceGetPowerUsage")
	waitFor(t, "report of the hang", func() bool { return s.State().Reason == ReasonTimeout })
	if st := s.State(); st.Up || len(st.Snapshot.GPUs) != 0 {
		t.Errorf("%+v", st)
	}
	set("count 2")
	waitFor(t, "recovery", func() bool { return s.State().Up })
	set("count 2", "hang nvmlDeviceGetPowerUsage")
	waitFor(t, "report of the hang", func() bool { return !s.State().Up })
	began := time.Now()
	cancel()
	if err := <-done; err == nil || time.Since(began) > 3*time.Second {
		t.Errorf("end while a call hangs: %v after %s", err, time.Since(began))
	}
	set("count 2")
	waitFor(t, "the call to return", func() bool { return !errors.Is(src.Close(), errBusy) })
}

// An event loop that does not come out of the driver keeps NVML open: it is neither
// shut down nor opened a second time under the running call.
func TestHangInEventWait(t *testing.T) {
	src, set := openFake(t, LocalOptions{}, "count 1")
	waitFor(t, "the event loop", func() bool { return sampleOnce(t, src).GPUs[0].XidsWatched })
	set("hang nvmlEventSetWait_v2")
	time.Sleep(eventWait + 100*time.Millisecond) // into the next wait
	if s := sampleOnce(t, src); s.GPUs[0].Lost != "" {
		t.Errorf("%+v", s)
	}
	if err := src.Close(); !errors.Is(err, errBusy) {
		t.Errorf("Close: %v", err)
	}
	var down *DownError
	if _, err := src.Sample(context.Background()); !errors.As(err, &down) || down.Reason != ReasonTimeout {
		t.Errorf("Sample: %v", err)
	}
	set("count 1")
	waitFor(t, "recovery", func() bool { _, err := src.Sample(context.Background()); return err == nil })
}

func TestMemoryRisesDuringAWindow(t *testing.T) {
	src, set := openFake(t, LocalOptions{}, "gpu.0.used 1000")
	s, err := NewSampler(src, SamplerOptions{Interval: MinInterval})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	used := func() float64 {
		st := s.State()
		if !st.Up {
			return 0
		}
		return st.Snapshot.GPUs[0].Memory.Used.Or(0)
	}
	waitFor(t, "sample", func() bool { return used() == 1000 })
	from := time.Now()
	set("gpu.0.used 9000", "gpu.0.util 97")
	waitFor(t, "rise", func() bool { return used() == 9000 })
	set("gpu.0.used 4000")
	to := time.Now()
	w := s.WaitWindow(ctx, from, to, fakeUUID(0))
	if len(w) != 1 || w[0].Samples == 0 {
		t.Fatalf("%+v", w)
	}
	want(t, "before", w[0].MemoryUsed.Before, 1000)
	want(t, "peak", w[0].MemoryUsed.Peak, 9000)
	want(t, "after", w[0].MemoryUsed.After, 4000)
	want(t, "delta", w[0].MemoryUsed.Delta(), 8000)
	want(t, "utilization", w[0].Utilization.Peak, 0.97)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
