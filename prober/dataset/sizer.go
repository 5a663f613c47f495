package dataset

import (
	"math"
	"sync"
)

// The rules of a Sizer.
const (
	sizerWindow      = 32   // observations that a fit rests on
	sizerSpread      = 64   // words between the shortest and the longest observation of a fit
	sizerTolerance   = 0.03 // how far an observation may lie from the line that it helped to fit
	sizerOutlier     = 0.10 // beyond this an observation does not move a fit that holds
	sizerRefit       = 6    // outliers in a row that, if they lie on a line of their own, replace the fit
	defaultPerWord   = 1.2  // tokens per filler word before anything was observed
	defaultOverhead  = 40   // tokens of template and frame before anything was observed
	minTokensPerWord = 0.5
	maxTokensPerWord = 12
)

type observation struct{ words, tokens float64 }

// Sizer learns how many tokens a target counts for filler text: tokens = a + b·words, where a is what stands around
// the filler (chat template, nonce, instruction) and b is what a word costs. The line is fitted by least squares with
// weights 1/tokens², so that small and large prompts are equally exact in percent. An instance serves prompts of one
// frame on one target: another frame has another a. Safe for concurrent use; its memory is bounded.
type Sizer struct {
	mu       sync.Mutex
	obs      []observation
	outliers []observation // in a row
	a, b     float64
	fitted   bool
}

// NewSizer returns a Sizer that knows nothing.
func NewSizer() *Sizer { return &Sizer{} }

// Words returns how many words of filler make a prompt of about that many tokens, and whether that is known within
// 5 %: observations of different lengths lie on one line.
func (s *Sizer) Words(tokens int) (words int, calibrated bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, b := s.line()
	return max(0, int(math.Round((float64(tokens)-a)/b))), s.fitted
}

// Learn takes what the target counted for a prompt with that many filler words. Counts that contradict a line that
// holds do not move it (a server that cuts long prompts must not teach us that words are cheap), unless several in a
// row lie on a line of their own: then the target has another tokenizer now.
func (s *Sizer) Learn(words, tokens int) {
	if words < 0 || tokens <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := observation{float64(words), float64(tokens)}
	if s.fitted && math.Abs(s.a+s.b*o.words-o.tokens) > sizerOutlier*o.tokens {
		s.outliers = append(s.outliers, o)
		if len(s.outliers) < sizerRefit {
			return
		}
		if a, b, ok := fit(s.outliers); ok {
			s.obs, s.a, s.b = s.outliers, a, b
		}
		s.outliers = nil
		return
	}
	s.outliers = nil
	if len(s.obs) == sizerWindow {
		s.obs = dropOne(s.obs)
	}
	s.obs = append(s.obs, o)
	if a, b, ok := fit(s.obs); ok {
		s.a, s.b, s.fitted = a, b, true
	}
}

// line returns the best guess of a and b. The caller holds the lock.
func (s *Sizer) line() (a, b float64) {
	if s.fitted {
		return s.a, s.b
	}
	if len(s.obs) == 0 {
		return defaultOverhead, defaultPerWord
	}
	last := s.obs[len(s.obs)-1]
	return max(0, last.tokens-defaultPerWord*last.words), defaultPerWord
}

// dropOne removes the oldest observation that is neither the shortest nor the longest, so that the fit keeps its spread.
func dropOne(obs []observation) []observation {
	lo, hi := span(obs)
	for i, o := range obs {
		if o.words != lo && o.words != hi {
			return append(obs[:i], obs[i+1:]...)
		}
	}
	return append(obs[:0], obs[1:]...)
}

func span(obs []observation) (lo, hi float64) {
	lo, hi = obs[0].words, obs[0].words
	for _, o := range obs {
		lo, hi = min(lo, o.words), max(hi, o.words)
	}
	return lo, hi
}

// fit returns the weighted least-squares line, and whether it can be trusted.
func fit(obs []observation) (a, b float64, ok bool) {
	if lo, hi := span(obs); hi-lo < sizerSpread {
		return 0, 0, false
	}
	var w, wx, wy, wxx, wxy float64
	for _, o := range obs {
		k := 1 / (o.tokens * o.tokens)
		w += k
		wx += k * o.words
		wy += k * o.tokens
		wxx += k * o.words * o.words
		wxy += k * o.words * o.tokens
	}
	d := w*wxx - wx*wx
	if d <= 0 {
		return 0, 0, false
	}
	b = (w*wxy - wx*wy) / d
	a = (wy - b*wx) / w
	if b < minTokensPerWord || b > maxTokensPerWord {
		return 0, 0, false
	}
	for _, o := range obs {
		// Three tokens of slack: a nonce of digits need not always split alike, and that is many percent of a tiny prompt.
		if math.Abs(a+b*o.words-o.tokens) > max(3, sizerTolerance*o.tokens) {
			return 0, 0, false
		}
	}
	return a, b, true
}
