package stream

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// putHeader writes a control message's header in the machine's own layout.
func putHeader(b []byte, level, typ int32, dataLen int) {
	var h unix.Cmsghdr
	h.Level, h.Type = level, typ
	h.SetLen(unix.CmsgLen(dataLen))
	copy(b, unsafe.Slice((*byte)(unsafe.Pointer(&h)), unix.SizeofCmsghdr))
}
