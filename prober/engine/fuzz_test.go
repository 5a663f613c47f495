package engine

import (
	"bytes"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// feed runs bytes through decoder, parser and judge, without a network.
func feed(p Protocol, data []byte, maxTokens int) Answer {
	x := &exchange{
		target: &Target{memory: newMemory()}, protocol: p, request: Request{MaxTokens: maxTokens}, outcome: result.Failure,
		acc: NewAccumulator(maxTokens), arrivals: newArrivals(), body: newBody(nil), start: time.Now(), wire: Wire{Facts: Facts{Model: "m"}},
		status: 200,
	}
	x.dog = newWatchdog(func(error) {}, x.start, timeouts(), time.Minute)
	defer x.dog.stop()
	dec := x.decoder(bytes.NewReader(data))
	x.judge(t0, x.events(dec))
	x.learn()
	return x.answer()
}

// FuzzParsers feeds any bytes to every protocol: nothing panics, grows without bound, or makes figures of nothing.
func FuzzParsers(f *testing.F) {
	for _, r := range recordings(f) {
		which := slices.Index(ProtocolNames(), r.protocol)
		f.Add(uint8(which), r.body[:min(len(r.body), 2<<10)])
	}
	for i := range Protocols() {
		f.Add(uint8(i), []byte("data: {\"error\":{\"message\":\"x\"}}\n\ndata: [DONE]\n\n"))
		f.Add(uint8(i), []byte("event: error\n: gone\n\n{\"error\":\"x\"}\n"))
		f.Add(uint8(i), []byte(`{"done":true,"message":{"tool_calls":[{"function":{"arguments":{"a":[1e999,-1,null]}}}]}}`))
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		p := Protocols()[int(which)%len(Protocols())]
		a := feed(p, data, 16)
		if len(a.Text)+len(a.Reasoning) > maxTextBytes || len(a.ToolCalls) > maxToolCalls {
			t.Errorf("%d bytes of text, %d calls", len(a.Text), len(a.ToolCalls))
		}
		if (a.Outcome == result.Success) != (a.Reason == "") {
			t.Errorf("outcome %s with reason %q", a.Outcome, a.Reason)
		}
		if a.Outcome == result.Success && a.FinishReason == "" && p.Name() != "triton_generate" && p.Name() != "tgi_generate" {
			t.Errorf("success without finish reason: %s", summary(a))
		}
		for _, g := range a.InterChunkLatenciesSeconds {
			if g < 0 {
				t.Errorf("gap %v", g)
			}
		}
		for _, v := range []*float64{a.TimeToFirstTokenSeconds, a.TimeToFirstContentSeconds, a.E2ELatencySeconds, a.TimePerOutputTokenSeconds} {
			if v != nil && *v < 0 {
				t.Errorf("negative figure in %s", summary(a))
			}
		}
		for _, n := range []*int{a.PromptTokens, a.CachedPromptTokens, a.CompletionTokens, a.ReasoningTokens} {
			if n != nil && *n < 0 {
				t.Errorf("negative count in %s", summary(a))
			}
		}
		if len(a.FinishReason) > maxLabelBytes || len(a.Model) > maxLabelBytes || len(a.Detail) > maxDetail+8 {
			t.Error("unbounded names")
		}
	})
}

// FuzzReplies feeds any bytes to what reads errors and lists of models.
func FuzzReplies(f *testing.F) {
	for _, s := range []string{
		`{"error":{"message":"x","type":"y","param":"stream_options","code":400}}`, `{"error":"x"}`, `[{"error":{"message":"x"}}]`,
		`{"detail":[{"loc":["body","seed"],"msg":"Extra inputs","type":"extra_forbidden"}]}`, "<html><title>Login</title>", `{"data":[{"id":"m"}]}`,
	} {
		f.Add(400, []byte(s))
	}
	f.Fuzz(func(t *testing.T, status int, data []byte) {
		r := newReply(status, nil, data)
		if v := r.judge(Wire{}, "/x"); v.reason == "" || v.detail == "" {
			t.Errorf("no verdict for %d", status)
		}
		_ = r.judgePage("x")
		_ = r.refusedField([]string{"stream_options.include_usage", "stream_options", "seed"})
		_, _ = r.cannot(Request{Tools: []Tool{{}}})
		if s := redactorOf(ask(), nil).clean(r.message()); len(s) > maxDetail+8 {
			t.Errorf("%d bytes of detail", len(s))
		}
		_ = parseModels(data)
	})
}

// benchEvents holds an ordinary chunk of each protocol.
func benchEvents() map[string]string {
	return map[string]string{
		"openai_chat":         `{"id":"chatcmpl-9a","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" two"},"logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":31,"completion_tokens":1,"total_tokens":32}}`,
		"openai_completions":  `{"id":"cmpl-9a","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":" two","logprobs":null,"finish_reason":null}]}`,
		"openai_responses":    `{"type":"response.output_text.delta","sequence_number":4,"item_id":"msg_1","output_index":0,"content_index":0,"delta":" two"}`,
		"anthropic_messages":  `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" two"}}`,
		"tgi_generate":        `{"index":1,"token":{"id":3776,"text":" two","logprob":-0.02,"special":false},"generated_text":null,"details":null}`,
		"llamacpp_completion": `{"index":0,"content":" two","tokens":[1980],"stop":false,"id_slot":-1,"tokens_predicted":3,"tokens_evaluated":4}`,
		"ollama_chat":         `{"model":"m","created_at":"2026-01-02T03:04:05.1Z","message":{"role":"assistant","content":" two"},"done":false}`,
		"ollama_generate":     `{"model":"m","created_at":"2026-01-02T03:04:05.1Z","response":" two","done":false}`,
	}
}

// endless gives the same event again and again, n times.
type endless struct {
	event []byte
	left  int
	rest  []byte
}

func (e *endless) Read(p []byte) (int, error) {
	if len(e.rest) == 0 {
		if e.left == 0 {
			return 0, io.EOF
		}
		e.left--
		e.rest = e.event
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// BenchmarkChunk is what one chunk costs from its bytes to the timeline: in steady state it allocates nothing.
func BenchmarkChunk(b *testing.B) {
	for _, p := range Protocols() {
		event, ok := benchEvents()[p.Name()]
		if !ok {
			continue
		}
		b.Run(p.Name(), func(b *testing.B) {
			framed := []byte("data: " + event + "\n\n")
			if p.Format() == stream.FormatNDJSON {
				framed = []byte(event + "\n")
			}
			x := &exchange{protocol: p, acc: NewAccumulator(0), start: time.Now()}
			x.dog = newWatchdog(func(error) {}, x.start, timeouts(), time.Minute)
			defer x.dog.stop()
			dec := x.decoder(&endless{event: framed, left: b.N})
			parser := p.Parser()
			b.ReportAllocs()
			b.SetBytes(int64(len(framed)))
			b.ResetTimer()
			for i := 0; ; i++ {
				ev, err := dec.Next()
				if err != nil {
					break
				}
				if i%(1<<15) == 0 { // no answer is longer
					x.acc = NewAccumulator(1 << 15)
				}
				at := ev.At.Sub(x.start)
				x.dog.alive(at)
				if err := x.event(parser, ev, at); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The same as a test: growth of the text and of the timeline is all that may allocate.
func TestChunksAllocateNothing(t *testing.T) {
	for _, p := range Protocols() {
		event, ok := benchEvents()[p.Name()]
		if !ok {
			continue
		}
		const chunks = 500
		a, parser := NewAccumulator(chunks), p.Parser()
		a.text = make([]byte, 0, 1<<16)
		ev := stream.Event{Kind: stream.Message, Data: []byte(event)}
		one := func() {
			a.begin(time.Millisecond)
			if err := parser.Event(ev, a); err != nil {
				t.Fatal(err)
			}
			a.commit()
		}
		one() // buffers of the parser
		if n := testing.AllocsPerRun(chunks-2, one); n != 0 {
			t.Errorf("%s: %v allocations per chunk", p.Name(), n)
		}
	}
}
