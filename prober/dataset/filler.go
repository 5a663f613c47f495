// Package dataset makes what is sent: embedded prompts of our own in English and Chinese, and filler text whose
// number of tokens can be chosen. Everything is a function of the random source that is handed in: the same source
// gives the same text, in every process and release of the same version.
package dataset

import (
	"math/rand/v2"
	"strings"
)

// fillerWords are short common words of one syllable or two. Each is one token, with its leading space, in the
// vocabularies of today's models, so that tokens grow evenly with words; where a tokenizer splits them, it splits
// them all alike.
func fillerWords() []string {
	return strings.Fields(`
		time year people way day man thing woman life child world school state family student group country
		problem hand part place case week company system program question work government number night point
		home water room mother area money story fact month lot right study book eye job word business issue
		side kind head house service friend father power hour game line end member law car city name team
		minute idea body back parent face others level office door health person art war history party result
		change morning reason research girl guy moment air teacher force education foot boy age policy music
		market sense nation plan college interest death course someone experience behind reach local six remain
		effect suggest class control field pass former sell major report role better rate effort leader heart
		drug show light voice wife police mind price decision son view bit value building action model season
		society tax director position player record paper space ground form event official matter center couple
		site project activity star table need court oil half situation cost industry figure street image phone
		data picture practice piece land product doctor wall patient worker news test movie north love support
		technology step baby computer type film tree source hair window culture chance brother energy period
		summer hope chair garden river bread stone letter bridge winter paint green silver quick slow small
		large open close bright dark early late warm cold heavy quiet loud short long round flat`)
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
