package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// tool is a function that the model may call.
type tool struct {
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// toolCall is one call with its arguments as an object.
type toolCall struct {
	Name      string         `json:"name"`
	Arguments map[string]any `json:"arguments"`
}

// toolRequest reads tools and tool_choice: auto, none, required or named.
func (r *request) toolRequest() (tools []tool, choice, name string, err error) {
	if isSet(r.Tools) {
		if err := json.Unmarshal(r.Tools, &tools); err != nil {
			return nil, "", "", fmt.Errorf("tools: %w", err)
		}
	}
	choice = "auto"
	if len(tools) == 0 {
		choice = "none"
	}
	if !isSet(r.ToolChoice) {
		return tools, choice, "", nil
	}
	if json.Unmarshal(r.ToolChoice, &choice) == nil {
		return tools, choice, "", nil
	}
	var named tool
	if err := json.Unmarshal(r.ToolChoice, &named); err != nil || named.Function.Name == "" {
		return nil, "", "", fmt.Errorf("tool_choice is neither a word nor a function")
	}
	name = named.Function.Name
	if !slices.ContainsFunc(tools, func(t tool) bool { return t.Function.Name == name }) {
		return nil, "", "", fmt.Errorf("the tool specified in tool_choice, %q, is not in tools", name)
	}
	return tools, "named", name, nil
}

func (r *request) wantsTools() bool {
	_, choice, _, _ := r.toolRequest()
	return choice != "none" && choice != ""
}

func callTools(s *Server, r *request, rng *rand.Rand) ([]piece, string, bool) {
	tools, choice, name, err := r.toolRequest()
	if err != nil || choice == "none" || len(tools) == 0 {
		return nil, "", false
	}
	calls := knownCalls(r.answer, choice, name)
	if calls == nil && (r.answer == "" || choice != "auto") {
		calls = guessCalls(tools, choice, name, r.lastText(), rng)
	}
	if len(calls) == 0 {
		return nil, "", false
	}
	if rng.Float64() >= s.cfg.Skills.ToolAccuracy {
		spoil(&calls[0])
	}
	finish := finishToolCalls
	if choice == "named" {
		finish = finishStop
	}
	return callPieces(calls, rng), finish, true
}

// knownCalls are the calls of an answer known beforehand.
func knownCalls(answer, choice, name string) []toolCall {
	var calls []toolCall
	if json.Unmarshal([]byte(answer), &calls) != nil {
		return nil
	}
	if choice == "named" {
		calls = slices.DeleteFunc(calls, func(c toolCall) bool { return c.Name != name })
	}
	return calls
}

// spoil makes a call wrong: its first argument is lost.
func spoil(c *toolCall) {
	names := make([]string, 0, len(c.Arguments))
	for name := range c.Arguments {
		names = append(names, name)
	}
	if len(names) == 0 {
		c.Arguments = map[string]any{"unexpected": true}
		return
	}
	delete(c.Arguments, slices.Min(names))
}

func callPieces(calls []toolCall, rng *rand.Rand) []piece {
	var out []piece
	for i, c := range calls {
		head := &toolHead{index: i, id: fmt.Sprintf("chatcmpl-tool-%016x", rng.Uint64()), name: c.Name}
		if c.Arguments == nil {
			c.Arguments = map[string]any{}
		}
		for j, p := range textPieces(string(marshal(c.Arguments)), fieldTool) {
			p.tool = head
			if j > 0 {
				p.tool = &toolHead{index: i}
			}
			out = append(out, p)
		}
	}
	return out
}

// guessCalls finds the tool that shares most words with the question and fills
// its arguments from the question: a value of an enum that occurs in it, its
// numbers in order, its quoted or capitalised words in order. With auto a tool
// that shares nothing is not called.
func guessCalls(tools []tool, choice, name, question string, rng *rand.Rand) []toolCall {
	words := wordSet(question)
	best, score := -1, 0
	for i, t := range tools {
		n := 0
		for w := range wordSet(t.Function.Name + " " + t.Function.Description) {
			if words[w] {
				n++
			}
		}
		if t.Function.Name == name {
			n = 1 << 20
		}
		if n > score || (best < 0 && choice != "auto") {
			best, score = i, n
		}
	}
	if best < 0 {
		return nil
	}
	f := tools[best].Function
	return []toolCall{{f.Name, guessArguments(f.Parameters, question, rng)}}
}

func wordSet(text string) map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) }) {
		if len(w) > 3 {
			out[strings.TrimSuffix(w, "s")] = true
		}
	}
	return out
}

type parameter struct {
	name   string
	schema map[string]any
}

// parameters are the required parameters in the order of their declaration.
func parameters(raw json.RawMessage) []parameter {
	var s struct {
		Properties map[string]map[string]any `json:"properties"`
		Required   []string                  `json:"required"`
	}
	if json.Unmarshal(raw, &s) != nil {
		return nil
	}
	var out []parameter
	for _, name := range s.Required {
		out = append(out, parameter{name, s.Properties[name]})
	}
	return out
}

func guessArguments(raw json.RawMessage, question string, rng *rand.Rand) map[string]any {
	numbers := regexp.MustCompile(`-?\d+(?:\.\d+)?`).FindAllString(question, -1)
	names := properNames(question)
	next := func(list *[]string) (string, bool) {
		if len(*list) == 0 {
			return "", false
		}
		v := (*list)[0]
		*list = (*list)[1:]
		return v, true
	}
	out := map[string]any{}
	for _, p := range parameters(raw) {
		kind := schemaType(p.schema)
		if v, ok := enumIn(p.schema, question); ok {
			out[p.name] = v
			continue
		}
		if kind == "integer" || kind == "number" {
			if v, ok := next(&numbers); ok {
				out[p.name] = json.Number(v)
				continue
			}
		}
		if kind == "string" {
			if v, ok := next(&names); ok {
				out[p.name] = v
				continue
			}
		}
		if v, err := newSchemaGenerator(p.schema, rng).value(p.schema, 0); err == nil {
			out[p.name] = v
		}
	}
	return out
}

func enumIn(schema map[string]any, question string) (any, bool) {
	list, _ := schema["enum"].([]any)
	for _, v := range list {
		if text, ok := v.(string); ok && strings.Contains(strings.ToLower(question), strings.ToLower(text)) {
			return v, true
		}
	}
	return nil, false
}

// properNames are quoted texts, else runs of capitalised words inside sentences.
func properNames(question string) []string {
	var out []string
	for _, m := range regexp.MustCompile(`"([^"]+)"|'([^']+)'`).FindAllStringSubmatch(question, -1) {
		out = append(out, m[1]+m[2])
	}
	if out != nil {
		return out
	}
	for _, m := range regexp.MustCompile(`[\pL\d,] (\p{Lu}[\pL]+(?: \p{Lu}[\pL]+)*)`).FindAllStringSubmatch(question, -1) {
		out = append(out, m[1])
	}
	return out
}
