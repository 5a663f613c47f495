package nvml

import (
	"context"
	"time"
)

// MaxGPUs is the most GPUs that a Snapshot may hold. A Sampler ignores the rest,
// so that no page of a remote host can make it grow.
const MaxGPUs = 64

// Source delivers the figures of the GPUs of one host.
//
// Sample must not be called concurrently with itself. It returns an error only
// when nothing can be said about any GPU; a [DownError] says what to do about it. The
// Snapshot belongs to the caller: no slice in it is used again.
// Close releases what the Source holds; it is called once, after the last Sample.
type Source interface {
	Sample(ctx context.Context) (Snapshot, error)
	Close() error
}

// Value is a figure that may be absent. The zero Value is absent.
type Value struct {
	v  float64
	ok bool
}

// Of returns a present Value.
func Of(v float64) Value { return Value{v: v, ok: true} }

// Get returns the figure and whether there is one.
func (v Value) Get() (float64, bool) { return v.v, v.ok }

// Valid reports whether there is a figure.
func (v Value) Valid() bool { return v.ok }

// Or returns the figure, or def where there is none.
func (v Value) Or(def float64) float64 {
	if v.ok {
		return v.v
	}
	return def
}

// scaled returns v times f; absent stays absent.
func (v Value) scaled(f float64) Value {
	v.v *= f
	return v
}

// Driver names the software that the figures come from. Empty fields are unknown.
type Driver struct {
	Version string // of the kernel driver, "590.48.01"
	CUDA    string // highest CUDA version that the driver serves, "13.1"
	NVML    string // of the NVML library, "13.590.48.01"
}

// GPU identifies one physical GPU.
type GPU struct {
	// Index is the driver's enumeration index; -1 if the source does not tell.
	// It may change at a reboot and differs from the CUDA ordinal: UUID is the key.
	Index int
	UUID  string
	Name  string
	// PCIBusID is "00000000:83:00.0"; empty if unknown.
	PCIBusID string
}

// Snapshot is what one cycle found. One that was published is not changed any more.
type Snapshot struct {
	Time   time.Time
	Driver Driver
	GPUs   []Sample
}

// Sample is one GPU at one moment. Absent Values were not available on this chip,
// with this driver or in this cycle.
type Sample struct {
	GPU
	// Lost says why the GPU could not be read ("gpu_is_lost", …); empty if it
	// was read. A lost GPU has an identity and its Xids, and no figures.
	Lost string

	Memory Memory
	// Utilization is the share of the driver's last 1/6 to 1 s in which at least
	// one kernel ran; MemoryUtilization the share in which device memory was read
	// or written. Ratios. Absent in MIG mode.
	Utilization, MemoryUtilization Value
	// Activity comes from GPM (Hopper and newer).
	Activity Activity

	PowerWatts, PowerLimitWatts Value
	EnergyJoules                Value // counter since the driver was loaded
	TemperatureCelsius          Value
	MemoryTemperatureCelsius    Value
	GraphicsClockHertz          Value
	SMClockHertz                Value
	MemoryClockHertz            Value
	// ClockEventReasons is a bit mask, see [ClockEventReasons].
	ClockEventReasons Value

	ECC          ECC
	RemappedRows RemappedRows
	// RecoveryAction is what the driver wants done: 0 nothing, 1 GPU reset,
	// 2 reboot, 3 drain peer-to-peer, 4 drain and reset.
	RecoveryAction Value

	// Byte counters; PCIe ones are counted on from wraps of the driver's.
	PCIeTransmitBytes, PCIeReceiveBytes     Value
	PCIeReplays                             Value
	NVLinkTransmitBytes, NVLinkReceiveBytes Value

	// XidsWatched says that Xid events of this GPU are being received.
	XidsWatched bool
	Xids        []Xid

	// Processes is nil unless per-process memory was asked for.
	Processes []Process

	MIGEnabled bool
	MIG        []MIGInstance
}

// Memory is device memory in bytes. Used does not hold Reserved where Reserved is
// present; where it is absent the driver counts the reserved bytes as used.
type Memory struct {
	Total, Used, Free, Reserved Value
}

// Activity holds ratios averaged over the time between two samples.
type Activity struct {
	Graphics    Value // any engine busy
	SM          Value // streaming multiprocessors with work
	SMOccupancy Value // resident warps ÷ possible warps
	Tensor      Value // any tensor pipe busy
	DRAM        Value // device memory bandwidth used ÷ peak
	Seconds     float64
}

// ECC counts memory errors. Volatile ones since the driver was loaded, aggregate
// ones over the life of the GPU.
type ECC struct {
	CorrectedVolatile, UncorrectedVolatile   Value
	CorrectedAggregate, UncorrectedAggregate Value
}

// RemappedRows counts rows of device memory replaced by spare ones. Pending and
// Failure are 0 or 1: a reset is needed for a remap; a remap failed.
type RemappedRows struct {
	Correctable, Uncorrectable, Pending, Failure Value
}

// Xid counts the error events of one code since the process started.
type Xid struct {
	Code  uint64 // 0 stands for codes beyond the number that is kept apart
	Count uint64
	Last  time.Time // zero if Count is 0
}

// Process is a compute process on a GPU.
type Process struct {
	PID int
	// Name is the command's short name from /proc; empty if not visible.
	Name            string
	MemoryUsedBytes Value
	// GPUInstance is the MIG GPU instance id; -1 if none.
	GPUInstance int
}

// whole stands for a whole GPU where otherwise a GPU instance id stands.
const whole = -1

// MIGInstance is one GPU instance of a GPU in MIG mode. Memory belongs to the GPU
// instance, not to the compute instances inside it.
type MIGInstance struct {
	GPUInstance int
	// Profile is "3g.40gb"; empty if unknown.
	Profile string
	// UUIDs are those of the MIG devices (compute instances) inside.
	UUIDs    []string
	Memory   Memory
	Activity Activity
}

// ClockEventReason is one reason for which the clocks are not at their maximum.
type ClockEventReason struct {
	Bit  uint64
	Name string
}

// ClockEventReasons returns the closed list of reasons, in the order of their bits.
func ClockEventReasons() []ClockEventReason {
	return []ClockEventReason{
		{0x1, "gpu_idle"},
		{0x2, "applications_clocks_setting"},
		{0x4, "sw_power_cap"},
		{0x8, "hw_slowdown"},
		{0x10, "sync_boost"},
		{0x20, "sw_thermal_slowdown"},
		{0x40, "hw_thermal_slowdown"},
		{0x80, "hw_power_brake_slowdown"},
		{0x100, "display_clock_setting"},
		{0x200, "board_limit"},
		{0x400, "reliability"},
	}
}
