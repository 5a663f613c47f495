package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/llmcanary/llm_canary_exporter/dashboards/gen/grafana"
	"github.com/llmcanary/llm_canary_exporter/dashboards/gen/promapi"
)

// fake answers with a sample unless the expression has one of the words.
func fake(t *testing.T, empty, refused string) promapi.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"2"]}]}}`
		switch expr := r.FormValue("query"); {
		case refused != "" && strings.Contains(expr, refused):
			body = `{"status":"error","error":"no"}`
		case empty != "" && strings.Contains(expr, empty):
			body = `{"status":"success","data":{"resultType":"vector","result":[]}}`
		}
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	return promapi.Client{URL: server.URL, HTTP: server.Client()}
}

func TestRun(t *testing.T) {
	all, err := grafana.Load("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, empty, refused, says string
		ok, complete               bool
	}{
		{name: "all has data", ok: true, says: " 0 refused, 0 without data"},
		{name: "excused", empty: "llm_canary_gpu_", ok: true, says: "no data gpu.json / Power / A: no GPU"},
		{name: "not excused", empty: "llm_canary_gpu_", complete: true, says: "MISSING gpu.json / Power / A"},
		{name: "missing", empty: "llm_canary_probe_success", says: "MISSING overview.json / Scenarios failing now / A"},
		{name: "refused", refused: "llm_canary_gpu_power", says: "REFUSED gpu.json / Power / A: answer of Prometheus"},
		{name: "one kind of heatmap", empty: "unless on ()", ok: true, says: " 0 refused, 0 without data"},
		{name: "no kind of heatmap", empty: "llm_canary_inter_token_latency_seconds", says: "Gaps between chunks, heatmap: neither classic nor native"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			check := checker{
				client: fake(t, c.empty, c.refused), now: time.Unix(1000, 0), complete: c.complete,
				settings: grafana.Settings{Step: time.Second, Scrape: time.Second, Range: time.Minute, Variables: map[string]string{"window": "5m"}},
			}
			if ok := check.run(t.Context(), all, &out); ok != c.ok || !strings.Contains(out.String(), c.says) {
				t.Errorf("ok %v, said:\n%s", ok, out.String())
			}
		})
	}
}
