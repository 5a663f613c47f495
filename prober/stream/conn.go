package stream

import (
	"net"
	"sync"
	"time"
)

// Clock names the clock that an arrival time was taken from.
type Clock string

const (
	// ClockKernel is the kernel's receive time stamp of the network packet.
	ClockKernel Clock = "kernel"
	// ClockUser is the time at which this process had read the bytes: never early, but late by
	// however long the process was kept from reading.
	ClockUser Clock = "user"
)

// Arrival says when the bytes of one read came.
type Arrival struct {
	// At is the time of arrival. It carries a monotonic reading, so differences between two arrivals, or
	// between an arrival and a time.Now of the same process, are free of clock steps. The zero time means
	// that nothing has been read yet.
	At time.Time
	// Lag is the time between the kernel's receipt of the bytes and our having read them; it is 0 where
	// the clock is ClockUser, because then it is not known.
	Lag time.Duration
	// Clock is where At comes from.
	Clock Clock
}

const (
	// maxLag is the longest lag that is believed. Bytes can wait in a socket for as long as nobody reads
	// them, but a probe that left them for an hour has long ended.
	maxLag = time.Hour
	// maxStampBacklog is how far a stamp may lie before a moment at which the bytes were known not to be
	// readable yet. Packets are stamped before they are queued to the socket and a busy kernel takes some
	// milliseconds over that; a clock that was set moves by more (ntpd slews what is below 128 ms).
	maxStampBacklog = 100 * time.Millisecond
)

// stampedReader reads a socket and reports what the kernel says about the time.
type stampedReader interface {
	// readStamped reads like net.Conn.Read. stamp is the kernel's wall-clock stamp, zero if it gave none.
	// notBefore is a moment at which the bytes were seen not to be there yet, zero if they were there at once.
	readStamped(p []byte) (n int, stamp, notBefore time.Time, err error)
}

// Conn is a network connection that knows when the bytes that it returned last had arrived.
//
// On Linux, over TCP, the time is the kernel's: the stamp that a packet gets when the network stack takes
// it up, before this process is even woken. A read that gathers the bytes of several packets has the stamp
// of the last of them. Packets that lie in the socket together are moreover merged there into one, which
// keeps the last stamp only (seen on Linux 6.18 with writes of 4 and of 20,000 bytes, 20 ms apart: each of
// them, read on its own afterwards, had the stamp of the last). So a reader that is later than the next
// packet sees both at the time of the second: the time of an early byte is then too late by at most the
// Lag that the reader would have had, and never too early. When packets arrive out of order, the last one
// of a read may have come first; its stamp then lies before the moment at which the bytes became readable,
// by the time that the missing packet took.
//
// Elsewhere, and for connections that are not TCP, the time is that of the read.
//
// All methods are safe for concurrent use.
type Conn struct {
	net.Conn

	stamps stampedReader // nil: user clock only
	readMu sync.Mutex    // held over a stamped read; guards floor
	floor  time.Time     // the bytes of the next read have come after this

	mu    sync.Mutex // guards the rest
	last  Arrival
	bytes int64
	reads int64
}

// NewConn wraps c, which must not be used otherwise from then on. It never fails: where the kernel gives no
// time stamps for c the result uses the user clock. A *Conn is returned as it is.
func NewConn(c net.Conn) *Conn {
	if sc, ok := c.(*Conn); ok {
		return sc
	}
	return &Conn{Conn: c, stamps: newStampedReader(c), floor: time.Now()}
}

// FromHTTPConn returns the Conn under c, which is the connection that httptrace.GotConnInfo gives: a *Conn
// or anything that hands out the connection below it through NetConn, as *tls.Conn does. It returns nil if
// there is none.
func FromHTTPConn(c net.Conn) *Conn {
	const maxLayers = 8 // no real stack is deeper, and a connection that returns itself must end
	for range maxLayers {
		switch v := c.(type) {
		case *Conn:
			return v
		case interface{ NetConn() net.Conn }:
			c = v.NetConn()
		default:
			return nil
		}
	}
	return nil
}

// Read reads as the wrapped connection does, with the same errors, and records when the bytes arrived.
func (c *Conn) Read(p []byte) (int, error) {
	if c.stamps == nil || len(p) == 0 {
		n, err := c.Conn.Read(p)
		if n > 0 {
			c.record(n, Arrival{At: time.Now(), Clock: ClockUser})
		}
		return n, err
	}
	c.readMu.Lock()
	defer c.readMu.Unlock()
	n, stamp, notBefore, err := c.stamps.readStamped(p)
	if n > 0 {
		a := toMonotonic(stamp, clockPair(), later(c.floor, notBefore))
		if a.At.Before(c.floor) {
			a.At = c.floor // packets out of order: no byte arrives before the one that it follows
		}
		c.floor = a.At
		c.record(n, a)
	}
	return n, err
}

func (c *Conn) record(n int, a Arrival) {
	c.mu.Lock()
	c.last = a
	c.bytes += int64(n)
	c.reads++
	c.mu.Unlock()
}

// LastArrival returns the arrival of the bytes of the latest read that returned any. Its At is zero before
// the first one.
func (c *Conn) LastArrival() Arrival {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// BytesRead returns how many bytes were read from the connection: under TLS the encrypted ones, handshake
// included.
func (c *Conn) BytesRead() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// Reads returns how many reads returned bytes.
func (c *Conn) Reads() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads
}

// toMonotonic places a kernel stamp, which is wall-clock time, on the monotonic clock of now. Where the two
// cannot belong together, because the clock was set in between or no stamp was given, the answer is now
// itself and says that it is the user clock's. floor is a moment before which the bytes were not readable.
func toMonotonic(stamp, now, floor time.Time) Arrival {
	user := Arrival{At: now, Clock: ClockUser}
	if stamp.IsZero() {
		return user
	}
	lag := now.Sub(stamp) // stamp has no monotonic reading: this compares wall clocks
	if lag < 0 || lag > maxLag {
		return user
	}
	at := now.Add(-lag)
	if floor.Sub(at) > maxStampBacklog {
		return user
	}
	return Arrival{At: at, Lag: lag, Clock: ClockKernel}
}

// clockPair returns the time with a wall and a monotonic reading that belong together. time.Now takes the
// wall reading first and the monotonic one after it; a thread that loses its CPU between the two gets a
// pair that is milliseconds apart, and so would the arrival be. Of two attempts, the one whose monotonic
// reading is the earlier by the wall clock is the closer pair.
func clockPair() time.Time {
	a, b := time.Now(), time.Now()
	if b.Round(0).Sub(a.Round(0)) > b.Sub(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
