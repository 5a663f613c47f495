package enginemetrics

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

//go:generate go test . -run TestDocs -update

// The list of metrics in docs/engines.md is that of the code.
func TestDocs(t *testing.T) {
	const begin, end = "<!-- metrics -->", "<!-- end of the metrics -->"
	page := filepath.Join("..", "..", "docs", "engines.md")
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
	table.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, f := range Families() {
		fmt.Fprintf(&table, "| `%s` | %v | %s | %s |\n", f.Name, f.Type, strings.Join(f.Labels, ", "), strings.ReplaceAll(f.Help, "|", "\\|"))
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
