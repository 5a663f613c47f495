package sim

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

//go:generate go test . -run TestDocs -update

var update = flag.Bool("update", false, "write the list of faults in docs/simulator.md anew")

// The list of faults in docs/simulator.md is that of the code.
func TestDocs(t *testing.T) {
	const begin, end = "<!-- faults -->", "<!-- end of the faults -->"
	page := filepath.Join("..", "docs", "simulator.md")
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), begin)
	if !ok {
		t.Fatalf("%s has no %s", page, begin)
	}
	_, after, _ := strings.Cut(rest, end)
	var table strings.Builder
	table.WriteString("| fault | value | what it does |\n|---|---|---|\n")
	for _, f := range Faults() {
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", f.Name, f.Value, strings.ReplaceAll(f.Help, "|", "\\|"))
	}
	current := before + begin + "\n\n" + table.String() + "\n" + end + after
	if *update {
		if err := os.WriteFile(page, []byte(current), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if current != string(b) {
		t.Errorf("%s is not current: run make docs", page)
	}
}
