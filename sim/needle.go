package sim

import (
	"math/rand/v2"
	"strings"
)

const (
	// minDocumentBytes is the length from which a prompt counts as a document.
	minDocumentBytes = 2000
	// minNeedleShare is the share of a question's words that a sentence must hold.
	minNeedleShare = 0.6
)

// findNeedle answers a question that follows a long document with the sentence
// of the document that shares most words with it.
func findNeedle(s *Server, r *request, rng *rand.Rand) ([]piece, string, bool) {
	text := r.allText()
	if len(text) < minDocumentBytes {
		return nil, "", false
	}
	sentence := bestSentence(text)
	if sentence == "" {
		return nil, "", false
	}
	if rng.Float64() >= s.cfg.Skills.Recall {
		sentence = "I cannot find that in the text."
	}
	return textPieces(sentence, fieldContent), finishStop, true
}

// bestSentence looks for the last question and the sentence that answers it.
func bestSentence(text string) string {
	cut := func(r rune) bool { return strings.ContainsRune(".!\n。!", r) }
	end := strings.LastIndexAny(text, "??")
	if end < 0 {
		return ""
	}
	begin := strings.LastIndexFunc(text[:end], cut) + 1
	question := wordSet(text[begin:end])
	best, score := "", 0
	for sentence := range strings.FieldsFuncSeq(text[:begin], cut) {
		n := 0
		for w := range wordSet(sentence) {
			if question[w] {
				n++
			}
		}
		if n > score {
			best, score = strings.TrimSpace(sentence), n
		}
	}
	if float64(score) < minNeedleShare*float64(len(question)) {
		return ""
	}
	return best + "."
}

// allText is the text of all messages, or the prompt.
func (r *request) allText() string {
	if len(r.Messages) == 0 {
		return r.Prompt.text
	}
	var b strings.Builder
	for _, m := range r.Messages {
		for _, p := range m.Content {
			b.WriteString(p.Text)
			b.WriteByte('\n')
		}
	}
	return b.String()
}
