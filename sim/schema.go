package sim

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// Bounds of an instance, since a schema is as hostile as any input: the depth
// of recursion, the depth from which optional parts are left out, the
// number of values, and the length of a text.
const (
	maxSchemaDepth      = 24
	optionalSchemaDepth = 4
	maxSchemaValues     = 5000
	maxSchemaText       = 1 << 12 // bytes of one text
)

// schemaInstance makes a JSON text that is valid for a schema, for the common
// part of JSON Schema: type, enum, const, properties, items, minItems, the
// limits of numbers and lengths, pattern, common formats, anyOf, oneOf, allOf
// of one, and local $ref.
func schemaInstance(schema json.RawMessage, rng *rand.Rand) (string, error) {
	var root any
	if err := json.Unmarshal(schema, &root); err != nil {
		return "", fmt.Errorf("schema is not JSON: %w", err)
	}
	g := newSchemaGenerator(root, rng)
	v, err := g.value(root, 0)
	if err != nil {
		return "", err
	}
	return string(marshal(v)), nil
}

type schemaGenerator struct {
	root any
	rng  *rand.Rand
	left int // values
}

func newSchemaGenerator(root any, rng *rand.Rand) *schemaGenerator {
	return &schemaGenerator{root: root, rng: rng, left: maxSchemaValues}
}

func (g *schemaGenerator) value(schema any, depth int) (any, error) {
	if g.left--; depth > maxSchemaDepth || g.left < 0 {
		return nil, fmt.Errorf("schema needs more than %d levels or %d values", maxSchemaDepth, maxSchemaValues)
	}
	s, ok := schema.(map[string]any)
	if !ok {
		return map[string]any{}, nil // true: anything goes
	}
	if v, ok := s["const"]; ok {
		return v, nil
	}
	if list, ok := s["enum"].([]any); ok && len(list) > 0 {
		return list[g.rng.IntN(len(list))], nil
	}
	if ref, ok := s["$ref"].(string); ok {
		target, err := g.resolve(ref)
		if err != nil {
			return nil, err
		}
		return g.value(target, depth+1)
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		if list, ok := s[key].([]any); ok && len(list) > 0 {
			if depth >= optionalSchemaDepth {
				return g.value(list[len(list)-1], depth+1) // where recursion commonly ends
			}
			return g.value(list[0], depth+1)
		}
	}
	return g.typed(s, schemaType(s), depth)
}

func schemaType(s map[string]any) string {
	switch t := s["type"].(type) {
	case string:
		return t
	case []any:
		if len(t) > 0 {
			if name, ok := t[0].(string); ok {
				return name
			}
		}
	}
	switch {
	case s["properties"] != nil:
		return "object"
	case s["items"] != nil:
		return "array"
	case s["pattern"] != nil:
		return "string"
	default:
		return "object"
	}
}

func (g *schemaGenerator) typed(s map[string]any, kind string, depth int) (any, error) {
	switch kind {
	case "object":
		return g.object(s, depth)
	case "array":
		return g.array(s, depth)
	case "string":
		return g.text(s)
	case "integer", "number":
		return g.number(s, kind == "integer"), nil
	case "boolean":
		return g.rng.IntN(2) == 0, nil
	case "null":
		return nil, nil
	default:
		return nil, fmt.Errorf("unknown type %q in schema", kind)
	}
}

// object fills all properties, but near the depth limit only the required ones.
func (g *schemaGenerator) object(s map[string]any, depth int) (any, error) {
	out := map[string]any{}
	props, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	names := make([]string, 0, len(props))
	for name := range props {
		if depth < optionalSchemaDepth || slices.Contains(required, any(name)) {
			names = append(names, name)
		}
	}
	slices.Sort(names) // so that the draws can be repeated
	for _, name := range names {
		v, err := g.value(props[name], depth+1)
		if err != nil {
			return nil, err
		}
		out[name] = v
	}
	return out, nil
}

func (g *schemaGenerator) array(s map[string]any, depth int) (any, error) {
	n := int(limit(s, "minItems", 1))
	if depth >= optionalSchemaDepth {
		n = int(limit(s, "minItems", 0))
	}
	n = max(0, min(n, int(limit(s, "maxItems", maxSchemaValues))))
	out := []any{}
	for range n {
		v, err := g.value(s["items"], depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

func (g *schemaGenerator) text(s map[string]any) (any, error) {
	if p, ok := s["pattern"].(string); ok {
		return regexInstance(p, g.rng)
	}
	formats := map[string]string{
		"date": "2025-06-01", "date-time": "2025-06-01T12:00:00Z", "time": "12:00:00Z", "email": "a@example.org",
		"uuid": "123e4567-e89b-42d3-a456-426614174000", "uri": "https://example.org/", "ipv4": "192.0.2.1", "hostname": "example.org",
	}
	format, _ := s["format"].(string)
	if v, ok := formats[format]; ok {
		return v, nil
	}
	words := answerWords()
	text := words[g.rng.IntN(len(words))]
	least, most := limit(s, "minLength", 1), limit(s, "maxLength", maxSchemaText)
	if least > maxSchemaText {
		return nil, fmt.Errorf("minLength %v is more than %d", least, maxSchemaText)
	}
	if n := int(least) - len(text); n > 0 {
		text += strings.Repeat("x", n)
	}
	return text[:max(0, min(len(text), int(most)))], nil
}

func (g *schemaGenerator) number(s map[string]any, whole bool) any {
	low, high := limit(s, "minimum", math.Inf(-1)), limit(s, "maximum", math.Inf(1))
	low = max(low, limit(s, "exclusiveMinimum", math.Inf(-1))+1)
	high = min(high, limit(s, "exclusiveMaximum", math.Inf(1))-1)
	switch {
	case math.IsInf(low, 0) && math.IsInf(high, 0):
		low, high = 0, 100
	case math.IsInf(low, 0):
		low = high - 100
	case math.IsInf(high, 0):
		high = low + 100
	}
	if step := limit(s, "multipleOf", 0); step > 0 {
		return math.Ceil(low/step) * step
	}
	if low > high {
		return (low + high) / 2 // an open interval narrower than 2
	}
	v := low + g.rng.Float64()*(high-low)
	if whole {
		return min(math.Ceil(v), math.Floor(high))
	}
	return math.Round(v*100) / 100
}

// limit reads a number of a schema.
func limit(s map[string]any, key string, otherwise float64) float64 {
	if v, ok := s[key].(float64); ok {
		return v
	}
	return otherwise
}

func (g *schemaGenerator) resolve(ref string) (any, error) {
	path, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil, fmt.Errorf("$ref %q is not local", ref)
	}
	at := g.root
	for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if part == "" {
			continue
		}
		m, _ := at.(map[string]any)
		if at, ok = m[part]; !ok {
			return nil, fmt.Errorf("$ref %q leads nowhere", ref)
		}
	}
	return at, nil
}
