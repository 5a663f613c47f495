// Command generate writes what deploy/ holds of other folders: the dashboards and alert rules, which have one source
// each, and the version. Run it from the top of the repository: go run ./deploy/generate (make docs does).
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

//go:generate go run . ../..

const (
	chart    = "deploy/helm/llm-canary-exporter"
	kustBase = "deploy/kustomize/base"
	kustGPU  = "deploy/kustomize/components/gpu"
	operator = "deploy/kustomize/overlays/operator/generated"
	plain    = "deploy/kustomize/overlays/no-operator/generated"
)

// owned are the folders of which everything is generated: a file that has no source any more is removed.
var owned = []string{chart + "/files/dashboards", chart + "/files/alerts", operator, plain}

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	if err := run(root); err != nil {
		fmt.Fprintln(os.Stderr, "deploy/generate:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	files, err := generated(root)
	if err != nil {
		return err
	}
	for _, dir := range owned {
		old, err := filepath.Glob(filepath.Join(root, dir, "*"))
		if err != nil {
			return err
		}
		for _, path := range old {
			if _, ok := files[dir+"/"+filepath.Base(path)]; !ok {
				if err := os.Remove(path); err != nil {
					return err
				}
			}
		}
	}
	for name, data := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generated returns every generated file: its path below root, and what it holds.
func generated(root string) (map[string][]byte, error) {
	files := map[string][]byte{}
	dashboards, err := read(root, "dashboards/*.json", func([]byte) bool { return true })
	if err != nil {
		return nil, err
	}
	rules, err := read(root, "alerts/*.yml", isRuleFile)
	if err != nil {
		return nil, err
	}
	object, err := read(root, "alerts/prometheusrule.yaml", func([]byte) bool { return true })
	if err != nil {
		return nil, err
	}
	for _, d := range dashboards {
		files[chart+"/files/dashboards/"+d.name] = d.data
		files[operator+"/"+d.name] = d.data
	}
	for _, r := range rules {
		files[chart+"/files/alerts/"+r.name] = r.data
		files[plain+"/"+r.name] = r.data
	}
	for _, o := range object {
		files[operator+"/"+o.name] = o.data
	}
	files[operator+"/kustomization.yaml"] = operatorKustomization(dashboards, object)
	files[plain+"/kustomization.yaml"] = plainKustomization(rules)
	if err := versions(root, files); err != nil {
		return nil, err
	}
	return files, nil
}

type source struct {
	name string
	data []byte
}

func read(root, pattern string, keep func([]byte) bool) ([]source, error) {
	paths, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	var out []source
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if keep(data) {
			out = append(out, source{filepath.Base(path), data})
		}
	}
	return out, nil
}

// isRuleFile tells rule files from the other YAML files beside them, such as an example for Alertmanager.
func isRuleFile(data []byte) bool {
	return bytes.HasPrefix(data, []byte("groups:")) || bytes.Contains(data, []byte("\ngroups:"))
}

// header begins a generated component. The label is there because kustomize refuses one that does nothing, as that of
// the rules is before there are any.
const header = `# Written by deploy/generate. Do not edit.
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
labels:
  - pairs: {app.kubernetes.io/part-of: llm-canary-exporter}
`

func operatorKustomization(dashboards, object []source) []byte {
	b := bytes.NewBufferString(header)
	if len(object) > 0 {
		b.WriteString("resources:\n")
		for _, o := range object {
			fmt.Fprintf(b, "  - %s\n", o.name)
		}
	}
	if len(dashboards) > 0 {
		b.WriteString("configMapGenerator:\n")
		for _, d := range dashboards {
			name := strings.ReplaceAll(strings.TrimSuffix(d.name, ".json"), "_", "-")
			fmt.Fprintf(b, "  - name: llm-canary-exporter-dashboard-%s\n    files: [%s]\n", name, d.name)
			b.WriteString("    options:\n      disableNameSuffixHash: true\n      labels: {grafana_dashboard: \"1\"}\n")
		}
	}
	return b.Bytes()
}

func plainKustomization(rules []source) []byte {
	b := bytes.NewBufferString(header)
	if len(rules) > 0 {
		b.WriteString("configMapGenerator:\n  - name: llm-canary-exporter-rules\n    options: {disableNameSuffixHash: true}\n    files:\n")
		for _, r := range rules {
			fmt.Fprintf(b, "      - %s\n", r.name)
		}
	}
	return b.Bytes()
}

// versions sets the version in the files that state it.
func versions(root string, files map[string][]byte) error {
	raw, err := os.ReadFile(filepath.Join(root, "VERSION"))
	if err != nil {
		return err
	}
	version := strings.TrimSpace(string(raw))
	for _, v := range []struct {
		file string
		line *regexp.Regexp
		with string
	}{
		{chart + "/Chart.yaml", regexp.MustCompile(`(?m)^version: .*$`), "version: " + version},
		{chart + "/Chart.yaml", regexp.MustCompile(`(?m)^appVersion: .*$`), `appVersion: "` + version + `"`},
		{kustGPU + "/kustomization.yaml", regexp.MustCompile(`(?m)^    newTag: .*$`), `    newTag: "` + version + `"`},
		{kustBase + "/kustomization.yaml", regexp.MustCompile(`(?m)^    newTag: .*$`), `    newTag: "` + version + `"`},
	} {
		data, ok := files[v.file]
		if !ok {
			if data, err = os.ReadFile(filepath.Join(root, v.file)); err != nil {
				return err
			}
		}
		if n := len(v.line.FindAll(data, -1)); n != 1 {
			return fmt.Errorf("%s: %d lines match %s, want 1", v.file, n, v.line)
		}
		files[v.file] = v.line.ReplaceAllLiteral(data, []byte(v.with))
	}
	return nil
}
