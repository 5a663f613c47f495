package promapi

import (
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestAnswers(t *testing.T) {
	const (
		vector = `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b"},"value":[1.5,"2"]},{"metric":{},"value":[1.5,"NaN"]}]}}`
		matrix = `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"2"],[2,"3"]]},
			{"metric":{},"histograms":[[3,{"count":"4","sum":"5","buckets":[[0,"0.5","1","4"]]}]]}]}}`
		scalar = `{"status":"success","data":{"resultType":"scalar","result":[1,"7"]}}`
		broken = `{"status":"error","error":"parse error: x"}`
	)
	var answer, asked string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Path + "?" + r.FormValue("query") + "&" + r.FormValue("time") + "&" + r.FormValue("start") + "&" + r.FormValue("step")
		_, _ = w.Write([]byte(answer))
	}))
	defer server.Close()
	c := Client{URL: server.URL + "/", HTTP: server.Client()}

	answer = vector
	got, err := c.Query(t.Context(), "up", time.UnixMilli(1500))
	if err != nil || len(got) != 2 || got[0].Labels["a"] != "b" || got[0].Points[0].Value != 2 || got[0].Points[0].Time.UnixMilli() != 1500 {
		t.Errorf("vector: %+v, %v", got, err)
	}
	if got[0].Empty() || !got[1].Empty() || !math.IsNaN(got[1].Points[0].Value) {
		t.Errorf("only NaN is empty: %+v", got)
	}
	if asked != "/api/v1/query?up&1.500&&" {
		t.Errorf("asked %s", asked)
	}

	answer = matrix
	got, err = c.Range(t.Context(), "up", time.UnixMilli(1000), time.UnixMilli(3000), 500*time.Millisecond)
	if err != nil || len(got) != 2 || len(got[0].Points) != 2 || got[0].Points[1].Value != 3 {
		t.Fatalf("matrix: %+v, %v", got, err)
	}
	if want := (Cell{Time: time.UnixMilli(3000), Lower: 0.5, Upper: 1, Count: 4}); len(got[1].Cells) != 1 || got[1].Cells[0] != want || got[1].Empty() {
		t.Errorf("native histogram: %+v", got[1])
	}
	if asked != "/api/v1/query_range?up&&1.000&0.5" {
		t.Errorf("asked %s", asked)
	}

	answer = scalar
	if got, err = c.Query(t.Context(), "7", time.UnixMilli(1000)); err != nil || len(got) != 1 || got[0].Points[0].Value != 7 {
		t.Errorf("scalar: %+v, %v", got, err)
	}

	answer = broken
	if _, err = c.Query(t.Context(), "x", time.UnixMilli(1000)); err == nil || !strings.Contains(err.Error(), "parse error: x") {
		t.Errorf("an error of Prometheus gave %v", err)
	}
	answer = "<html>"
	if _, err = c.Query(t.Context(), "x", time.UnixMilli(1000)); err == nil {
		t.Error("a page that is no JSON gave no error")
	}
}
