//go:build linux && cgo

package nvml

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// BenchmarkSample8GPUs is the cost of one cycle over eight GPUs with every figure,
// through the real binding into the fake library. cpu-ms/cycle is the CPU time of the
// whole process; at one cycle per second, 5 ms are 0.5 % of a core.
func BenchmarkSample8GPUs(b *testing.B) {
	lines := []string{"count 8"}
	for i := range 8 {
		for _, f := range []string{"82 u 60", "197 l 1000", "198 l 2000", "94 u 3", "138 l 10", "139 l 20", "230 u 0"} {
			lines = append(lines, fmt.Sprintf("gpu.%d.field.%s", i, f))
		}
	}
	lib, _ := control(b, lines...)
	src := NewLocal(LocalOptions{LibraryPath: lib, NoEvents: true})
	defer func() { _ = src.Close() }()
	ctx := context.Background()
	if _, err := src.Sample(ctx); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	var cpu time.Duration
	for b.Loop() {
		time.Sleep(gpmMinGap) // else GPM is skipped
		before := cpuTime()
		s, err := src.Sample(ctx)
		cpu += cpuTime() - before
		if err != nil || !s.GPUs[7].Activity.SM.Valid() {
			b.Fatal(err, strings.TrimSpace(fmt.Sprint(len(s.GPUs))))
		}
	}
	b.ReportMetric(float64(cpu.Microseconds())/1e3/float64(b.N), "cpu-ms/cycle")
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
