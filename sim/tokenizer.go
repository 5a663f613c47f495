package sim

import (
	"encoding/json"
	"hash/fnv"
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Reserved token ids; ordinary ids start at firstTextToken.
const (
	tokenBOS uint32 = iota
	tokenEOS
	tokenTurnStart
	tokenTurnEnd
	tokenMedia
	firstTextToken
)

const (
	maxLettersPerToken = 6
	maxDigitsPerToken  = 3
	maxSpacesPerToken  = 8
)

// tokenTexts cuts a text into tokens. The rule, chosen for simplicity and to
// come near the 1.3 tokens per English word of real tokenizers:
// a run of letters is cut every 6, a run of digits every 3, any other visible
// character (a CJK character, a punctuation mark) is a token of its own; one
// blank before such a token belongs to it; other white space makes tokens of up
// to 8 equal characters. Joining the tokens gives the text back.
func tokenTexts(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for len(text) > 0 {
			n := tokenLen(text)
			if !yield(text[:n]) {
				return
			}
			text = text[n:]
		}
	}
}

// tokenLen is the length in bytes of the first token of a non-empty text.
func tokenLen(text string) int {
	first, size := utf8.DecodeRuneInString(text)
	if unicode.IsSpace(first) {
		next, nextSize := utf8.DecodeRuneInString(text[size:])
		if first == ' ' && nextSize > 0 && !unicode.IsSpace(next) {
			return size + runLen(text[size:], next)
		}
		return equalRun(text, first, maxSpacesPerToken)
	}
	return runLen(text, first)
}

func runLen(text string, first rune) int {
	class, limit := runeClass(first)
	n := 0
	for i, r := range text {
		if c, _ := runeClass(r); n == limit || c != class {
			return i
		}
		n++
	}
	return len(text)
}

func equalRun(text string, first rune, limit int) int {
	n := 0
	for i, r := range text {
		// A last blank before a word belongs to that word.
		rest := text[i+utf8.RuneLen(first):]
		if r != first || n == limit || (n > 0 && first == ' ' && startsWord(rest)) {
			return i
		}
		n++
	}
	return len(text)
}

func startsWord(text string) bool {
	r, size := utf8.DecodeRuneInString(text)
	return size > 0 && !unicode.IsSpace(r)
}

// runeClass gives the class of a character and how many of it make one token.
func runeClass(r rune) (class, limit int) {
	switch {
	case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul):
		return 0, 1
	case unicode.IsLetter(r) || unicode.IsMark(r):
		return 1, maxLettersPerToken
	case unicode.IsDigit(r):
		return 2, maxDigitsPerToken
	case unicode.IsSpace(r):
		return 3, 1
	default:
		return 4, 1
	}
}

// tokenID is a hash of the token's text, so that no vocabulary is needed. It
// stays below 2^31 for clients that hold ids as signed 32-bit numbers.
func tokenID(text string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // a hash never fails
	return firstTextToken + h.Sum32()&0x3fffffff
}

// encoder collects the tokens of a prompt.
type encoder struct {
	ids  []uint32
	strs []string // kept only when wanted
	keep bool
}

func (e *encoder) special(id uint32, text string) {
	e.ids = append(e.ids, id)
	if e.keep {
		e.strs = append(e.strs, text)
	}
}

func (e *encoder) text(s string) {
	for t := range tokenTexts(s) {
		e.special(tokenID(t), t)
	}
}

// chat renders the template: a beginning token, then for each message a start
// token, its role, its content and an end token, then the opening of the answer.
// Tool definitions stand in front as one more turn.
func (e *encoder) chat(msgs []message, tools json.RawMessage, mediaTokens int) {
	e.special(tokenBOS, "<|begin|>")
	if len(tools) > 0 && string(tools) != "null" {
		e.open("tools")
		e.text(string(tools))
		e.special(tokenTurnEnd, "<|end|>")
	}
	for _, m := range msgs {
		e.open(m.Role)
		for _, p := range m.Content {
			if p.media == "" {
				e.text(p.Text)
				continue
			}
			for range mediaTokens {
				e.special(tokenMedia+1+tokenID(p.media), "<|media|>")
			}
		}
		if len(m.ToolCalls) > 0 && string(m.ToolCalls) != "null" {
			e.text(string(m.ToolCalls))
		}
		e.special(tokenTurnEnd, "<|end|>")
	}
	e.open("assistant")
}

func (e *encoder) open(role string) {
	e.special(tokenTurnStart, "<|start|>")
	e.special(tokenID("<|"+role+"|>"), "<|"+role+"|>")
}

// containsCJK says whether an answer should be Chinese.
func containsCJK(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return unicode.Is(unicode.Han, r) })
}
