package stream

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/textproto"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// recordedDir holds answers of real servers; NOTICE.md in it says where they are from.
const recordedDir = "../../testdata/recorded"

type recording struct {
	name        string
	contentType string
	body        string
}

// recordings returns every recorded answer that is a stream.
func recordings(t testing.TB) []recording {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(recordedDir, "*", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings in %s: %v", recordedDir, err)
	}
	var all []recording
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r := recording{name: filepath.Base(filepath.Dir(file)) + "/" + filepath.Base(file)}
		switch filepath.Ext(file) {
		case ".sse":
			r.contentType, r.body = "text/event-stream", string(raw)
		case ".ndjson":
			r.contentType, r.body = "application/x-ndjson", string(raw)
		case ".http":
			r.contentType, r.body = parseResponse(t, raw)
		case ".txt":
			r.contentType, r.body = parseDechunked(raw)
		}
		if strings.HasPrefix(r.contentType, "text/event-stream") || strings.HasPrefix(r.contentType, "application/x-ndjson") {
			all = append(all, r)
		}
	}
	return all
}

func parseResponse(t testing.TB, raw []byte) (contentType, body string) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Get("Content-Type"), string(b)
}

// parseDechunked splits a recording whose chunked coding was removed but whose headers still name it.
func parseDechunked(raw []byte) (contentType, body string) {
	head, rest, ok := bytes.Cut(raw, []byte("\r\n\r\n"))
	if !ok || !bytes.HasPrefix(head, []byte("HTTP/1.1 ")) {
		return "", ""
	}
	r := textproto.NewReader(bufio.NewReader(bytes.NewReader(append(head, "\r\n\r\n"...))))
	if _, err := r.ReadLine(); err != nil {
		return "", ""
	}
	header, err := r.ReadMIMEHeader()
	if err != nil {
		return "", ""
	}
	return header.Get("Content-Type"), string(rest)
}

// splitSSE is another, simpler way to read a well-formed stream: by blank lines, then by lines.
func splitSSE(body string) (data []string, comments, done int) {
	body = strings.ReplaceAll(body, "\r\n", "\n")
	for block := range strings.SplitSeq(body, "\n\n") {
		var lines []string
		for line := range strings.SplitSeq(block, "\n") {
			switch {
			case strings.HasPrefix(line, ":"):
				comments++
			case strings.HasPrefix(line, "data:"):
				lines = append(lines, strings.TrimPrefix(strings.TrimPrefix(line, "data:"), " "))
			}
		}
		switch payload := strings.Join(lines, "\n"); {
		case payload == doneMark:
			done++
		case payload != "":
			data = append(data, payload)
		}
	}
	return data, comments, done
}

func splitNDJSON(body string) (data []string) {
	for line := range strings.Lines(body) {
		if line = strings.TrimSpace(line); line != "" {
			data = append(data, line)
		}
	}
	return data
}

func TestRecorded(t *testing.T) {
	all := recordings(t)
	if len(all) < 70 {
		t.Errorf("%d recorded streams, want at least 70: has the folder moved?", len(all))
	}
	for _, r := range all {
		t.Run(r.name, func(t *testing.T) {
			newDecoder, format := newDecoderFunc(NewSSE), FormatSSE
			wantData, wantComments, wantDone := splitSSE(r.body)
			if strings.Contains(r.contentType, "ndjson") {
				newDecoder, format = NewNDJSON, FormatNDJSON
				wantData, wantComments, wantDone = splitNDJSON(r.body), 0, 0
			}
			if f := Sniff(r.contentType, []byte(r.body)); f != format {
				t.Errorf("sniffed %s, want %s", f, format)
			}
			if f := Sniff("text/plain", []byte(r.body)); f != format {
				t.Errorf("sniffed %s under text/plain, want %s", f, format)
			}
			o := everySplit(t, newDecoder, r.body, Options{})
			var data []string
			comments, done := 0, 0
			for _, ev := range o.events {
				switch ev.Kind {
				case Comment:
					comments++
				case Done:
					done++
				default:
					data = append(data, ev.Data)
				}
				if ev.Nonstandard {
					t.Errorf("event %q is called nonstandard", ev.Data)
				}
			}
			if !slices.Equal(data, wantData) {
				t.Errorf("%d events with data, want %d", len(data), len(wantData))
			}
			if comments != wantComments || done != wantDone {
				t.Errorf("%d comments and %d end marks, want %d and %d", comments, done, wantComments, wantDone)
			}
			if len(data) == 0 || o.cut || !isPlainEOF(o.err) {
				t.Errorf("%d events, cut %t, error %v", len(data), o.cut, o.err)
			}
			for _, d := range data {
				if !json.Valid([]byte(d)) {
					t.Errorf("not JSON: %q", d)
				}
			}
		})
	}
}
