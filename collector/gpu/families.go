package gpu

import (
	"github.com/llmcanary/llm_canary_exporter/nvml"
)

// Type is the type of a metric family.
type Type string

// The types of families that this package exposes.
const (
	Gauge   Type = "gauge"
	Counter Type = "counter"
)

// Family describes one metric family.
type Family struct {
	Name   string // in full, with the namespace
	Type   Type
	Labels []string
	Help   string
}

const namespace = "llm_canary_"

// with returns the labels of a family about a GPU. They are fixed: a family has the
// same labels on every host.
func with(labels ...string) []string { return append([]string{"gpu", "uuid"}, labels...) }

// Families returns every family that a Collector may expose, in a fixed order.
// Whether one appears depends on the chip, the driver and the options.
func Families() []Family {
	var out []Family
	for _, f := range healthFamilies() {
		out = append(out, f.Family)
	}
	for _, f := range gpuFamilies() {
		out = append(out, f.Family)
	}
	for _, f := range listFamilies() {
		out = append(out, f.Family)
	}
	for _, f := range migFamilies() {
		out = append(out, f.Family)
	}
	return out
}

func family(name string, t Type, labels []string, help string) Family {
	return Family{Name: namespace + name, Type: t, Labels: labels, Help: help}
}

// emit sends one sample of a family: its value and the values of its labels.
type emit func(value float64, labels ...string)

// healthFamily is about the reading itself.
type healthFamily struct {
	Family
	collect func(s *nvml.State, e emit)
}

func healthFamilies() []healthFamily {
	return []healthFamily{
		{
			family("nvml_up", Gauge, nil,
				"1 if the last reading of the GPUs succeeded. 0: no GPU figures; the log and nvml_sample_failures_total say why."),
			func(s *nvml.State, e emit) {
				if s.Cycles > 0 {
					e(oneIf(s.Up))
				}
			},
		},
		{
			family("nvml_samples_total", Counter, nil,
				"Readings of the GPUs that were tried."),
			func(s *nvml.State, e emit) { e(float64(s.Cycles)) },
		},
		{
			family("nvml_sample_failures_total", Counter, []string{"reason"},
				"Readings of the GPUs that failed as a whole, by reason."),
			func(s *nvml.State, e emit) {
				for _, r := range nvml.Reasons() {
					e(float64(s.Failures[r]), string(r))
				}
			},
		},
		{
			family("nvml_sample_duration_seconds", Gauge, nil,
				"How long the last reading of all GPUs took."),
			func(s *nvml.State, e emit) {
				if s.LastDuration > 0 {
					e(s.LastDuration.Seconds())
				}
			},
		},
		{
			family("nvml_last_success_timestamp_seconds", Gauge, nil,
				"When the GPUs were last read, as Unix time."),
			func(s *nvml.State, e emit) {
				if !s.LastSuccess.IsZero() {
					e(unix(s.LastSuccess))
				}
			},
		},
	}
}

// gpuFamily is one figure of a GPU, with the labels gpu and uuid.
type gpuFamily struct {
	Family
	value func(g *nvml.Sample, t *nvml.Totals) nvml.Value
}

func gpuFamilies() []gpuFamily {
	g := func(name string, help string, f func(g *nvml.Sample) nvml.Value) gpuFamily {
		return gpuFamily{family(name, Gauge, with(), help), func(s *nvml.Sample, _ *nvml.Totals) nvml.Value { return f(s) }}
	}
	c := func(name string, help string, f func(g *nvml.Sample) nvml.Value) gpuFamily {
		return gpuFamily{family(name, Counter, with(), help), func(s *nvml.Sample, _ *nvml.Totals) nvml.Value { return f(s) }}
	}
	total := func(name string, t Type, help string, f func(t *nvml.Totals) nvml.Value) gpuFamily {
		return gpuFamily{family(name, t, with(), help), func(_ *nvml.Sample, t *nvml.Totals) nvml.Value { return f(t) }}
	}
	return []gpuFamily{
		g("gpu_up", "1 if the GPU could be read; 0 if it is lost (fell off the bus, needs a reset).", up),

		g("gpu_memory_total_bytes", "Device memory of the GPU.", func(s *nvml.Sample) nvml.Value { return s.Memory.Total }),
		g("gpu_memory_used_bytes", "Device memory in use, without what the driver reserves (with it where gpu_memory_reserved_bytes is absent). An engine that preallocates its KV cache keeps this flat.", func(s *nvml.Sample) nvml.Value { return s.Memory.Used }),
		g("gpu_memory_free_bytes", "Device memory that is free.", func(s *nvml.Sample) nvml.Value { return s.Memory.Free }),
		g("gpu_memory_reserved_bytes", "Device memory that driver and firmware keep for themselves.", func(s *nvml.Sample) nvml.Value { return s.Memory.Reserved }),
		total("gpu_memory_used_max_1m_bytes", Gauge, "Highest gpu_memory_used_bytes seen within the last minute.", func(t *nvml.Totals) nvml.Value { return t.MemoryUsedMax }),

		g("gpu_utilization_ratio", "Share of the driver's last sampling period (1/6 to 1 s) with at least one kernel running. 1 does not mean that the GPU is full. Absent in MIG mode.", func(s *nvml.Sample) nvml.Value { return s.Utilization }),
		g("gpu_memory_utilization_ratio", "Share of the driver's last sampling period in which device memory was read or written. Absent in MIG mode.", func(s *nvml.Sample) nvml.Value { return s.MemoryUtilization }),
		total("gpu_utilization_max_1m_ratio", Gauge, "Highest gpu_utilization_ratio sampled within the last minute.", func(t *nvml.Totals) nvml.Value { return t.UtilizationMax }),
		total("gpu_memory_utilization_max_1m_ratio", Gauge, "Highest gpu_memory_utilization_ratio sampled within the last minute.", func(t *nvml.Totals) nvml.Value { return t.MemoryUtilizationMax }),
		total("gpu_utilization_seconds_total", Counter, "gpu_utilization_ratio integrated over time. Its rate divided by the rate of gpu_utilization_sampled_seconds_total is the average.", func(t *nvml.Totals) nvml.Value { return t.UtilizationSeconds }),
		total("gpu_memory_utilization_seconds_total", Counter, "gpu_memory_utilization_ratio integrated over time.", func(t *nvml.Totals) nvml.Value { return t.MemoryUtilizationSeconds }),
		total("gpu_utilization_sampled_seconds_total", Counter, "Time that the utilization seconds cover.", func(t *nvml.Totals) nvml.Value { return t.SampledSeconds }),

		g("gpu_graphics_activity_ratio", "Share of time with any compute or graphics engine active, averaged between two samples (GPM, Hopper and newer).", func(s *nvml.Sample) nvml.Value { return s.Activity.Graphics }),
		g("gpu_sm_activity_ratio", "Share of time with work on the streaming multiprocessors, averaged over them and between two samples (GPM).", func(s *nvml.Sample) nvml.Value { return s.Activity.SM }),
		g("gpu_sm_occupancy_ratio", "Resident warps divided by possible warps, averaged between two samples (GPM).", func(s *nvml.Sample) nvml.Value { return s.Activity.SMOccupancy }),
		g("gpu_tensor_activity_ratio", "Share of time with any tensor pipe active, averaged between two samples (GPM).", func(s *nvml.Sample) nvml.Value { return s.Activity.Tensor }),
		g("gpu_dram_activity_ratio", "Device memory bandwidth used divided by its peak, averaged between two samples (GPM).", func(s *nvml.Sample) nvml.Value { return s.Activity.DRAM }),
		total("gpu_graphics_activity_seconds_total", Counter, "gpu_graphics_activity_ratio integrated over time.", func(t *nvml.Totals) nvml.Value { return t.GraphicsSeconds }),
		total("gpu_sm_activity_seconds_total", Counter, "gpu_sm_activity_ratio integrated over time.", func(t *nvml.Totals) nvml.Value { return t.SMSeconds }),
		total("gpu_sm_occupancy_seconds_total", Counter, "gpu_sm_occupancy_ratio integrated over time.", func(t *nvml.Totals) nvml.Value { return t.SMOccupancySeconds }),
		total("gpu_tensor_activity_seconds_total", Counter, "gpu_tensor_activity_ratio integrated over time.", func(t *nvml.Totals) nvml.Value { return t.TensorSeconds }),
		total("gpu_dram_activity_seconds_total", Counter, "gpu_dram_activity_ratio integrated over time.", func(t *nvml.Totals) nvml.Value { return t.DRAMSeconds }),
		total("gpu_activity_sampled_seconds_total", Counter, "Time that the activity and occupancy seconds cover.", func(t *nvml.Totals) nvml.Value { return t.ActivitySampledSeconds }),

		g("gpu_power_watts", "Power drawn (on Ampere and newer the average over a second, on others at that moment).", func(s *nvml.Sample) nvml.Value { return s.PowerWatts }),
		total("gpu_power_max_1m_watts", Gauge, "Highest gpu_power_watts sampled within the last minute.", func(t *nvml.Totals) nvml.Value { return t.PowerMax }),
		g("gpu_power_limit_watts", "Power limit in force.", func(s *nvml.Sample) nvml.Value { return s.PowerLimitWatts }),
		c("gpu_energy_joules_total", "Energy used since the driver was loaded.", func(s *nvml.Sample) nvml.Value { return s.EnergyJoules }),
		g("gpu_temperature_celsius", "Temperature of the GPU.", func(s *nvml.Sample) nvml.Value { return s.TemperatureCelsius }),
		g("gpu_memory_temperature_celsius", "Temperature of the device memory.", func(s *nvml.Sample) nvml.Value { return s.MemoryTemperatureCelsius }),
		g("gpu_graphics_clock_hertz", "Graphics clock.", func(s *nvml.Sample) nvml.Value { return s.GraphicsClockHertz }),
		g("gpu_sm_clock_hertz", "Clock of the streaming multiprocessors.", func(s *nvml.Sample) nvml.Value { return s.SMClockHertz }),
		g("gpu_memory_clock_hertz", "Memory clock.", func(s *nvml.Sample) nvml.Value { return s.MemoryClockHertz }),

		g("gpu_remapped_rows_pending", "1 if a row remap waits for a reset of the GPU.", func(s *nvml.Sample) nvml.Value { return s.RemappedRows.Pending }),
		g("gpu_remapped_rows_failed", "1 if a row remap failed: the GPU is to be replaced.", func(s *nvml.Sample) nvml.Value { return s.RemappedRows.Failure }),
		g("gpu_recovery_action", "What the driver wants done: 0 nothing, 1 reset of the GPU, 2 reboot, 3 drain of peer-to-peer traffic, 4 drain and reset.", func(s *nvml.Sample) nvml.Value { return s.RecoveryAction }),

		c("gpu_pcie_transmit_bytes_total", "Bytes that the GPU sent over PCIe.", func(s *nvml.Sample) nvml.Value { return s.PCIeTransmitBytes }),
		c("gpu_pcie_receive_bytes_total", "Bytes that the GPU received over PCIe.", func(s *nvml.Sample) nvml.Value { return s.PCIeReceiveBytes }),
		c("gpu_pcie_replays_total", "PCIe packets that had to be sent again.", func(s *nvml.Sample) nvml.Value { return s.PCIeReplays }),
		c("gpu_nvlink_transmit_bytes_total", "Payload bytes that the GPU sent over all its NVLinks.", func(s *nvml.Sample) nvml.Value { return s.NVLinkTransmitBytes }),
		c("gpu_nvlink_receive_bytes_total", "Payload bytes that the GPU received over all its NVLinks.", func(s *nvml.Sample) nvml.Value { return s.NVLinkReceiveBytes }),
	}
}

func up(s *nvml.Sample) nvml.Value {
	return nvml.Of(oneIf(s.Lost == ""))
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
