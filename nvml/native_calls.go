//go:build linux && cgo

package nvml

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// calls is the one place that calls go-nvml.
//
// go-nvml leaves the C symbols undefined in the binary and the linker binds them at
// the first call: calling one that this driver does not export ends the process
// (exit 127, no panic to recover). So each symbol is looked up when the library is
// opened, and a call whose symbol is missing answers FUNCTION_NOT_FOUND by itself.
// go-nvml's Return.Error and Return.String call the driver too: codes are converted
// to [Code] at once and never printed as they are.
type calls struct {
	lib  gonvml.Interface
	have map[string]bool
}

// The C functions that this package can reach through go-nvml. Where go-nvml picks
// among versions by itself, one of them suffices.
const (
	symInit                = "nvmlInit_v2"
	symShutdown            = "nvmlShutdown"
	symCount               = "nvmlDeviceGetCount_v2"
	symHandle              = "nvmlDeviceGetHandleByIndex_v2"
	symDriverVersion       = "nvmlSystemGetDriverVersion"
	symNVMLVersion         = "nvmlSystemGetNVMLVersion"
	symCudaVersion         = "nvmlSystemGetCudaDriverVersion"
	symUUID                = "nvmlDeviceGetUUID"
	symName                = "nvmlDeviceGetName"
	symPCIInfo             = "nvmlDeviceGetPciInfo_v3"
	symMemory              = "nvmlDeviceGetMemoryInfo"
	symMemoryV2            = "nvmlDeviceGetMemoryInfo_v2"
	symUtilization         = "nvmlDeviceGetUtilizationRates"
	symTemperature         = "nvmlDeviceGetTemperature"
	symTemperatureV        = "nvmlDeviceGetTemperatureV"
	symPower               = "nvmlDeviceGetPowerUsage"
	symPowerLimit          = "nvmlDeviceGetEnforcedPowerLimit"
	symEnergy              = "nvmlDeviceGetTotalEnergyConsumption"
	symClock               = "nvmlDeviceGetClockInfo"
	symEventReasons        = "nvmlDeviceGetCurrentClocksEventReasons"
	symThrottleReasons     = "nvmlDeviceGetCurrentClocksThrottleReasons"
	symECC                 = "nvmlDeviceGetTotalEccErrors"
	symRemappedRows        = "nvmlDeviceGetRemappedRows"
	symProcesses           = "nvmlDeviceGetComputeRunningProcesses"
	symProcessesV2         = "nvmlDeviceGetComputeRunningProcesses_v2"
	symProcessesV3         = "nvmlDeviceGetComputeRunningProcesses_v3"
	symMIGMode             = "nvmlDeviceGetMigMode"
	symMIGCount            = "nvmlDeviceGetMaxMigDeviceCount"
	symMIGHandle           = "nvmlDeviceGetMigDeviceHandleByIndex"
	symGPUInstance         = "nvmlDeviceGetGpuInstanceId"
	symFieldValues         = "nvmlDeviceGetFieldValues"
	symGPMSupport          = "nvmlGpmQueryDeviceSupport"
	symGPMAlloc            = "nvmlGpmSampleAlloc"
	symGPMFree             = "nvmlGpmSampleFree"
	symGPMSample           = "nvmlGpmSampleGet"
	symGPMMIGSample        = "nvmlGpmMigSampleGet"
	symGPMMetrics          = "nvmlGpmMetricsGet"
	symEventSetCreate      = "nvmlEventSetCreate"
	symEventSetFree        = "nvmlEventSetFree"
	symEventSetWait        = "nvmlEventSetWait"
	symEventSetWaitV2      = "nvmlEventSetWait_v2"
	symRegisterEvents      = "nvmlDeviceRegisterEvents"
	symSupportedEventTypes = "nvmlDeviceGetSupportedEventTypes"
)

// requiredSymbols returns those without which nothing can be read.
func requiredSymbols() []string {
	return []string{symInit, symShutdown, symCount, symHandle, symUUID}
}

// optionalSymbols returns all others.
func optionalSymbols() []string {
	return []string{
		symDriverVersion, symNVMLVersion, symCudaVersion, symName, symPCIInfo, symMemory,
		symMemoryV2, symUtilization, symTemperature, symTemperatureV, symPower, symPowerLimit,
		symEnergy, symClock, symEventReasons, symThrottleReasons, symECC, symRemappedRows,
		symProcesses, symProcessesV2, symProcessesV3, symMIGMode, symMIGCount, symMIGHandle,
		symGPUInstance, symFieldValues, symGPMSupport, symGPMAlloc, symGPMFree, symGPMSample,
		symGPMMIGSample, symGPMMetrics, symEventSetCreate, symEventSetFree, symEventSetWait,
		symEventSetWaitV2, symRegisterEvents, symSupportedEventTypes,
	}
}

// preflight opens the library once by itself: go-nvml calls nvmlInit without a look
// whether it is there, and swallows the linker's message.
func preflight(path string) error {
	l := dl.New(path, dl.RTLD_LAZY|dl.RTLD_GLOBAL)
	if err := l.Open(); err != nil {
		return &DownError{Reason: ReasonLibraryMissing, Detail: err.Error(), Hint: hintLibrary}
	}
	defer func() { _ = l.Close() }()
	for _, sym := range requiredSymbols() {
		if l.Lookup(sym) != nil {
			return &DownError{
				Reason: ReasonLibraryUnusable,
				Detail: fmt.Sprintf("%s lacks the function %s", path, sym),
				Hint:   "the library is older than any supported driver, or is not NVIDIA's: upgrade the driver",
			}
		}
	}
	return nil
}

// openCalls loads and initialises the library and looks all symbols up.
func openCalls(path string) (*calls, error) {
	if err := preflight(path); err != nil {
		return nil, err
	}
	c := &calls{lib: gonvml.New(gonvml.WithLibraryPath(path)), have: map[string]bool{}}
	if code := Code(c.lib.Init()); code != codeSuccess {
		// nvmlShutdown refuses after a failed nvmlInit, so this handle stays open
		// until the process ends. That costs nothing: the dynamic linker keeps a
		// library from which the executable has bound a function anyway.
		return nil, downError("nvmlInit", code)
	}
	for _, sym := range append(requiredSymbols(), optionalSymbols()...) {
		c.have[sym] = c.lib.Extensions().LookupSymbol(sym) == nil
	}
	return c, nil
}

// has reports whether the library exports sym.
func (c *calls) has(sym string) bool { return c.have[sym] }

// call runs f if the library exports one of syms.
func call[T any](c *calls, f func() (T, gonvml.Return), syms ...string) (T, Code) {
	for _, sym := range syms {
		if c.have[sym] {
			v, ret := f()
			return v, Code(ret)
		}
	}
	var none T
	return none, codeFunctionNotFound
}

func (c *calls) shutdown() Code { return Code(c.lib.Shutdown()) }

func (c *calls) deviceCount() (int, Code) { return call(c, c.lib.DeviceGetCount, symCount) }

func (c *calls) device(i int) (gonvml.Device, Code) {
	return call(c, func() (gonvml.Device, gonvml.Return) { return c.lib.DeviceGetHandleByIndex(i) }, symHandle)
}

// driver reads the versions; what cannot be read stays empty.
func (c *calls) driver() Driver {
	var d Driver
	d.Version, _ = call(c, c.lib.SystemGetDriverVersion, symDriverVersion)
	d.NVML, _ = call(c, c.lib.SystemGetNVMLVersion, symNVMLVersion)
	if v, code := call(c, c.lib.SystemGetCudaDriverVersion, symCudaVersion); code == codeSuccess && v > 0 {
		d.CUDA = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	return d
}
