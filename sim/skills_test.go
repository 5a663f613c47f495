package sim

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
)

// answer is the content of a chat answer.
func (s *testServer) answer(id string, body fields) (content, finish string, calls []any) {
	s.t.Helper()
	out := s.mustJSON("/v1/chat/completions", id, body)
	c := out["choices"].([]any)[0].(map[string]any)
	msg := c["message"].(map[string]any)
	content, _ = msg["content"].(string)
	calls, _ = msg["tool_calls"].([]any)
	return content, c["finish_reason"].(string), calls
}

const citySchema = `{"type":"object","properties":{"name":{"type":"string","minLength":3},"people":{"type":"integer","minimum":10,"maximum":20},
	"tags":{"type":"array","items":{"enum":["x","y"]},"minItems":2},"code":{"type":"string","pattern":"^[A-Z]{3}-\\d{2}$"},
	"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]},"where":{"$ref":"#/$defs/p"}},"required":["name","people"],"additionalProperties":false,
	"$defs":{"p":{"type":"object","properties":{"lat":{"type":"number","minimum":-90,"maximum":90}}}}}`

func checkCity(text string) error {
	var v struct {
		Name, Code string
		People     int
		Tags       []string
		Where      struct{ Lat float64 }
	}
	d := json.NewDecoder(strings.NewReader(text))
	if err := d.Decode(&v); err != nil {
		return err
	}
	if len(v.Name) < 3 || v.People < 10 || v.People > 20 || len(v.Tags) != 2 || !regexp.MustCompile(`^[A-Z]{3}-\d{2}$`).MatchString(v.Code) || math.Abs(v.Where.Lat) > 90 {
		return fmt.Errorf("%+v", v)
	}
	return nil
}

func matches(expr string) func(string) error {
	return func(text string) error {
		if !regexp.MustCompile(`^(?:` + expr + `)$`).MatchString(text) {
			return fmt.Errorf("%q does not match %s", text, expr)
		}
		return nil
	}
}

func TestConstraintsAreObeyed(t *testing.T) {
	s := start(t, quick())
	const grammar = "root ::= \"SELECT \" column (\", \" column)* \" FROM \" [a-z]+ where?\ncolumn ::= \"a\" | \"b\"\nwhere ::= \" WHERE \" expr\nexpr ::= \"(\" expr \")\" | \"x = \" [0-9]"
	sql := matches(`SELECT [ab](, [ab])* FROM [a-z]+( WHERE \(*x = [0-9]\)*)?`)
	for name, c := range map[string]struct {
		body  fields
		check func(string) error
	}{
		"json_schema": {fields{"response_format": fields{"type": "json_schema", "json_schema": fields{"schema": json.RawMessage(citySchema)}}}, checkCity},
		"json":        {fields{"structured_outputs": fields{"json": json.RawMessage(citySchema)}}, checkCity},
		"guided_json": {fields{"guided_json": json.RawMessage(citySchema)}, checkCity},
		"json text":   {fields{"guided_json": citySchema}, checkCity},
		"regex":       {fields{"structured_outputs": fields{"regex": `[a-c]{2,4}@\w+\.(com|org)`}}, matches(`[a-c]{2,4}@\w+\.(com|org)`)},
		"choice":      {fields{"structured_outputs": fields{"choice": []string{"yes", "no"}}}, matches(`yes|no`)},
		"old choice":  {fields{"guided_choice": []string{"yes", "no"}}, matches(`yes|no`)},
		"grammar":     {fields{"structured_outputs": fields{"grammar": grammar}}, sql},
		"object":      {fields{"response_format": fields{"type": "json_object"}}, matches(`\{.*\}`)},
	} {
		for i := range 20 {
			c.body["messages"] = user(fmt.Sprint("Make one, number ", i))
			text, finish, _ := s.answer("", c.body)
			if err := c.check(text); err != nil || finish != "stop" {
				t.Errorf("%s: finish %s, %v", name, finish, err)
			}
		}
	}
	for _, bad := range []fields{{"regex": "("}, {"grammar": "root ::= missing"}, {"grammar": "root ::= root"}, {"json": fields{"type": "odd"}}, {"json": fields{"$ref": "#/none"}}} {
		status, _, body, err := s.post("/v1/chat/completions", "", "", fields{"messages": user("Go"), "structured_outputs": bad})
		if status != 400 || err != nil || !strings.Contains(body, "invalid constraint") {
			t.Errorf("%v: status %d, %s", bad, status, body)
		}
	}
}

func TestConstraintValidityAndCost(t *testing.T) {
	cfg := quick()
	cfg.Skills.StructuredValidity = 0.7
	cfg.Skills.GrammarCompile, cfg.Skills.GrammarPerToken = 30*time.Millisecond, 300*time.Microsecond
	s := start(t, cfg)
	valid := 0
	body := func(i int) fields {
		return fields{"messages": user(fmt.Sprint("Number ", i)), "guided_json": json.RawMessage(citySchema)}
	}
	for i := range 100 {
		if text, _, _ := s.answer(fmt.Sprint(i), body(i)); checkCity(text) == nil {
			valid++
		}
	}
	if valid < 55 || valid > 85 {
		t.Errorf("%d of 100 answers are valid, want about 70", valid)
	}
	wait := func(id int) time.Duration {
		rec := s.ended(fmt.Sprint(id))
		return rec.Timing.Scheduled.Sub(rec.Received)
	}
	if wait(0) < 30*time.Millisecond {
		t.Errorf("the first use waited %s for its grammar", wait(0))
	}
	again := wait(1)
	for i := range 98 {
		again = min(again, wait(2+i))
	}
	if again >= 30*time.Millisecond {
		t.Errorf("each later use waited %s or more", again)
	}
	second := s.ended("1")
	steps := time.Duration(second.CompletionTokens - 1)
	if got := second.Timing.Finished.Sub(second.Timing.FirstToken); got != steps*500*time.Microsecond {
		t.Errorf("%d constrained steps of 0.2 ms and 0.3 ms for the grammar took %s", steps, got)
	}
	cfg.Skills.IgnoreConstraints = true
	if text, _, _ := start(t, cfg).answer("", body(1)); checkCity(text) == nil {
		t.Errorf("the constraint is obeyed though it should be ignored: %s", text)
	}
}

func weatherTools() []fields {
	tool := func(name, description, params string) fields {
		return fields{"type": "function", "function": fields{"name": name, "description": description, "parameters": json.RawMessage(params)}}
	}
	return []fields{
		tool("get_weather", "Current weather in a city", `{"type":"object","properties":{"city":{"type":"string"},"unit":{"type":"string","enum":["celsius","fahrenheit"]}},"required":["city","unit"]}`),
		tool("triangle_area", "Area of a triangle", `{"type":"object","properties":{"base":{"type":"integer"},"height":{"type":"integer"}},"required":["base","height"]}`),
	}
}

func TestToolCalls(t *testing.T) {
	s := start(t, quick())
	for name, c := range map[string]struct {
		question string
		choice   any
		answer   string
		finish   string
		want     []string
	}{
		"auto":       {"What is the weather in New York in celsius?", nil, "", "tool_calls", []string{`get_weather {"city":"New York","unit":"celsius"}`}},
		"numbers":    {"Tell me the area of a triangle with base 10 and height 5", "auto", "", "tool_calls", []string{`triangle_area {"base":10,"height":5}`}},
		"irrelevant": {"Who wrote this poem?", "auto", "", "", nil},
		"none":       {"What is the weather in Paris in celsius?", "none", "", "", nil},
		"required":   {"base 3 and height 4, triangle please", "required", "", "tool_calls", []string{`triangle_area {"base":3,"height":4}`}},
		"named": {
			"Numbers 7 and 8 in the weather",
			fields{"type": "function", "function": fields{"name": "triangle_area"}},
			"", "stop",
			[]string{`triangle_area {"base":7,"height":8}`},
		},
		"known": {
			"Both!", "auto", `[{"name":"get_weather","arguments":{"city":"Rome"}},{"name":"triangle_area","arguments":{"base":1}}]`, "tool_calls",
			[]string{`get_weather {"city":"Rome"}`, `triangle_area {"base":1}`},
		},
		"known text": {"What is the weather in Paris in celsius?", "auto", "I do not know", "stop", nil},
	} {
		for _, stream := range []bool{false, true} {
			body := fields{"messages": user(c.question), "tools": weatherTools(), "stream": stream, "max_tokens": 300}
			if c.choice != nil {
				body["tool_choice"] = c.choice
			}
			text := s.postWithAnswer(c.answer, body)
			calls, finish := gatherCalls(t, text, stream)
			if fmt.Sprint(calls) != fmt.Sprint(c.want) || (c.finish != "" && finish != c.finish) {
				t.Errorf("%s, stream %v: %v and finish %q, want %v and %q", name, stream, calls, finish, c.want, c.finish)
			}
		}
	}
}

func (s *testServer) postWithAnswer(answer string, body fields) string {
	s.t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/v1/chat/completions", bytes.NewReader(b))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set(AnswerHeader, url.PathEscape(answer))
	res, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	var out bytes.Buffer
	if _, err := out.ReadFrom(res.Body); err != nil {
		s.t.Fatal(err)
	}
	return out.String()
}

// gatherCalls puts tool calls together as a client does.
func gatherCalls(t *testing.T, text string, stream bool) (calls []string, finish string) {
	t.Helper()
	chunks := []string{text}
	if stream {
		chunks = events(text)
	}
	type part struct {
		ToolCalls []toolDelta `json:"tool_calls"`
	}
	for _, c := range chunks {
		if c == "[DONE]" {
			continue
		}
		var v struct {
			Choices []struct {
				Delta, Message part
				FinishReason   string `json:"finish_reason"`
			}
		}
		if err := json.Unmarshal([]byte(c), &v); err != nil {
			t.Fatal(err)
		}
		for _, choice := range v.Choices {
			finish = choice.FinishReason
			for _, d := range append(choice.Delta.ToolCalls, choice.Message.ToolCalls...) {
				for len(calls) <= d.Index {
					calls = append(calls, "")
				}
				if d.Function.Name != "" {
					if calls[d.Index] != "" || len(d.ID) < 9 || d.Type != "function" {
						t.Errorf("call %d is opened by %+v after %q", d.Index, d, calls[d.Index])
					}
					calls[d.Index] = d.Function.Name + " "
				}
				calls[d.Index] += d.Function.Arguments
			}
		}
	}
	return calls, finish
}

func TestToolAccuracy(t *testing.T) {
	cfg := quick()
	cfg.Skills.ToolAccuracy = 0.6
	s := start(t, cfg)
	right := 0
	for i := range 100 {
		text := s.postWithAnswer("", fields{"messages": user(fmt.Sprintf("Area of a triangle with base %d and height 5", i)), "tools": weatherTools()})
		calls, _ := gatherCalls(t, text, false)
		if len(calls) == 1 && calls[0] == fmt.Sprintf(`triangle_area {"base":%d,"height":5}`, i) {
			right++
		}
	}
	if right < 45 || right > 75 {
		t.Errorf("%d of 100 calls are right, want about 60", right)
	}
}

func TestNeedleRecall(t *testing.T) {
	for _, recall := range []float64{1, 0.5} {
		cfg := quick()
		cfg.Skills.Recall = recall
		s := start(t, cfg)
		found := 0
		for i := range 60 {
			filler := strings.Repeat("The river flows past the old mill. ", 60)
			doc := fmt.Sprintf("%sThe secret number of the lighthouse keeper is %d. %s\nWhat is the secret number of the lighthouse keeper?", filler, 4000+i, filler)
			text, _, _ := s.answer("", fields{"messages": user(doc)})
			if strings.Contains(text, fmt.Sprint(4000+i)) {
				found++
			}
		}
		if want := 60 * recall; math.Abs(float64(found)-want) > 12*(1-recall)*2 {
			t.Errorf("recall %v: %d of 60 needles found", recall, found)
		}
	}
}

func dataURL(kind string, b []byte) string {
	return "data:" + kind + ";base64," + base64.StdEncoding.EncodeToString(b)
}

func drawShape(name string, c color.Color) []byte {
	img := image.NewRGBA(image.Rect(0, 0, 224, 224))
	draw.Draw(img, img.Bounds(), image.White, image.Point{}, draw.Src)
	for y := range 100 {
		for x := range 100 {
			in := true
			switch name {
			case "circle":
				in = (x-50)*(x-50)+(y-50)*(y-50) < 2500
			case "triangle":
				in = x >= 50-y/2 && x <= 50+y/2
			case "rectangle":
				in = y < 60
			}
			if in {
				img.Set(x+60, y+70, c)
			}
		}
	}
	var b bytes.Buffer
	_ = png.Encode(&b, img)
	return b.Bytes()
}

func imageMessage(pictures ...[]byte) []fields {
	parts := []fields{{"type": "text", "text": "What is this?"}}
	for _, p := range pictures {
		parts = append(parts, fields{"type": "image_url", "image_url": fields{"url": dataURL("image/png", p)}})
	}
	return []fields{{"role": "user", "content": parts}}
}

func TestImages(t *testing.T) {
	s := start(t, quick())
	red, blue := color.RGBA{220, 30, 30, 255}, color.RGBA{30, 60, 220, 255}
	for _, shape := range []string{"circle", "triangle", "square", "rectangle"} {
		if text, _, _ := s.answer("", fields{"messages": imageMessage(drawShape(shape, red))}); !strings.Contains(text, "a red "+shape+" on a white ground") {
			t.Errorf("%s: %s", shape, text)
		}
	}
	text, _, _ := s.answer("two", fields{"messages": imageMessage(drawShape("circle", red), drawShape("square", blue))})
	if !strings.Contains(text, "red circle") || !strings.Contains(text, "blue square") {
		t.Errorf("two pictures: %s", text)
	}
	two := s.ended("two")
	if two.PromptTokens != 6+4+2*256 {
		t.Errorf("two pictures take %d prompt tokens", two.PromptTokens)
	}
	if got := two.Timing.FirstToken.Sub(two.Timing.Scheduled); got < 60*time.Millisecond || got > 70*time.Millisecond {
		t.Errorf("two pictures of 30 ms took %s", got)
	}
	cfg := quick()
	cfg.Skills.MediaAccuracy = 0
	if text, _, _ := start(t, cfg).answer("", fields{"messages": imageMessage(drawShape("circle", red))}); strings.Contains(text, "red circle") {
		t.Errorf("accuracy 0: %s", text)
	}
}

func TestAudio(t *testing.T) {
	const rate = 8000
	var pcm []byte
	for range 3 {
		for i := range rate / 5 {
			v := int16(0)
			if i < rate/10 {
				v = int16(9000 * math.Sin(float64(i)*2*math.Pi*440/rate))
			}
			pcm = binary.LittleEndian.AppendUint16(pcm, uint16(v))
		}
	}
	wav := append([]byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x80\x3e\x00\x00\x02\x00\x10\x00data\x00\x00\x00\x00"), pcm...)
	msg := []fields{{"role": "user", "content": []fields{{"type": "input_audio", "input_audio": fields{"format": "wav", "data": base64.StdEncoding.EncodeToString(wav)}}}}}
	s := start(t, quick())
	if text, _, _ := s.answer("", fields{"messages": msg}); !strings.Contains(text, "3 tones") {
		t.Errorf("three tones: %s", text)
	}
}

func TestUnsupported(t *testing.T) {
	cfg := quick()
	cfg.Skills.Unsupported = []string{"tools", "structured", "image"}
	s := start(t, cfg)
	for name, body := range map[string]fields{
		"tools":  {"messages": user("Go"), "tools": weatherTools()},
		"regex":  {"messages": user("Go"), "structured_outputs": fields{"regex": "a+"}},
		"image":  {"messages": imageMessage([]byte("x"))},
		"choice": {"messages": user("Go"), "tools": weatherTools(), "tool_choice": fields{"function": fields{"name": "none_such"}}},
	} {
		if status, _, text, err := s.post("/v1/chat/completions", "", "", body); status != 400 || err != nil {
			t.Errorf("%s: status %d, %s, %v", name, status, text, err)
		}
	}
	cfg.Skills.Unsupported = []string{"smell"}
	if _, err := New(cfg); err == nil {
		t.Error("an unknown skill is accepted")
	}
}

func TestOracle(t *testing.T) {
	cfg := quick()
	cfg.Skills.Oracle = func(p string) (string, bool) { return "It is " + p, p == "known" }
	s := start(t, cfg)
	if text, _, _ := s.answer("", fields{"messages": user("known")}); text != "It is known" {
		t.Errorf("got %q", text)
	}
	if text, _, _ := s.answer("", fields{"messages": user("unknown")}); strings.Contains(text, "It is") {
		t.Errorf("got %q", text)
	}
}

func FuzzConstraints(f *testing.F) {
	f.Add(`{"type":"object"}`, `a{2}`, "root ::= \"a\" | root")
	f.Add(citySchema, `[^a]*(b|c)+?\b`, "a: \"x\" [0-9]+\n| (a b)?\nb: \"y\"")
	f.Fuzz(func(t *testing.T, schema, expr, grammar string) {
		rng := rand.New(rand.NewPCG(1, 1))
		if text, err := schemaInstance(json.RawMessage(schema), rng); err == nil && !json.Valid([]byte(text)) {
			t.Errorf("schema %s gives %q", schema, text)
		}
		_, _ = regexInstance(expr, rng)
		_, _ = grammarInstance(grammar, rng)
	})
}

// Constraints that grow without bound must be refused, not computed.
func TestHostileConstraints(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	wide := `{"type":"object","properties":{"a":{"$ref":"#"},"b":{"$ref":"#"},"c":{"$ref":"#"}},"required":["a","b","c"]}`
	if text, err := schemaInstance(json.RawMessage(wide), rng); err == nil {
		t.Errorf("endless schema gives %d bytes", len(text))
	}
	if text, err := schemaInstance(json.RawMessage(`{"type":"string","minLength":1e300}`), rng); err == nil {
		t.Errorf("endless text gives %d bytes", len(text))
	}
	if text, err := schemaInstance(json.RawMessage(`{"type":"array","maxItems":-5}`), rng); err != nil || text != "[]" {
		t.Errorf("negative maxItems gives %s, %v", text, err)
	}
	if text, err := regexInstance(strings.Repeat("(", 60)+"a"+strings.Repeat("+)", 60), rng); err == nil && len(text) > maxRegexBytes {
		t.Errorf("nested repetition gives %d bytes", len(text))
	}
	if _, err := regexInstance(strings.Repeat("a{1000}", 100), rng); err == nil {
		t.Error("a match of 100,000 bytes is made")
	}
	if _, err := grammarInstance("root ::= root root root root | \"a\" root root", rng); err == nil {
		t.Error("endless grammar gives a text")
	}
}
