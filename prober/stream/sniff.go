package stream

import (
	"bytes"
	"mime"
	"strings"
)

// Format is what a body turns out to be.
type Format uint8

// The formats of a body.
const (
	FormatUnknown Format = iota
	FormatSSE
	FormatNDJSON
	FormatJSON // one JSON document: an error, or an answer that is not streamed
	FormatHTML
)

// Sniff says what a body is from its Content-Type and first bytes. The bytes win where they are clear: servers
// send streams as text/plain, and gateways send login pages with status 200.
func Sniff(contentType string, head []byte) Format {
	media, _, _ := mime.ParseMediaType(contentType)
	head = bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n")
	switch {
	case len(head) > 0 && head[0] == '<':
		return FormatHTML
	case hasField(head):
		return FormatSSE
	}
	switch {
	case media == "text/event-stream":
		return FormatSSE
	case strings.HasSuffix(media, "ndjson"), strings.HasSuffix(media, "jsonl"), media == "application/jsonlines":
		return FormatNDJSON
	case len(head) > 0 && (head[0] == '{' || head[0] == '['):
		return FormatJSON
	case strings.HasSuffix(media, "html"):
		return FormatHTML
	case strings.HasSuffix(media, "json"):
		return FormatJSON
	}
	return FormatUnknown
}

// hasField says whether the bytes begin as an event stream does.
func hasField(head []byte) bool {
	if len(head) > 0 && head[0] == ':' {
		return true
	}
	for _, f := range []string{"data:", "event:", "id:", "retry:"} {
		if bytes.HasPrefix(head, []byte(f)) {
			return true
		}
	}
	return false
}
