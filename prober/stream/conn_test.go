package stream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// stamping keeps the kernel's stamps on, and waits until they are.
func stamping(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("no kernel stamps on this platform")
	}
	k, err := KeepStamps()
	if err != nil {
		t.Skipf("this kernel gives no stamps: %v", err)
	}
	t.Cleanup(func() { k.Close() })
	buf := make([]byte, 1)
	for range 200 {
		c, s := pair(t)
		_, _ = s.Write([]byte("x"))
		_, _ = c.Read(buf)
		if c.LastArrival().Clock == ClockKernel {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("the kernel does not stamp")
}

func pair(t *testing.T) (client *Conn, server *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	return NewConn(c), s.(*net.TCPConn)
}

// The bytes wait in the socket for a known time before they are read. The arrival is when they came, and the lag
// is at least what they waited.
func TestArrivalIsTheKernels(t *testing.T) {
	stamping(t)
	c, s := pair(t)
	const wait = 60 * time.Millisecond
	buf := make([]byte, 16)
	for range 3 {
		before := time.Now()
		if _, err := s.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		after := time.Now()
		time.Sleep(wait)
		if _, err := c.Read(buf); err != nil {
			t.Fatal(err)
		}
		a := c.LastArrival()
		if a.Clock != ClockKernel {
			t.Fatalf("clock %s", a.Clock)
		}
		if a.Lag < wait {
			t.Errorf("lag %v, but the bytes waited %v", a.Lag, wait)
		}
		// Loopback delivers within the write; the wall clock may be slewed a little meanwhile.
		if a.At.Before(before.Add(-5*time.Millisecond)) || a.At.After(after.Add(5*time.Millisecond)) {
			t.Errorf("arrived %v after the write began and %v before it ended", a.At.Sub(before), after.Sub(a.At))
		}
	}
	if b, n := c.Received(); b != 3 || n != 3 {
		t.Errorf("%d bytes in %d reads", b, n)
	}
}

// One read over several segments has the stamp of the last of them.
func TestReadOverSegments(t *testing.T) {
	stamping(t)
	c, s := pair(t)
	_, _ = s.Write([]byte("first"))
	time.Sleep(30 * time.Millisecond)
	before := time.Now()
	_, _ = s.Write([]byte("second"))
	time.Sleep(30 * time.Millisecond)
	buf := make([]byte, 64)
	n, err := c.Read(buf)
	if err != nil || n != len("firstsecond") {
		t.Skipf("read %d bytes, %v: the kernel did not gather", n, err)
	}
	if a := c.LastArrival(); a.At.Before(before.Add(-5 * time.Millisecond)) {
		t.Errorf("stamp of an earlier segment: %v before the last write", before.Sub(a.At))
	}
}

// net.Conn's contract: end, reset, deadlines, closing while a read waits.
func TestConnEnds(t *testing.T) {
	buf := make([]byte, 16)
	t.Run("end", func(t *testing.T) {
		c, s := pair(t)
		s.Close()
		if n, err := c.Read(buf); n != 0 || !errors.Is(err, io.EOF) {
			t.Fatalf("%d, %v", n, err)
		}
	})
	t.Run("half close", func(t *testing.T) {
		c, s := pair(t)
		_, _ = s.Write([]byte("ab"))
		_ = s.CloseWrite()
		if b, err := io.ReadAll(c); err != nil || string(b) != "ab" {
			t.Fatalf("%q, %v", b, err)
		}
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("reset", func(t *testing.T) {
		c, s := pair(t)
		_ = s.SetLinger(0)
		s.Close()
		_, err := c.Read(buf)
		var op *net.OpError
		if !errors.Is(err, syscall.ECONNRESET) || !errors.As(err, &op) {
			t.Fatalf("%v", err)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		c, _ := pair(t)
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		_, err := c.Read(buf)
		var ne net.Error
		if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &ne) || !ne.Timeout() {
			t.Fatalf("%v", err)
		}
		_ = c.SetReadDeadline(time.Time{})
	})
	t.Run("close while reading", func(t *testing.T) {
		c, _ := pair(t)
		done := make(chan error)
		go func() { _, err := c.Read(buf); done <- err }()
		time.AfterFunc(10*time.Millisecond, func() { c.Close() })
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Fatalf("%v", err)
		}
	})
	t.Run("empty read", func(t *testing.T) {
		c, _ := pair(t)
		if n, err := c.Read(nil); n != 0 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	})
}

// The connection below net/http is found, plain and under TLS, and its stamps are of the body's bytes: the reader
// takes the event long after it came.
func TestUnderHTTP(t *testing.T) {
	stamping(t)
	const wait = 50 * time.Millisecond
	for _, secure := range []bool{false, true} {
		name := map[bool]string{false: "plain", true: "TLS"}[secure]
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var before, after time.Time
			proceed, written := make(chan struct{}), make(chan struct{})
			h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.(http.Flusher).Flush()
				<-proceed
				mu.Lock()
				before = time.Now()
				_, _ = io.WriteString(w, "data: a\n\n")
				w.(http.Flusher).Flush()
				after = time.Now()
				mu.Unlock()
				close(written)
			})
			srv := httptest.NewUnstartedServer(h)
			if secure {
				srv.StartTLS()
			} else {
				srv.Start()
			}
			defer srv.Close()
			transport := srv.Client().Transport.(*http.Transport).Clone()
			plain := transport.DialContext
			if plain == nil {
				plain = (&net.Dialer{}).DialContext
			}
			transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := plain(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				return NewConn(c), nil
			}
			defer transport.CloseIdleConnections()
			var conn *Conn
			trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { conn = FromHTTPConn(i.Conn) }}
			req, _ := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, srv.URL, nil)
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if conn == nil {
				t.Fatal("the connection was not found")
			}
			close(proceed)
			<-written
			time.Sleep(wait)
			ev, err := NewSSE(resp.Body, Options{Arrival: conn.LastArrival}).Next()
			if err != nil || string(ev.Data) != "a" {
				t.Fatalf("%q, %v", ev.Data, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if ev.Clock != ClockKernel || ev.Lag < wait {
				t.Errorf("clock %s, lag %v", ev.Clock, ev.Lag)
			}
			if ev.At.Before(before.Add(-5*time.Millisecond)) || ev.At.After(after.Add(5*time.Millisecond)) {
				t.Errorf("arrived %v after the write began and %v before it ended", ev.At.Sub(before), after.Sub(ev.At))
			}
		})
	}
}

func TestClockSteps(t *testing.T) {
	now := time.Now()
	tests := []struct {
		name  string
		stamp time.Time
		lag   time.Duration
		clock Clock
	}{
		{"usual", now.Round(0).Add(-time.Millisecond), time.Millisecond, ClockKernel},
		{"no stamp", time.Time{}, 0, ClockUser},
		{"stamp of the future", now.Round(0).Add(time.Second), 0, ClockUser},
		{"wall clock stepped", now.Round(0).Add(-time.Hour), 0, ClockUser},
	}
	for _, tt := range tests {
		a := arrival(tt.stamp, now)
		if a.Lag != tt.lag || a.Clock != tt.clock || now.Sub(a.At) != tt.lag {
			t.Errorf("%s: %+v", tt.name, a)
		}
	}
}

func TestFromHTTPConn(t *testing.T) {
	c := NewConn(&net.TCPConn{})
	if FromHTTPConn(c) != c || FromHTTPConn(tls.Client(c, &tls.Config{ServerName: "x"})) != c {
		t.Error("not found")
	}
	if FromHTTPConn(&net.TCPConn{}) != nil || FromHTTPConn(nil) != nil {
		t.Error("found what is not there")
	}
}

func TestNoAllocationPerRead(t *testing.T) {
	c, s := pair(t)
	buf, one := make([]byte, 16), []byte("x")
	n := testing.AllocsPerRun(200, func() {
		_, _ = s.Write(one)
		_, _ = c.Read(buf)
	})
	if n != 0 {
		t.Fatalf("%v allocations per read", n)
	}
}

func BenchmarkRead(b *testing.B) {
	for _, stamped := range []bool{false, true} {
		b.Run(map[bool]string{false: "net", true: "stamped"}[stamped], func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			s, err := l.Accept()
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			if stamped {
				c = NewConn(c)
			}
			buf, data := make([]byte, 4096), []byte(chunk)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = s.Write(data)
				if _, err := c.Read(buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
