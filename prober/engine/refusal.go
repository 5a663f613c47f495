package engine

import (
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxRefusals bounds how many fields may be dropped within one request.
const maxRefusals = 4

// refusing are the words by which servers refuse a field, as against its value.
var refusing = regexp.MustCompile(`(?i)unsupported|not supported|unknown|unrecogni[sz]ed|unexpected|extra|not permitted|not allowed|no such|instead|does not support|additional propert|invalid (?:field|parameter|argument)|not (?:a )?valid (?:field|parameter)|deprecated|only the default|not enabled|only support`)

// tooMuch are the words of a limit that was overrun: the field is understood then.
var tooMuch = regexp.MustCompile(`(?i)context length|context window|too large|too long|exceed|greater than|less than or equal|maximum`)

// refusedField returns the optional field that a reply refuses, or "".
func (r reply) refusedField(candidates []string) string {
	if r.status != http.StatusBadRequest && r.status != http.StatusUnprocessableEntity {
		return ""
	}
	message := r.said.message
	if message == "" {
		message = string(r.body[:min(len(r.body), 2048)])
	}
	if !refusing.MatchString(message+" "+r.said.kind+" "+r.said.code) || tooMuch.MatchString(message) {
		return ""
	}
	param := strings.TrimPrefix(r.said.param, "body.")
	if slices.Contains(candidates, param) {
		return param
	}
	found, at := "", len(message)
	for _, name := range candidates { // inner names first
		leaf := name[strings.LastIndexByte(name, '.')+1:]
		i := wordIndex(message, leaf)
		if i < 0 || i > at && found != "" {
			continue
		}
		if found != "" && (strings.HasPrefix(found, name+".") || i == at) {
			continue // the inner name says more
		}
		found, at = name, i
	}
	return found
}

// wordIndex returns where a name stands by itself, or -1.
func wordIndex(s, name string) int {
	for from := 0; ; {
		i := strings.Index(s[from:], name)
		if i < 0 {
			return -1
		}
		i += from
		end := i + len(name)
		if (i == 0 || !wordByte(s[i-1])) && (end == len(s) || !wordByte(s[end])) {
			return i
		}
		from = i + 1
	}
}

func wordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// contextLimits finds the limit where a server refuses a prompt for its length.
var contextLimits = regexp.MustCompile(`(?i)(?:context length|context size|context window|context_length|n_ctx)[^0-9]{0,40}([0-9]{2,9})`)

// contextLimit returns the context length that a refusal tells, or 0.
func (r reply) contextLimit() int {
	if r.status < 400 || r.status >= 500 || !tooMuch.MatchString(r.said.message) {
		return 0
	}
	m := contextLimits.FindStringSubmatch(r.said.message)
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if err != nil || n < 16 {
		return 0
	}
	return n
}

// learnLimit takes a context length that a refusal told, for targets whose list of models does not tell it.
func (t *Target) learnLimit(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n > 0 && t.facts.MaxModelLen == 0 {
		t.facts.MaxModelLen, t.memory.limit = n, n
	}
}

// ability is something that a scenario asks for and that a target may not have.
type ability struct {
	feature Feature
	what    string
	asked   func(Request) bool
	named   *regexp.Regexp // in a refusal
}

// abilities is the table of what a target may not be able to do.
func abilities() []ability {
	media := func(kind MediaKind) func(Request) bool {
		return func(r Request) bool {
			for _, m := range r.Messages {
				if slices.ContainsFunc(m.Media, func(x Media) bool { return x.Kind == kind }) {
					return true
				}
			}
			return false
		}
	}
	return []ability{
		{
			FeatureAudio, "audio", media(Audio),
			regexp.MustCompile(`(?i)audio|multi-?modal|mmproj|content.?(?:part|type)|image_url|content must be a string|str type expected|string_type`),
		},
		{
			FeatureVision, "images", media(Image),
			regexp.MustCompile(`(?i)image|vision|multi-?modal|mmproj|content.?(?:part|type)|content must be a string|str type expected|string_type`),
		},
		{
			FeatureTools, "tools", func(r Request) bool { return len(r.Tools) > 0 },
			regexp.MustCompile(`(?i)tool|function`),
		},
		{
			FeatureStructuredOutput, "structured output", func(r Request) bool { return r.Constraint != nil },
			regexp.MustCompile(`(?i)response_format|structured|guided|grammar|json_schema|regex|ebnf|xgrammar|outlines|constrain`),
		},
	}
}

// unable are the words by which servers say that they cannot do something.
var unable = regexp.MustCompile(`(?i)not support|unsupported|n[o']t (?:be )?(?:enabled|available|implemented|configured|initialized|a multimodal|permitted|allowed)|cannot (?:process|handle)|can't (?:process|handle)|requires? |at most 0|unknown|unrecogni[sz]ed|extra inputs|must be a string|expected (?:a )?str|valid string|no (?:vision|image|audio|tool|grammar|multimodal)`)

// cannot returns what the target says that it cannot do, and whether it says so.
func (r reply) cannot(req Request) (ability, bool) {
	switch r.status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusUnsupportedMediaType, http.StatusNotImplemented,
		http.StatusInternalServerError, http.StatusNotFound: // llama.cpp answers 500 without a projector, OpenRouter 404
	default:
		return ability{}, false
	}
	message := r.message()
	if !unable.MatchString(message) {
		return ability{}, false
	}
	for _, a := range abilities() {
		media := a.feature == FeatureVision || a.feature == FeatureAudio
		if a.asked(req) && a.named.MatchString(message) && (media || r.status != http.StatusInternalServerError) {
			return a, true
		}
	}
	return ability{}, false
}
