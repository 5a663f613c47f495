package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Body is a request in the making: a JSON object with fields that must be in it and fields that may be left out when
// the target refuses them.
type Body struct {
	// Header goes with the request.
	Header http.Header

	fields  map[string]any
	refused map[string]bool
	sent    []string // optional fields that are in it
	usage   bool     // the answer should bring usage

	evaluated bool // the prompt's count may leave cached tokens out
}

func newBody(refused map[string]bool) *Body {
	return &Body{Header: http.Header{}, fields: map[string]any{}, refused: refused}
}

// Set puts a field in. A name with dots makes nested objects.
func (b *Body) Set(name string, value any) {
	fields := b.fields
	path := strings.Split(name, ".")
	for _, key := range path[:len(path)-1] {
		inner, ok := fields[key].(map[string]any)
		if !ok {
			inner = map[string]any{}
			fields[key] = inner
		}
		fields = inner
	}
	fields[path[len(path)-1]] = value
}

// setModel names the model. As long as none is known, the field is left out: some servers have but one.
func (b *Body) setModel(w Wire) {
	if w.Model != "" {
		b.Set("model", w.Model)
	}
}

// Option puts a field in unless the target refused it or an object that it is in. It reports whether it did.
func (b *Body) Option(name string, value any) bool {
	if b.isRefused(name) {
		return false
	}
	b.sent = append(b.sent, name)
	b.Set(name, value)
	return true
}

// ExpectUsage says that a complete answer brings usage.
func (b *Body) ExpectUsage() { b.usage = true }

// OneOf puts a value in under the first name that the target did not refuse.
func (b *Body) OneOf(value any, names ...string) {
	for _, name := range names {
		if b.Option(name, value) {
			return
		}
	}
}

func (b *Body) isRefused(name string) bool {
	for prefix := name; ; {
		if b.refused[prefix] {
			return true
		}
		i := strings.LastIndexByte(prefix, '.')
		if i < 0 {
			return false
		}
		prefix = prefix[:i]
	}
}

// candidates returns the names that a refusal may be about: the optional fields and the objects that they are in,
// inner ones first.
func (b *Body) candidates() []string {
	set := map[string]bool{}
	for _, name := range b.sent {
		set[name] = true
		for i := strings.LastIndexByte(name, '.'); i > 0; i = strings.LastIndexByte(name[:i], '.') {
			set[name[:i]] = true
		}
	}
	names := slices.Collect(maps.Keys(set))
	slices.SortFunc(names, func(a, b string) int {
		if d := strings.Count(b, ".") - strings.Count(a, "."); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return names
}

func (b *Body) encode() ([]byte, error) {
	data, err := json.Marshal(b.fields)
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	return data, nil
}
