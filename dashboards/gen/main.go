// Command gen writes the Grafana dashboards that are described in package boards as JSON files, and what their panels
// show into docs/dashboards.md.
//
//	go run . [-out DIR] [-page FILE]
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/llmcanary/llm_canary_exporter/dashboards/gen/boards"
	"github.com/llmcanary/llm_canary_exporter/dashboards/gen/grafana"
)

func main() {
	out := flag.String("out", "..", "folder for the JSON files")
	page := flag.String("page", "../../docs/dashboards.md", "page whose generated part is renewed")
	flag.Parse()
	if err := write(*out, *page); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// write renders every dashboard into dir and renews the page.
func write(dir, page string) error {
	files, err := boards.Render()
	if err != nil {
		return err
	}
	var all []grafana.Dashboard
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.JSON, 0o644); err != nil {
			return fmt.Errorf("write dashboard: %w", err)
		}
		d, err := grafana.Parse(f.Name, f.JSON)
		if err != nil {
			return err
		}
		all = append(all, d)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("read page: %w", err)
	}
	renewed, err := renew(string(text), describe(all))
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	if err := os.WriteFile(page, []byte(renewed), 0o644); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}
