//go:build linux && cgo

package nvml

import (
	"cmp"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// maxProcesses bounds the processes that are kept for each GPU: those with the most
// memory.
const maxProcesses = 256

// processes reads the compute processes of the GPU. Drivers have been seen to
// return impossible process ids; those are left out.
func (d *device) processes(procRoot string) []Process {
	list, ok := ask(d, "processes", d.h.GetComputeRunningProcesses, symProcessesV3, symProcessesV2, symProcesses)
	if !ok {
		return nil
	}
	out := make([]Process, 0, len(list))
	for _, p := range list {
		if p.Pid == 0 || p.Pid > math.MaxInt32 {
			continue
		}
		q := Process{PID: int(p.Pid), GPUInstance: whole, MemoryUsedBytes: bytesOf(p.UsedGpuMemory)}
		if p.GpuInstanceId != math.MaxUint32 {
			q.GPUInstance = int(p.GpuInstanceId)
		}
		out = append(out, q)
	}
	slices.SortFunc(out, func(a, b Process) int {
		return cmp.Or(cmp.Compare(b.MemoryUsedBytes.Or(0), a.MemoryUsedBytes.Or(0)), cmp.Compare(a.PID, b.PID))
	})
	out = out[:min(len(out), maxProcesses)]
	for i := range out {
		out[i].Name = processName(procRoot, out[i].PID)
	}
	return out
}

// processName reads the short name of a process: it holds no arguments, so no
// secret can be in it.
func processName(procRoot string, pid int) string {
	b, err := os.ReadFile(filepath.Join(procRoot, strconv.Itoa(pid), "comm"))
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(strings.TrimSpace(string(b)), "")
}
