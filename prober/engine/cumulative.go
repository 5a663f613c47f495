package engine

import (
	"bytes"

	"github.com/llmcanary/llm_canary_exporter/prober/measure"
)

// growingText tells texts that repeat all that came before from texts that go on: which one a server sends depends on
// its flags. A text that is not longer than what came, or does not begin with it, is a piece of its own, and then all
// are.
type growingText struct {
	so      []byte // all text so far, as the last event had it
	pieces  bool   // the texts are pieces
	settled bool   // a text that repeated more than one before it was seen
}

// add takes an event's text and adds what is new of it to the answer. grown says whether the event may hold new
// tokens: a server that counts repeats the text in an event that only tells the end.
func (g *growingText) add(text []byte, grown bool, a *Accumulator) {
	switch {
	case len(text) == 0:
		return
	case g.pieces:
		a.Output(measure.Content, text)
		return
	case len(g.so) > 0 && bytes.Equal(text, g.so) && (g.settled || !grown):
		return // nothing new
	case len(g.so) > 0 && (len(text) <= len(g.so) || !bytes.HasPrefix(text, g.so)):
		g.pieces = true
		a.Output(measure.Content, text)
		return
	}
	a.Output(measure.Content, text[len(g.so):])
	g.settled = g.settled || len(g.so) > 0
	if room := maxTextBytes - len(g.so); len(text)-len(g.so) <= room {
		g.so = append(g.so, text[len(g.so):]...)
	}
}
