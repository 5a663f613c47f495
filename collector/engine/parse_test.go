package enginemetrics

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, page, contentType string
		want                    map[string][]float64
		bad, duplicates         int
	}{
		{"plain", "# TYPE a counter\na_total{x=\"1\"} 3\n", "text/plain", map[string][]float64{"a_total": {3}}, 0, 0},
		{"no newline at the end", "a 1\nb 2", "", map[string][]float64{"a": {1}, "b": {2}}, 0, 0},
		{"CRLF, tabs and blank lines", "a 1\r\n\r\n  \r\nb{c=\"d\"}\t2 \r\n", "", map[string][]float64{"a": {1}, "b": {2}}, 0, 0},
		{"BOM", "\xef\xbb\xbfa 1\n", "", map[string][]float64{"a": {1}}, 0, 0},
		{"timestamp", "a 1 1700000000000\n", "", map[string][]float64{"a": {1}}, 0, 0},
		{"three-digit exponent", "a 1.5e+011\n", "", map[string][]float64{"a": {1.5e11}}, 0, 0},
		{"NaN and infinities", "a NaN\nb +Inf\nc -Inf\n", "", map[string][]float64{"a": {math.NaN()}, "b": {math.Inf(1)}, "c": {math.Inf(-1)}}, 0, 0},
		{"space after the comma", `a{b="1", c="2"} 7` + "\n", "", map[string][]float64{"a": {7}}, 0, 0},
		{"buckets are left out", "# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n", "", map[string][]float64{"h_sum": {3}, "h_count": {2}}, 0, 0},
		{"quoted name", "{\"odd.name\",x=\"1\"} 4\n", "", map[string][]float64{"odd.name": {4}}, 0, 0},
		{"a bad line in the middle", "a 1\nb{ 2\nc 3\n", "", map[string][]float64{"a": {1}, "c": {3}}, 1, 0},
		{"a bad first line", "what is this\na 1\n", "", map[string][]float64{"a": {1}}, 1, 0},
		{"a bad last line, cut off", "a 1\nb{x=\"unfinis", "", map[string][]float64{"a": {1}}, 1, 0},
		{"two lines in one", "a 1b 2\nc 3\n", "", map[string][]float64{"c": {3}}, 1, 0},
		{"no value", "a\nb 2\nc{x=\"1\"}\nd 4\n", "", map[string][]float64{"b": {2}, "d": {4}}, 2, 0},
		{"an error page in the middle", "a 1\n<html>oops</html>\nb 2\n", "", map[string][]float64{"a": {1}, "b": {2}}, 1, 0},
		{"type told twice, and wrongly", "# TYPE a counter\na 1\n# TYPE a gauge\n# TYPE a\n# TYPE b nonsense\nb 2\n", "", map[string][]float64{"a": {1}, "b": {2}}, 0, 0},
		{"histogram with a broken bound", "# TYPE h histogram\nh_bucket{le=\"x\"} 1\nh_sum 3\nh_count 2\n", "", map[string][]float64{"h_sum": {3}, "h_count": {2}}, 0, 0},
		{"the same series twice: the first counts", "a{x=\"1\",y=\"2\"} 1\na{y=\"2\",x=\"1\"} 5\na{x=\"2\",y=\"2\"} 7\n", "", map[string][]float64{"a": {1, 7}}, 0, 1},
		{"OpenMetrics", "# TYPE a counter\na_total 5 1700000000.5 # {trace_id=\"x\"} 1 1700000000.1\nb{x=\" # {\"} 2 1.5\nc 3 # {} 1\n# EOF\nafter 9\n", "application/openmetrics-text; version=1.0.0", map[string][]float64{"a_total": {5}, "b": {2}, "c": {3}}, 0, 0},
		{"OpenMetrics under a wrong type", "a_total 5 1700000000.5\n# EOF\n", "text/plain", map[string][]float64{"a_total": {5}}, 0, 0},
		{"OpenMetrics with a bad line", "a_total 5\nb_total{ 6 1.5\nc_total 7\n# EOF\n", "application/openmetrics-text", map[string][]float64{"a_total": {5}, "c_total": {7}}, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, report, err := Parse([]byte(c.page), c.contentType)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string][]float64{}
			for name, samples := range p.samples {
				for _, s := range samples {
					got[name] = append(got[name], s.Value)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if report.BadLines != c.bad || report.Duplicates != c.duplicates {
				t.Errorf("%+v, want %d bad lines and %d duplicates", report, c.bad, c.duplicates)
			}
			if (report.FirstBad != "") != (c.bad > 0) {
				t.Errorf("first bad line: %q", report.FirstBad)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	many := bytes.Repeat([]byte("x\n"), maxBadLines+2)
	for _, c := range []struct {
		name, page, contentType string
		want                    error
	}{
		{"empty", "", "", ErrEmpty},
		{"blank", " \n\n", "text/plain", ErrEmpty},
		{"only comments", "# hello\n", "text/plain", ErrEmpty},
		{"JSON list", ` [{"iter":1}]`, "text/plain", ErrJSON},
		{"empty JSON list", "[]", "application/json", ErrJSON},
		{"JSON object", "{\n \"error\": {}}", "", ErrJSON},
		{"empty JSON object", "{}", "", ErrJSON},
		{"JSON by its type", `"x"`, "application/json; charset=utf-8", ErrJSON},
		{"HTML", "<!doctype html><title>Log in</title>", "", ErrHTML},
		{"HTML by its type", "hello", "text/html; charset=utf-8", ErrHTML},
		{"prose", "not found\n", "text/plain", ErrMalformed},
		{"nothing but bad lines", string(many), "", ErrMalformed},
		{"too large", strings.Repeat("a", MaxPageBytes+1), "", ErrTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, _, err := Parse([]byte(c.page), c.contentType); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// A bad line anywhere in a real page, in any position of its chunk, costs that line and nothing else.
func TestParseSurvivesOneBadLineAnywhere(t *testing.T) {
	page := string(readPage(t, "testdata/pages/vllm_v1_0.25_dp2_spec.txt"))
	want := written(normalisePage(t, []byte(page), Hint{}))
	lines := strings.SplitAfter(page, "\n")
	for i := range lines {
		for _, bad := range []string{"vllm:broken{ 1\n", "vllm:x{a=\"b\"} 1 2 3\n", "\xff\xfe\x00 1\n", "vllm:y NaN NaN\n", "vllm:z{a=\"b} 1\n"} {
			text := strings.Join(lines[:i], "") + bad + strings.Join(lines[i:], "")
			p, report, err := Parse([]byte(text), "")
			if err != nil || report.BadLines != 1 {
				t.Fatalf("%q before line %d: %+v, %v", bad, i+1, report, err)
			}
			n, err := Normalise(p, Hint{})
			if err != nil {
				t.Fatal(err)
			}
			if got := written(n); got != want {
				t.Fatalf("%q before line %d: got\n%s", bad, i+1, got)
			}
		}
	}
}

// Every page that is cut off gives what stands before the cut.
func TestParseCutPage(t *testing.T) {
	page := readPage(t, "testdata/pages/sglang_0.5_ranks.txt")
	for i := range page {
		_, report, err := Parse(page[:i], "")
		if err != nil && !errors.Is(err, ErrEmpty) && !errors.Is(err, ErrMalformed) || report.BadLines > 1 {
			t.Fatalf("cut at %d: %+v, %v", i, report, err)
		}
	}
}

func TestParseManySeries(t *testing.T) {
	var b bytes.Buffer
	for i := range maxSeries + 1 {
		fmt.Fprintf(&b, "a{i=\"%d\"} 1\n", i)
	}
	if _, _, err := Parse(b.Bytes(), ""); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/pages/*.txt")
	for _, file := range files {
		page, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(page[:min(len(page), 2000)], "text/plain")
	}
	f.Add([]byte("a_total 5 1.5 # {t=\"x\"} 1 1.5\n# EOF\n"), "application/openmetrics-text")
	f.Add([]byte("{\"a\\\"b\",c=\"\\n\"} 1\nb{ 1\n\x00\xff"), "")
	f.Add([]byte("[]"), "application/json")
	f.Fuzz(func(t *testing.T, page []byte, contentType string) {
		p, report, err := Parse(page, contentType)
		lines := bytes.Count(page, []byte("\n")) + 1
		if report.BadLines > lines || len(report.FirstBad) > 1000 || !utf8.ValidString(report.FirstBad) {
			t.Errorf("%d lines: %+v", lines, report)
		}
		if err != nil {
			return
		}
		n, err := Normalise(p, Hint{Model: "demo/chat-8b"})
		if err != nil {
			if !errors.Is(err, ErrUnknownDialect) {
				t.Error(err)
			}
			return
		}
		for _, f := range Figures() {
			if v := n.Get(f); v != nil && (!finite(*v) || *v < 0 || f == KVCacheUsage && *v > 1 || n.Why[f] == "") {
				t.Errorf("%s is %v from %q", f, *v, n.Why[f])
			}
		}
	})
}

func BenchmarkParseAndNormalise(b *testing.B) {
	page, err := os.ReadFile("testdata/pages/vllm_v1_0.25_dp2_spec.txt")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(page)))
	b.ReportAllocs()
	for b.Loop() {
		p, _, err := Parse(page, "")
		if err != nil {
			b.Fatal(err)
		}
		if _, err := Normalise(p, Hint{}); err != nil {
			b.Fatal(err)
		}
	}
}
