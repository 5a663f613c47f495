// Package dataset makes what is sent: embedded prompts of our own in English and Chinese, and filler text whose
// number of tokens can be chosen. Everything is a function of the random source that is handed in: the same source
// gives the same text, in every process and release of the same version.
package dataset

import (
	"math/rand/v2"
	"strings"
)

// fillerWords are short common words, of at most six letters. Each is one token, with its leading space, in the
// vocabularies of today's models, so that tokens grow evenly with words. Longer words would be split by some tokenizers
// and not by others: then the count of a small prompt depends on which words were drawn, by more than the 5 % at which
// a prompt counts as cut.
func fillerWords() []string {
	return strings.Fields(`
		time year people way day man thing woman life child world school state family group hand part place case
		week system work number night point home water room mother area money story fact month lot right study
		book eye job word issue side kind head house friend father power hour game line end member law car city
		name team minute idea body back parent face others level office door health person art war party result
		change reason girl guy moment air force foot boy age policy music market sense nation plan death course
		behind reach local six remain effect class field pass former sell major report role better rate effort
		leader heart drug show light voice wife police mind price son view bit value action model season tax
		player record paper space ground form event matter center couple site star table need court oil half
		cost figure street image phone data piece land doctor wall worker news test movie north love step baby
		type film tree source hair window chance energy period summer hope chair garden river bread stone letter
		bridge winter paint green silver quick slow small large open close bright dark early late warm cold
		heavy quiet loud short long round flat`)
}

// Filler returns n words of text that means nothing, separated by single spaces and without punctuation.
func Filler(r *rand.Rand, n int) string {
	if n <= 0 {
		return ""
	}
	words := fillerWords()
	var b strings.Builder
	b.Grow(n * 7)
	for i := range n {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(words[r.IntN(len(words))])
	}
	return b.String()
}
