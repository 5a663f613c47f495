package gpu

import (
	"strconv"
	"strings"
	"time"

	"github.com/llmcanary/llm_canary_exporter/nvml"
)

// listFamily is about a GPU too, with labels of its own.
type listFamily struct {
	Family
	// collect emits the samples of one GPU; e adds the labels gpu and uuid.
	collect func(c *Collector, d *nvml.Driver, g *nvml.Sample, e emit)
}

func listFamilies() []listFamily {
	return []listFamily{
		{
			family("gpu_info", Gauge, with("name", "pci_bus_id", "driver_version", "cuda_version", "mig_profile"),
				"1; what the GPU is. mig_profile lists the profiles of its GPU instances in MIG mode."),
			func(_ *Collector, d *nvml.Driver, g *nvml.Sample, e emit) {
				e(1, g.Name, g.PCIBusID, d.Version, d.CUDA, profiles(g))
			},
		},
		{
			family("gpu_clock_event_reason", Gauge, with("reason"),
				"1 while the reason holds the clocks below their maximum."),
			func(_ *Collector, _ *nvml.Driver, g *nvml.Sample, e emit) { clockEvents(g, e) },
		},
		{
			family("gpu_ecc_volatile_errors_total", Counter, with("type"),
				"ECC errors since the driver was loaded, corrected and uncorrected."),
			func(_ *Collector, _ *nvml.Driver, g *nvml.Sample, e emit) {
				optional(e, g.ECC.CorrectedVolatile, "corrected")
				optional(e, g.ECC.UncorrectedVolatile, "uncorrected")
			},
		},
		{
			family("gpu_ecc_aggregate_errors_total", Counter, with("type"),
				"ECC errors over the life of the GPU, corrected and uncorrected."),
			func(_ *Collector, _ *nvml.Driver, g *nvml.Sample, e emit) {
				optional(e, g.ECC.CorrectedAggregate, "corrected")
				optional(e, g.ECC.UncorrectedAggregate, "uncorrected")
			},
		},
		{
			family("gpu_remapped_rows", Gauge, with("type"),
				"Rows of device memory that were replaced by spare ones, after correctable and uncorrectable errors."),
			func(_ *Collector, _ *nvml.Driver, g *nvml.Sample, e emit) {
				optional(e, g.RemappedRows.Correctable, "correctable")
				optional(e, g.RemappedRows.Uncorrectable, "uncorrectable")
			},
		},
		{
			family("gpu_xid_errors_total", Counter, with("xid"),
				"Xid events by code since this exporter started; codes that mean hardware or driver trouble exist from the start. Absent where events cannot be received. 0 stands for codes beyond the first 64."),
			func(_ *Collector, _ *nvml.Driver, g *nvml.Sample, e emit) {
				for _, x := range g.Xids {
					if g.XidsWatched || x.Count > 0 {
						e(float64(x.Count), strconv.FormatUint(x.Code, 10))
					}
				}
			},
		},
		{
			family("gpu_xid_last_timestamp_seconds", Gauge, with("xid"),
				"When the last Xid event of that code arrived, as Unix time."),
			func(_ *Collector, _ *nvml.Driver, g *nvml.Sample, e emit) {
				for _, x := range g.Xids {
					if x.Count > 0 {
						e(unix(x.Last), strconv.FormatUint(x.Code, 10))
					}
				}
			},
		},
		{
			family("gpu_processes", Gauge, with(),
				"Compute processes on the GPU, as far as this exporter may see them. Only with per-process figures turned on."),
			func(_ *Collector, _ *nvml.Driver, g *nvml.Sample, e emit) {
				if g.Processes != nil {
					e(float64(len(g.Processes)))
				}
			},
		},
		{
			family("gpu_process_memory_used_bytes", Gauge, with("pid", "process"),
				"Device memory of the processes that use most of it. Only with per-process figures turned on."),
			func(c *Collector, _ *nvml.Driver, g *nvml.Sample, e emit) { processes(c.maxProcesses, g, e) },
		},
	}
}

func optional(e emit, v nvml.Value, labels ...string) {
	if f, ok := v.Get(); ok {
		e(f, labels...)
	}
}

func clockEvents(g *nvml.Sample, e emit) {
	mask, ok := g.ClockEventReasons.Get()
	if !ok {
		return
	}
	for _, r := range nvml.ClockEventReasons() {
		e(oneIf(uint64(mask)&r.Bit != 0), r.Name)
	}
}

// processes emits the first n processes, which come in falling order of memory. A
// process may appear once for each GPU instance: its figures are added up.
func processes(n int, g *nvml.Sample, e emit) {
	type key struct{ pid, name string }
	var order []key
	sum := map[key]float64{}
	for _, p := range g.Processes {
		v, ok := p.MemoryUsedBytes.Get()
		if !ok {
			continue
		}
		k := key{strconv.Itoa(p.PID), p.Name}
		if _, seen := sum[k]; !seen {
			if len(order) == n {
				continue
			}
			order = append(order, k)
		}
		sum[k] += v
	}
	for _, k := range order {
		e(sum[k], k.pid, k.name)
	}
}

func profiles(g *nvml.Sample) string {
	names := make([]string, 0, len(g.MIG))
	for _, m := range g.MIG {
		names = append(names, m.Profile)
	}
	return strings.Join(names, ",")
}

// migFamily is a figure of a GPU instance.
type migFamily struct {
	Family
	collect func(m *nvml.MIGInstance, e emit)
}

func migFamilies() []migFamily {
	g := func(name, help string, f func(m *nvml.MIGInstance) nvml.Value) migFamily {
		return migFamily{family(name, Gauge, with("gpu_instance"), help), func(m *nvml.MIGInstance, e emit) { optional(e, f(m)) }}
	}
	return []migFamily{
		{
			family("gpu_mig_info", Gauge, with("gpu_instance", "mig_uuid", "mig_profile"),
				"1; the MIG devices (compute instances) of each GPU instance."),
			func(m *nvml.MIGInstance, e emit) {
				for _, uuid := range m.UUIDs {
					e(1, uuid, m.Profile)
				}
			},
		},
		g("gpu_mig_memory_total_bytes", "Device memory of the GPU instance.", func(m *nvml.MIGInstance) nvml.Value { return m.Memory.Total }),
		g("gpu_mig_memory_used_bytes", "Device memory of the GPU instance in use.", func(m *nvml.MIGInstance) nvml.Value { return m.Memory.Used }),
		g("gpu_mig_memory_free_bytes", "Device memory of the GPU instance that is free.", func(m *nvml.MIGInstance) nvml.Value { return m.Memory.Free }),
		g("gpu_mig_graphics_activity_ratio", "gpu_graphics_activity_ratio of the GPU instance (GPM).", func(m *nvml.MIGInstance) nvml.Value { return m.Activity.Graphics }),
		g("gpu_mig_sm_activity_ratio", "gpu_sm_activity_ratio of the GPU instance (GPM).", func(m *nvml.MIGInstance) nvml.Value { return m.Activity.SM }),
		g("gpu_mig_sm_occupancy_ratio", "gpu_sm_occupancy_ratio of the GPU instance (GPM).", func(m *nvml.MIGInstance) nvml.Value { return m.Activity.SMOccupancy }),
		g("gpu_mig_tensor_activity_ratio", "gpu_tensor_activity_ratio of the GPU instance (GPM).", func(m *nvml.MIGInstance) nvml.Value { return m.Activity.Tensor }),
		g("gpu_mig_dram_activity_ratio", "gpu_dram_activity_ratio of the GPU instance (GPM).", func(m *nvml.MIGInstance) nvml.Value { return m.Activity.DRAM }),
	}
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1e3 }
