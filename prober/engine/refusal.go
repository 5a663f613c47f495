package engine

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// maxRefusals is how many fields are left out one after the other for one request.
const maxRefusals = 4

// optionalFields are the fields that a request can do without, by their wire name, longest first where one name
// holds another. max_tokens is one of them since it has a successor.
var optionalFields = []string{
	"continuous_usage_stats", "stream_options", "max_tokens", "temperature", "cache_salt", "ignore_eos",
	"min_tokens", "tool_choice", "seed",
}

// refusedField names the optional field that a 400 or 422 answer complains of, if it was sent.
func refusedField(status int, body []byte, sent []byte, refused map[string]bool) (string, bool) {
	if status != http.StatusBadRequest && status != http.StatusUnprocessableEntity {
		return "", false
	}
	text := string(body)
	for _, f := range optionalFields {
		// "max_tokens" is not meant where the text says "use max_completion_tokens", nor where the sum is too large.
		if refused[f] || !strings.Contains(string(sent), `"`+f+`"`) || !mentions(text, f) {
			continue
		}
		if f == "max_tokens" && isTooLong(text) {
			continue
		}
		return f, true
	}
	return "", false
}

// mentions reports whether text holds the name as a word of its own.
func mentions(text, name string) bool {
	for at := 0; ; {
		i := strings.Index(text[at:], name)
		if i < 0 {
			return false
		}
		start, end := at+i, at+i+len(name)
		if (start == 0 || !wordByte(text[start-1])) && (end == len(text) || !wordByte(text[end])) {
			return true
		}
		at = end
	}
}

func wordByte(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// isTooLong reports whether an error is about the prompt's length.
func isTooLong(text string) bool {
	t := strings.ToLower(text)
	for _, s := range []string{"context length", "context size", "context_length", "exceed_context", "maximum context", "too long", "max_model_len", "max_seq_len"} {
		if strings.Contains(t, s) {
			return true
		}
	}
	return false
}

// contextLimitRE finds the limit in the messages of servers that refuse a prompt for its length.
var contextLimitRE = regexp.MustCompile(`(?i)(?:context length|context size|context_length|n_ctx)[^0-9]{0,40}([0-9]{2,9})`)

// learnLimit takes the context length from an error about it, for targets whose list of models does not tell.
func (t *Target) learnLimit(body []byte) {
	text := string(body)
	if !isTooLong(text) {
		return
	}
	m := contextLimitRE.FindStringSubmatch(text)
	if m == nil {
		return
	}
	n, err := strconv.Atoi(m[1])
	if err != nil || n < 16 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.facts.MaxModelLen == 0 {
		t.facts.MaxModelLen, t.learntLimit = n, n
	}
}
