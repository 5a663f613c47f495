package stream

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stampedReader reads a TCP socket with the kernel's receive times. It is used by one reader at a time, as
// net/http and crypto/tls do. Everything that a read needs lives in the struct, so that a read allocates nothing.
type stampedReader struct {
	tcp  *net.TCPConn
	raw  syscall.RawConn
	step func(fd uintptr) bool

	iov unix.Iovec
	msg unix.Msghdr
	oob [16]uint64 // control messages; a whole one for a stamp takes 32 bytes; aligned as the kernel writes it

	n   int
	err error
}

// KeepStamps makes the kernel stamp what arrives, from now until it is closed, whether or not a Conn is open. The
// kernel switches stamping on a moment after the first socket asked for it: without a socket that keeps it on, the
// first bytes of a lone connection come without a stamp.
func KeepStamps() (io.Closer, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("setsockopt", err)
	}
	return os.NewFile(uintptr(fd), "stamps"), nil
}

// kernelReader asks the kernel for receive times. It returns nil where that is refused.
func kernelReader(tcp *net.TCPConn) func([]byte) (int, time.Time, error) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	var refused error
	err = raw.Control(func(fd uintptr) {
		refused = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	})
	if err != nil || refused != nil {
		return nil
	}
	r := &stampedReader{tcp: tcp, raw: raw}
	r.step = r.recvmsg
	return r.read
}

// read blocks until bytes arrive, the connection ends or a deadline passes, like net.TCPConn.Read.
func (r *stampedReader) read(p []byte) (int, time.Time, error) {
	r.iov.Base = &p[0]
	r.iov.SetLen(len(p))
	err := r.raw.Read(r.step) // waits for the socket; honours deadlines and Close
	r.iov.Base = nil          // keep nothing of the caller's alive
	switch {
	case err != nil:
		return 0, time.Time{}, r.opError(err)
	case r.err != nil:
		return 0, time.Time{}, r.opError(os.NewSyscallError("recvmsg", r.err))
	case r.n == 0:
		return 0, time.Time{}, io.EOF
	}
	return r.n, r.receiveTime(), nil
}

// recvmsg tries once without blocking; false means that there is nothing yet.
func (r *stampedReader) recvmsg(fd uintptr) bool {
	for {
		r.msg = unix.Msghdr{Iov: &r.iov, Control: (*byte)(unsafe.Pointer(&r.oob[0]))}
		r.msg.SetIovlen(1)
		r.msg.SetControllen(int(unsafe.Sizeof(r.oob)))
		n, _, errno := unix.Syscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&r.msg)), unix.MSG_DONTWAIT)
		switch errno {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return false
		case 0:
			r.n, r.err = int(n), nil
		default:
			r.n, r.err = 0, errno
		}
		return true
	}
}

// receiveTime finds the stamp among the control messages; zero if there is none. With one read over several
// segments the kernel gives the stamp of the last segment that bytes were taken from.
func (r *stampedReader) receiveTime() time.Time {
	const header = unix.SizeofCmsghdr
	rest := unsafe.Slice((*byte)(unsafe.Pointer(&r.oob[0])), min(int(r.msg.Controllen), int(unsafe.Sizeof(r.oob))))
	for len(rest) >= header {
		c := (*unix.Cmsghdr)(unsafe.Pointer(&rest[0]))
		size := int(c.Len)
		if size < header || size > len(rest) {
			return time.Time{}
		}
		data := unix.CmsgLen(0)
		if c.Level == unix.SOL_SOCKET && c.Type == unix.SCM_TIMESTAMPNS && size >= data+int(unsafe.Sizeof(unix.Timespec{})) {
			ts := (*unix.Timespec)(unsafe.Pointer(&rest[data]))
			return time.Unix(ts.Unix())
		}
		next := unix.CmsgSpace(size - data)
		if next <= 0 || next > len(rest) {
			return time.Time{}
		}
		rest = rest[next:]
	}
	return time.Time{}
}

func (r *stampedReader) opError(err error) error {
	var op *net.OpError
	if errors.As(err, &op) { // RawConn says raw-read
		err = op.Err
	}
	return &net.OpError{Op: "read", Net: "tcp", Source: r.tcp.LocalAddr(), Addr: r.tcp.RemoteAddr(), Err: err}
}
