package sim

import (
	"hash/fnv"
	"math/rand/v2"
	"strings"
)

// Finish reasons of the OpenAI interface.
const (
	finishStop      = "stop"
	finishLength    = "length"
	finishToolCalls = "tool_calls"
)

// pieceField says where in the answer a token's text stands.
type pieceField uint8

const (
	fieldContent pieceField = iota
	fieldReasoning
	fieldTool
)

// piece is one output token.
type piece struct {
	text  string
	field pieceField
	eos   bool // the stop token: counted, without text
	tool  *toolHead
}

// toolHead opens a tool call; it stands on the first piece of its arguments.
type toolHead struct {
	index    int
	id, name string
}

func (p piece) id() uint32 {
	if p.eos {
		return tokenEOS
	}
	return tokenID(p.text)
}

// answerWords are all one token long, with and without a blank before them.
func answerWords() []string {
	return strings.Fields(`the server answer shows that each token comes after a short step and every
		block holds some state while more words follow in steady order so one may count them with care
		until the text ends or its limit stops it then a new turn starts again from here on`)
}

func answerCharacters() []string {
	return strings.Split("服务器的回答由许多字组成每一步给出新的字直到文本结束或者到达上限", "")
}

// prose writes n tokens of filler.
func prose(rng *rand.Rand, n int, chinese bool) []piece {
	words, sep := answerWords(), " "
	if chinese {
		words, sep = answerCharacters(), ""
	}
	out := make([]piece, n)
	for i := range out {
		text := words[rng.IntN(len(words))]
		if i > 0 {
			text = sep + text
		}
		out[i].text = text
	}
	return out
}

// textPieces cuts a given text into tokens.
func textPieces(text string, field pieceField) []piece {
	var out []piece
	for t := range tokenTexts(text) {
		out = append(out, piece{text: t, field: field})
	}
	return out
}

// newRNG seeds the draws of one request from the engine's seed, the prompt's
// tokens and the request's own seed.
func newRNG(seed uint64, prompt []uint32, request int64) *rand.Rand {
	h := fnv.New64a()
	for _, t := range prompt {
		writeUint(h.Write, uint64(t))
	}
	return rand.New(rand.NewPCG(seed^uint64(request), h.Sum64()))
}

// plan decides the whole answer before the engine starts: its tokens and why it
// ends. limit is the largest number of tokens allowed.
func (s *Server) plan(r *request, rng *rand.Rand, limit int, f *faults) ([]piece, string) {
	if f.empty {
		return []piece{{eos: true}}, finishStop
	}
	if f.length > 0 {
		return prose(rng, f.length, r.chinese), finishStop
	}
	pieces, finish, ok := s.respond(r, rng)
	if !ok {
		pieces, finish = s.naturalProse(r, rng, limit), finishStop
	} else if c, _ := r.constraint(); r.IgnoreEOS && c == nil && len(pieces) > 0 && pieces[0].field == fieldContent {
		pieces = append(pieces, prose(rng, max(0, limit-len(pieces)), r.chinese)...)
	}
	for i := range min(f.reasoning, len(pieces)) {
		if pieces[i].field == fieldContent {
			pieces[i].field = fieldReasoning
		}
	}
	pieces, cut := cutAtStop(pieces, r.Stop)
	switch {
	case cut:
		finish = finishStop
	case r.IgnoreEOS && len(pieces) >= limit:
		return pieces[:limit], finishLength
	default:
		pieces = append(pieces, piece{eos: true})
	}
	if len(pieces) > limit {
		return pieces[:limit], finishLength
	}
	return pieces, finish
}

func (s *Server) naturalProse(r *request, rng *rand.Rand, limit int) []piece {
	mean := s.cfg.OutputTokensMean
	n := mean - mean/2 + rng.IntN(2*(mean/2)+1)
	n = max(1, n, r.MinTokens)
	if r.IgnoreEOS {
		n = limit
	}
	return prose(rng, min(n, limit), r.chinese)
}

// cutAtStop ends the answer where the first stop string begins. The token that
// completed it is counted but its text, from the stop string on, is not sent.
func cutAtStop(pieces []piece, stops []string) ([]piece, bool) {
	if len(stops) == 0 {
		return pieces, false
	}
	var b strings.Builder
	for i := range pieces {
		before := b.Len()
		b.WriteString(pieces[i].text)
		for _, stop := range stops {
			at := strings.Index(b.String()[max(0, before-len(stop)):], stop)
			if stop == "" || at < 0 {
				continue
			}
			at += max(0, before-len(stop))
			// Text already sent cannot be taken back: a server holds it back, and
			// so it is blanked here.
			return blankFrom(pieces[:i+1], at), true
		}
	}
	return pieces, false
}

func blankFrom(pieces []piece, at int) []piece {
	n := 0
	for i := range pieces {
		end := n + len(pieces[i].text)
		if end > at {
			pieces[i].text = pieces[i].text[:max(0, at-n)]
		}
		n = end
	}
	return pieces
}
