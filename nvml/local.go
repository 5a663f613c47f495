package nvml

import (
	"time"

	"github.com/go-kit/log"
)

// LocalOptions says how the GPUs of this host are read. The zero value is good.
type LocalOptions struct {
	// LibraryPath is the file to load; empty means libnvidia-ml.so.1, found by
	// the dynamic linker.
	LibraryPath string
	// Logger gets a line when NVML goes down or comes back, not one per cycle.
	Logger log.Logger
	// Exclude holds UUIDs of GPUs that are not to be touched: polling keeps a GPU
	// out of its deepest sleep.
	Exclude []string
	// Processes asks for the memory of each compute process.
	Processes bool
	// ProcRoot is where process names are read; empty means /proc.
	ProcRoot string
	// SlowEvery is the time between two readings of what changes rarely (ECC,
	// remapped rows, limits, MIG layout, processes); 0 means 10 s.
	SlowEvery time.Duration
	// NoEvents turns the Xid event loop off.
	NoEvents bool
}

func (o LocalOptions) withDefaults() LocalOptions {
	if o.Logger == nil {
		o.Logger = log.NewNopLogger()
	}
	if o.ProcRoot == "" {
		o.ProcRoot = "/proc"
	}
	if o.SlowEvery <= 0 {
		o.SlowEvery = 10 * time.Second
	}
	if o.LibraryPath == "" {
		o.LibraryPath = "libnvidia-ml.so.1"
	}
	return o
}
