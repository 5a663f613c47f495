package measure

import (
	"math"
	"reflect"
	"testing"
	"time"
)

const ms = time.Millisecond

func line(chunks ...Chunk) *Timeline {
	t := NewTimeline(len(chunks))
	for _, c := range chunks {
		t.Add(c.At, c.Kind, c.Tokens)
	}
	return t
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestFigures(t *testing.T) {
	l := line(
		Chunk{80 * ms, Unknown, Reasoning}, Chunk{92 * ms, Unknown, Reasoning}, Chunk{92 * ms, Unknown, Content | Reasoning},
		Chunk{110 * ms, Unknown, ToolCall},
	)
	if d, ok := l.FirstToken(); !ok || d != 80*ms {
		t.Errorf("FirstToken = %v, %v", d, ok)
	}
	if d, ok := l.FirstContent(); !ok || d != 92*ms {
		t.Errorf("FirstContent = %v, %v", d, ok)
	}
	if d, ok := l.End(); !ok || d != 110*ms {
		t.Errorf("End = %v, %v", d, ok)
	}
	want := []float64{0.012, 0, 0.018} // a gap of 0 stays a sample
	got := l.Gaps()
	if len(got) != len(want) {
		t.Fatalf("Gaps = %v", got)
	}
	var sum float64
	for i := range want {
		sum += got[i]
		if !near(got[i], want[i]) {
			t.Errorf("gap %d = %v, want %v", i, got[i], want[i])
		}
	}
	if !near(sum, 0.030) { // the gaps of an answer are E2E − TTFT
		t.Errorf("sum of gaps = %v", sum)
	}
	if v, ok := l.TimePerOutputToken(7); !ok || !near(v, 0.005) {
		t.Errorf("TPOT = %v, %v, want 5 ms", v, ok)
	}
	if l.Exact() || l.Tokens() != nil || l.TokenGaps() != nil {
		t.Error("uncounted chunks gave exact counts")
	}
}

func TestAbsent(t *testing.T) {
	empty := NewTimeline(0)
	if _, ok := empty.FirstToken(); ok {
		t.Error("TTFT without output")
	}
	if _, ok := empty.End(); ok {
		t.Error("E2E without output")
	}
	if empty.Gaps() != nil || empty.Exact() || empty.Buffered(time.Second, 64) {
		t.Error("figures without output")
	}
	thought := line(Chunk{5 * ms, Unknown, Reasoning})
	if _, ok := thought.FirstContent(); ok {
		t.Error("content where there was only reasoning")
	}
	for name, l := range map[string]*Timeline{
		"one chunk": line(Chunk{9 * ms, 20, Content}),
		"one read":  line(Chunk{9 * ms, 10, Content}, Chunk{9 * ms, 10, Content}),
	} {
		if v, ok := l.TimePerOutputToken(20); ok {
			t.Errorf("%s: TPOT = %v, want none", name, v)
		}
	}
	two := line(Chunk{9 * ms, 1, Content}, Chunk{19 * ms, 1, Content})
	for _, n := range []int{-1, 0, 1} {
		if v, ok := two.TimePerOutputToken(n); ok {
			t.Errorf("TPOT of %d tokens = %v, want none", n, v)
		}
	}
}

func TestExactTokens(t *testing.T) {
	// A burst of 4, text that was held back (0 tokens), then 2.
	l := line(Chunk{50 * ms, 1, Content}, Chunk{90 * ms, 4, Content}, Chunk{95 * ms, 0, Content}, Chunk{110 * ms, 2, Content})
	if got, want := l.Tokens(), []int{1, 4, 0, 2}; !reflect.DeepEqual(got, want) {
		t.Errorf("Tokens = %v, want %v", got, want)
	}
	got := l.TokenGaps()
	if len(got) != 2 || !near(got[0].Seconds, 0.010) || got[0].Tokens != 4 || !near(got[1].Seconds, 0.010) || got[1].Tokens != 2 {
		t.Errorf("TokenGaps = %+v", got)
	}
	l.Add(120*ms, Content, Unknown)
	if l.Exact() || l.Tokens() != nil || l.TokenGaps() != nil {
		t.Error("one uncounted chunk must make all counts unknown")
	}
}

func TestClockSteppedBack(t *testing.T) {
	l := line(Chunk{-3 * ms, 1, Content}, Chunk{20 * ms, 1, Content}, Chunk{12 * ms, 1, Content})
	if d, _ := l.FirstToken(); d != 0 {
		t.Errorf("TTFT = %v", d)
	}
	for _, g := range l.Gaps() {
		if g < 0 {
			t.Errorf("negative gap %v", g)
		}
	}
}

func TestBuffered(t *testing.T) {
	many := func(n int, first, gap time.Duration) *Timeline {
		l := NewTimeline(n)
		for i := range n {
			l.Add(first+time.Duration(i)*gap, Content, Unknown)
		}
		return l
	}
	tests := []struct {
		name   string
		line   *Timeline
		wait   time.Duration
		tokens int
		want   bool
	}{
		{"64 chunks in one read after 700 ms", many(64, 700*ms, 0), 700 * ms, 64, true},
		{"one chunk of 64 tokens", many(1, 700*ms, 0), 700 * ms, 64, true},
		{"951 chunks over 20 ms after 8 s", many(951, 8*time.Second, 21*time.Microsecond), 8 * time.Second, 951, true},
		{"steady 10 ms", many(64, 50*ms, 10*ms), 50 * ms, 64, false},
		{"steady 1 ms: fast, not buffered", many(64, 500*ms, ms), 500 * ms, 64, false},
		{"short answer", many(8, 900*ms, 0), 900 * ms, 8, false},
		{"mock that answers at once", many(64, ms, 0), ms, 64, false},
		{"one speculative burst of nine", many(9, 120*ms, 30*time.Microsecond), 120 * ms, 9, false},
	}
	for _, tt := range tests {
		if got := tt.line.Buffered(tt.wait, tt.tokens); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestAddAllocatesNothing(t *testing.T) {
	l := NewTimeline(2000)
	if n := testing.AllocsPerRun(1000, func() { l.Add(ms, Content, 1) }); n != 0 {
		t.Errorf("Add allocates %v times", n)
	}
}
