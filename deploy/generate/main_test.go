package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// Dashboards and rules have one source; what deploy/ holds are equal copies, and no more than these.
func TestCopiesAreEqual(t *testing.T) {
	files, err := generated(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Errorf("%v: run go run ./deploy/generate", err)
			continue
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what its source says: run go run ./deploy/generate", name)
		}
	}
	for _, dir := range owned {
		there, err := filepath.Glob(filepath.Join(root, dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range there {
			if _, ok := files[dir+"/"+filepath.Base(path)]; !ok {
				t.Errorf("%s/%s has no source any more: run go run ./deploy/generate", dir, filepath.Base(path))
			}
		}
	}
}

// kubectl apply keeps a copy of an object in an annotation, which holds 256 KiB at most.
func TestDashboardsFitIntoConfigMaps(t *testing.T) {
	files, err := generated(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		if strings.HasSuffix(name, ".json") && len(data) > 200<<10 {
			t.Errorf("%s has %d bytes: too much for kubectl apply", name, len(data))
		}
	}
}

// A copy that has lost its source goes; a missing one comes; other files stay.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("VERSION", "1.2.3\n")
	write(chart+"/Chart.yaml", "version: 0.0.1\nappVersion: \"0.0.1\"\n")
	write(kustBase+"/kustomization.yaml", "images:\n  - name: x\n    newTag: \"0.0.1\"\n")
	write(kustGPU+"/kustomization.yaml", "    newTag: \"0.0.1\"\n")
	write("dashboards/a_b.json", "{}\n")
	write("alerts/rules.yml", "# comment\ngroups: []\n")
	write("alerts/alertmanager.yml", "route: {}\n")
	write("alerts/prometheusrule.yaml", "kind: PrometheusRule\n")
	write(chart+"/files/dashboards/gone.json", "{}\n")
	if err := run(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		chart + "/Chart.yaml":                "version: 1.2.3\nappVersion: \"1.2.3\"\n",
		chart + "/files/alerts/rules.yml":    "groups: []",
		operator + "/a_b.json":               "{}",
		operator + "/prometheusrule.yaml":    "PrometheusRule",
		operator + "/kustomization.yaml":     "dashboard-a-b",
		plain + "/kustomization.yaml":        "- rules.yml",
		kustBase + "/kustomization.yaml":     `newTag: "1.2.3"`,
		chart + "/files/dashboards/a_b.json": "{}",
	} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s holds %q (%v), want %q in it", name, got, err, want)
		}
	}
	for _, name := range []string{chart + "/files/dashboards/gone.json", plain + "/alertmanager.yml", chart + "/files/alerts/alertmanager.yml"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is there", name)
		}
	}
	write(chart+"/Chart.yaml", "name: x\n")
	if err := run(dir); err == nil || !strings.Contains(err.Error(), "Chart.yaml") {
		t.Errorf("a chart without version: %v", err)
	}
}
