// Package stream turns the bytes of a streamed answer into events with arrival times.
//
// Arrival times come from the kernel where the platform gives them (see Conn), so that a busy prober does not
// inflate what it measures. Everything that is read is hostile: lines, events and bodies are capped.
package stream

import (
	"net"
	"sync"
	"time"
)

// Clock says whose clock an arrival time was taken from.
type Clock string

// The clocks.
const (
	ClockKernel Clock = "kernel" // the kernel's receipt of the bytes
	ClockUser   Clock = "user"   // our reading of them
)

// Arrival is when bytes arrived.
type Arrival struct {
	At    time.Time     // with a monotonic reading
	Lag   time.Duration // how long after the kernel's receipt they were read; 0 where the clock is user
	Clock Clock
}

// maxLag bounds what is believed of a kernel stamp: a wall clock that was stepped between receipt and reading
// would otherwise move the arrival. Nothing waits in a socket for that long, since the deadlines are shorter.
const maxLag = 5 * time.Minute

// Conn is a connection that notes when its bytes arrived. It may be used like any net.Conn, by net/http and below
// TLS too.
//
// On Linux a TCP connection is read with recvmsg and SO_TIMESTAMPNS: each read gets the kernel's receive time of
// the last segment that it took bytes from. Elsewhere, and for a read that came without a stamp, the arrival is
// the time of the read.
type Conn struct {
	net.Conn
	read func(p []byte) (int, time.Time, error) // nil: no kernel stamps

	mu    sync.Mutex
	last  Arrival
	bytes int64
	reads int64
}

// NewConn wraps a connection. One that is no TCP connection gets the user clock.
func NewConn(c net.Conn) *Conn {
	conn := &Conn{Conn: c}
	if tcp, ok := c.(*net.TCPConn); ok {
		conn.read = kernelReader(tcp)
	}
	return conn
}

// Read reads and notes the arrival of what was read.
func (c *Conn) Read(p []byte) (int, error) {
	var (
		n     int
		err   error
		stamp time.Time
	)
	if c.read != nil && len(p) > 0 {
		n, stamp, err = c.read(p)
	} else {
		n, err = c.Conn.Read(p)
	}
	if n > 0 {
		c.arrived(n, arrival(stamp, time.Now()))
	}
	return n, err
}

func (c *Conn) arrived(n int, a Arrival) {
	c.mu.Lock()
	c.last = a
	c.bytes += int64(n)
	c.reads++
	c.mu.Unlock()
}

// arrival converts the kernel's wall-clock stamp to the monotonic clock of now, once per read.
func arrival(stamp, now time.Time) Arrival {
	if stamp.IsZero() {
		return Arrival{At: now, Clock: ClockUser}
	}
	// Round(0) strips the monotonic reading: both times are of the wall clock here.
	lag := now.Round(0).Sub(stamp)
	if lag < 0 || lag > maxLag {
		return Arrival{At: now, Clock: ClockUser}
	}
	return Arrival{At: now.Add(-lag), Lag: lag, Clock: ClockKernel}
}

// LastArrival returns the arrival of the newest read. It may be called from another goroutine than Read.
func (c *Conn) LastArrival() Arrival {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// Received returns how many bytes were read so far, in how many reads.
func (c *Conn) Received() (bytes, reads int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes, c.reads
}

// FromHTTPConn finds the Conn below what net/http calls the connection: itself, or under TLS. It returns nil if
// there is none.
func FromHTTPConn(c net.Conn) *Conn {
	for range 4 { // proxies may put TLS into TLS
		switch x := c.(type) {
		case *Conn:
			return x
		case interface{ NetConn() net.Conn }:
			c = x.NetConn()
		default:
			return nil
		}
	}
	return nil
}
