package engine

import (
	"context"
	"net"
	"sync"

	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// conns finds the stamped connection of a request. It is looked up by its addresses, since the client of
// prometheus/common wraps what the dialer returns into a type that hides it.
type conns struct {
	mu   sync.Mutex
	open map[string]*stream.Conn
}

func newConns() *conns { return &conns{open: map[string]*stream.Conn{}} }

// dial connects, and remembers the connection until it is closed.
func (c *conns) dial(ctx context.Context, dialer *net.Dialer, network, addr string) (net.Conn, error) {
	raw, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	conn := &trackedConn{Conn: stream.NewConn(raw), conns: c}
	c.mu.Lock()
	c.open[addresses(conn)] = conn.Conn
	c.mu.Unlock()
	return conn, nil
}

// find returns the connection below what net/http calls the connection; nil if it is not ours.
func (c *conns) find(conn net.Conn) *stream.Conn {
	if conn == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open[addresses(conn)]
}

// addresses identify a TCP connection that is open.
func addresses(c net.Conn) string { return c.LocalAddr().String() + " " + c.RemoteAddr().String() }

// trackedConn is forgotten when it is closed.
type trackedConn struct {
	*stream.Conn
	conns *conns
}

// Close closes the connection.
func (t *trackedConn) Close() error {
	key := addresses(t)
	t.conns.mu.Lock()
	if t.conns.open[key] == t.Conn {
		delete(t.conns.open, key)
	}
	t.conns.mu.Unlock()
	return t.Conn.Close()
}
