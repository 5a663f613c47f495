package nvml

import (
	"math"
	"strings"
)

// What a figure can be. Drivers and exporters have been seen to publish the largest
// number of a type, "blank" markers and percentages far above 100; those are dropped.
const (
	maxMemory  = 1 << 50 // 1 PiB
	maxWatts   = 20e3
	minCelsius = -60
	maxCelsius = 250
	maxHertz   = 20e9
	maxCount   = 1 << 62
	maxText    = 128 // bytes of a name that becomes a label
	maxMIG     = 64  // GPU instances of a GPU
)

// clean drops GPUs without or with a known UUID, and everything out of range.
func clean(s *Snapshot) {
	s.Driver = Driver{Version: label(s.Driver.Version), CUDA: label(s.Driver.CUDA), NVML: label(s.Driver.NVML)}
	seen := map[string]bool{}
	kept := s.GPUs[:0]
	for i := range s.GPUs {
		g := s.GPUs[i]
		g.UUID, g.Name, g.PCIBusID = label(g.UUID), label(g.Name), label(g.PCIBusID)
		if g.UUID == "" || seen[g.UUID] || len(kept) == MaxGPUs {
			continue
		}
		seen[g.UUID] = true
		cleanSample(&g)
		kept = append(kept, g)
	}
	s.GPUs = kept
}

func cleanSample(g *Sample) {
	cleanMemory(&g.Memory)
	cleanActivity(&g.Activity)
	keep(0, 1, &g.Utilization, &g.MemoryUtilization)
	keep(0, maxWatts, &g.PowerWatts, &g.PowerLimitWatts)
	keep(minCelsius, maxCelsius, &g.TemperatureCelsius, &g.MemoryTemperatureCelsius)
	keep(0, maxHertz, &g.GraphicsClockHertz, &g.SMClockHertz, &g.MemoryClockHertz)
	keep(0, 4, &g.RecoveryAction)
	keep(0, 1, &g.RemappedRows.Pending, &g.RemappedRows.Failure)
	keep(0, maxCount, &g.EnergyJoules, &g.ClockEventReasons, &g.PCIeTransmitBytes, &g.PCIeReceiveBytes,
		&g.PCIeReplays, &g.NVLinkTransmitBytes, &g.NVLinkReceiveBytes,
		&g.ECC.CorrectedVolatile, &g.ECC.UncorrectedVolatile, &g.ECC.CorrectedAggregate, &g.ECC.UncorrectedAggregate,
		&g.RemappedRows.Correctable, &g.RemappedRows.Uncorrectable)
	for i := range g.Processes {
		keep(0, maxMemory, &g.Processes[i].MemoryUsedBytes)
		g.Processes[i].Name = label(g.Processes[i].Name)
	}
	g.MIG = g.MIG[:min(len(g.MIG), maxMIG)]
	for i := range g.MIG {
		g.MIG[i].Profile = label(g.MIG[i].Profile)
		cleanMemory(&g.MIG[i].Memory)
		cleanActivity(&g.MIG[i].Activity)
	}
}

func cleanMemory(m *Memory) {
	keep(0, maxMemory, &m.Total, &m.Used, &m.Free, &m.Reserved)
	if total, ok := m.Total.Get(); ok {
		keep(0, total, &m.Used, &m.Free, &m.Reserved)
	}
}

func cleanActivity(a *Activity) {
	keep(0, 1, &a.Graphics, &a.SM, &a.SMOccupancy, &a.Tensor, &a.DRAM)
}

// keep drops those of vs that are not within [low, high].
func keep(low, high float64, vs ...*Value) {
	for _, v := range vs {
		if math.IsNaN(v.v) || v.v < low || v.v > high {
			*v = Value{}
		}
	}
}

// label makes a text fit for a label value.
func label(s string) string {
	s = strings.TrimSpace(strings.ToValidUTF8(s, ""))
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "")
	}
	return s
}
