package engine

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	promconfig "github.com/prometheus/common/config"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// idleTimeout is how long a kept connection may be idle: uvicorn, which most engines run on, closes at 5 s, and a
// request that meets the close fails for no fault of the server's.
const idleTimeout = 4 * time.Second

// clientName is a label of the metrics of the library that dials: one value for all targets, or its series grow.
const clientName = "probe"

// newClient makes the HTTP client of a target. It lives as long as the target, since it holds OAuth2 tokens and kept
// connections. It has no timeout of its own, asks for no compression, and does not retry.
func newClient(c config.Target, o Options) (*http.Client, error) {
	dialer := &net.Dialer{}
	options := []promconfig.HTTPClientOption{
		promconfig.WithIdleConnTimeout(idleTimeout),
		promconfig.WithUserAgent(o.UserAgent),
		promconfig.WithDialContextFunc(func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return dialed{stream.NewConn(conn)}, nil
		}),
	}
	if !c.KeepAlive {
		options = append(options, promconfig.WithKeepAlivesDisabled())
	}
	if !c.HTTPClient.EnableHTTP2 {
		options = append(options, promconfig.WithHTTP2Disabled())
	}
	settings := c.HTTPClient
	if a := settings.Authorization; a != nil && a.Credentials == "" && a.CredentialsFile == "" && a.CredentialsRef == "" {
		settings.Authorization = nil // or a "Bearer" without a key would be sent
	}
	client, err := promconfig.NewClientFromConfig(settings, clientName, options...)
	if err != nil {
		return nil, fmt.Errorf("target %s: HTTP client: %w", c.Name, err)
	}
	return client, nil
}

// dialed is a connection that can be found again below what net/http and the libraries between put around it: they
// hide the connection, but pass its address on.
type dialed struct{ *stream.Conn }

// LocalAddr returns the local address, which knows its connection.
func (d dialed) LocalAddr() net.Addr { return address{d.Conn.LocalAddr(), d.Conn} }

type address struct {
	net.Addr
	conn *stream.Conn
}

// stampedConn returns the connection that notes arrival times, or nil.
func stampedConn(c net.Conn) *stream.Conn {
	if c == nil {
		return nil
	}
	if a, ok := c.LocalAddr().(address); ok {
		return a.conn
	}
	return stream.FromHTTPConn(c)
}
