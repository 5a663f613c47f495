package main

import (
	"strings"
	"testing"
)

func TestTotals(t *testing.T) {
	tests := []struct {
		name, in string
		ok       bool
		want     []string
	}{
		{
			name: "pass, skip and a line of make",
			in: `go test ./...
{"Action":"output","Package":"p","Test":"TestS","Output":"    s_test.go:3: no GPU here\n"}
{"Action":"output","Package":"p","Test":"TestS","Output":"--- SKIP: TestS (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestS"}
{"Action":"pass","Package":"p","Test":"TestA/one"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Elapsed":0.2}
`,
			ok:   true,
			want: []string{"go test ./...\n", "SKIP p TestS: s_test.go:3: no GPU here\n", "ok   p 0.2s\n", "\n2 passed, 0 failed, 1 skipped\n"},
		},
		{
			name: "a failed test shows its output and counts once",
			in: `{"Action":"output","Package":"p","Test":"TestA","Output":"    got 1, want 2\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p"}
`,
			want: []string{"FAIL p TestA\n    got 1, want 2\n", "\n0 passed, 1 failed, 0 skipped\n"},
		},
		{
			name: "a package that does not build fails",
			in: `{"Action":"build-output","ImportPath":"p [p.test]","Output":"a.go:1:1: syntax error\n"}
{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}
`,
			want: []string{"FAIL p", "a.go:1:1: syntax error\n", "\n0 passed, 1 failed, 0 skipped\n"},
		},
		{
			name: "a package that dies says in which test",
			in: `{"Action":"output","Package":"p","Test":"TestHang","Output":"=== RUN   TestHang\n"}
{"Action":"output","Package":"p","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"p"}
`,
			want: []string{"panic: test timed out\n", "unfinished: TestHang\n", "\n0 passed, 1 failed, 0 skipped\n"},
		},
		{
			name: "no test at all is a failure",
			in:   `{"Action":"skip","Package":"p"}`,
			want: []string{"p: no tests\n", "no test ran\n", "\n0 passed, 0 failed, 0 skipped\n"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			totals := newTotals(&out)
			if err := totals.read(strings.NewReader(tt.in)); err != nil {
				t.Fatal(err)
			}
			if ok := totals.summary(); ok != tt.ok {
				t.Errorf("ok = %v, want %v", ok, tt.ok)
			}
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("output lacks %q:\n%s", want, out.String())
				}
			}
		})
	}
}
