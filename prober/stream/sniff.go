package stream

import (
	"bytes"
	"encoding/json"
	"mime"
	"strings"
)

// Format says what a response body is.
type Format uint8

const (
	// FormatUndecided means that the bytes so far fit several formats and the content type names none.
	FormatUndecided Format = iota
	// FormatSSE is a Server-Sent Events stream.
	FormatSSE
	// FormatNDJSON is a stream of one JSON value a line.
	FormatNDJSON
	// FormatJSON is one JSON document: an unstreamed answer, or an error.
	FormatJSON
	// FormatHTML is a page of markup: a login page, a proxy's error page.
	FormatHTML
	// FormatOther is something else, plain text for instance.
	FormatOther
)

// String returns the format's name in lower case.
func (f Format) String() string {
	switch f {
	case FormatUndecided:
		return "undecided"
	case FormatSSE:
		return "sse"
	case FormatNDJSON:
		return "ndjson"
	case FormatJSON:
		return "json"
	case FormatHTML:
		return "html"
	default:
		return "other"
	}
}

// Sniff tells what a body is from its first bytes and its Content-Type. Bytes that can only be one thing
// win over the header, since servers and proxies mislabel: an SSE field or comment, a tag. A body that
// begins with a brace is one JSON document, also under text/event-stream, where it is an error that was
// never framed; it is NDJSON if the header says so, or if it does not say JSON or SSE and the first line is
// a whole value. Where the bytes leave it open the header decides. A content coding must have been removed.
func Sniff(contentType string, first []byte) Format {
	f, _ := sniff(contentType, first)
	return f
}

// sniff does what Sniff does; sure says that more bytes would not change the answer.
func sniff(contentType string, first []byte) (f Format, sure bool) {
	declared := declaredFormat(contentType)
	text := bytes.TrimLeft(bytes.TrimPrefix(first, []byte(byteOrderMark)), " \t\r\n")
	if len(text) == 0 {
		return declared, false
	}
	switch text[0] {
	case '<':
		return FormatHTML, true
	case '{', '[':
		return sniffJSON(declared, text)
	}
	switch field, partial := sseField(text); {
	case field:
		return FormatSSE, true
	case partial:
		return declared, false
	case declared != FormatUndecided:
		return declared, true
	}
	return FormatOther, true
}

// declaredFormat is what a Content-Type claims; FormatUndecided if it claims nothing that concerns us.
func declaredFormat(contentType string) Format {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		mediaType, _, _ = strings.Cut(contentType, ";")
		mediaType = strings.ToLower(strings.TrimSpace(mediaType))
	}
	switch mediaType {
	case "text/event-stream":
		return FormatSSE
	case "application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines", "application/jsonlines", "application/json-lines":
		return FormatNDJSON
	case "application/json", "application/problem+json":
		return FormatJSON
	case "text/html", "application/xhtml+xml":
		return FormatHTML
	}
	return FormatUndecided
}

func sniffJSON(declared Format, text []byte) (f Format, sure bool) {
	switch {
	case declared == FormatNDJSON:
		return FormatNDJSON, true
	case declared == FormatJSON || declared == FormatSSE || text[0] == '[':
		return FormatJSON, true
	}
	line, _, whole := bytes.Cut(text, []byte{'\n'})
	if whole && json.Valid(line) {
		return FormatNDJSON, true
	}
	return FormatJSON, whole
}

// sseField tells whether text begins with an SSE comment or one of the fields of the specification, or, if
// it is too short to tell, with a part of one.
func sseField(text []byte) (field, partial bool) {
	if text[0] == ':' {
		return true, false
	}
	partial = strings.HasPrefix(byteOrderMark, string(text))
	for _, name := range []string{"data:", "event:", "id:", "retry:"} {
		if bytes.HasPrefix(text, []byte(name)) {
			return true, false
		}
		partial = partial || strings.HasPrefix(name, string(text))
	}
	return false, partial
}
