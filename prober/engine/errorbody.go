package engine

import (
	"strings"

	"github.com/valyala/fastjson"
)

const maxErrorBody = 64 << 10 // bytes of an error answer that are read

// errorMessage finds the message in any of the forms that servers give errors: {"error":{"message":…}},
// {"error":"…"}, {"message":…}, {"detail":…}, {"error":{"error":…}}.
func errorMessage(v *fastjson.Value) string {
	for _, keys := range [][]string{
		{"error", "message"}, {"error", "error"}, {"error"}, {"message"}, {"detail"}, {"errors"}, {"error", "type"}, {"error", "code"},
	} {
		x := v.Get(keys...)
		if x == nil {
			continue
		}
		switch x.Type() {
		case fastjson.TypeString:
			if s := short(x.GetStringBytes()); s != "" {
				return s
			}
		case fastjson.TypeArray:
			if m := v.Get(append(keys, "0", "msg")...); m != nil { // FastAPI's validation errors
				return short(m.GetStringBytes())
			}
		}
	}
	return "the server gave no message"
}

// errorText is the message of an error answer's body: JSON, or short plain text.
func errorText(body []byte) string {
	if v, err := fastjson.ParseBytes(body); err == nil && v.Type() == fastjson.TypeObject {
		return errorMessage(v)
	}
	s := strings.TrimSpace(string(body))
	if s == "" || strings.HasPrefix(s, "<") {
		return ""
	}
	return short([]byte(s))
}

// maxMessage bounds what is repeated of a server's message. It may hold parts of the prompt: they are the canary's
// own, yet a log line is no place for them.
const maxMessage = 200

// short makes one line of a message.
func short(s []byte) string {
	if len(s) > 4*maxMessage {
		s = s[:4*maxMessage]
	}
	text := strings.Join(strings.Fields(strings.ToValidUTF8(string(s), "\uFFFD")), " ")
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, text)
	if r := []rune(text); len(r) > maxMessage {
		return string(r[:maxMessage]) + "…"
	}
	return text
}
