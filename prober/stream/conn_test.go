package stream

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tcpPair returns the two ends of a TCP connection over loopback.
func tcpPair(t testing.TB) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	client, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	return client, server
}

// resetPeer makes the other end see a reset.
func resetPeer(t testing.TB, c net.Conn) {
	t.Helper()
	if err := c.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Sorted(slices.Values(d))
	return d[int(q*float64(len(d)-1))]
}

func native64(v int64) []byte { return binary.NativeEndian.AppendUint64(nil, uint64(v)) }
func native32(v int32) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(v)) }

// eachConn runs a test over TCP and over a connection that is no TCP, which has the user clock.
func eachConn(t *testing.T, test func(t *testing.T, c *Conn, peer net.Conn)) {
	t.Helper()
	t.Run("tcp", func(t *testing.T) {
		client, server := tcpPair(t)
		test(t, NewConn(client), server)
	})
	t.Run("pipe", func(t *testing.T) {
		client, server := net.Pipe()
		t.Cleanup(func() { _, _ = client.Close(), server.Close() })
		test(t, NewConn(client), server)
	})
}

func TestConnDeadline(t *testing.T) {
	eachConn(t, func(t *testing.T, c *Conn, peer net.Conn) {
		if err := c.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		n, err := c.Read(make([]byte, 1))
		var timeout net.Error
		if n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Fatalf("got %d, %v, want a timeout", n, err)
		}
		if !c.LastArrival().At.IsZero() {
			t.Error("a read without bytes has an arrival")
		}
		if err := c.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = peer.Write([]byte("x")) }()
		if n, err := c.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("after the deadline was lifted: %d, %v", n, err)
		}
	})
}

func TestConnCloseWhileReading(t *testing.T) {
	eachConn(t, func(t *testing.T, c *Conn, _ net.Conn) {
		done := make(chan error)
		go func() {
			_, err := c.Read(make([]byte, 1))
			done <- err
		}()
		time.AfterFunc(5*time.Millisecond, func() { _ = c.Close() })
		if err := <-done; !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("got %v, want that the connection was closed", err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a closed connection can be read")
		}
	})
}

func TestConnEnd(t *testing.T) {
	eachConn(t, func(t *testing.T, c *Conn, peer net.Conn) {
		go func() {
			_, _ = peer.Write([]byte("abc"))
			if half, ok := peer.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			} else {
				_ = peer.Close()
			}
		}()
		b, err := io.ReadAll(c)
		if string(b) != "abc" || err != nil {
			t.Errorf("got %q, %v", b, err)
		}
		for range 2 {
			if n, err := c.Read(make([]byte, 1)); n != 0 || !isPlainEOF(err) {
				t.Errorf("after the end: %d, %v, want io.EOF", n, err)
			}
		}
		if c.BytesRead() != 3 {
			t.Errorf("counted %d bytes, want 3", c.BytesRead())
		}
	})
}

func TestConnHalfClosedStillWrites(t *testing.T) {
	client, server := tcpPair(t)
	c := NewConn(client)
	if err := server.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !isPlainEOF(err) {
		t.Fatalf("got %v, want io.EOF", err)
	}
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := server.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("the peer read %d, %v", n, err)
	}
}

func TestConnEmptyRead(t *testing.T) {
	client, _ := tcpPair(t)
	c := NewConn(client)
	if n, err := c.Read(nil); n != 0 || err != nil {
		t.Errorf("an empty read gave %d, %v, want 0, nil and no waiting", n, err)
	}
	_ = c.Close()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a read of a closed connection: %v", err)
	}
}

func TestUserClock(t *testing.T) {
	client, server := net.Pipe()
	defer func() { _, _ = client.Close(), server.Close() }()
	c := NewConn(client)
	before := time.Now()
	go func() { _, _ = server.Write([]byte("x")) }()
	if _, err := c.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	a := c.LastArrival()
	if a.Clock != ClockUser || a.Lag != 0 || a.At.Before(before) || a.At.After(time.Now()) {
		t.Errorf("arrival is %+v", a)
	}
}

func TestNewConnIsIdempotent(t *testing.T) {
	client, _ := net.Pipe()
	defer func() { _ = client.Close() }()
	c := NewConn(client)
	if NewConn(c) != c {
		t.Error("a *Conn was wrapped again")
	}
}

// ring is a connection that claims to lie below itself.
type ring struct{ net.Conn }

func (r ring) NetConn() net.Conn { return r }

func TestFromHTTPConn(t *testing.T) {
	client, _ := net.Pipe()
	defer func() { _ = client.Close() }()
	c := NewConn(client)
	tests := []struct {
		name string
		conn net.Conn
		want *Conn
	}{
		{"plain", c, c},
		{"TLS", tls.Client(c, &tls.Config{ServerName: "x", MinVersion: tls.VersionTLS12}), c},
		{"none", client, nil},
		{"nil", nil, nil},
		{"without end", ring{}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := FromHTTPConn(tt.conn); got != tt.want {
				t.Errorf("got %p, want %p", got, tt.want)
			}
		})
	}
}

func TestToMonotonic(t *testing.T) {
	now := time.Now()
	longAgo := now.Add(-time.Hour * 24)
	wall := func(d time.Duration) time.Time { return now.Round(0).Add(d) }
	tests := []struct {
		name         string
		stamp, floor time.Time
		wantAt       time.Duration // from now
		wantClock    Clock
	}{
		{"just now", wall(-3 * time.Microsecond), longAgo, -3 * time.Microsecond, ClockKernel},
		{"late reader", wall(-20 * time.Second), longAgo, -20 * time.Second, ClockKernel},
		{"no stamp", time.Time{}, longAgo, 0, ClockUser},
		{"from the future", wall(time.Millisecond), longAgo, 0, ClockUser},
		{"clock set back by a day", wall(24 * time.Hour), longAgo, 0, ClockUser},
		{"clock set forward by a day", wall(-23 * time.Hour), longAgo, 0, ClockUser},
		{"clock set forward by a second", wall(-time.Second), now.Add(-10 * time.Millisecond), 0, ClockUser},
		{"stamped a little before the socket was seen empty", wall(-5 * time.Millisecond), now.Add(-2 * time.Millisecond), -5 * time.Millisecond, ClockKernel},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := toMonotonic(tt.stamp, now, tt.floor)
			if got := a.At.Sub(now); got != tt.wantAt || a.Clock != tt.wantClock {
				t.Errorf("at %v by the %s clock, want %v by the %s clock", got, a.Clock, tt.wantAt, tt.wantClock)
			}
			if a.Lag != -tt.wantAt {
				t.Errorf("lag %v, want %v", a.Lag, -tt.wantAt)
			}
		})
	}
}

// scripted gives stamps of its own to a Conn.
type scripted struct {
	stamps []time.Time
}

func (s *scripted) readStamped(p []byte) (int, time.Time, time.Time, error) {
	stamp := s.stamps[0]
	s.stamps = s.stamps[1:]
	return copy(p, "x"), stamp, time.Time{}, nil
}

// Packets that overtake one another must not make the arrivals run backwards.
func TestConnArrivalsNeverRunBackwards(t *testing.T) {
	now := time.Now()
	c := &Conn{floor: now.Add(-time.Minute), stamps: &scripted{stamps: []time.Time{
		now.Round(0).Add(-40 * time.Millisecond), now.Round(0).Add(-60 * time.Millisecond), now.Round(0).Add(-30 * time.Millisecond),
	}}}
	var at []time.Duration
	for range 3 {
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		at = append(at, c.LastArrival().At.Sub(now).Round(time.Millisecond))
	}
	want := []time.Duration{-40 * time.Millisecond, -40 * time.Millisecond, -30 * time.Millisecond}
	if !slices.Equal(at, want) {
		t.Errorf("arrivals %v, want %v", at, want)
	}
}
