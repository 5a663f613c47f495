package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// controlSize holds the control messages of one read: a time stamp takes 32 bytes on 64-bit machines, and
// there is room left for messages that were not asked for.
const controlSize = 128

// tcpReader reads a TCP socket with recvmsg, which, unlike read, hands out the packet's time stamp.
// It must not be used concurrently: Conn serialises it.
type tcpReader struct {
	conn    *net.TCPConn
	raw     syscall.RawConn
	attempt func(fd uintptr) bool // recv, bound once so that a read allocates nothing

	// One call's arguments and results; they pass through here because attempt's signature is fixed, and
	// because unix.Recvmsg would allocate room for the sender's address at every call.
	msg       unix.Msghdr
	iov       unix.Iovec
	control   [controlSize / 8]uint64 // aligned for the headers in it
	n         int
	err       error
	stamp     time.Time
	notBefore time.Time
}

// newStampedReader returns nil where c is not TCP or the kernel refuses time stamps for it.
func newStampedReader(c net.Conn) stampedReader {
	tc, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tc.SyscallConn()
	if err != nil {
		return nil
	}
	var optErr error
	err = raw.Control(func(fd uintptr) { optErr = enableStamps(int(fd)) })
	if err != nil || optErr != nil {
		return nil
	}
	r := &tcpReader{conn: tc, raw: raw}
	r.msg.Iov = &r.iov
	r.msg.SetIovlen(1)
	r.msg.Control = (*byte)(unsafe.Pointer(&r.control))
	r.attempt = r.recv
	return r
}

// enableStamps asks for nanosecond receive stamps, first in the layout that holds 64-bit seconds on every
// machine (Linux 5.1), then in the machine's own.
func enableStamps(fd int) error {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS_NEW, 1) == nil {
		return nil
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
}

// readStamped reads into p, which is not empty.
func (r *tcpReader) readStamped(p []byte) (n int, stamp, notBefore time.Time, err error) {
	r.n, r.err = 0, nil
	r.stamp, r.notBefore = time.Time{}, time.Time{}
	r.iov.Base = &p[0]
	r.iov.SetLen(len(p))
	err = r.raw.Read(r.attempt)
	r.iov.Base = nil // the buffer is the caller's
	switch {
	case err != nil:
		return 0, time.Time{}, time.Time{}, r.opError(err)
	case r.err != nil:
		return 0, time.Time{}, time.Time{}, r.opError(os.NewSyscallError("read", r.err))
	case r.n == 0:
		return 0, time.Time{}, time.Time{}, io.EOF
	}
	return r.n, r.stamp, r.notBefore, nil
}

// recv makes one attempt at reading; false sends the caller to the poller to wait for bytes.
func (r *tcpReader) recv(fd uintptr) bool {
	for {
		r.msg.SetControllen(controlSize) // the call leaves the length of what it wrote here
		n, _, errno := unix.Syscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&r.msg)), 0)
		switch errno {
		case 0:
			r.n = int(n)
			control := unsafe.Slice((*byte)(unsafe.Pointer(&r.control)), controlSize)
			r.stamp = parseStamp(control[:min(int(r.msg.Controllen), controlSize)])
			return true
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			r.notBefore = time.Now()
			return false
		default:
			r.err = errno
			return true
		}
	}
}

// opError gives err the form that net.TCPConn.Read gives its errors.
func (r *tcpReader) opError(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "raw-read" {
		err = op.Err
	}
	return &net.OpError{Op: "read", Net: r.conn.LocalAddr().Network(), Source: r.conn.LocalAddr(), Addr: r.conn.RemoteAddr(), Err: err}
}

// parseStamp finds the receive stamp among the control messages of one read. It returns the zero time if
// there is none, or only part of one (the kernel cuts what does not fit).
func parseStamp(control []byte) time.Time {
	for len(control) >= unix.CmsgLen(0) {
		hdr, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			return time.Time{}
		}
		if hdr.Level == unix.SOL_SOCKET && (hdr.Type == unix.SO_TIMESTAMPNS_NEW || hdr.Type == unix.SCM_TIMESTAMPNS) {
			return decodeTimespec(data)
		}
		control = rest
	}
	return time.Time{}
}

// decodeTimespec reads a kernel timespec in either of its layouts: two 64-bit numbers, or two 32-bit ones
// on a 32-bit machine with a kernel that knows no other.
func decodeTimespec(b []byte) time.Time {
	var sec, nsec int64
	switch {
	case len(b) >= 16:
		sec = int64(binary.NativeEndian.Uint64(b))
		nsec = int64(binary.NativeEndian.Uint64(b[8:]))
	case len(b) >= 8:
		sec = int64(int32(binary.NativeEndian.Uint32(b)))
		nsec = int64(int32(binary.NativeEndian.Uint32(b[4:])))
	}
	if sec <= 0 || nsec < 0 || nsec >= int64(time.Second) {
		return time.Time{}
	}
	return time.Unix(sec, nsec)
}

// HoldKernelStamps keeps the kernel stamping packets until release is called. The kernel turns stamping on
// with the first socket that asks for it, with a delay, and off after the last one; without a holder the
// first packets of a connection that stands alone may come unstamped and their reads have the user clock
// (seen: the first read of 55 of 100 connections, 20 ms apart on loopback; of none with a holder). It
// costs the host a clock read a packet, as a running packet capture does. A daemon calls it once at its
// start. On other systems it does nothing.
func HoldKernelStamps() (release func(), err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("opening a socket to keep packet time stamps on: %w", os.NewSyscallError("socket", err))
	}
	if err := enableStamps(fd); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("asking for packet time stamps: %w", os.NewSyscallError("setsockopt", err))
	}
	return sync.OnceFunc(func() { _ = unix.Close(fd) }), nil
}
