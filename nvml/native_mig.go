//go:build linux && cgo

package nvml

import (
	"strconv"
	"strings"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// maxMIGSlots bounds the search for MIG devices; today's chips have 7.
const maxMIGSlots = 64

// migInstance is a GPU instance with the handle of one MIG device inside, by which
// its memory is read.
type migInstance struct {
	id      int
	profile string
	uuids   []string
	h       gonvml.Device
}

func (d *device) migEnabled() bool {
	const enabled = 1
	mode, ok := ask(d, "mig mode", func() (int, gonvml.Return) {
		current, _, ret := d.h.GetMigMode()
		return current, ret
	}, symMIGMode)
	return ok && mode == enabled
}

// enumerateMIG finds the MIG devices of the GPU. Slots without one are normal
// anywhere in the list. Several MIG devices (compute instances) may share a GPU
// instance.
func (d *device) enumerateMIG(enabled bool) {
	d.mig = nil
	if enabled {
		n, _ := ask(d, "mig count", d.h.GetMaxMigDeviceCount, symMIGCount)
		for slot := range min(n, maxMIGSlots) {
			d.addMIG(slot)
		}
	}
	d.dropStaleGPM()
}

func (d *device) addMIG(slot int) {
	h, ok := ask(d, "mig slot "+strconv.Itoa(slot), func() (gonvml.Device, gonvml.Return) {
		h, ret := d.h.GetMigDeviceHandleByIndex(slot)
		// An empty slot answers NOT_FOUND or INVALID_ARGUMENT, on some drivers
		// NOT_SUPPORTED; none of them says anything about later.
		if Code(ret) == codeNotSupported {
			ret = gonvml.ERROR_NOT_FOUND
		}
		return h, ret
	}, symMIGHandle)
	if !ok {
		return
	}
	id, code := call(d.c, h.GetGpuInstanceId, symGPUInstance)
	if !d.book("", code) {
		return
	}
	uuid, _ := call(d.c, h.GetUUID, symUUID)
	for i := range d.mig {
		if d.mig[i].id == id {
			d.mig[i].uuids = append(d.mig[i].uuids, uuid)
			return
		}
	}
	name, _ := call(d.c, h.GetName, symName)
	m := migInstance{id: id, profile: migProfile(name), h: h}
	if uuid != "" {
		m.uuids = []string{uuid}
	}
	d.mig = append(d.mig, m)
}

// readMIG reads the memory of each GPU instance.
func (d *device) readMIG(s *Sample) {
	if len(d.mig) == 0 {
		return
	}
	s.MIG = make([]MIGInstance, 0, len(d.mig))
	for _, m := range d.mig {
		s.MIG = append(s.MIG, MIGInstance{
			GPUInstance: m.id,
			Profile:     m.profile,
			UUIDs:       m.uuids,
			Memory:      d.memory(m.h, m.id),
		})
	}
}

// migProfile takes "1g.10gb" from "NVIDIA H100 80GB HBM3 MIG 1g.10gb". A compute
// instance smaller than its GPU instance is called "1c.3g.40gb": the GPU
// instance's part is what counts here.
func migProfile(name string) string {
	_, p, ok := strings.Cut(name, " MIG ")
	if !ok {
		return ""
	}
	if c, rest, ok := strings.Cut(p, "."); ok && strings.HasSuffix(c, "c") {
		return rest
	}
	return p
}

func instanceSuffix(key int) string {
	if key == whole {
		return ""
	}
	return " gi " + strconv.Itoa(key)
}
