// Package stream turns the bytes of a streamed answer into events with arrival times.
//
// It has two halves. Conn reads a TCP connection and knows, on Linux from the kernel, when the bytes of
// each read arrived. Decoder frames a response body as Server-Sent Events or as newline-delimited JSON
// and stamps each event with the arrival of the bytes that completed it.
//
// The two are joined by Options.Arrival. For a request over net/http:
//
//	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
//		c, err := dialer.DialContext(ctx, network, addr)
//		if err != nil {
//			return nil, err
//		}
//		return stream.NewConn(c), nil
//	}
//	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
//		conn = stream.FromHTTPConn(info.Conn)
//	}}
//	…
//	d := stream.NewSSE(resp.Body, stream.Options{Arrival: conn.LastArrival})
//	for ev, err := d.Next(); err == nil; ev, err = d.Next() { … }
//
// The pairing holds for HTTP/1.1, where the goroutine that reads the body is the one that reads the
// connection. Under HTTP/2 a connection carries many bodies and is read ahead of them, so its last arrival
// says nothing about one body: leave Options.Arrival nil there and live with the user clock.
//
// # A known limit
//
// net/http's chunked reader hands a chunk on together with the next one when the header of the next chunk
// came in the same read and its data did not: it has begun the next chunk and waits for it. The first of
// the two is then seen, and stamped, when the second arrives. Servers that write each chunk whole are not
// affected; a proxy that cuts the stream at arbitrary bytes may be.
package stream
