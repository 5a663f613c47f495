package nvml

import "fmt"

// Reason says why no GPU could be read: a closed list, fit for a label.
type Reason string

// The reasons of a [DownError], and of a failed cycle in [State].
const (
	ReasonNotBuiltIn      Reason = "not_built_in"      // no cgo, or not Linux
	ReasonLibraryMissing  Reason = "library_not_found" // libnvidia-ml.so.1 cannot be opened
	ReasonLibraryUnusable Reason = "library_unusable"  // opened, but lacks the base functions
	ReasonDriverMissing   Reason = "driver_not_loaded"
	ReasonVersionMismatch Reason = "version_mismatch" // library and kernel driver differ
	ReasonNoPermission    Reason = "no_permission"
	ReasonNoGPU           Reason = "no_gpu"
	ReasonTimeout         Reason = "timeout" // a call did not return in time
	ReasonRemote          Reason = "remote"  // the page of the other host cannot be read
	ReasonUnknown         Reason = "unknown"
)

// Reasons returns all reasons, in a fixed order.
func Reasons() []Reason {
	return []Reason{
		ReasonNotBuiltIn, ReasonLibraryMissing, ReasonLibraryUnusable, ReasonDriverMissing,
		ReasonVersionMismatch, ReasonNoPermission, ReasonNoGPU, ReasonTimeout,
		ReasonRemote, ReasonUnknown,
	}
}

// DownError says that a Source can read no GPU at all, and what to do.
type DownError struct {
	Reason Reason
	Detail string // what was tried and what came back
	Hint   string // what to do about it
}

// Error implements error.
func (e *DownError) Error() string {
	if e.Hint == "" {
		return fmt.Sprintf("no GPU figures (%s): %s", e.Reason, e.Detail)
	}
	return fmt.Sprintf("no GPU figures (%s): %s; %s", e.Reason, e.Detail, e.Hint)
}

// Code is a return code of NVML. The names are ours: asking the driver for its own
// text is one more call into a library that may be the problem.
type Code int

// The codes that this package treats by name.
const (
	codeSuccess          Code = 0
	codeUninitialized    Code = 1
	codeInvalidArgument  Code = 2
	codeNotSupported     Code = 3
	codeNoPermission     Code = 4
	codeNotFound         Code = 6
	codeInsufficientSize Code = 7
	codeDriverNotLoaded  Code = 9
	codeTimeout          Code = 10
	codeIRQIssue         Code = 11
	codeLibraryNotFound  Code = 12
	codeFunctionNotFound Code = 13
	codeGPULost          Code = 15
	codeResetRequired    Code = 16
	codeOperatingSystem  Code = 17
	codeVersionMismatch  Code = 18
	codeInUse            Code = 19
	codeMemory           Code = 20
	codeNoData           Code = 21
	codeArgumentVersion  Code = 25
	codeDeprecated       Code = 26
	codeNotReady         Code = 27
	codeGPUNotFound      Code = 28
	codeUnknown          Code = 999
)

// String returns the name of the code in lower case, or "code_<n>".
func (c Code) String() string {
	switch c {
	case codeSuccess:
		return "success"
	case codeUninitialized:
		return "uninitialized"
	case codeInvalidArgument:
		return "invalid_argument"
	case codeNotSupported:
		return "not_supported"
	case codeNoPermission:
		return "no_permission"
	case codeNotFound:
		return "not_found"
	case codeInsufficientSize:
		return "insufficient_size"
	case codeDriverNotLoaded:
		return "driver_not_loaded"
	case codeTimeout:
		return "timeout"
	case codeIRQIssue:
		return "irq_issue"
	case codeLibraryNotFound:
		return "library_not_found"
	case codeFunctionNotFound:
		return "function_not_found"
	case codeGPULost:
		return "gpu_is_lost"
	case codeResetRequired:
		return "reset_required"
	case codeOperatingSystem:
		return "operating_system"
	case codeVersionMismatch:
		return "lib_rm_version_mismatch"
	case codeInUse:
		return "in_use"
	case codeMemory:
		return "memory"
	case codeNoData:
		return "no_data"
	case codeArgumentVersion:
		return "argument_version_mismatch"
	case codeDeprecated:
		return "deprecated"
	case codeNotReady:
		return "not_ready"
	case codeGPUNotFound:
		return "gpu_not_found"
	case codeUnknown:
		return "unknown"
	}
	return fmt.Sprintf("code_%d", int(c))
}

// class says how far a return code reaches.
type class int

const (
	classOK        class = iota
	classAbsent          // this figure is not there; ask again next time
	classNever           // this figure will not be there: stop asking
	classTransient       // skip it in this cycle
	classLost            // this GPU is gone
	classDown            // the library or the driver is gone
)

func (c Code) class() class {
	switch c {
	case codeSuccess:
		return classOK
	case codeNotSupported, codeFunctionNotFound, codeDeprecated, codeArgumentVersion:
		return classNever
	case codeNotFound, codeNoData, codeNotReady, codeInvalidArgument, codeNoPermission:
		return classAbsent
	case codeGPULost, codeGPUNotFound, codeResetRequired, codeIRQIssue:
		return classLost
	case codeUninitialized, codeDriverNotLoaded, codeVersionMismatch, codeOperatingSystem, codeLibraryNotFound:
		return classDown
	}
	return classTransient
}

// downError turns a code that concerns the whole driver into an error with advice.
func downError(op string, c Code) *DownError {
	e := &DownError{Detail: fmt.Sprintf("%s returned %s (%d)", op, c, int(c))}
	switch c {
	case codeLibraryNotFound:
		e.Reason = ReasonLibraryMissing
		e.Hint = hintLibrary
	case codeDriverNotLoaded:
		e.Reason = ReasonDriverMissing
		e.Hint = "load the NVIDIA kernel driver (does nvidia-smi work on the host?); it is tried again"
	case codeVersionMismatch:
		e.Reason = ReasonVersionMismatch
		e.Hint = "the driver was upgraded while the old one is in use: reload the kernel module or reboot, then restart this process (in a container: the pod), which keeps the old library until then"
	case codeNoPermission, codeOperatingSystem:
		e.Reason = ReasonNoPermission
		e.Hint = "give this process access to /dev/nvidiactl and /dev/nvidia* (in a container: the NVIDIA runtime; after a systemd daemon-reload: restart the container)"
	case codeGPUNotFound:
		e.Reason = ReasonNoGPU
		e.Hint = "the driver sees no GPU; it is tried again"
	case codeTimeout:
		e.Reason = ReasonTimeout
	default:
		e.Reason = ReasonUnknown
		e.Hint = "does nvidia-smi work here? In a container, \"unknown\" after a systemd daemon-reload means that device access was taken away: restart the container"
	}
	return e
}

const hintLibrary = "install the NVIDIA driver, or in a container use the NVIDIA runtime (runtimeClassName: nvidia, NVIDIA_DRIVER_CAPABILITIES=utility); without a GPU on this host turn the GPU reading off; it is tried again"
