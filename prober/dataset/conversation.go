package dataset

import (
	"math/rand/v2"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Language is the language of a prompt.
type Language string

// The languages of the embedded prompts.
const (
	English Language = "en"
	Chinese Language = "zh"
)

// Turn is one message of a conversation: of the user, or else of the assistant.
type Turn struct {
	User bool
	Text string
}

// phrases is what the prompts of one language are put together from. In the templates, T stands for a topic and A
// for an audience, between braces.
type phrases struct {
	topics, audiences    []string
	tasks                []string // last questions of a conversation
	openers              []string // first questions of a conversation with more than one turn
	replies              []string // how the assistant began its answer to an opener
	notesLead            string   // stands before the notes that a question rests on
	subjects, acts       []string // a sentence of the notes is subject + act + circumstance
	circumstances        []string
	longTasks            []string // prompts that want a long answer
	separator, endOfNote string
}

func phrasesOf(l Language) phrases {
	if l == Chinese {
		return chinese()
	}
	return english()
}

func pick(r *rand.Rand, list []string) string { return list[r.IntN(len(list))] }

func (p phrases) fill(r *rand.Rand, template, topic string) string {
	return strings.NewReplacer("{T}", topic, "{A}", pick(r, p.audiences)).Replace(template)
}

func (p phrases) sentence(r *rand.Rand) string {
	return pick(r, p.subjects) + p.separator + pick(r, p.acts) + p.separator + pick(r, p.circumstances) + p.endOfNote
}

func (p phrases) sentences(r *rand.Rand, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString(p.separator)
		}
		b.WriteString(p.sentence(r))
	}
	return b.String()
}

// Conversation returns a conversation of that many questions (at least one), the last of which wants an answer. The
// questions before it come with answers of ours, so that its size does not depend on the target. It has about the
// wanted number of tokens by EstimateTokens, and never more than 60 beyond it or beyond its smallest form.
func Conversation(r *rand.Rand, l Language, questions, tokens int) []Turn {
	p := phrasesOf(l)
	topic := pick(r, p.topics)
	var turns []Turn
	for range questions - 1 {
		turns = append(turns,
			Turn{User: true, Text: p.fill(r, pick(r, p.openers), topic)},
			Turn{Text: p.fill(r, pick(r, p.replies), topic) + p.separator + p.sentences(r, 2)})
	}
	last := p.fill(r, pick(r, p.tasks), topic)
	size := EstimateTokens(last)
	for _, t := range turns {
		size += EstimateTokens(t.Text)
	}
	if size < tokens {
		var notes strings.Builder
		size += EstimateTokens(p.notesLead)
		for size < tokens {
			s := p.sentence(r)
			notes.WriteString(p.separator + s)
			size += EstimateTokens(s)
		}
		last += p.separator + p.notesLead + notes.String()
	}
	return append(turns, Turn{User: true, Text: last})
}

// LongTask returns a prompt whose natural answer is several hundred tokens long.
func LongTask(r *rand.Rand, l Language) string {
	p := phrasesOf(l)
	return p.fill(r, pick(r, p.longTasks), pick(r, p.topics)) + p.separator + p.sentences(r, 2)
}

// EstimateTokens guesses how many tokens a text has, where nobody counts them: 1.3 a word and 0.8 a Chinese
// character, in between what today's tokenizers make of them.
func EstimateTokens(text string) int {
	words, han := count(text)
	return int(1.3*float64(words) + 0.8*float64(han) + 0.5)
}

// MaxTokens is an upper bound of the tokens of one of the embedded prompts or of filler text, in any of the
// tokenizers that we know of: three a word of Latin letters or digits, plus one for each three further digits of a
// number, and two a Chinese character or mark.
func MaxTokens(text string) int {
	words, han := count(text)
	digits := 0
	for _, c := range text {
		if unicode.IsDigit(c) {
			digits++
		}
	}
	return 3*words + 2*han + digits
}

// count returns the words written in letters and the characters that stand alone.
func count(text string) (words, han int) {
	in := false
	for len(text) > 0 {
		c, n := utf8.DecodeRuneInString(text)
		text = text[n:]
		switch {
		case c > 0x2E80:
			han++
			in = false
		case unicode.IsSpace(c):
			in = false
		case !in:
			words++
			in = true
		}
	}
	return words, han
}
