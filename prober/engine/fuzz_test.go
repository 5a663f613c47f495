package engine

import (
	"testing"
	"time"

	"github.com/valyala/fastjson"

	"github.com/llmcanary/llm_canary_exporter/prober/measure"
	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// Whatever a target sends as an event, no parser panics, and counts stay within what was sent.
func FuzzParsers(f *testing.F) {
	for _, s := range []string{
		`{"choices":[{"index":0,"delta":{"content":"a","reasoning":"b","tool_calls":[{"index":0,"id":"x","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"stop"}],"usage":{"completion_tokens":3}}`,
		`{"choices":[{"text":"a","token_ids":[1,2]}],"timings":{"prompt_ms":1,"draft_n":2,"draft_n_accepted":1}}`,
		`{"error":{"message":"x"}}`, `{"choices":[null,5,"x"],"usage":null}`, `{"metrics":{"speculative_decoding":{"num_spec_steps":1}},"x_groq":{"usage":{"queue_time":1}}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := fastjson.ParseBytes(data)
		if err != nil || v.Type() != fastjson.TypeObject {
			return
		}
		for _, p := range Protocols() {
			acc := newAccumulator(time.Now(), 8)
			parser := p.Parser()
			for range 2 {
				acc.begin()
				if err := parser.Event(stream.Event{Data: data}, v, acc); err != nil {
					return
				}
				acc.end(time.Now(), 0, stream.ClockUser)
			}
			if n := len(acc.timeline.Chunks); n > 2 || acc.text.Len() > 4*len(data) || len(acc.failure) > 5*maxMessage {
				t.Fatalf("%d chunks, %d bytes of text, %d of failure out of %d bytes", n, acc.text.Len(), len(acc.failure), len(data))
			}
		}
	})
}

// BenchmarkChunk is the cost of a chunk after its framing: JSON, classification, timeline.
func BenchmarkChunk(b *testing.B) {
	data := []byte(one[len("data: ") : len(one)-2])
	parser, json := openAIChat{}.Parser(), fastjson.Parser{}
	acc := newAccumulator(time.Now(), 1)
	acc.timeline.Chunks = make([]measure.Chunk, 0, 1<<16)
	b.ReportAllocs()
	for b.Loop() {
		if len(acc.timeline.Chunks) == cap(acc.timeline.Chunks) {
			acc.timeline.Chunks = acc.timeline.Chunks[:0]
		}
		v, err := json.ParseBytes(data)
		if err != nil {
			b.Fatal(err)
		}
		acc.begin()
		_ = parser.Event(stream.Event{Data: data}, v, acc)
		acc.end(acc.start, 0, stream.ClockKernel)
	}
}
