//go:build linux && cgo

package nvml

import (
	"math"
	"slices"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// device is one GPU within a generation.
type device struct {
	c   *calls
	h   gonvml.Device
	gpu GPU

	// lost is the code with which the GPU went away; success while it is there.
	lost Code
	// down is a code of the current cycle that concerns the whole driver.
	down Code
	// reads counts the figures that the current cycle obtained.
	reads int
	// failed is the last transient code of the current cycle.
	failed Code

	// never holds the figures that this GPU does not have; it is emptied now and
	// then because a change of MIG mode changes what there is.
	never      map[string]bool
	neverSince time.Time

	slow   Sample // the figures of the last slow reading
	mig    []migInstance
	fields fieldReader
	gpm    map[int]*gpmReader // by GPU instance; whole is the key of the whole GPU
}

// forgetNeverAfter is how long a figure that is not supported is not asked for.
const forgetNeverAfter = 10 * time.Minute

// openDevice gets the handle at index i and reads its identity.
func openDevice(c *calls, i int) (*device, Code) {
	h, code := c.device(i)
	if code != codeSuccess {
		return nil, code
	}
	d := &device{c: c, h: h, gpm: map[int]*gpmReader{}, neverSince: time.Now(), never: map[string]bool{}}
	uuid, code := call(c, h.GetUUID, symUUID)
	if code != codeSuccess {
		return nil, code
	}
	if uuid == "" {
		return nil, codeNoData
	}
	d.gpu = GPU{Index: i, UUID: uuid}
	d.gpu.Name, _ = call(c, h.GetName, symName)
	if pci, code := call(c, h.GetPciInfo, symPCIInfo); code == codeSuccess {
		d.gpu.PCIBusID = cString(pci.BusId[:])
	}
	return d, codeSuccess
}

func cString(b []int8) string {
	out := make([]byte, 0, len(b))
	for _, c := range b {
		if c == 0 {
			break
		}
		out = append(out, byte(c))
	}
	return string(out)
}

// close frees what the device holds in the driver.
func (d *device) close() {
	for _, g := range d.gpm {
		g.close()
	}
	clear(d.gpm)
}

// ask runs one driver call for the figure called name and books what came back. It
// makes no call once the GPU or the driver is known to be gone in this cycle, or
// if the figure is known not to exist.
func ask[T any](d *device, name string, f func() (T, gonvml.Return), syms ...string) (T, bool) {
	var none T
	if d.gone() || d.never[name] {
		return none, false
	}
	v, code := call(d.c, f, syms...)
	return v, d.book(name, code)
}

// gone reports whether the GPU or the driver went away, so that no call is due.
func (d *device) gone() bool { return d.lost != codeSuccess || d.down != codeSuccess }

// book notes what a return code means for the device and says whether the value
// that came with it counts.
func (d *device) book(name string, code Code) bool {
	switch code.class() {
	case classOK:
		d.reads++
		return true
	case classNever:
		d.never[name] = true
	case classTransient:
		d.failed = code
	case classLost:
		d.lost = code
	case classDown:
		d.down = code
	case classAbsent:
	}
	return false
}

// numeric is ask for calls that return a number, scaled to the base unit.
func numeric[N ~uint32 | ~uint64 | ~int32](d *device, name string, scale float64, f func() (N, gonvml.Return), syms ...string) Value {
	v, ok := ask(d, name, f, syms...)
	// The largest number of the type stands for "not known".
	if !ok || v == ^N(0) {
		return Value{}
	}
	return Of(float64(v) * scale)
}

// sample reads the GPU once. The code is that of a fault of the whole driver.
func (d *device) sample(l *local, slow bool) (Sample, Code) {
	d.reads, d.failed, d.down = 0, codeSuccess, codeSuccess
	if d.lost == codeSuccess {
		if time.Since(d.neverSince) > forgetNeverAfter {
			d.forgetNever()
		}
		if slow {
			d.readSlow(l.opts)
		}
	}
	s := d.slow
	s.Processes = slices.Clone(d.slow.Processes) // the caller owns what it gets
	s.GPU = d.gpu
	if d.lost == codeSuccess {
		d.readFast(l, &s)
	}
	switch {
	case d.down != codeSuccess:
		return Sample{}, d.down
	case d.lost != codeSuccess:
		return Sample{GPU: d.gpu, Lost: d.lost.String()}, codeSuccess
	case d.reads == 0:
		// Nothing at all could be read: not lost by its own word, but as good as.
		return Sample{GPU: d.gpu, Lost: d.failed.orUnreadable()}, codeSuccess
	}
	return s, codeSuccess
}

func (c Code) orUnreadable() string {
	if c == codeSuccess {
		return "unreadable"
	}
	return c.String()
}

func (d *device) forgetNever() {
	clear(d.never)
	d.fields = fieldReader{}
	d.neverSince = time.Now()
}

// readFast reads what a request can change within its own time.
func (d *device) readFast(l *local, s *Sample) {
	s.Memory = d.memory(d.h, whole)
	if !s.MIGEnabled { // in MIG mode drivers report nothing or zeros
		if u, ok := ask(d, "utilization", d.h.GetUtilizationRates, symUtilization); ok {
			s.Utilization = Of(float64(u.Gpu)).scaled(0.01)
			s.MemoryUtilization = Of(float64(u.Memory)).scaled(0.01)
		}
	}
	s.PowerWatts = numeric(d, "power", 1e-3, d.h.GetPowerUsage, symPower)
	s.EnergyJoules = numeric(d, "energy", 1e-3, d.h.GetTotalEnergyConsumption, symEnergy)
	s.TemperatureCelsius = d.temperature()
	s.GraphicsClockHertz = d.clock("graphics", gonvml.CLOCK_GRAPHICS)
	s.SMClockHertz = d.clock("sm", gonvml.CLOCK_SM)
	s.MemoryClockHertz = d.clock("mem", gonvml.CLOCK_MEM)
	s.ClockEventReasons = d.clockEventReasons()
	d.fields.read(d, l.wraps, s)
	d.readMIG(s)
	d.readGPM(s)
}

// readSlow reads what changes rarely.
func (d *device) readSlow(o LocalOptions) {
	var s Sample
	s.PowerLimitWatts = numeric(d, "power limit", 1e-3, d.h.GetEnforcedPowerLimit, symPowerLimit)
	s.ECC = d.ecc()
	s.RemappedRows = d.remappedRows()
	s.MIGEnabled = d.migEnabled()
	if s.MIGEnabled != d.slow.MIGEnabled {
		d.forgetNever()
	}
	d.enumerateMIG(s.MIGEnabled)
	if o.Processes {
		s.Processes = d.processes(o.ProcRoot)
	}
	d.slow = s
}

// memory reads device memory. Version 2 of the call keeps what the driver reserves
// apart; whether it counts it as used as well differs, so the sum decides.
func (d *device) memory(h gonvml.Device, key int) Memory {
	name := "memory" + instanceSuffix(key)
	if m, ok := ask(d, name+" v2", h.GetMemoryInfo_v2, symMemoryV2); ok {
		return splitMemory(m.Total, m.Used, m.Free, m.Reserved)
	}
	if m, ok := ask(d, name, h.GetMemoryInfo, symMemory); ok {
		return Memory{Total: bytesOf(m.Total), Used: bytesOf(m.Used), Free: bytesOf(m.Free)}
	}
	return Memory{}
}

func (d *device) temperature() Value {
	t, ok := ask(d, "temperature v", d.h.GetTemperatureV().V1, symTemperatureV)
	if ok {
		return Of(float64(t.Temperature))
	}
	return numeric(d, "temperature", 1, func() (uint32, gonvml.Return) {
		return d.h.GetTemperature(gonvml.TEMPERATURE_GPU)
	}, symTemperature)
}

func (d *device) clock(name string, t gonvml.ClockType) Value {
	return numeric(d, "clock "+name, 1e6, func() (uint32, gonvml.Return) { return d.h.GetClockInfo(t) }, symClock)
}

// clockEventReasons prefers the new name of the call; drivers before 535 have the
// old one only.
func (d *device) clockEventReasons() Value {
	if d.c.has(symEventReasons) {
		return numeric(d, "clock event reasons", 1, d.h.GetCurrentClocksEventReasons, symEventReasons)
	}
	return numeric(d, "clock event reasons", 1, d.h.GetCurrentClocksThrottleReasons, symThrottleReasons)
}

func (d *device) ecc() ECC {
	read := func(name string, t gonvml.MemoryErrorType, c gonvml.EccCounterType) Value {
		return numeric(d, "ecc "+name, 1, func() (uint64, gonvml.Return) { return d.h.GetTotalEccErrors(t, c) }, symECC)
	}
	return ECC{
		CorrectedVolatile:    read("corrected volatile", gonvml.MEMORY_ERROR_TYPE_CORRECTED, gonvml.VOLATILE_ECC),
		UncorrectedVolatile:  read("uncorrected volatile", gonvml.MEMORY_ERROR_TYPE_UNCORRECTED, gonvml.VOLATILE_ECC),
		CorrectedAggregate:   read("corrected aggregate", gonvml.MEMORY_ERROR_TYPE_CORRECTED, gonvml.AGGREGATE_ECC),
		UncorrectedAggregate: read("uncorrected aggregate", gonvml.MEMORY_ERROR_TYPE_UNCORRECTED, gonvml.AGGREGATE_ECC),
	}
}

func (d *device) remappedRows() RemappedRows {
	type rows struct {
		corrected, uncorrected int
		pending, failure       bool
	}
	r, ok := ask(d, "remapped rows", func() (rows, gonvml.Return) {
		c, u, p, f, ret := d.h.GetRemappedRows()
		return rows{c, u, p, f}, ret
	}, symRemappedRows)
	if !ok {
		return RemappedRows{}
	}
	return RemappedRows{
		Correctable:   Of(float64(r.corrected)),
		Uncorrectable: Of(float64(r.uncorrected)),
		Pending:       flag(r.pending),
		Failure:       flag(r.failure),
	}
}

func flag(b bool) Value {
	if b {
		return Of(1)
	}
	return Of(0)
}

// bytesOf treats the largest number, which stands for "not known", as absent.
func bytesOf(n uint64) Value {
	if n == math.MaxUint64 {
		return Value{}
	}
	return Of(float64(n))
}
