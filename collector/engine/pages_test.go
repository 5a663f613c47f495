package enginemetrics

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// written is a normalised page as text, for golden files.
func written(n *Normalised) string {
	var b strings.Builder
	fmt.Fprintf(&b, "dialect %s\n", n.Dialect)
	for _, x := range [][2]string{{"variant", n.Variant}, {"model", n.Model}, {"version", n.Version}, {"prefix cache unit", n.PrefixUnit}} {
		if x[1] != "" {
			fmt.Fprintf(&b, "%s %s\n", x[0], x[1])
		}
	}
	for _, f := range Figures() {
		if v := n.Get(f); v != nil {
			fmt.Fprintf(&b, "%s %v <- %s\n", f, *v, n.Why[f])
		}
	}
	for _, f := range n.Missing {
		fmt.Fprintf(&b, "missing %s\n", f)
	}
	for _, f := range Figures() {
		if why := n.Odd[f]; why != "" {
			fmt.Fprintf(&b, "odd %s: %s\n", f, why)
		}
	}
	return b.String()
}

func readPage(t *testing.T, file string) []byte {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.HasPrefix(page, []byte("HTTP/")) {
		_, page, _ = bytes.Cut(page, []byte("\r\n\r\n"))
	}
	return page
}

func normalisePage(t *testing.T, page []byte, h Hint) *Normalised {
	t.Helper()
	p, report, err := Parse(page, "text/plain; version=0.0.4")
	if err != nil {
		t.Fatal(err)
	}
	if report.BadLines != 0 || report.Duplicates != 0 {
		t.Errorf("%d bad lines, %d duplicates: %s", report.BadLines, report.Duplicates, report.FirstBad)
	}
	n, err := Normalise(p, h)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestPages(t *testing.T) {
	files, err := filepath.Glob("testdata/pages/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	versions := map[string]int{}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			n := normalisePage(t, readPage(t, file), Hint{})
			versions[n.Dialect]++
			got, golden := written(n), strings.TrimSuffix(file, ".txt")+".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
	for _, d := range Dialects() {
		// NIM 2.x speaks its engine's dialect.
		if least := map[bool]int{true: 1, false: 2}[d == "nim"]; versions[d] < least {
			t.Errorf("dialect %s has %d pages, wants %d versions at least", d, versions[d], least)
		}
	}
}

// TestRecordedPages reads the pages that are not part of this repository, where they are there: the figures are what
// a person reads out of them.
func TestRecordedPages(t *testing.T) {
	const samples = "../../../shared/samples"
	if _, err := os.Stat(samples); err != nil {
		t.Skipf("the recorded pages are not here: %v", err)
	}
	type figures map[Figure]float64
	for _, c := range []struct {
		file, dialect, model string
		want                 figures
		missing              []Figure
	}{
		{"metrics/vllm_0.25.1_idle.txt", "vllm", "opt-125m-tp2", figures{
			RequestsRunning: 0, RequestsWaiting: 0, KVCacheUsage: 0, PrefixCacheQueries: 0, PrefixCacheHits: 0,
			Preemptions: 0, PromptTokens: 0, GenerationTokens: 0,
		}, nil},
		{"metrics/vllm_0.25.1_loaded.txt", "vllm", "opt-125m-tp2", figures{
			RequestsRunning: 64, RequestsWaiting: 64, KVCacheUsage: 0.11223878211531546, PrefixCacheQueries: 339968, PrefixCacheHits: 2480,
			Preemptions: 0, PromptTokens: 339968, GenerationTokens: 165293,
		}, nil},
		{"metrics/vllm_v1_mtp3_before.txt", "vllm", "glm52-w4a16-tiered", figures{
			RequestsRunning: 0, RequestsWaiting: 0, KVCacheUsage: 0, PrefixCacheQueries: 0, PrefixCacheHits: 0, Preemptions: 0,
			SpeculativeDrafts: 1458, SpeculativeDraftTokens: 4374, SpeculativeAcceptedTokens: 2643, PromptTokens: 11675, GenerationTokens: 4104,
		}, nil},
		{"metrics/vllm_v1_mtp3_after.txt", "vllm", "glm52-w4a16-tiered", figures{
			RequestsRunning: 0, RequestsWaiting: 0, KVCacheUsage: 0, PrefixCacheQueries: 0, PrefixCacheHits: 0, Preemptions: 0,
			SpeculativeDrafts: 2921, SpeculativeDraftTokens: 8763, SpeculativeAcceptedTokens: 5275, PromptTokens: 23345, GenerationTokens: 8200,
		}, nil},
		{"metrics/vllm_v1_fork_prefix_repetition_post.prom", "vllm", "/models/Qwen2.5-14B-Instruct", figures{
			RequestsRunning: 0, RequestsWaiting: 0, KVCacheUsage: 0, PrefixCacheQueries: 102409, PrefixCacheHits: 48384,
			Preemptions: 0, PromptTokens: 102409, GenerationTokens: 25228,
		}, nil},
		{"metrics/vllm_v0_ray_2.32.txt", "vllm", "neuralmagic/Meta-Llama-3.1-70B-Instruct-FP8", figures{
			RequestsRunning: 0, RequestsWaiting: 0, KVCacheUsage: 5.882698982295764e-05, PromptTokens: 58, GenerationTokens: 300,
		}, nil},
		{"metrics/vllm_0.30_dp2.txt", "vllm", "llama-3.1-8b-instruct", figures{
			RequestsRunning: 21, RequestsWaiting: 3, KVCacheUsage: 0.5, PrefixCacheQueries: 0, PrefixCacheHits: 0, Preemptions: 3,
			PromptTokens: 153600, GenerationTokens: 38400,
		}, nil},
		{"metrics/sglang_0.5.1_excerpt.txt", "sglang", "Qwen-32B", figures{RequestsRunning: 1, KVCacheUsage: 0}, []Figure{RequestsWaiting}},
		{"metrics/sglang_0.4.9_pd_excerpt.txt", "sglang", "/models/deepseek-ai__DeepSeek-R1", figures{
			RequestsRunning: 0, KVCacheUsage: 0, PrefixCacheHits: 2688,
		}, []Figure{RequestsWaiting}},
		{"metrics/nim_1.x.txt", "nim", "meta/llama-3.1-8b-instruct", figures{
			RequestsRunning: 1, RequestsWaiting: 0, KVCacheUsage: 0.0002848191398461977, PromptTokens: 109, GenerationTokens: 174,
		}, nil},
		{"metrics/triton_no_llm.txt", "triton", "", figures{}, nil},
		{"metrics/triton_trtllm_ensemble_23.10_excerpt.txt", "triton", "", figures{}, nil},
		{"metrics/llamacpp_2025-06_excerpt.txt", "llamacpp", "", figures{PromptTokens: 143, GenerationTokens: 673}, []Figure{RequestsRunning, RequestsWaiting}},
		{"metrics/tgi_3_format_only.txt", "tgi", "", figures{
			RequestsRunning: 5, RequestsWaiting: 2, SpeculativeDrafts: 2116, SpeculativeAcceptedTokens: 2290, PromptTokens: 15127, GenerationTokens: 4406,
		}, nil},
		{"metrics/lmdeploy_0.16_format_only.txt", "lmdeploy", "internlm3-8b", figures{
			RequestsRunning: 6, RequestsWaiting: 1, KVCacheUsage: 0.216, PrefixCacheQueries: 46185, PrefixCacheHits: 20480,
			SpeculativeDrafts: 900, SpeculativeDraftTokens: 2700, SpeculativeAcceptedTokens: 1611, PromptTokens: 46185, GenerationTokens: 27563,
		}, nil},
		{"metrics/litellm_format_only.txt", "litellm", "chat-prod", figures{RequestsRunning: 2, PromptTokens: 88120, GenerationTokens: 51004}, nil},
		{"llamacpp/metrics_after.txt", "llamacpp", "", figures{
			RequestsRunning: 0, RequestsWaiting: 0, PrefixCacheQueries: 4930 + 4613, PrefixCacheHits: 4613, SpeculativeDrafts: 0,
			SpeculativeDraftTokens: 0, SpeculativeAcceptedTokens: 0, PromptTokens: 4930 + 4613, GenerationTokens: 528,
		}, nil},
		{"llmdsim/metrics_after.txt", "vllm", "lab/tiny", figures{
			RequestsRunning: 0, RequestsWaiting: 0, KVCacheUsage: 0, PrefixCacheQueries: 837, PrefixCacheHits: 352, PromptTokens: 837, GenerationTokens: 942,
		}, nil},
		{"llmdsim/metrics_fake.txt", "vllm", "lab/tiny", figures{RequestsRunning: 16, RequestsWaiting: 3, KVCacheUsage: 0.43}, nil},
	} {
		t.Run(c.file, func(t *testing.T) {
			n := normalisePage(t, readPage(t, filepath.Join(samples, c.file)), Hint{})
			if n.Dialect != c.dialect || n.Model != c.model {
				t.Errorf("dialect %q of model %q", n.Dialect, n.Model)
			}
			for _, f := range Figures() {
				got := n.Get(f)
				want, ok := c.want[f]
				if (got != nil) != ok || ok && *got != want {
					t.Errorf("%s: got %s, want %v, %v", f, show(got), want, ok)
				}
			}
			if fmt.Sprint(n.Missing) != fmt.Sprint(c.missing) {
				t.Errorf("missing %v, want %v", n.Missing, c.missing)
			}
		})
	}
	t.Run("nothing else is taken for an engine", func(t *testing.T) {
		for _, file := range []string{"dcgm_exporter_t4.txt", "dcgm_exporter_readme.txt", "dcgm_mig_k8s_a100.txt", "nvidia_gpu_exporter_h200_load.txt", "nvidia_gpu_exporter_windows.txt", "llmd_epp.txt"} {
			p, report, err := Parse(readPage(t, filepath.Join(samples, "metrics", file)), "")
			if err != nil || report.BadLines > 0 {
				t.Errorf("%s: %v, %+v", file, err, report)
			}
			if _, err := Normalise(p, Hint{}); !errors.Is(err, ErrUnknownDialect) {
				t.Errorf("%s: %v", file, err)
			}
		}
		if _, _, err := Parse(readPage(t, filepath.Join(samples, "metrics/trtllm_serve_iteration_stats.json")), ""); !errors.Is(err, ErrJSON) {
			t.Error(err)
		}
	})
}

func show(v *float64) string {
	if v == nil {
		return "nothing"
	}
	return fmt.Sprint(*v)
}
