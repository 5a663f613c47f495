package stream

import (
	"net"
	"testing"
	"time"
)

func BenchmarkSSEDecode(b *testing.B) {
	for _, perRead := range []int{1, 16} {
		b.Run(map[int]string{1: "one_event_a_read", 16: "sixteen_events_a_read"}[perRead], func(b *testing.B) {
			conn := &Conn{last: Arrival{At: time.Now(), Clock: ClockKernel}}
			read := ""
			for range perRead {
				read += steadyChunk
			}
			d := NewSSE(&repeat{s: read, n: -1}, Options{MaxBodyBytes: 1 << 50, Arrival: conn.LastArrival})
			b.SetBytes(int64(len(steadyChunk)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkNDJSONDecode(b *testing.B) {
	line := `{"model":"m","created_at":"2026-01-02T03:04:05Z","message":{"role":"assistant","content":" word"},"done":false}` + "\n"
	d := NewNDJSON(&repeat{s: line, n: -1}, Options{MaxBodyBytes: 1 << 50, Arrival: (&Conn{last: Arrival{At: time.Now()}}).LastArrival})
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Next(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkConnRead reads one small packet after another, written by the same goroutine: the difference
// between the two is what the time stamps cost.
func BenchmarkConnRead(b *testing.B) {
	for _, stamped := range []bool{false, true} {
		b.Run(map[bool]string{false: "net", true: "stamped"}[stamped], func(b *testing.B) {
			client, server := tcpPair(b)
			var c net.Conn = client
			if stamped {
				c = NewConn(client)
			}
			in, out := make([]byte, 4096), []byte(steadyChunk)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := server.Write(out); err != nil {
					b.Fatal(err)
				}
				if _, err := c.Read(in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
