package stream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stamping turns the kernel's stamping on for the length of a test and waits until it works. It skips the
// test where it never does, as in some sandboxes.
func stamping(t testing.TB) {
	t.Helper()
	release, err := HoldKernelStamps()
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(release)
	client, server := tcpPair(t)
	c := NewConn(client)
	for range 2000 {
		if _, err := server.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if c.LastArrival().Clock == ClockKernel {
			return
		}
		hold(time.Millisecond)
	}
	if kernelStamps(t) {
		t.Fatal("the kernel stamps packets, but Conn has the user clock")
	}
	t.Skip("this kernel gives no receive stamps for TCP")
}

// kernelStamps finds out without Conn whether the kernel stamps the packets of a TCP stream.
func kernelStamps(t testing.TB) bool {
	t.Helper()
	client, server := tcpPair(t)
	raw, err := client.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) }); err != nil {
		t.Fatal(err)
	}
	hold(100 * time.Millisecond)
	if _, err := server.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	found := false
	err = raw.Read(func(fd uintptr) bool {
		control := make([]byte, 256)
		_, n, _, _, err := unix.Recvmsg(int(fd), make([]byte, 1), control, 0)
		found = err == nil && n > 0
		return !errors.Is(err, unix.EAGAIN)
	})
	return err == nil && found
}

// hold waits for as long as a reader is to be late. Its length is measured by the caller and bounds are set
// from what was measured.
func hold(d time.Duration) { time.Sleep(d) }

// The reader is kept from reading for a known time; the arrival must be the time of the write.
func TestConnStampsTheArrivalNotTheRead(t *testing.T) {
	stamping(t)
	client, server := tcpPair(t)
	c := NewConn(client)
	buf := make([]byte, 64)
	for i := range 5 {
		before := time.Now()
		if _, err := server.Write([]byte("data: x\n\n")); err != nil {
			t.Fatal(err)
		}
		after := time.Now()
		hold(30 * time.Millisecond)
		beforeRead := time.Now()
		if _, err := c.Read(buf); err != nil {
			t.Fatal(err)
		}
		a := c.LastArrival()
		if a.Clock != ClockKernel {
			t.Fatalf("read %d has the clock %q", i, a.Clock)
		}
		if a.At.Before(before.Add(-clockSlew)) || a.At.After(beforeRead) {
			t.Errorf("written between 0 and %v, read after %v, but arrived at %v", after.Sub(before), beforeRead.Sub(before), a.At.Sub(before))
		}
		if held := beforeRead.Sub(a.At); a.Lag < held {
			t.Errorf("lag %v, but the bytes lay for %v", a.Lag, held)
		}
		if a.Lag < 15*time.Millisecond {
			t.Errorf("lag %v after the reader was held for 30ms", a.Lag)
		}
	}
}

// A reader that waits for bytes gets the kernel's stamp too.
func TestConnStampsAWaitingRead(t *testing.T) {
	stamping(t)
	client, server := tcpPair(t)
	c := NewConn(client)
	go func() {
		for range 20 {
			hold(time.Millisecond)
			if _, err := server.Write([]byte("x")); err != nil {
				return
			}
		}
		_ = server.Close()
	}()
	kernel, last := 0, time.Time{}
	buf := make([]byte, 64)
	for {
		if _, err := c.Read(buf); err != nil {
			break
		}
		a := c.LastArrival()
		if a.Clock == ClockKernel {
			kernel++
		}
		if a.At.Before(last) {
			t.Errorf("arrival %v before the one before it", a.At.Sub(last))
		}
		last = a.At
	}
	if reads := int(c.Reads()); kernel != reads || reads == 0 {
		t.Errorf("%d of %d reads have the kernel's clock", kernel, reads)
	}
}

// What the kernel does when one read gathers several packets: the stamp is that of the last one.
func TestConnOneReadOfSeveralPackets(t *testing.T) {
	stamping(t)
	client, server := tcpPair(t)
	c := NewConn(client)
	buf := make([]byte, 64)
	var lastWrite time.Time
	for range 3 {
		hold(20 * time.Millisecond)
		lastWrite = time.Now()
		if _, err := server.Write([]byte("abcd")); err != nil {
			t.Fatal(err)
		}
	}
	hold(20 * time.Millisecond)
	n, err := io.ReadFull(c, buf[:12])
	if err != nil {
		t.Fatal(n, err)
	}
	if c.Reads() != 1 {
		t.Skipf("the packets took %d reads", c.Reads())
	}
	a := c.LastArrival()
	if a.Clock == ClockKernel && a.At.Before(lastWrite.Add(-clockSlew)) {
		t.Errorf("stamp lies %v before the last write: it is not the last packet's", lastWrite.Sub(a.At))
	}
}

// streamServer answers with n events of which each is written when the client asks for it, and records
// when it wrote.
type streamServer struct {
	events int
	next   chan struct{}
	wrote  chan time.Time
}

func (s *streamServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	rc := http.NewResponseController(w)
	_ = rc.Flush()
	for i := range s.events {
		select {
		case <-s.next:
		case <-r.Context().Done():
			return
		}
		at := time.Now()
		_, _ = fmt.Fprintf(w, "data: {\"i\":%d}\n\n", i)
		_ = rc.Flush()
		s.wrote <- at
	}
}

func testClient(t testing.TB, srv *httptest.Server) (client *http.Client, connOf func() *Conn) {
	t.Helper()
	var dialer net.Dialer
	tr := &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return NewConn(c), nil
		},
		DisableCompression: true,
	}
	if base, ok := srv.Client().Transport.(*http.Transport); ok && base.TLSClientConfig != nil {
		tr.TLSClientConfig = &tls.Config{RootCAs: base.TLSClientConfig.RootCAs, MinVersion: tls.VersionTLS12}
	}
	t.Cleanup(tr.CloseIdleConnections)
	var mu sync.Mutex
	var conn *Conn
	trace := traceTransport{tr, func(c net.Conn) {
		mu.Lock()
		conn = FromHTTPConn(c)
		mu.Unlock()
	}}
	return &http.Client{Transport: trace}, func() *Conn {
		mu.Lock()
		defer mu.Unlock()
		return conn
	}
}

// traceTransport reports the connection that each request got.
type traceTransport struct {
	next    http.RoundTripper
	gotConn func(net.Conn)
}

func (tt traceTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { tt.gotConn(i.Conn) }}
	return tt.next.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
}

func TestHTTPStampsWhileTheReaderIsHeld(t *testing.T) {
	stamping(t)
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%t", secure), func(t *testing.T) {
			const events = 6
			s := &streamServer{events: events, next: make(chan struct{}), wrote: make(chan time.Time, 1)}
			start := httptest.NewServer
			if secure {
				start = httptest.NewTLSServer
			}
			srv := start(s)
			defer srv.Close()
			client, connOf := testClient(t, srv)
			resp, err := client.Get(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			conn := connOf()
			if conn == nil {
				t.Fatal("no *Conn under the connection that the transport reports")
			}
			d := NewSSE(resp.Body, Options{Arrival: conn.LastArrival})
			for i := range events {
				s.next <- struct{}{}
				wrote := <-s.wrote
				hold(25 * time.Millisecond)
				beforeRead := time.Now()
				ev, err := d.Next()
				if err != nil {
					t.Fatal(err)
				}
				if want := fmt.Sprintf(`{"i":%d}`, i); string(ev.Data) != want {
					t.Fatalf("event %d is %q", i, ev.Data)
				}
				if ev.Clock != ClockKernel {
					t.Fatalf("event %d has the clock %q", i, ev.Clock)
				}
				if ev.At.Before(wrote.Add(-clockSlew)) || !ev.At.Before(beforeRead) {
					t.Errorf("event %d: at %v after the write, the read began %v after it", i, ev.At.Sub(wrote), beforeRead.Sub(wrote))
				}
				if held := beforeRead.Sub(ev.At); ev.Lag < held || ev.Lag < 12*time.Millisecond {
					t.Errorf("event %d: lag %v, held for %v", i, ev.Lag, held)
				}
			}
			if _, err := d.Next(); !isPlainEOF(err) {
				t.Errorf("ended with %v", err)
			}
			if conn.BytesRead() == 0 || conn.Reads() < events {
				t.Errorf("counted %d bytes in %d reads", conn.BytesRead(), conn.Reads())
			}
		})
	}
}

// clockSlew allows for the steering of the wall clock between a write and a read of the same test.
const clockSlew = 50 * time.Microsecond

// Many streams at once under load: no event may be stamped before it was written or after it was read, and
// the stamps of a stream never run backwards.
func TestManyStreamsUnderLoad(t *testing.T) {
	stamping(t)
	const streams, events = 60, 25
	ticks := make([]chan struct{}, streams)
	wrote := make([][]time.Time, streams)
	mux := http.NewServeMux()
	for i := range streams {
		ticks[i] = make(chan struct{})
		wrote[i] = make([]time.Time, events)
		mux.HandleFunc(fmt.Sprintf("/%d", i), func(w http.ResponseWriter, _ *http.Request) {
			rc := http.NewResponseController(w)
			for k := range events {
				wrote[i][k] = time.Now()
				_, _ = fmt.Fprintf(w, "data: {\"k\":%d}\n\n", k)
				_ = rc.Flush()
				hold(2 * time.Millisecond)
			}
			close(ticks[i])
		})
	}
	srv := httptest.NewServer(mux)
	defer srv.Close()
	stop := make(chan struct{})
	var load sync.WaitGroup
	for range 2 {
		load.Go(func() {
			for x := uint64(1); ; x = x*6364136223846793005 + 1 {
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var kernelErr, userErr []time.Duration
	for i := range streams {
		client, connOf := testClient(t, srv)
		wg.Go(func() {
			resp, err := client.Get(fmt.Sprintf("%s/%d", srv.URL, i))
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = resp.Body.Close() }()
			d := NewSSE(resp.Body, Options{Arrival: connOf().LastArrival})
			at, read := make([]time.Time, 0, events), make([]time.Time, 0, events)
			for {
				ev, err := d.Next()
				if err != nil {
					break
				}
				at, read = append(at, ev.At), append(read, time.Now())
				if ev.Clock != ClockKernel {
					t.Errorf("stream %d: an event has the clock %q", i, ev.Clock)
				}
			}
			<-ticks[i]
			if len(at) != events {
				t.Errorf("stream %d: %d events", i, len(at))
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for k := range events {
				if at[k].Before(wrote[i][k].Add(-clockSlew)) || at[k].After(read[k]) {
					t.Errorf("stream %d event %d: stamped %v after the write and %v before the read", i, k, at[k].Sub(wrote[i][k]), read[k].Sub(at[k]))
				}
				if k > 0 && at[k].Before(at[k-1]) {
					t.Errorf("stream %d event %d: stamps run backwards", i, k)
				}
				kernelErr = append(kernelErr, at[k].Sub(wrote[i][k]))
				userErr = append(userErr, read[k].Sub(wrote[i][k]))
			}
		})
	}
	wg.Wait()
	close(stop)
	load.Wait()
	t.Logf("time after the write: arrival p50 %v p99 %v; user clock p50 %v p99 %v",
		quantile(kernelErr, 0.5), quantile(kernelErr, 0.99), quantile(userErr, 0.5), quantile(userErr, 0.99))
}

func TestParseStamp(t *testing.T) {
	message := func(level, typ int32, data []byte) []byte {
		b := make([]byte, unix.CmsgSpace(len(data)))
		putHeader(b, level, typ, len(data))
		copy(b[unix.CmsgLen(0):], data)
		return b
	}
	wide := append(native64(1_700_000_000), native64(123_456_789)...)
	narrow := append(native32(1_700_000_000), native32(123_456_789)...)
	want := time.Unix(1_700_000_000, 123_456_789)
	tests := []struct {
		name    string
		control []byte
		want    time.Time
	}{
		{"nothing", nil, time.Time{}},
		{"64-bit numbers", message(unix.SOL_SOCKET, unix.SO_TIMESTAMPNS_NEW, wide), want},
		{"64-bit numbers, old option", message(unix.SOL_SOCKET, unix.SCM_TIMESTAMPNS, wide), want},
		{"32-bit numbers", message(unix.SOL_SOCKET, unix.SCM_TIMESTAMPNS, narrow), want},
		{"after another message", append(message(unix.SOL_SOCKET, 99, []byte{1, 2, 3}), message(unix.SOL_SOCKET, unix.SCM_TIMESTAMPNS, wide)...), want},
		{"another level", message(unix.IPPROTO_TCP, unix.SCM_TIMESTAMPNS, wide), time.Time{}},
		{"cut data", message(unix.SOL_SOCKET, unix.SCM_TIMESTAMPNS, wide[:4]), time.Time{}},
		{"cut header", message(unix.SOL_SOCKET, unix.SCM_TIMESTAMPNS, wide)[:8], time.Time{}},
		{"cut inside", message(unix.SOL_SOCKET, unix.SCM_TIMESTAMPNS, wide)[:unix.CmsgLen(8)], time.Time{}},
		{"zero", message(unix.SOL_SOCKET, unix.SCM_TIMESTAMPNS, make([]byte, 16)), time.Time{}},
		{"nanoseconds out of range", message(unix.SOL_SOCKET, unix.SCM_TIMESTAMPNS, append(native64(1), native64(1e9)...)), time.Time{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := parseStamp(tt.control); !got.Equal(tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestConnReadAllocatesNothing(t *testing.T) {
	stamping(t)
	client, server := tcpPair(t)
	c := NewConn(client)
	buf, out := make([]byte, 64), []byte("data: x\n\n")
	allocs := testing.AllocsPerRun(200, func() {
		if _, err := server.Write(out); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(buf); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations a read, want 0", allocs)
	}
}

func TestConnErrorsAreNetsErrors(t *testing.T) {
	plain, plainPeer := tcpPair(t)
	stamped, stampedPeer := tcpPair(t)
	var errs [2]error
	for i, pair := range [][2]net.Conn{{plain, plainPeer}, {NewConn(stamped), stampedPeer}} {
		resetPeer(t, pair[1])
		_, errs[i] = pair[0].Read(make([]byte, 1))
		var op *net.OpError
		if !errors.As(errs[i], &op) {
			t.Fatalf("%T is no *net.OpError", errs[i])
		}
		if op.Op != "read" || op.Net != "tcp" || op.Source.String() != pair[0].LocalAddr().String() || op.Addr.String() != pair[0].RemoteAddr().String() {
			t.Errorf("fields are %q %q %v %v", op.Op, op.Net, op.Source, op.Addr)
		}
		if !errors.Is(errs[i], unix.ECONNRESET) {
			t.Errorf("%v is no connection reset", errs[i])
		}
	}
	var a, b *net.OpError
	if errors.As(errs[0], &a) && errors.As(errs[1], &b) && a.Err.Error() != b.Err.Error() {
		t.Errorf("the cause reads %q, net's reads %q", b.Err, a.Err)
	}
}
