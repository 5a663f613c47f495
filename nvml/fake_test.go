//go:build linux && cgo

package nvml

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// controlEnv names the control file of the fake library.
const controlEnv = "FAKENVML_CONTROL"

// errNoCompiler is the only reason to skip; a fake library that does not compile is
// a failure.
var errNoCompiler = errors.New("no C compiler (cc)")

// skipOrFail ends a test for which there is no fake library.
func skipOrFail(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, errNoCompiler) {
		t.Skipf("SKIPPED, the fake NVML library cannot be built: %v", err)
	}
	t.Fatal(err)
}

// fakeObject compiles the fake library once for the whole test run.
var fakeObject = sync.OnceValues(func() (string, error) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		return "", errNoCompiler
	}
	header, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		return "", fmt.Errorf("finding nvml.h: %w", err)
	}
	dir, err := os.MkdirTemp("", "fakenvml")
	if err != nil {
		return "", err
	}
	obj := filepath.Join(dir, "fakenvml.o")
	inc := filepath.Join(strings.TrimSpace(string(header)), "pkg", "nvml")
	out, err := exec.Command(cc, "-c", "-fPIC", "-O1", "-Wno-deprecated-declarations",
		"-DNVML_NO_UNVERSIONED_FUNC_DEFS", "-I", inc, "-o", obj, "testdata/fakenvml/fakenvml.c").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("compiling the fake library: %w\n%s", err, out)
	}
	return obj, nil
})

// removeFake deletes what fakeObject made.
func removeFake() {
	if obj, err := fakeObject(); err == nil {
		_ = os.RemoveAll(filepath.Dir(obj))
	}
}

// fakeLibrary links the fake library without the functions in omit and returns its
// path. The test is skipped where there is no C compiler.
func fakeLibrary(t testing.TB, omit ...string) string {
	t.Helper()
	obj, err := fakeObject()
	if err != nil {
		skipOrFail(t, err)
	}
	dir := t.TempDir()
	script := filepath.Join(dir, "symbols")
	local := ""
	for _, sym := range omit {
		local += sym + "; "
	}
	if local != "" {
		local = "local: " + local
	}
	if err := os.WriteFile(script, []byte("{ global: nvml*; "+local+"};\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	lib := filepath.Join(dir, "libnvidia-ml.so.1")
	out, err := exec.Command("cc", "-shared", "-Wl,-soname,libnvidia-ml.so.1", "-Wl,--version-script="+script,
		"-o", lib, obj, "-lpthread").CombinedOutput()
	if err != nil {
		t.Fatalf("linking the fake library: %v\n%s", err, out)
	}
	return lib
}

// sharedFake is the complete library for all tests that run in this process: what
// the dynamic linker bound once stays bound, so a process can use only one.
var sharedFake struct {
	once sync.Once
	path string
}

// control sets up the complete fake library with the given control lines, and
// returns the library's path and a function that replaces the lines.
func control(t testing.TB, lines ...string) (lib string, set func(lines ...string)) {
	t.Helper()
	sharedFake.once.Do(func() {
		obj, err := fakeObject()
		if err != nil {
			return
		}
		sharedFake.path = filepath.Join(filepath.Dir(obj), "libnvidia-ml.so.1")
		if err := os.Rename(fakeLibrary(t), sharedFake.path); err != nil {
			t.Fatal(err)
		}
	})
	if sharedFake.path == "" {
		_, err := fakeObject()
		skipOrFail(t, err)
	}
	file := filepath.Join(t.TempDir(), "control")
	t.Setenv(controlEnv, file)
	set = func(lines ...string) { writeControl(t, file, lines...) }
	set(lines...)
	return sharedFake.path, set
}

func writeControl(t testing.TB, file string, lines ...string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}
