//go:build !linux

package stream

import (
	"io"
	"net"
	"time"
)

// kernelReader returns nil: this platform gives no receive times.
func kernelReader(*net.TCPConn) func([]byte) (int, time.Time, error) { return nil }

// KeepStamps does nothing: this platform gives no receive times.
func KeepStamps() (io.Closer, error) { return io.NopCloser(nil), nil }
