//go:build linux && cgo

package nvml

import (
	"encoding/binary"
	"math"
	"slices"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// allLinks as a field's scope asks for the sum over all NVLinks.
const allLinks = math.MaxUint32

// field is one to read: its id, its scope, and the id of one that says the same and
// makes it needless.
type field struct{ id, scope, unless uint32 }

func fieldList() []field {
	return []field{
		{id: gonvml.FI_DEV_MEMORY_TEMP},
		{id: gonvml.FI_DEV_PCIE_COUNT_TX_BYTES},
		{id: gonvml.FI_DEV_PCIE_COUNT_RX_BYTES},
		{id: gonvml.FI_DEV_PCIE_REPLAY_COUNTER},
		{id: gonvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, scope: allLinks},
		{id: gonvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, scope: allLinks},
		// NVLink 5 counts in bytes, under other names.
		{id: gonvml.FI_DEV_NVLINK_COUNT_XMIT_BYTES, scope: allLinks, unless: gonvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX},
		{id: gonvml.FI_DEV_NVLINK_COUNT_RCV_BYTES, scope: allLinks, unless: gonvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX},
		{id: gonvml.FI_DEV_GET_GPU_RECOVERY_ACTION},
	}
}

// fieldReader reads the fields that a GPU has with one call. Which ones it has is
// found out one by one: some drivers refuse a whole batch for one unknown field.
type fieldReader struct {
	probed bool
	want   []gonvml.FieldValue
	buf    []gonvml.FieldValue
}

// read fills the figures of s that come from fields.
func (f *fieldReader) read(d *device, w wraps, s *Sample) {
	if !f.probed && !d.gone() {
		f.want = f.want[:0]
		f.probe(d)
	}
	if !f.probed || len(f.want) == 0 {
		return
	}
	// The driver leaves Value as it was where it has nothing to say: start from
	// zeros each time.
	copy(f.buf, f.want)
	if d.gone() || !d.book("fields", d.fieldCall(f.buf)) {
		return
	}
	for i := range f.buf {
		d.setField(w, s, &f.buf[i])
	}
}

// probe asks for each field by itself and keeps those that this GPU has.
func (f *fieldReader) probe(d *device) {
	f.probed = true
	for _, fd := range fieldList() {
		if fd.unless != 0 && f.wants(fd.unless) {
			continue
		}
		one := []gonvml.FieldValue{{FieldId: fd.id, ScopeId: fd.scope}}
		code := d.fieldCall(one)
		if code == codeSuccess {
			code = Code(one[0].NvmlReturn)
		}
		switch code.class() {
		case classLost, classDown:
			d.book("fields", code)
			f.probed = false
			return
		case classOK, classTransient:
			f.want = append(f.want, gonvml.FieldValue{FieldId: fd.id, ScopeId: fd.scope})
		case classAbsent, classNever:
		}
	}
	f.buf = make([]gonvml.FieldValue, len(f.want))
}

func (f *fieldReader) wants(id uint32) bool {
	return slices.ContainsFunc(f.want, func(v gonvml.FieldValue) bool { return v.FieldId == id })
}

func (d *device) fieldCall(v []gonvml.FieldValue) Code {
	_, code := call(d.c, func() (struct{}, gonvml.Return) { return struct{}{}, d.h.GetFieldValues(v) }, symFieldValues)
	return code
}

// setField puts one field into the sample.
func (d *device) setField(w wraps, s *Sample, v *gonvml.FieldValue) {
	if Code(v.NvmlReturn) != codeSuccess {
		return
	}
	n, ok := fieldNumber(v)
	if !ok {
		return
	}
	count := func(unit float64) Value {
		return w.add(wrapKey{d.gpu.UUID, v.FieldId}, n.u, n.bits).scaled(unit)
	}
	switch v.FieldId {
	case gonvml.FI_DEV_MEMORY_TEMP:
		s.MemoryTemperatureCelsius = Of(n.f)
	case gonvml.FI_DEV_GET_GPU_RECOVERY_ACTION:
		s.RecoveryAction = Of(n.f)
	case gonvml.FI_DEV_PCIE_REPLAY_COUNTER:
		s.PCIeReplays = count(1)
	case gonvml.FI_DEV_PCIE_COUNT_TX_BYTES:
		s.PCIeTransmitBytes = count(1)
	case gonvml.FI_DEV_PCIE_COUNT_RX_BYTES:
		s.PCIeReceiveBytes = count(1)
	case gonvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX:
		s.NVLinkTransmitBytes = count(1024) // KiB
	case gonvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX:
		s.NVLinkReceiveBytes = count(1024)
	case gonvml.FI_DEV_NVLINK_COUNT_XMIT_BYTES:
		s.NVLinkTransmitBytes = count(1)
	case gonvml.FI_DEV_NVLINK_COUNT_RCV_BYTES:
		s.NVLinkReceiveBytes = count(1)
	}
}

// fieldNumber decodes a field by the type that came with it; an unknown type, and
// the largest number of a type, are absent.
func fieldNumber(v *gonvml.FieldValue) (number, bool) {
	raw := binary.NativeEndian.Uint64(v.Value[:])
	low := binary.NativeEndian.Uint32(v.Value[:4])
	switch gonvml.ValueType(v.ValueType) {
	case gonvml.VALUE_TYPE_DOUBLE:
		f := math.Float64frombits(raw)
		return number{f: f, u: uint64(max(f, 0)), bits: 64}, !math.IsNaN(f) && !math.IsInf(f, 0)
	case gonvml.VALUE_TYPE_UNSIGNED_INT:
		return number{f: float64(low), u: uint64(low), bits: 32}, low != math.MaxUint32
	case gonvml.VALUE_TYPE_UNSIGNED_LONG, gonvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return number{f: float64(raw), u: raw, bits: 64}, raw != math.MaxUint64
	case gonvml.VALUE_TYPE_SIGNED_LONG_LONG:
		n := int64(raw)
		return number{f: float64(n), u: uint64(max(n, 0)), bits: 64}, true
	case gonvml.VALUE_TYPE_SIGNED_INT:
		n := int32(low)
		return number{f: float64(n), u: uint64(max(n, 0)), bits: 32}, true
	case gonvml.VALUE_TYPE_UNSIGNED_SHORT:
		n := binary.NativeEndian.Uint16(v.Value[:2])
		return number{f: float64(n), u: uint64(n), bits: 16}, true
	}
	return number{}, false
}

// number is a decoded field: as a figure, and as a counter of a width.
type number struct {
	f    float64
	u    uint64
	bits int
}
