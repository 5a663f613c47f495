package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// apiError is an error that the client gets in vLLM's form.
type apiError struct {
	status  int
	kind    string
	param   string
	message string
}

func (e *apiError) Error() string { return e.message }

func badRequest(param, format string, args ...any) *apiError {
	return &apiError{http.StatusBadRequest, "BadRequestError", param, fmt.Sprintf(format, args...)}
}

func (e *apiError) body() []byte {
	var param any
	if e.param != "" {
		param = e.param
	}
	return marshal(map[string]any{"error": map[string]any{
		"message": e.message, "type": e.kind, "param": param, "code": e.status,
	}})
}

// request holds the fields of both completion interfaces that are honoured.
type request struct {
	Model               string          `json:"model"`
	Messages            []message       `json:"messages"`
	Prompt              promptField     `json:"prompt"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	MinTokens           int             `json:"min_tokens"`
	IgnoreEOS           bool            `json:"ignore_eos"`
	N                   *int            `json:"n"`
	Stream              bool            `json:"stream"`
	StreamOptions       *streamOptions  `json:"stream_options"`
	ReturnTokenIDs      bool            `json:"return_token_ids"`
	CacheSalt           *string         `json:"cache_salt"`
	Seed                *int64          `json:"seed"`
	Stop                stringList      `json:"stop"`
	Tools               json.RawMessage `json:"tools"`
	ToolChoice          json.RawMessage `json:"tool_choice"`
	ResponseFormat      json.RawMessage `json:"response_format"`
	StructuredOutputs   json.RawMessage `json:"structured_outputs"`
	GuidedJSON          json.RawMessage `json:"guided_json"`
	GuidedRegex         string          `json:"guided_regex"`
	GuidedChoice        []string        `json:"guided_choice"`
	GuidedGrammar       string          `json:"guided_grammar"`
	AddSpecialTokens    *bool           `json:"add_special_tokens"` // of /tokenize
	ReturnTokenStrs     bool            `json:"return_token_strs"`  // of /tokenize

	chinese bool
	answer  string // known beforehand
}

type streamOptions struct {
	IncludeUsage         bool `json:"include_usage"`
	ContinuousUsageStats bool `json:"continuous_usage_stats"`
}

type message struct {
	Role      string          `json:"role"`
	Content   contentParts    `json:"content"`
	ToolCalls json.RawMessage `json:"tool_calls"`
}

// contentParts accepts a string, null, or a list of parts.
type contentParts []contentPart

type contentPart struct {
	Type string `json:"type"`
	Text string `json:"text"`
	// media identifies an image, audio or video part by its content.
	media string
}

func (c *contentParts) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	if b[0] == '"' {
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		*c = contentParts{{Type: "text", Text: s}}
		return nil
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(b, &parts); err != nil {
		return fmt.Errorf("content is neither a string nor a list of parts: %w", err)
	}
	for _, raw := range parts {
		var p contentPart
		if err := json.Unmarshal(raw, &p); err != nil {
			return err
		}
		switch p.Type {
		case "text":
		case "image_url", "input_audio", "audio_url", "video_url":
			p.media = p.Type + string(raw)
		default:
			return fmt.Errorf("unknown part type %q in message content", p.Type)
		}
		*c = append(*c, p)
	}
	return nil
}

// promptField accepts a string or a list of token ids.
type promptField struct {
	text string
	ids  []uint32
	set  bool
}

func (p *promptField) UnmarshalJSON(b []byte) error {
	p.set = true
	if b[0] == '"' {
		return json.Unmarshal(b, &p.text)
	}
	if err := json.Unmarshal(b, &p.ids); err == nil {
		return nil
	}
	var one []string
	if err := json.Unmarshal(b, &one); err != nil || len(one) != 1 {
		return fmt.Errorf("prompt must be a string, a list of one string, or a list of token ids")
	}
	p.text = one[0]
	return nil
}

// stringList accepts a string or a list of strings.
type stringList []string

func (l *stringList) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		*l = stringList{""}
		return json.Unmarshal(b, &(*l)[0])
	}
	return json.Unmarshal(b, (*[]string)(l))
}

// usage is the token count of an answer; cached is -1 where it is not reported.
type usage struct{ prompt, completion, cached int }

func (u usage) append(b []byte) []byte {
	b = append(b, `"usage":{"prompt_tokens":`...)
	b = strconv.AppendInt(b, int64(u.prompt), 10)
	b = append(b, `,"total_tokens":`...)
	b = strconv.AppendInt(b, int64(u.prompt+u.completion), 10)
	b = append(b, `,"completion_tokens":`...)
	b = strconv.AppendInt(b, int64(u.completion), 10)
	if u.cached >= 0 {
		b = append(b, `,"prompt_tokens_details":{"cached_tokens":`...)
		b = strconv.AppendInt(b, int64(u.cached), 10)
		b = append(b, '}')
	}
	return append(b, '}')
}

// renderer writes the chunks of one answer without allocating for each.
type renderer struct {
	chat      bool
	head      string // up to the value of "choices"
	reasoning string // name of the reasoning field
	tokenIDs  bool
	buf       []byte
	text      strings.Builder
}

func newRenderer(chat bool, id, model string, created int64, reasoning string) *renderer {
	object := "text_completion"
	if chat {
		object = "chat.completion.chunk"
	}
	head := fmt.Sprintf(`{"id":%s,"object":%q,"created":%d,"model":%s,"choices":`, marshal(id), object, created, marshal(model))
	return &renderer{chat: chat, head: head, reasoning: reasoning}
}

// chunk renders one choice chunk. role opens the answer, pieces may be none,
// finish may be empty, u may be nil. The bytes are good until the next call.
func (r *renderer) chunk(role bool, pieces []piece, finish string, u *usage) []byte {
	b := append(r.buf[:0], r.head...)
	b = append(b, `[{"index":0,`...)
	if r.chat {
		b = append(b, `"delta":{`...)
		b = r.delta(b, role, pieces)
		b = append(b, '}')
	} else {
		b = append(b, `"text":`...)
		b = appendJSON(b, r.join(pieces, fieldContent))
	}
	b = append(b, `,"logprobs":null,"finish_reason":`...)
	if finish == "" {
		b = append(b, "null"...)
	} else {
		b = appendJSON(b, finish)
		b = append(b, `,"stop_reason":null`...)
	}
	if r.tokenIDs && !role {
		b = append(b, `,"token_ids":[`...)
		for i, p := range pieces {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendUint(b, uint64(p.id()), 10)
		}
		b = append(b, ']')
	}
	b = append(b, "}]"...)
	if u != nil {
		b = u.append(append(b, ','))
	}
	r.buf = append(b, '}')
	return r.buf
}

func (r *renderer) delta(b []byte, role bool, pieces []piece) []byte {
	if role {
		return append(b, `"role":"assistant","content":""`...)
	}
	if text := r.join(pieces, fieldReasoning); text != "" {
		b = appendJSON(append(b, `"`+r.reasoning+`":`...), text)
		b = append(b, ',')
	}
	if tools := toolDeltas(pieces); tools != nil {
		b = append(append(b, `"tool_calls":`...), marshal(tools)...)
		b = append(b, ',')
	}
	text := r.join(pieces, fieldContent)
	if text != "" || b[len(b)-1] == '{' {
		return appendJSON(append(b, `"content":`...), text)
	}
	return b[:len(b)-1] // the comma
}

// join is the text of those pieces that stand in one field.
func (r *renderer) join(pieces []piece, field pieceField) string {
	if len(pieces) == 1 && pieces[0].field == field {
		return pieces[0].text
	}
	r.text.Reset()
	for _, p := range pieces {
		if p.field == field {
			r.text.WriteString(p.text)
		}
	}
	return r.text.String()
}

// usageChunk is the last chunk: no choices, the whole usage.
func (r *renderer) usageChunk(u usage) []byte {
	b := append(append(r.buf[:0], r.head...), `[],`...)
	r.buf = append(u.append(b), '}')
	return r.buf
}

type toolDelta struct {
	Index    int    `json:"index"`
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// toolDeltas groups the tool pieces by call. A call's index is on its first
// piece; later chunks find it through piece.tool too.
func toolDeltas(pieces []piece) []toolDelta {
	var out []toolDelta
	for i, p := range pieces {
		if p.field != fieldTool {
			continue
		}
		if n := len(out); n == 0 || out[n-1].Index != p.tool.index {
			out = append(out, toolDelta{Index: p.tool.index})
		}
		d := &out[len(out)-1]
		if p.tool.id != "" {
			d.ID, d.Type, d.Function.Name = p.tool.id, "function", p.tool.name
		}
		d.Function.Arguments += pieces[i].text
	}
	return out
}

// appendJSON appends a JSON string; plain ASCII needs no encoder.
func appendJSON(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x80 || c == '"' || c == '\\' {
			return append(b, marshal(s)...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// marshal is for values that cannot fail to encode.
func marshal(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return []byte("null")
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}
