package remote

import (
	"errors"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"github.com/llmcanary/llm_canary_exporter/nvml"
)

// rule says where a family's figure goes and by what it is multiplied.
type rule struct {
	scale float64
	to    func(g *nvml.Sample) *nvml.Value
}

// setter is what rules are for figures of a GPU instance.
type setter struct {
	scale float64
	to    func(m *nvml.MIGInstance) *nvml.Value
}

func gpuRules(prefix string) map[string]rule {
	r := map[string]rule{
		"memory_total_bytes":          {1, func(g *nvml.Sample) *nvml.Value { return &g.Memory.Total }},
		"memory_used_bytes":           {1, func(g *nvml.Sample) *nvml.Value { return &g.Memory.Used }},
		"memory_free_bytes":           {1, func(g *nvml.Sample) *nvml.Value { return &g.Memory.Free }},
		"memory_reserved_bytes":       {1, func(g *nvml.Sample) *nvml.Value { return &g.Memory.Reserved }},
		"utilization_ratio":           {1, func(g *nvml.Sample) *nvml.Value { return &g.Utilization }},
		"memory_utilization_ratio":    {1, func(g *nvml.Sample) *nvml.Value { return &g.MemoryUtilization }},
		"graphics_activity_ratio":     {1, func(g *nvml.Sample) *nvml.Value { return &g.Activity.Graphics }},
		"sm_activity_ratio":           {1, func(g *nvml.Sample) *nvml.Value { return &g.Activity.SM }},
		"sm_occupancy_ratio":          {1, func(g *nvml.Sample) *nvml.Value { return &g.Activity.SMOccupancy }},
		"tensor_activity_ratio":       {1, func(g *nvml.Sample) *nvml.Value { return &g.Activity.Tensor }},
		"dram_activity_ratio":         {1, func(g *nvml.Sample) *nvml.Value { return &g.Activity.DRAM }},
		"power_watts":                 {1, func(g *nvml.Sample) *nvml.Value { return &g.PowerWatts }},
		"power_limit_watts":           {1, func(g *nvml.Sample) *nvml.Value { return &g.PowerLimitWatts }},
		"energy_joules_total":         {1, func(g *nvml.Sample) *nvml.Value { return &g.EnergyJoules }},
		"temperature_celsius":         {1, func(g *nvml.Sample) *nvml.Value { return &g.TemperatureCelsius }},
		"memory_temperature_celsius":  {1, func(g *nvml.Sample) *nvml.Value { return &g.MemoryTemperatureCelsius }},
		"graphics_clock_hertz":        {1, func(g *nvml.Sample) *nvml.Value { return &g.GraphicsClockHertz }},
		"sm_clock_hertz":              {1, func(g *nvml.Sample) *nvml.Value { return &g.SMClockHertz }},
		"memory_clock_hertz":          {1, func(g *nvml.Sample) *nvml.Value { return &g.MemoryClockHertz }},
		"recovery_action":             {1, func(g *nvml.Sample) *nvml.Value { return &g.RecoveryAction }},
		"pcie_transmit_bytes_total":   {1, func(g *nvml.Sample) *nvml.Value { return &g.PCIeTransmitBytes }},
		"pcie_receive_bytes_total":    {1, func(g *nvml.Sample) *nvml.Value { return &g.PCIeReceiveBytes }},
		"pcie_replays_total":          {1, func(g *nvml.Sample) *nvml.Value { return &g.PCIeReplays }},
		"nvlink_transmit_bytes_total": {1, func(g *nvml.Sample) *nvml.Value { return &g.NVLinkTransmitBytes }},
		"nvlink_receive_bytes_total":  {1, func(g *nvml.Sample) *nvml.Value { return &g.NVLinkReceiveBytes }},
		"remapped_rows_pending":       {1, func(g *nvml.Sample) *nvml.Value { return &g.RemappedRows.Pending }},
		"remapped_rows_failed":        {1, func(g *nvml.Sample) *nvml.Value { return &g.RemappedRows.Failure }},
	}
	out := make(map[string]rule, len(r))
	for name, v := range r {
		out[prefix+name] = v
	}
	return out
}

// readCanary reads the families of llm_canary_exporter.
func readCanary(families map[string]*dto.MetricFamily) (nvml.Snapshot, error) {
	const prefix = "llm_canary_gpu_"
	b := newBuilder()
	each(families, prefix+"up", func(l map[string]string, v nvml.Value) {
		if g := b.gpu(l["uuid"]); g != nil {
			g.Index = indexOf(l["gpu"])
			if v.Or(1) == 0 {
				g.Lost = "lost"
			}
		}
	})
	each(families, prefix+"info", func(l map[string]string, _ nvml.Value) {
		b.driver = nvml.Driver{Version: l["driver_version"], CUDA: l["cuda_version"]}
		if g := b.byUUID[l["uuid"]]; g != nil {
			g.Name, g.PCIBusID = l["name"], l["pci_bus_id"]
		}
	})
	b.apply(families, gpuRules(prefix), func(l map[string]string) *nvml.Sample { return b.byUUID[l["uuid"]] })
	if up, ok := first(families, "llm_canary_nvml_up").Get(); ok && up == 0 && len(b.byUUID) == 0 {
		return nvml.Snapshot{}, errors.New("the exporter there cannot read its GPUs (llm_canary_nvml_up is 0)")
	}
	return b.snapshot(), nil
}

// first returns the figure of the first series of a family.
func first(families map[string]*dto.MetricFamily, name string) nvml.Value {
	for _, m := range families[name].GetMetric() {
		return number(m)
	}
	return nvml.Value{}
}

const mib = 1 << 20

// readDCGM reads the families of dcgm-exporter: memory in MiB, energy in mJ, percent,
// MHz. A GPU in MIG mode has one series for each GPU instance under the GPU's UUID.
func readDCGM(families map[string]*dto.MetricFamily) (nvml.Snapshot, error) {
	b := newBuilder()
	rules := map[string]rule{
		"DCGM_FI_DEV_FB_TOTAL":                 {mib, func(g *nvml.Sample) *nvml.Value { return &g.Memory.Total }},
		"DCGM_FI_DEV_FB_USED":                  {mib, func(g *nvml.Sample) *nvml.Value { return &g.Memory.Used }},
		"DCGM_FI_DEV_FB_FREE":                  {mib, func(g *nvml.Sample) *nvml.Value { return &g.Memory.Free }},
		"DCGM_FI_DEV_FB_RESERVED":              {mib, func(g *nvml.Sample) *nvml.Value { return &g.Memory.Reserved }},
		"DCGM_FI_DEV_GPU_UTIL":                 {0.01, func(g *nvml.Sample) *nvml.Value { return &g.Utilization }},
		"DCGM_FI_DEV_MEM_COPY_UTIL":            {0.01, func(g *nvml.Sample) *nvml.Value { return &g.MemoryUtilization }},
		"DCGM_FI_PROF_GR_ENGINE_ACTIVE":        {1, func(g *nvml.Sample) *nvml.Value { return &g.Activity.Graphics }},
		"DCGM_FI_PROF_SM_ACTIVE":               {1, func(g *nvml.Sample) *nvml.Value { return &g.Activity.SM }},
		"DCGM_FI_PROF_SM_OCCUPANCY":            {1, func(g *nvml.Sample) *nvml.Value { return &g.Activity.SMOccupancy }},
		"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE":      {1, func(g *nvml.Sample) *nvml.Value { return &g.Activity.Tensor }},
		"DCGM_FI_PROF_DRAM_ACTIVE":             {1, func(g *nvml.Sample) *nvml.Value { return &g.Activity.DRAM }},
		"DCGM_FI_DEV_POWER_USAGE":              {1, func(g *nvml.Sample) *nvml.Value { return &g.PowerWatts }},
		"DCGM_FI_DEV_POWER_MGMT_LIMIT":         {1, func(g *nvml.Sample) *nvml.Value { return &g.PowerLimitWatts }},
		"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": {1e-3, func(g *nvml.Sample) *nvml.Value { return &g.EnergyJoules }},
		"DCGM_FI_DEV_GPU_TEMP":                 {1, func(g *nvml.Sample) *nvml.Value { return &g.TemperatureCelsius }},
		"DCGM_FI_DEV_MEMORY_TEMP":              {1, func(g *nvml.Sample) *nvml.Value { return &g.MemoryTemperatureCelsius }},
		"DCGM_FI_DEV_SM_CLOCK":                 {1e6, func(g *nvml.Sample) *nvml.Value { return &g.SMClockHertz }},
		"DCGM_FI_DEV_MEM_CLOCK":                {1e6, func(g *nvml.Sample) *nvml.Value { return &g.MemoryClockHertz }},
		"DCGM_FI_DEV_PCIE_REPLAY_COUNTER":      {1, func(g *nvml.Sample) *nvml.Value { return &g.PCIeReplays }},
	}
	b.apply(families, rules, func(l map[string]string) *nvml.Sample {
		g := b.gpu(l["UUID"])
		if g == nil {
			return nil
		}
		g.Index, g.Name = indexOf(l["gpu"]), l["modelName"]
		g.PCIBusID = l["pci_bus_id"]
		if v := l["DCGM_FI_DRIVER_VERSION"]; v != "" {
			b.driver.Version = v
		}
		if l["GPU_I_ID"] != "" {
			g.MIGEnabled = true
			return nil // a figure of a GPU instance: below
		}
		return g
	})
	b.applyMIG(families, map[string]setter{
		"DCGM_FI_DEV_FB_TOTAL":            {mib, func(m *nvml.MIGInstance) *nvml.Value { return &m.Memory.Total }},
		"DCGM_FI_DEV_FB_USED":             {mib, func(m *nvml.MIGInstance) *nvml.Value { return &m.Memory.Used }},
		"DCGM_FI_DEV_FB_FREE":             {mib, func(m *nvml.MIGInstance) *nvml.Value { return &m.Memory.Free }},
		"DCGM_FI_PROF_GR_ENGINE_ACTIVE":   {1, func(m *nvml.MIGInstance) *nvml.Value { return &m.Activity.Graphics }},
		"DCGM_FI_PROF_SM_ACTIVE":          {1, func(m *nvml.MIGInstance) *nvml.Value { return &m.Activity.SM }},
		"DCGM_FI_PROF_SM_OCCUPANCY":       {1, func(m *nvml.MIGInstance) *nvml.Value { return &m.Activity.SMOccupancy }},
		"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": {1, func(m *nvml.MIGInstance) *nvml.Value { return &m.Activity.Tensor }},
		"DCGM_FI_PROF_DRAM_ACTIVE":        {1, func(m *nvml.MIGInstance) *nvml.Value { return &m.Activity.DRAM }},
	})
	snap := b.snapshot()
	for i := range snap.GPUs {
		fillDCGM(&snap.GPUs[i])
	}
	return snap, nil
}

// fillDCGM completes a GPU. Without a total, used and free (and reserved) make one;
// the memory of a GPU in MIG mode is the sum over its GPU instances.
func fillDCGM(g *nvml.Sample) {
	if g.MIGEnabled {
		g.Utilization, g.MemoryUtilization = nvml.Value{}, nvml.Value{}
		var sum float64
		all := len(g.MIG) > 0
		for i := range g.MIG {
			used, ok := g.MIG[i].Memory.Used.Get()
			all = all && ok
			sum += used
			fillTotal(&g.MIG[i].Memory)
		}
		if all && !g.Memory.Used.Valid() {
			g.Memory.Used = nvml.Of(sum)
		}
	}
	fillTotal(&g.Memory)
}

func fillTotal(m *nvml.Memory) {
	used, ok := m.Used.Get()
	free, ok2 := m.Free.Get()
	if !m.Total.Valid() && ok && ok2 {
		m.Total = nvml.Of(used + free + m.Reserved.Or(0))
	}
}

// readSMI reads the families of nvidia_gpu_exporter. Its UUIDs lack "GPU-".
func readSMI(families map[string]*dto.MetricFamily) (nvml.Snapshot, error) {
	const prefix = "nvidia_smi_"
	b := newBuilder()
	each(families, prefix+"gpu_info", func(l map[string]string, _ nvml.Value) {
		g := b.gpu(withPrefix(l["uuid"]))
		if g == nil {
			return
		}
		g.Name, g.PCIBusID = l["name"], l["pci_bus_id"]
		if l["index"] != "" {
			g.Index = indexOf(l["index"])
		}
		b.driver = nvml.Driver{Version: l["driver_version"], CUDA: l["cuda_version"]}
	})
	each(families, prefix+"index", func(l map[string]string, v nvml.Value) {
		if g := b.gpu(withPrefix(l["uuid"])); g != nil {
			g.Index = indexOf(strconv.FormatFloat(v.Or(-1), 'f', -1, 64))
		}
	})
	each(families, prefix+"mig_mode_current", func(l map[string]string, v nvml.Value) {
		if g := b.gpu(withPrefix(l["uuid"])); g != nil {
			g.MIGEnabled = v.Or(0) == 1
		}
	})
	b.apply(families, map[string]rule{
		prefix + "memory_total_bytes":               {1, func(g *nvml.Sample) *nvml.Value { return &g.Memory.Total }},
		prefix + "memory_used_bytes":                {1, func(g *nvml.Sample) *nvml.Value { return &g.Memory.Used }},
		prefix + "memory_free_bytes":                {1, func(g *nvml.Sample) *nvml.Value { return &g.Memory.Free }},
		prefix + "memory_reserved_bytes":            {1, func(g *nvml.Sample) *nvml.Value { return &g.Memory.Reserved }},
		prefix + "utilization_gpu_ratio":            {1, func(g *nvml.Sample) *nvml.Value { return &g.Utilization }},
		prefix + "utilization_memory_ratio":         {1, func(g *nvml.Sample) *nvml.Value { return &g.MemoryUtilization }},
		prefix + "power_draw_watts":                 {1, func(g *nvml.Sample) *nvml.Value { return &g.PowerWatts }},
		prefix + "enforced_power_limit_watts":       {1, func(g *nvml.Sample) *nvml.Value { return &g.PowerLimitWatts }},
		prefix + "energy_joules_total":              {1, func(g *nvml.Sample) *nvml.Value { return &g.EnergyJoules }},
		prefix + "temperature_gpu":                  {1, func(g *nvml.Sample) *nvml.Value { return &g.TemperatureCelsius }},
		prefix + "temperature_memory":               {1, func(g *nvml.Sample) *nvml.Value { return &g.MemoryTemperatureCelsius }},
		prefix + "clocks_current_graphics_clock_hz": {1, func(g *nvml.Sample) *nvml.Value { return &g.GraphicsClockHertz }},
		prefix + "clocks_current_sm_clock_hz":       {1, func(g *nvml.Sample) *nvml.Value { return &g.SMClockHertz }},
		prefix + "clocks_current_memory_clock_hz":   {1, func(g *nvml.Sample) *nvml.Value { return &g.MemoryClockHertz }},
		prefix + "gpu_recovery_action":              {1, func(g *nvml.Sample) *nvml.Value { return &g.RecoveryAction }},
	}, func(l map[string]string) *nvml.Sample { return b.gpu(withPrefix(l["uuid"])) })
	snap := b.snapshot()
	for i := range snap.GPUs {
		if snap.GPUs[i].MIGEnabled {
			snap.GPUs[i].Utilization, snap.GPUs[i].MemoryUtilization = nvml.Value{}, nvml.Value{}
		}
	}
	return snap, nil
}

func withPrefix(uuid string) string {
	if uuid == "" || strings.HasPrefix(uuid, "GPU-") {
		return uuid
	}
	return "GPU-" + uuid
}

// each calls f for every series of a family.
func each(families map[string]*dto.MetricFamily, name string, f func(l map[string]string, v nvml.Value)) {
	for _, m := range families[name].GetMetric() {
		f(labels(m), number(m))
	}
}

// apply puts the figures of families into the samples that of names; the first series
// of a GPU wins (dcgm-exporter repeats a GPU for each pod that shares it).
func (b *builder) apply(families map[string]*dto.MetricFamily, rules map[string]rule, of func(l map[string]string) *nvml.Sample) {
	for name, r := range rules {
		each(families, name, func(l map[string]string, v nvml.Value) {
			if g := of(l); g != nil {
				put(r.to(g), v, r.scale)
			}
		})
	}
}

// applyMIG puts the figures of series that belong to a GPU instance.
func (b *builder) applyMIG(families map[string]*dto.MetricFamily, rules map[string]setter) {
	for name, r := range rules {
		each(families, name, func(l map[string]string, v nvml.Value) {
			id, err := strconv.Atoi(l["GPU_I_ID"])
			g := b.byUUID[l["UUID"]]
			if err != nil || id < 0 || g == nil {
				return
			}
			if m := instance(g, id, l["GPU_I_PROFILE"]); m != nil {
				put(r.to(m), v, r.scale)
			}
		})
	}
}

// maxInstances bounds the GPU instances of one GPU.
const maxInstances = 16

func instance(g *nvml.Sample, id int, profile string) *nvml.MIGInstance {
	for i := range g.MIG {
		if g.MIG[i].GPUInstance == id {
			return &g.MIG[i]
		}
	}
	if len(g.MIG) == maxInstances {
		return nil
	}
	g.MIG = append(g.MIG, nvml.MIGInstance{GPUInstance: id, Profile: profile})
	return &g.MIG[len(g.MIG)-1]
}

func put(to *nvml.Value, v nvml.Value, scale float64) {
	if f, ok := v.Get(); ok && !to.Valid() {
		*to = nvml.Of(f * scale)
	}
}

// indexOf reads an index; -1 if it is none.
func indexOf(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return -1
	}
	return n
}
