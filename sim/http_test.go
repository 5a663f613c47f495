package sim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestStreamForm(t *testing.T) {
	s := start(t, quick())
	for _, c := range []struct {
		name, path, want string
		body             fields
	}{
		{"chat", "/v1/chat/completions", "headers role token token token done", fields{"messages": user("Go")}},
		{"chat with usage", "/v1/chat/completions", "headers role token token token usage done", fields{"messages": user("Go"), "stream_options": fields{"include_usage": true}}},
		{"completions", "/v1/completions", "headers token token token done", fields{"prompt": "Go on"}},
		{"completions by ids", "/v1/completions", "headers token token token done", fields{"prompt": []int{10, 11, 12}}},
	} {
		c.body["stream"], c.body["max_tokens"], c.body["ignore_eos"], c.body["model"] = true, 3, true, "sim-8b"
		_, h, text, err := s.post(c.path, c.name, "", c.body)
		if err != nil {
			t.Fatal(err)
		}
		rec := s.ended(c.name)
		if got := kinds(rec); got != c.want {
			t.Errorf("%s: events %q, want %q", c.name, got, c.want)
		}
		if !strings.HasPrefix(h.Get("Content-Type"), "text/event-stream") || !strings.HasSuffix(text, "data: [DONE]\n\n") {
			t.Errorf("%s: not a complete event stream: %s", c.name, text)
		}
		if !strings.Contains(text, `cmpl-`+c.name+`"`) || rec.FinishReason != "length" || rec.CompletionTokens != 3 {
			t.Errorf("%s: wrong id, finish or tokens: %+v", c.name, rec)
		}
		for i, ev := range rec.Events {
			if ev.After.Before(ev.Before) || (i > 0 && ev.Before.Before(rec.Events[i-1].After)) {
				t.Errorf("%s: event %d overlaps the one before", c.name, i)
			}
		}
	}
}

// The bytes of a chunk: a change here is a change of the contract.
func TestChunkBytes(t *testing.T) {
	s := start(t, quick())
	_, evs := s.chat("x", "", fields{
		"messages": user("Go"), "max_tokens": 2, "ignore_eos": true, "return_token_ids": true,
		"stream_options": fields{"include_usage": true, "continuous_usage_stats": true},
	})
	created := fmt.Sprint(s.ended("x").Received.Unix())
	head := `{"id":"chatcmpl-x","object":"chat.completion.chunk","created":` + created + `,"model":"sim-8b","choices":`
	var first struct {
		Choices []struct {
			Delta struct{ Content string }
		}
	}
	if err := json.Unmarshal([]byte(evs[1]), &first); err != nil {
		t.Fatal(err)
	}
	word := first.Choices[0].Delta.Content
	for i, want := range map[int]string{
		0: head + `[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":7,"total_tokens":7,"completion_tokens":0}}`,
		1: head + fmt.Sprintf(`[{"index":0,"delta":{"content":%q},"logprobs":null,"finish_reason":null,"token_ids":[%d]}],"usage":{"prompt_tokens":7,"total_tokens":8,"completion_tokens":1}}`, word, tokenID(word)),
		3: head + `[],"usage":{"prompt_tokens":7,"total_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}}`,
		4: "[DONE]",
	} {
		if evs[i] != want {
			t.Errorf("event %d is\n%s\nwant\n%s", i, evs[i], want)
		}
	}
}

func TestUsageAgreesWithTokenizer(t *testing.T) {
	s := start(t, quick())
	for name, body := range map[string]fields{
		"plain":   {"messages": user("Hello, world! 12345")},
		"chinese": {"messages": user("请说一个故事,好吗? ok")},
		"turns":   {"messages": []fields{{"role": "system", "content": "Be brief."}, {"role": "user", "content": []fields{{"type": "text", "text": "Hi"}}}}},
		"tools":   {"messages": user("Hi"), "tools": []fields{{"type": "function", "function": fields{"name": "f"}}}},
		"prompt":  {"prompt": "Once upon a   time\n\n"},
	} {
		count := s.mustJSON("/tokenize", "", body)
		path := "/v1/chat/completions"
		if body["prompt"] != nil {
			path = "/v1/completions"
		}
		body["max_tokens"] = 2
		usage := s.mustJSON(path, "", body)["usage"].(map[string]any)
		if count["count"] != usage["prompt_tokens"] || count["count"] != float64(len(count["tokens"].([]any))) || count["max_model_len"] != 32768.0 {
			t.Errorf("%s: tokenize says %v of %v, usage %v", name, count["count"], count["max_model_len"], usage)
		}
	}
}

func TestTokenTexts(t *testing.T) {
	for text, want := range map[string]string{
		"":                     "",
		"Hello":                "Hello",
		"Hello world":          "Hello| world",
		"internationalization": "intern|ationa|lizati|on",
		"a  b":                 "a| | b",
		"x = 12345;\n\n":       "x| =| 123|45|;|\n\n",
		"你好 world":             "你|好| world",
		" 你":                   " 你",
		"  ":                   "  ",
		"\xff\xfe":             "\xff|\xfe",
		"          deep":       "        | | deep",
	} {
		got := strings.Join(slices.Collect(tokenTexts(text)), "|")
		if got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func FuzzTokenTexts(f *testing.F) {
	for _, s := range []string{"", "Hello  world", "你好 a\xff", " \n \t x", "e\u0301"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got := strings.Join(slices.Collect(tokenTexts(s)), ""); got != s {
			t.Errorf("%q comes back as %q", s, got)
		}
	})
}

func TestFinishReasonsAndLimits(t *testing.T) {
	s := start(t, quick())
	get := func(body fields) (string, string, float64) {
		body["messages"] = user("Go")
		out := s.mustJSON("/v1/chat/completions", "", body)
		c := out["choices"].([]any)[0].(map[string]any)
		return c["finish_reason"].(string), c["message"].(map[string]any)["content"].(string), out["usage"].(map[string]any)["completion_tokens"].(float64)
	}
	natural, text, n := get(fields{})
	if natural != "stop" || n < 64 || n > 193 || len(strings.Fields(text)) != int(n)-1 {
		t.Errorf("natural end: %s after %v tokens and %d words", natural, n, len(strings.Fields(text)))
	}
	if f, _, n := get(fields{"max_tokens": 5}); f != "length" || n != 5 {
		t.Errorf("max_tokens 5: %s after %v", f, n)
	}
	if f, _, n := get(fields{"max_tokens": 9, "max_completion_tokens": 7}); f != "length" || n != 7 {
		t.Errorf("max_completion_tokens 7: %s after %v", f, n)
	}
	if f, _, n := get(fields{"min_tokens": 300, "max_tokens": 400}); f != "stop" || n != 301 {
		t.Errorf("min_tokens 300: %s after %v", f, n)
	}
	word := strings.Fields(text)[5]
	f, cut, n := get(fields{"stop": []string{word}})
	if want := text[:strings.Index(text, word)]; f != "stop" || cut != want || n < 1 {
		t.Errorf("stop %q: %s, %q, want %q", word, f, cut, want)
	}
}

func TestErrors(t *testing.T) {
	cfg := quick()
	cfg.MaxModelLen = 100
	s := start(t, cfg)
	const chat, text = "/v1/chat/completions", "/v1/completions"
	for name, c := range map[string]struct {
		path   string
		body   any
		status int
		want   string
	}{
		"model":    {chat, fields{"model": "x", "messages": user("Go")}, 404, `{"error":{"code":404,"message":"The model ` + "`x`" + ` does not exist.","param":"model","type":"NotFoundError"}}`},
		"long":     {chat, fields{"messages": user(prompt(200, "Go"))}, 400, "maximum context length is 100 tokens"},
		"room":     {chat, fields{"messages": user("Go"), "max_tokens": 100}, 400, "is too large: 100"},
		"none":     {chat, fields{}, 400, "messages is missing"},
		"noprompt": {text, fields{}, 400, "prompt is missing"},
		"options":  {chat, fields{"messages": user("Go"), "stream_options": fields{}}, 400, "can only be defined when"},
		"salt":     {chat, fields{"messages": user("Go"), "cache_salt": ""}, 400, "cache_salt"},
		"zero":     {chat, fields{"messages": user("Go"), "max_tokens": 0}, 400, "at least 1"},
		"min":      {chat, fields{"messages": user("Go"), "max_tokens": 3, "min_tokens": 4}, 400, "min_tokens"},
		"n":        {chat, fields{"messages": user("Go"), "n": 2}, 400, "n=1"},
		"type":     {chat, fields{"messages": "Go"}, 400, "Bad Request"},
		"part":     {chat, fields{"messages": []fields{{"role": "user", "content": []fields{{"type": "smell"}}}}}, 400, "smell"},
		"array":    {chat, []int{1}, 400, "not a JSON object"},
		"prompts":  {text, fields{"prompt": []string{"a", "b"}}, 400, "prompt must be"},
		"tokenize": {"/tokenize", fields{}, 400, "either prompt or messages"},
	} {
		status, _, body, err := s.post(c.path, "", "", c.body)
		if err != nil || status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s: status %d, body %s, error %v; want %d and %q", name, status, body, err, c.status, c.want)
		}
	}
	if st := s.Stats(); st.PromptTokens != 0 || st.BlocksUsed != 0 {
		t.Errorf("refused requests left %+v", st)
	}
}

func TestAPIKey(t *testing.T) {
	cfg := quick()
	cfg.APIKey = "secret"
	s := start(t, cfg)
	get := func(path, key string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		res, err := s.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var out any
		_ = json.NewDecoder(res.Body).Decode(&out)
		b, _ := json.Marshal(out)
		return res.StatusCode, string(b)
	}
	if status, body := get("/v1/models", "wrong"); status != 401 || body != `{"error":"Unauthorized"}` {
		t.Errorf("wrong key: %d %s", status, body)
	}
	if status, body := get("/v1/models", "secret"); status != 200 || !strings.Contains(body, `"owned_by":"vllm"`) || !strings.Contains(body, `"max_model_len":32768`) {
		t.Errorf("right key: %d %s", status, body)
	}
	for _, open := range []string{"/health", "/version", "/metrics", "/sim/faults"} {
		if status, _ := get(open, "wrong"); status != 200 {
			t.Errorf("%s wants a key: %d", open, status)
		}
	}
}

func TestMetricsMatchTruth(t *testing.T) {
	cfg := quick()
	cfg.Speculative.Enabled = true
	s := start(t, cfg)
	for i := range 3 {
		s.chat(fmt.Sprint(i), "", fields{"messages": user(prompt(100, "Go")), "max_tokens": 50, "ignore_eos": true})
	}
	st := s.Stats()
	want := fmt.Sprintf(`
# HELP vllm:generation_tokens_total Tokens generated.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="sim-8b"} 150
# HELP vllm:prompt_tokens_total Prompt tokens of prefilled requests, cached ones included.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="sim-8b"} 318
# HELP vllm:prefix_cache_hits_total Prompt tokens found in the prefix cache.
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="sim-8b"} 192
# HELP vllm:prefix_cache_queries_total Prompt tokens looked up in the prefix cache.
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="sim-8b"} 318
# HELP vllm:spec_decode_num_drafts_total Drafts verified.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="sim-8b"} %d
# HELP vllm:spec_decode_num_accepted_tokens_total Draft tokens accepted.
# TYPE vllm:spec_decode_num_accepted_tokens_total counter
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="sim-8b"} %d
`, st.Spec.Drafts, st.Spec.AcceptedTokens)
	err := testutil.GatherAndCompare(s.Gatherer(), strings.NewReader(want), "vllm:generation_tokens_total", "vllm:prompt_tokens_total",
		"vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total", "vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_accepted_tokens_total")
	if err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(s.Gatherer(), "vllm:spec_decode_num_accepted_tokens_per_pos_total"); n != 3 || err != nil {
		t.Errorf("%d series by position, %v, want 3", n, err)
	}
	if n, err := testutil.GatherAndCount(start(t, quick()).Gatherer(), "vllm:spec_decode_num_drafts_total"); n != 0 || err != nil {
		t.Errorf("%d series of speculation without speculation, %v", n, err)
	}
}

// vLLM's own names break two rules: colons, and _total on a histogram.
func TestMetricsLint(t *testing.T) {
	cfg := quick()
	cfg.Speculative.Enabled = true
	problems, err := testutil.GatherAndLint(start(t, cfg).Gatherer())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.Contains(p.Text, "should not contain ':'") || p.Metric == "vllm:iteration_tokens_total" {
			continue
		}
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestRecordsAreBounded(t *testing.T) {
	cfg := quick()
	cfg.RecordLimit, cfg.RecordEventLimit = 3, 20
	s := start(t, cfg)
	for i := range 6 {
		s.chat(fmt.Sprint(i), "", fields{"messages": user("Go"), "max_tokens": 2})
	}
	ids := func() (out []string) {
		for _, r := range s.Records() {
			out = append(out, r.ID)
		}
		return out
	}
	if got := ids(); !slices.Equal(got, []string{"3", "4", "5"}) {
		t.Errorf("records of %v are kept, want the last three", got)
	}
	s.chat("long", "", fields{"messages": user("Go"), "max_tokens": 30, "ignore_eos": true})
	if got := ids(); !slices.Equal(got, []string{"long"}) {
		t.Errorf("records of %v are kept, want only the one that fills the limit of events", got)
	}
	if _, ok := s.Record("0"); ok {
		t.Error("a dropped record is still found")
	}
}

func TestRecordOverHTTP(t *testing.T) {
	s := start(t, quick())
	want, _ := s.chat("x", "", fields{"messages": user("Go"), "max_tokens": 2})
	res, err := s.client.Get(s.url + "/sim/records/x")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var got Record
	if err := json.NewDecoder(res.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if len(got.Events) != len(want.Events) || !got.Events[1].After.Equal(want.Events[1].After) || got.Events[1].Kind != EventRole {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
