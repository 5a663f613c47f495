//go:build linux && cgo

package nvml

import (
	"context"
	"fmt"
	"testing"
)

func openFake(t *testing.T, o LocalOptions, lines ...string) (Source, func(...string)) {
	t.Helper()
	lib, set := control(t, lines...)
	o.LibraryPath = lib
	src := NewLocal(o)
	t.Cleanup(func() {
		if err := src.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return src, set
}

func sampleOnce(t *testing.T, src Source) Snapshot {
	t.Helper()
	s, err := src.Sample(context.Background())
	if err != nil {
		t.Fatalf("Sample: %v", err)
	}
	return s
}

func fakeUUID(i int) string { return fmt.Sprintf("GPU-fa4e0000-0000-4000-8000-%012d", i) }

func TestOneGPU(t *testing.T) {
	src, _ := openFake(t, LocalOptions{}, "gpu.0.field.82 u 61")
	s := sampleOnce(t, src)
	if s.Driver != (Driver{Version: "590.48.01", CUDA: "13.1", NVML: "13.590.48.01"}) {
		t.Errorf("driver: %+v", s.Driver)
	}
	if len(s.GPUs) != 1 {
		t.Fatalf("%d GPUs", len(s.GPUs))
	}
	g := s.GPUs[0]
	if g.GPU != (GPU{Index: 0, UUID: fakeUUID(0), Name: "NVIDIA H100 80GB HBM3", PCIBusID: "00000000:01:00.0"}) {
		t.Errorf("identity: %+v", g.GPU)
	}
	const gib = 1 << 30
	for _, c := range []struct {
		name string
		got  Value
		want float64
	}{
		{"memory total", g.Memory.Total, 80 * gib},
		{"memory used", g.Memory.Used, 10 * gib},
		{"memory free", g.Memory.Free, 69.5 * gib},
		{"memory reserved", g.Memory.Reserved, 0.5 * gib},
		{"utilization", g.Utilization, 0.5},
		{"memory utilization", g.MemoryUtilization, 0.2},
		{"power", g.PowerWatts, 250},
		{"power limit", g.PowerLimitWatts, 700},
		{"energy", g.EnergyJoules, 123456.789},
		{"temperature", g.TemperatureCelsius, 45},
		{"memory temperature", g.MemoryTemperatureCelsius, 61},
		{"graphics clock", g.GraphicsClockHertz, 1500e6},
		{"SM clock", g.SMClockHertz, 1501e6},
		{"memory clock", g.MemoryClockHertz, 1502e6},
		{"clock event reasons", g.ClockEventReasons, 4},
		{"ecc corrected volatile", g.ECC.CorrectedVolatile, 0},
		{"ecc uncorrected aggregate", g.ECC.UncorrectedAggregate, 11},
		{"rows", g.RemappedRows.Correctable, 0},
		{"rows pending", g.RemappedRows.Pending, 0},
	} {
		if got, ok := c.got.Get(); !ok || got != c.want {
			t.Errorf("%s: %v, %v; want %v", c.name, got, ok, c.want)
		}
	}
	if g.PCIeTransmitBytes.Valid() || g.Processes != nil || g.MIG != nil {
		t.Errorf("figures that the GPU does not have: %+v", g)
	}
}
