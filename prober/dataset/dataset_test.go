package dataset

import (
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"unicode"
)

func source(n uint64) *rand.Rand { return rand.New(rand.NewPCG(42, n)) }

func TestFiller(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range fillerWords() {
		if seen[w] || len(w) > 6 || strings.ToLower(w) != w {
			t.Errorf("%q is twice in the vocabulary, long, or not lower case", w)
		}
		seen[w] = true
	}
	for _, n := range []int{0, 1, 2, 100, 5000} {
		text := Filler(source(1), n)
		if got := len(strings.Fields(text)); got != n || strings.Contains(text, "  ") {
			t.Errorf("%d words were asked for, %d came", n, got)
		}
	}
	once, again, other := Filler(source(1), 50), Filler(source(1), 50), Filler(source(2), 50)
	if once != again || once == other {
		t.Error("filler is not a function of its source")
	}
	if Filler(source(1), -1) != "" {
		t.Error("a negative number of words gave text")
	}
}

func TestConversations(t *testing.T) {
	for _, l := range []Language{English, Chinese} {
		for questions := 1; questions <= 3; questions++ {
			for i := range uint64(300) {
				want := 60 + int(i)*2
				turns := Conversation(source(i), l, questions, want)
				if len(turns) != 2*questions-1 {
					t.Fatalf("%s: %d turns for %d questions", l, len(turns), questions)
				}
				size := 0
				for j, turn := range turns {
					size += EstimateTokens(turn.Text)
					if turn.User != (j%2 == 0) {
						t.Fatalf("%s: turn %d is out of order", l, j)
					}
					if turn.Text == "" || strings.ContainsAny(turn.Text, "{}\t\n") {
						t.Fatalf("%s: %q", l, turn.Text)
					}
					if han := strings.ContainsFunc(turn.Text, func(r rune) bool { return unicode.Is(unicode.Han, r) }); han != (l == Chinese) {
						t.Fatalf("%s: wrong language: %q", l, turn.Text)
					}
				}
				// A short wish is exceeded by the history that it comes with.
				if least := 150 * questions; size < want-len(turns)-2 || /* parts are rounded */ size > max(want, least)+60 {
					t.Fatalf("%s, %d questions: about %d tokens, %d were asked for", l, questions, size, want)
				}
			}
		}
	}
}

// A day of chat at its default cadence has 2880 probes, of decode 720.
func TestBodiesRarelyRepeat(t *testing.T) {
	for _, l := range []Language{English, Chinese} {
		chats, tasks := map[string]bool{}, map[string]bool{}
		for i := range uint64(2880) {
			turns := Conversation(source(i), l, 1, 60)
			chats[turns[0].Text] = true
			tasks[LongTask(source(i), l)] = true
		}
		if len(chats) < 2850 || len(tasks) < 2850 {
			t.Errorf("%s: %d different chats and %d long tasks of 2880", l, len(chats), len(tasks))
		}
	}
}

func TestPromptsAreAFunctionOfTheirSource(t *testing.T) {
	for _, l := range []Language{English, Chinese} {
		a, b := Conversation(source(3), l, 3, 300), Conversation(source(3), l, 3, 300)
		for i := range a {
			if a[i] != b[i] {
				t.Errorf("%s: %q and %q", l, a[i].Text, b[i].Text)
			}
		}
	}
}

func TestEstimates(t *testing.T) {
	for text, want := range map[string]int{"": 0, "one two three four": 5, "面包为什么会发酵": 6, "a 面b": 3} {
		if got := EstimateTokens(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
		if m := MaxTokens(text); m < EstimateTokens(text) {
			t.Errorf("%q: the bound %d is below the estimate", text, m)
		}
	}
}

// tokenizers are pairs of what stands around the text and what a word costs.
func tokenizers() []struct{ overhead, word float64 } {
	return []struct{ overhead, word float64 }{{12, 1.0}, {60, 1.0}, {30, 1.3}, {140, 1.3}, {25, 2.1}, {90, 2.9}}
}

func TestSizerHitsTheSize(t *testing.T) {
	for _, k := range tokenizers() {
		count := func(words int) int { return int(math.Round(k.overhead + k.word*float64(words))) }
		s := NewSizer()
		if _, ok := s.Words(1000); ok {
			t.Fatal("calibrated without an observation")
		}
		s.Learn(0, count(0))
		s.Learn(3, count(3))
		if _, ok := s.Words(1000); ok {
			t.Fatal("calibrated although all observations are of one size")
		}
		s.Learn(256, count(256))
		for _, size := range []int{200, 1024, 4096, 32768, 131072} {
			words, ok := s.Words(size)
			got := count(words)
			if !ok || math.Abs(float64(got-size)) > 0.02*float64(size) {
				t.Errorf("overhead %v, %v a word: %d tokens for %d, calibrated %v", k.overhead, k.word, got, size, ok)
			}
			s.Learn(words, got)
		}
		if words, _ := s.Words(1); words != 0 {
			t.Errorf("%d words for one token", words)
		}
	}
}

func TestSizerIsNotFooled(t *testing.T) {
	s := NewSizer()
	s.Learn(0, 30)
	s.Learn(256, 286)
	// A server that cuts prompts at 2048 tokens, for a month.
	for range 10_000 {
		s.Learn(0, 30)
		s.Learn(994, 1024)
		s.Learn(4066, 2048)
	}
	if words, ok := s.Words(4096); !ok || words != 4066 {
		t.Errorf("after cut prompts: %d words for 4096 tokens, %v", words, ok)
	}
	// The same if every prompt is cut: a line without a slope is no tokenizer.
	for range 100 {
		s.Learn(994, 512)
		s.Learn(4066, 512)
	}
	if words, ok := s.Words(4096); !ok || words != 4066 {
		t.Errorf("after nothing but cut prompts: %d words for 4096 tokens, %v", words, ok)
	}
	if n := len(s.obs) + len(s.outliers); n > sizerWindow+sizerRefit {
		t.Errorf("it remembers %d observations", n)
	}
	s.Learn(-1, 5)
	s.Learn(5, 0)
}

func TestSizerFollowsANewTokenizer(t *testing.T) {
	s := NewSizer()
	s.Learn(0, 30)
	s.Learn(256, 286)
	for range 4 {
		s.Learn(0, 80)
		s.Learn(100, 280)
		s.Learn(1000, 2080)
	}
	if words, ok := s.Words(4080); !ok || words != 2000 {
		t.Errorf("%d words for 4080 tokens of the new tokenizer, %v", words, ok)
	}
}

func TestSizerForManyAtOnce(t *testing.T) {
	s := NewSizer()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 200 {
				s.Learn(i*10, 30+i*13)
				s.Words(1000)
			}
		})
	}
	wg.Wait()
	if words, ok := s.Words(1330); !ok || words != 1000 {
		t.Errorf("%d words, %v", words, ok)
	}
}
