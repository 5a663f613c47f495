package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

var update = flag.Bool("update", false, "write the golden files anew")

// decoded is what is compared of a recorded answer: everything but times and ids.
type decoded struct {
	File                string
	Outcome             result.Outcome
	Reason              result.Reason    `json:",omitempty"`
	Finish              string           `json:",omitempty"`
	Model               string           `json:",omitempty"`
	Anomalies           []result.Anomaly `json:",omitempty"`
	Prompt              *int             `json:",omitempty"`
	Cached              *int             `json:",omitempty"`
	Completion          *int             `json:",omitempty"`
	Reasoning           *int             `json:",omitempty"`
	Source              result.TokenCountSource
	Chunks              int
	ChunkTokens         int `json:",omitempty"` // their sum, where they are exact
	Text, ReasoningText string
	Calls               []ToolCall           `json:",omitempty"`
	Timings             result.ServerTimings `json:",omitzero"`
	Speculation         result.Speculation   `json:",omitzero"`
}

// Recorded answers of real servers, byte for byte, give the text, usage, finish and tool calls that a person reads
// out of them. The golden file was checked against the bytes by hand.
func TestRecordedAnswers(t *testing.T) {
	var got []decoded
	for _, file := range recordedFiles(t) {
		got = append(got, replay(t, file))
	}
	b, err := json.MarshalIndent(got, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, '\n')
	golden := filepath.Join("testdata", "recorded.golden.json")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, want) {
		t.Errorf("recorded answers are read in another way; run with -update and look at the difference:\n%s", firstDifference(string(b), string(want)))
	}
}

func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Sprintf("line %d:\n got  %.200s\n want %.200s", i+1, x[i], y[i])
		}
	}
	return "one is longer"
}

// recordedFiles lists the recordings of the OpenAI protocols.
func recordedFiles(t *testing.T) []string {
	t.Helper()
	root := filepath.Join("..", "..", "testdata", "recorded")
	var out []string
	for _, pattern := range []string{"llamacpp/*.txt", "llmdsim/*.txt", "streams/*.sse", "streams/*.http"} {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			name := filepath.Base(f)
			other := strings.Contains(name, "anthropic") || strings.Contains(name, "responses") || strings.Contains(name, "native") || strings.Contains(name, "ollama")
			if bytes.Contains(b, []byte(`"choices":[`)) && bytes.Contains(b, []byte("data:")) && !other && !bytes.Contains(b, []byte("\n## ")) && !strings.Contains(name, "recv_times") {
				out = append(out, f)
			}
		}
	}
	if len(out) < 50 {
		t.Fatalf("%d recordings: some are missing", len(out))
	}
	return out
}

func replay(t *testing.T, file string) decoded {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	contentType, body := "text/event-stream", raw
	if bytes.HasPrefix(raw, []byte("HTTP/")) {
		head, rest, ok := bytes.Cut(raw, []byte("\r\n\r\n"))
		if !ok {
			t.Fatalf("%s: no end of the headers", file)
		}
		body = rest
		if strings.HasSuffix(file, ".http") && bytes.Contains(bytes.ToLower(head), []byte("transfer-encoding: chunked")) {
			body = dechunk(t, rest)
		}
	}
	target := newTestTarget(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		for len(body) > 0 { // in odd pieces, as a network would
			n := min(len(body), 997)
			_, _ = w.Write(body[:n])
			w.(http.Flusher).Flush()
			body = body[n:]
		}
	}), nil)
	request := testRequest()
	request.MaxTokens = 100_000
	a := target.Send(t.Context(), request, testTimeouts())
	d := decoded{
		File: filepath.Base(filepath.Dir(file)) + "/" + filepath.Base(file), Outcome: a.Outcome, Reason: a.Reason, Finish: a.FinishReason, Model: a.Model,
		Prompt: a.PromptTokens, Cached: a.CachedPromptTokens, Completion: a.CompletionTokens, Reasoning: a.ReasoningTokens, Source: a.TokenCountSource,
		Text: digest(a.Text), ReasoningText: digest(a.Reasoning), Calls: a.ToolCalls, Timings: a.ServerTimings, Speculation: a.Speculation,
	}
	if a.TimeToFirstTokenSeconds != nil {
		d.Chunks = len(a.InterChunkLatenciesSeconds) + 1
	}
	for _, n := range a.ChunkTokens {
		d.ChunkTokens += n
	}
	for _, x := range a.Anomalies { // how the pieces arrived here says nothing about the server
		if x != result.AnomalyBuffered && x != result.AnomalyModelMismatch {
			d.Anomalies = append(d.Anomalies, x)
		}
	}
	return d
}

// digest keeps short texts readable.
func digest(s string) string {
	if len(s) <= 120 {
		return s
	}
	return fmt.Sprintf("%d bytes, sha256 %x, %q…", len(s), sha256.Sum256([]byte(s)), s[:40])
}

func dechunk(t *testing.T, b []byte) []byte {
	t.Helper()
	var out []byte
	for {
		line, rest, ok := bytes.Cut(b, []byte("\r\n"))
		if !ok {
			t.Fatal("bad chunked coding")
		}
		var n int
		if _, err := fmt.Sscanf(string(line), "%x", &n); err != nil || n > len(rest) {
			t.Fatalf("bad chunk size %q", line)
		}
		if n == 0 {
			return out
		}
		out, b = append(out, rest[:n]...), rest[n+2:]
	}
}
