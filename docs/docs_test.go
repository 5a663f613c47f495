// Package docs_test keeps the written docs true to the code: every failure reason, anomaly and skip reason is
// explained, none is explained that does not exist, and no link between the pages is dead.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// section returns the part of troubleshooting.md below a heading of the second level.
func section(t *testing.T, heading string) string {
	t.Helper()
	page, err := os.ReadFile("troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("troubleshooting.md has no section %q", heading)
	}
	body, _, _ := strings.Cut(rest, "\n## ")
	return body
}

func names[T ~string](list []T) []string {
	var out []string
	for _, x := range list {
		out = append(out, string(x))
	}
	slices.Sort(out)
	return out
}

func TestTroubleshootingIsComplete(t *testing.T) {
	heading, row := regexp.MustCompile(`(?m)^### (\S+)$`), regexp.MustCompile("(?m)^\\| `([a-z_0-9]+)` \\|")
	tests := []struct {
		section string
		entry   *regexp.Regexp
		want    []string
	}{
		{"Failure reasons", heading, names(result.Reasons())},
		{"Anomalies", heading, names(result.Anomalies())},
		{"Skipped probes", row, names(result.SkipReasons())},
	}
	for _, tt := range tests {
		t.Run(tt.section, func(t *testing.T) {
			var got []string
			for _, m := range tt.entry.FindAllStringSubmatch(section(t, tt.section), -1) {
				got = append(got, m[1])
			}
			slices.Sort(got)
			if !slices.Equal(got, tt.want) {
				t.Errorf("entries of %q:\n got %q\nwant %q", tt.section, got, tt.want)
			}
		})
	}
}

func TestLinksBetweenPages(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Glob("../*.md")
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, page := range append(pages, root...) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			file, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			to := page
			if file != "" {
				to = filepath.Join(filepath.Dir(page), file)
			}
			target, err := os.ReadFile(to)
			if err != nil {
				t.Errorf("%s: dead link %s: %v", page, m[1], err)
				continue
			}
			if anchor != "" && !slices.Contains(anchors(string(target)), anchor) {
				t.Errorf("%s: link %s: no such heading", page, m[1])
			}
		}
	}
}

// anchors returns the anchors of the headings of a page, as code hosts make them.
func anchors(page string) []string {
	var out []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		a := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(m[1]), "")
		out = append(out, strings.ReplaceAll(a, " ", "-"))
	}
	return out
}
