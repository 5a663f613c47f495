//go:build !linux

package stream

import "net"

// newStampedReader returns nil: only Linux is known to stamp the packets of a TCP stream.
func newStampedReader(net.Conn) stampedReader { return nil }

// HoldKernelStamps does nothing on this system; see its documentation on Linux.
func HoldKernelStamps() (release func(), err error) { return func() {}, nil }
