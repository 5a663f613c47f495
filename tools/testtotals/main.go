// Command testtotals reads the output of `go test -json` on standard input. It prints one line per package, the
// whole output of whatever failed, the reasons of skipped tests, and the totals alone on the last line.
//
// Its exit status is 1 if a test or a package failed, or if no test ran at all.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	t := newTotals(os.Stdout)
	if err := t.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testtotals:", err)
		os.Exit(1)
	}
	if !t.summary() {
		os.Exit(1)
	}
}

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build output
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

// key names a test, or a package when Test is empty.
type key struct{ pkg, test string }

// totals counts tests, subtests included, and keeps the output of what still runs.
type totals struct {
	w                       io.Writer
	passed, failed, skipped int
	output                  map[key][]string
	build                   map[string][]string // compiler output by import path
	failedIn                map[string]bool     // packages in which a test failed
}

func newTotals(w io.Writer) *totals {
	return &totals{w: w, output: map[key][]string{}, build: map[string][]string{}, failedIn: map[string]bool{}}
}

// read takes a whole run. Lines that are no events (of make, say) are passed through.
func (t *totals) read(r io.Reader) error {
	br := bufio.NewReader(r)
	for {
		line, err := br.ReadString('\n')
		if strings.TrimSpace(line) != "" {
			var e event
			if line[0] != '{' || json.Unmarshal([]byte(line), &e) != nil {
				fmt.Fprint(t.w, line)
			} else {
				t.take(e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read test output: %w", err)
		}
	}
}

func (t *totals) take(e event) {
	k := key{e.Package, e.Test}
	switch e.Action {
	case "output":
		t.output[k] = append(t.output[k], e.Output)
	case "build-output":
		t.build[e.ImportPath] = append(t.build[e.ImportPath], e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			t.endPackage(k, e)
		} else {
			t.endTest(k, e)
		}
		delete(t.output, k)
	}
}

func (t *totals) endTest(k key, e event) {
	switch e.Action {
	case "pass":
		t.passed++
	case "skip":
		t.skipped++
		fmt.Fprintf(t.w, "SKIP %s %s: %s\n", k.pkg, k.test, reason(t.output[k]))
	case "fail":
		t.failed++
		t.failedIn[k.pkg] = true
		fmt.Fprintf(t.w, "FAIL %s %s\n%s", k.pkg, k.test, strings.Join(t.output[k], ""))
	}
}

func (t *totals) endPackage(k key, e event) {
	switch e.Action {
	case "pass":
		fmt.Fprintf(t.w, "ok   %s %.1fs\n", k.pkg, e.Elapsed)
	case "skip":
		fmt.Fprintf(t.w, "     %s: no tests\n", k.pkg)
	case "fail":
		// A package that fails with no failed test did not build, panicked, leaked or ran out of time.
		if !t.failedIn[k.pkg] {
			t.failed++
		}
		fmt.Fprintf(t.w, "FAIL %s %.1fs\n", k.pkg, e.Elapsed)
		fmt.Fprint(t.w, strings.Join(t.build[e.FailedBuild], ""), strings.Join(t.output[k], ""))
		// What was still running when the package died: it tells where.
		for other, out := range t.output {
			if other.pkg == k.pkg && other.test != "" {
				fmt.Fprintf(t.w, "unfinished: %s\n%s", other.test, strings.Join(out, ""))
				delete(t.output, other)
			}
		}
	}
}

// summary prints the totals and reports whether all is well.
func (t *totals) summary() bool {
	if t.passed+t.failed == 0 {
		fmt.Fprintln(t.w, "no test ran")
	}
	fmt.Fprintf(t.w, "%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
	return t.failed == 0 && t.passed > 0
}

// reason picks what a skipped test said: its last line that is no framing of the test runner.
func reason(output []string) string {
	for i := len(output) - 1; i >= 0; i-- {
		line := strings.TrimSpace(output[i])
		if line != "" && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "===") {
			return line
		}
	}
	return "no reason given"
}
