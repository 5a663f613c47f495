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
	"slices"
	"strings"
	"testing"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestReplay sends every recorded answer through the whole client, and compares what it makes of it with the golden
// file: text, usage, cached tokens, timings, finish, anomalies. The number of gaps is in it too; other times are not,
// since nobody recorded when the bytes came.
func TestReplay(t *testing.T) {
	var got strings.Builder
	for _, r := range recordings(t) {
		fmt.Fprintf(&got, "%s %s\n    %s\n", r.name, r.protocol, replay(t, r))
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

// recording is a streamed answer of a real server.
type recording struct {
	name, protocol string
	raw, body      []byte
}

// recordings returns every recorded stream, by name.
func recordings(t testing.TB) []recording {
	t.Helper()
	var all []recording
	for _, folder := range []string{"streams", "llamacpp", "llmdsim"} {
		files, err := filepath.Glob(filepath.Join("../../testdata/recorded", folder, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			name := filepath.Base(file)
			if folder != "streams" {
				if !bytes.HasPrefix(raw, []byte("HTTP/1.1 200")) || !bytes.Contains(raw, []byte("text/event-stream")) {
					continue
				}
				name = folder + "_" + name
			}
			if strings.HasSuffix(name, ".md") {
				continue
			}
			all = append(all, recording{name, protocolOfRecording(name), raw, body(t, raw)})
		}
	}
	if len(all) < 50 {
		t.Fatalf("only %d recordings", len(all))
	}
	slices.SortFunc(all, func(a, b recording) int { return strings.Compare(a.name, b.name) })
	return all
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
func body(t testing.TB, raw []byte) []byte {
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

func replay(t *testing.T, r recording) string {
	steps := []step{raw(sseHead)}
	if p, _ := LookupProtocol(r.protocol); p.Format() != stream.FormatSSE {
		steps = []step{raw(ndjsonHead)}
	}
	for body := r.body; len(body) > 0; { // in pieces that respect nothing
		n := min(len(body), 997)
		steps = append(steps, chunk(string(body[:n])))
		body = body[n:]
	}
	s := serve(t, always(append(steps, raw(endOfBody))))
	model := "m"
	if m := modelName.FindAllSubmatch(r.raw, -1); len(m) > 0 {
		model = string(m[len(m)-1][1])
	}
	target := newTarget(t, s.url(), func(c *config.Target) { c.Protocol, c.Model = r.protocol, model })
	request := ask()
	request.MaxTokens = 4096
	a := target.Send(context.Background(), request, timeouts())
	checkTPOT(t, a)
	// All of it is sent at once: on a busy machine that may look as if something had held it back.
	a.Anomalies = slices.DeleteFunc(a.Anomalies, func(x result.Anomaly) bool { return x == result.AnomalyBuffered })
	return summary(a)
}
