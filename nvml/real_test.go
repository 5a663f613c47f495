//go:build linux && cgo

package nvml

import (
	"context"
	"encoding/csv"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestRealGPU compares what this package reads with what nvidia-smi prints, on a
// machine with a real GPU and LLM_CANARY_REAL_GPU=1. It logs every figure and the time
// of a cycle.
func TestRealGPU(t *testing.T) {
	if os.Getenv("LLM_CANARY_REAL_GPU") == "" {
		t.Skip("set LLM_CANARY_REAL_GPU=1 on a machine with a GPU")
	}
	src := NewLocal(LocalOptions{Processes: true})
	defer func() {
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	}()
	var snap Snapshot
	for range 5 {
		began := time.Now()
		snap = sampleOnce(t, src)
		t.Logf("a cycle over %d GPUs took %s", len(snap.GPUs), time.Since(began))
		time.Sleep(time.Second)
	}
	const query = "uuid,index,name,driver_version,memory.total,memory.used,memory.reserved,utilization.gpu,power.draw,enforced.power.limit,temperature.gpu,clocks.sm"
	out, err := exec.CommandContext(context.Background(), "nvidia-smi", "--query-gpu="+query, "--format=csv,noheader,nounits").Output()
	if err != nil {
		t.Fatal(err)
	}
	r := csv.NewReader(strings.NewReader(string(out)))
	r.TrimLeadingSpace = true
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(snap.GPUs) {
		t.Errorf("%d GPUs, nvidia-smi says %d", len(snap.GPUs), len(rows))
	}
	for _, row := range rows {
		i := slices.IndexFunc(snap.GPUs, func(g Sample) bool { return g.UUID == row[0] })
		if i < 0 {
			t.Errorf("no GPU %s", row[0])
			continue
		}
		g := &snap.GPUs[i]
		t.Logf("%s %s %s: %+v", g.UUID, g.Name, snap.Driver.Version, flat(g))
		if strconv.Itoa(g.Index) != row[1] || g.Name != row[2] || snap.Driver.Version != row[3] {
			t.Errorf("identity %+v, nvidia-smi says %v", g.GPU, row[:4])
		}
		for _, c := range []struct {
			name         string
			got          Value
			column       int
			scale, slack float64 // slack in the unit of nvidia-smi
		}{
			{"memory total", g.Memory.Total, 4, 1 << 20, 1},
			{"memory used", g.Memory.Used, 5, 1 << 20, 1024},
			{"memory reserved", g.Memory.Reserved, 6, 1 << 20, 1},
			{"utilization", g.Utilization, 7, 0.01, 30},
			{"power", g.PowerWatts, 8, 1, 100},
			{"power limit", g.PowerLimitWatts, 9, 1, 1},
			{"temperature", g.TemperatureCelsius, 10, 1, 5},
			{"SM clock", g.SMClockHertz, 11, 1e6, 500},
		} {
			theirs, err := strconv.ParseFloat(row[c.column], 64)
			ours, ok := c.got.Get()
			if ok != (err == nil) || ok && math.Abs(ours/c.scale-theirs) > c.slack {
				t.Errorf("%s: %v, %v; nvidia-smi says %q", c.name, ours/c.scale, ok, row[c.column])
			}
		}
	}
}
