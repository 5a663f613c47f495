package engine

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http/httputil"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestReplay sends every recorded answer through the whole client, and compares what it makes of it with the golden
// file: text, usage, cached tokens, timings, finish, anomalies. The number of gaps is in it too; other times are not,
// since nobody recorded when the bytes came.
func TestReplay(t *testing.T) {
	files, err := filepath.Glob("testdata/replay/*")
	if err != nil || len(files) < 50 {
		t.Fatalf("%d recordings: %v", len(files), err)
	}
	var got strings.Builder
	for _, file := range files {
		name := filepath.Base(file)
		if name == "NOTICE.md" {
			continue
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "%s %s\n    %s\n", name, protocolOfRecording(name), replay(t, name, body(t, raw)))
	}
	golden := "testdata/replay.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	wantLines, gotLines := strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")
	for i := range max(len(wantLines), len(gotLines)) {
		if i >= len(wantLines) || i >= len(gotLines) || wantLines[i] != gotLines[i] {
			t.Fatalf("line %d differs\n got %s\nwant %s", i+1, at(gotLines, i), at(wantLines, i))
		}
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(none)"
}

func protocolOfRecording(name string) string {
	for _, row := range []struct{ part, protocol string }{
		{"responses", "openai_responses"},
		{"anthropic", "anthropic_messages"},
		{"completion_native", "llamacpp_completion"},
		{"completions", "openai_completions"},
		{"ollama_chat", "ollama_chat"},
		{"ollama_generate", "ollama_generate"},
	} {
		if strings.Contains(name, row.part) {
			return row.protocol
		}
	}
	return "openai_chat"
}

// body takes the head off a recorded response, and its chunked coding if that is still there.
func body(t *testing.T, raw []byte) []byte {
	if !bytes.HasPrefix(raw, []byte("HTTP/")) {
		return raw
	}
	end := regexp.MustCompile(`\r?\n\r?\n`).FindIndex(raw)
	head, rest := raw[:end[0]], raw[end[1]:]
	if !bytes.Contains(head, []byte("chunked")) || !regexp.MustCompile(`^[0-9a-fA-F]+\r\n`).Match(rest) {
		return rest
	}
	plain, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(rest)))
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

var modelName = regexp.MustCompile(`"model":"([^"]+)"`)

func replay(t *testing.T, name string, body []byte) string {
	protocol := protocolOfRecording(name)
	steps := []step{raw(sseHead)}
	if p, _ := LookupProtocol(protocol); p.Format() != stream.FormatSSE {
		steps = []step{raw(ndjsonHead)}
	}
	for len(body) > 0 { // in pieces that respect nothing
		n := min(len(body), 997)
		steps = append(steps, chunk(string(body[:n])))
		body = body[n:]
	}
	s := serve(t, always(append(steps, raw(endOfBody))))
	model := "m"
	if m := modelName.FindAllSubmatch(mustRead(t, name), -1); len(m) > 0 {
		model = string(m[len(m)-1][1])
	}
	target := newTarget(t, s.url(), func(c *config.Target) { c.Protocol, c.Model = protocol, model })
	r := ask()
	r.MaxTokens = 4096
	a := target.Send(context.Background(), r, timeouts())
	a.TimePerOutputTokenSeconds = nil // whether there is one depends on how the reads fell
	return summary(a)
}

func mustRead(t *testing.T, name string) []byte {
	b, err := os.ReadFile(filepath.Join("testdata/replay", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
