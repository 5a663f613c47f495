package nvml

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeProc makes a /proc with a server on port 8000: process 10 listens, 20 and 30
// are its child and grandchild, 40 is another's.
func fakeProc(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string) {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	write("net/tcp", header+
		"   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 777 1 0 100 0 0 10 0\n"+ // 8080
		"   1: 0100007F:1F40 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 555 1 0 100 0 0 10 0\n") // a connection
	write("net/tcp6", header+
		"   0: 00000000000000000000000000000000:1F40 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 999 1 0 100 0 0 10 0\n"+
		"   1: short\n")
	for pid, p := range map[string]struct{ stat, socket string }{
		"10":  {"10 (vllm serve) S 1 10", "socket:[999]"},
		"20":  {"20 (VLLM::Engine) x) S 10 10", "socket:[1]"},
		"30":  {"30 (worker) S 20 10", "pipe:[2]"},
		"40":  {"40 (other) S 1 40", "socket:[777]"},
		"50":  {"garbage", "socket:[555]"},
		"ten": {"60 (x) S 10", "socket:[999]"},
	} {
		write(pid+"/stat", p.stat+"\n")
		if err := os.MkdirAll(filepath.Join(root, pid, "fd"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(p.socket, filepath.Join(root, pid, "fd", "3")); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestProcessesByPort(t *testing.T) {
	root := fakeProc(t)
	for port, want := range map[uint16][]int{8000: {10, 20, 30}, 8080: {40}, 9000: nil} {
		got, err := ProcessesByPort(root, port)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("port %d: %v, %v; want %v", port, got, err, want)
		}
	}
	if _, err := ProcessesByPort(t.TempDir(), 8000); err == nil || !strings.Contains(err.Error(), "8000") {
		t.Errorf("no /proc: %v", err)
	}
}

func TestGPUsOfProcesses(t *testing.T) {
	s, err := NewSampler(&scripted{}, SamplerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.state.Store(&State{Up: true, Snapshot: Snapshot{GPUs: []Sample{
		{GPU: GPU{UUID: "GPU-a"}, Processes: []Process{{PID: 20}}},
		{GPU: GPU{UUID: "GPU-b"}, Processes: []Process{{PID: 40}}},
		{GPU: GPU{UUID: "GPU-c"}, Processes: []Process{{PID: 7}, {PID: 30}}},
		{GPU: GPU{UUID: "GPU-d"}},
	}}})
	if got := s.GPUsOfProcesses([]int{10, 20, 30}); !slices.Equal(got, []string{"GPU-a", "GPU-c"}) {
		t.Errorf("%v", got)
	}
	if got := s.GPUsOfProcesses(nil); got != nil {
		t.Errorf("%v", got)
	}
}
