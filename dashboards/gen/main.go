// Command gen writes the Grafana dashboards that are described in package boards as JSON files.
//
//	go run . [-out DIR]
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/llmcanary/llm_canary_exporter/dashboards/gen/boards"
)

func main() {
	out := flag.String("out", "..", "folder for the JSON files")
	flag.Parse()
	if err := write(*out); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// write renders every dashboard into dir.
func write(dir string) error {
	files, err := boards.Render()
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.JSON, 0o644); err != nil {
			return fmt.Errorf("write dashboard: %w", err)
		}
	}
	return nil
}
