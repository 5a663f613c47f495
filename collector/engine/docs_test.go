package enginemetrics

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// The docs name every dialect and every reason, and none that does not exist.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/engines.md")
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllSubmatch(page, -1) {
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
