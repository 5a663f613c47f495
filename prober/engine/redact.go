package engine

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// minSecret is the length from which on a word of a header is taken for a secret: shorter ones stand in any text.
const minSecret = 6

// maxDetail bounds what a server's message contributes to a detail, in bytes.
const maxDetail = 240

// echo is the length from which on a piece of a message that stands in the prompt too is taken for an echo of it.
const echo = 24

// redactor takes secrets and prompts out of what servers say, before it gets into a log, a page or JSON.
type redactor struct {
	secrets []string
	prompt  []string
}

// credentials are words that look like one, and what follows a word that announces one.
var credentials = regexp.MustCompile(`(?i)\b(?:sk|pk|rk|hf|gsk|nvapi|xai|key|tok)[-_][A-Za-z0-9*_\-.]{6,}|\b(bearer|basic|api[-_ ]?key(?: provided)?|token|password|secret)(["']?\s*[:=]?\s+["']?|["']?[:=]["']?)[A-Za-z0-9*_\-.+/=]{8,}|\b[A-Za-z0-9_\-+=]{40,}\b`)

// clean returns a short line of what a server said: no control characters, no secret, no piece of the prompt.
func (r redactor) clean(message string) string {
	if len(message) > 4*maxDetail {
		message = message[:4*maxDetail]
	}
	message = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(message, "\uFFFD"), func(c rune) bool {
		return c <= ' ' || c == 0x7f || c >= 0x80 && c < 0xa0
	}), " ")
	for _, s := range r.secrets {
		if len(s) >= minSecret {
			message = strings.ReplaceAll(message, s, "<secret>")
		}
	}
	message = credentials.ReplaceAllStringFunc(message, func(m string) string {
		if parts := credentials.FindStringSubmatch(m); parts[1] != "" {
			return parts[1] + parts[2] + "<secret>"
		}
		return "<secret>"
	})
	message = r.withoutPrompt(message)
	if len(message) > maxDetail {
		cut := maxDetail
		for cut > 0 && !utf8.RuneStart(message[cut]) {
			cut--
		}
		message = message[:cut] + "…"
	}
	return message
}

// withoutPrompt replaces each run of the message that is a piece of the prompt.
func (r redactor) withoutPrompt(message string) string {
	if len(message) < echo {
		return message
	}
	var out strings.Builder
	for i := 0; i < len(message); {
		n := r.echoed(message[i:])
		if n == 0 {
			out.WriteByte(message[i])
			i++
			continue
		}
		out.WriteString("<prompt>")
		i += n
	}
	return out.String()
}

// echoed returns how many bytes at the start of s stand in the prompt too, or 0 if they are few.
func (r redactor) echoed(s string) int {
	if len(s) < echo {
		return 0
	}
	for _, p := range r.prompt {
		at := strings.Index(p, s[:echo])
		if at < 0 {
			continue
		}
		n := echo
		for n < len(s) && at+n < len(p) && s[n] == p[at+n] {
			n++
		}
		return n
	}
	return 0
}

// redactorOf makes a redactor for a request: its own texts, and the credentials that went out with it.
func redactorOf(r Request, secrets []string) redactor {
	var prompt []string
	for _, m := range r.Messages {
		if len(m.Text) > 0 {
			// Servers echo what they got with its white space folded or not: messages are compared folded.
			prompt = append(prompt, strings.Join(strings.Fields(m.Text), " "))
		}
	}
	return redactor{secrets: secrets, prompt: prompt}
}
