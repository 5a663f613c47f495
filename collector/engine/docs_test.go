package enginemetrics

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// The docs name every dialect and every reason, and none that does not exist.
func TestDocsAreComplete(t *testing.T) {
	page, err := os.ReadFile("../../docs/engines.md")
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, m := range regexp.MustCompile("(?m)^\\| `((?:[a-z]+_)?[a-z]+)` \\|").FindAllSubmatch(page, -1) {
		reasons = append(reasons, string(m[1]))
	}
	var want []string
	for _, r := range Reasons() {
		want = append(want, string(r))
	}
	if !slices.Equal(reasons, want) {
		t.Errorf("reasons %v, want %v", reasons, want)
	}
	var dialects []string
	for _, head := range regexp.MustCompile(`(?m)^\| \| (.*) \|$`).FindAllSubmatch(page, -1) {
		for _, m := range regexp.MustCompile("`([a-z]+)`").FindAllSubmatch(head[1], -1) {
			dialects = append(dialects, string(m[1]))
		}
	}
	slices.Sort(dialects)
	if known := Dialects(); !slices.Equal(dialects, known) {
		t.Errorf("dialects %v, want %v", dialects, known)
	}
}
