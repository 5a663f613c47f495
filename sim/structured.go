package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
)

// maxCompiledGrammars bounds the memory of constraints seen; beyond it the
// memory starts anew.
const maxCompiledGrammars = 1024

// constraint is what an answer must obey: exactly one field is set.
type constraint struct {
	JSON    json.RawMessage `json:"json"`
	Regex   string          `json:"regex"`
	Choice  []string        `json:"choice"`
	Grammar string          `json:"grammar"`
}

func (c constraint) key() string { return string(marshal(c)) }

// constraint reads the request's constraint in any of its forms; nil if none.
func (r *request) constraint() (*constraint, error) {
	c := &constraint{JSON: r.GuidedJSON, Regex: r.GuidedRegex, Choice: r.GuidedChoice, Grammar: r.GuidedGrammar}
	if isSet(r.StructuredOutputs) {
		if err := json.Unmarshal(r.StructuredOutputs, c); err != nil {
			return nil, fmt.Errorf("structured_outputs: %w", err)
		}
	}
	if isSet(r.ResponseFormat) {
		var format struct {
			Type       string `json:"type"`
			JSONSchema struct {
				Schema json.RawMessage `json:"schema"`
			} `json:"json_schema"`
		}
		if err := json.Unmarshal(r.ResponseFormat, &format); err != nil {
			return nil, fmt.Errorf("response_format: %w", err)
		}
		switch format.Type {
		case "json_object":
			c.JSON = json.RawMessage(`{"type":"object"}`)
		case "json_schema":
			if c.JSON = format.JSONSchema.Schema; !isSet(c.JSON) {
				return nil, errors.New("response_format: json_schema.schema is missing")
			}
		}
	}
	var text string
	if json.Unmarshal(c.JSON, &text) == nil && text != "" {
		c.JSON = json.RawMessage(text) // a schema given as a string
	}
	if !isSet(c.JSON) && c.Regex == "" && len(c.Choice) == 0 && c.Grammar == "" {
		return nil, nil //nolint:nilnil // no constraint is no error
	}
	return c, nil
}

func isSet(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// instance makes a text that obeys.
func (c constraint) instance(rng *rand.Rand) (string, error) {
	switch {
	case isSet(c.JSON):
		return schemaInstance(c.JSON, rng)
	case c.Regex != "":
		return regexInstance(c.Regex, rng)
	case len(c.Choice) > 0:
		return c.Choice[rng.IntN(len(c.Choice))], nil
	default:
		return grammarInstance(c.Grammar, rng)
	}
}

func obeyConstraint(s *Server, r *request, rng *rand.Rand) ([]piece, string, bool) {
	c, err := r.constraint()
	if c == nil || err != nil || s.cfg.Skills.IgnoreConstraints {
		return nil, "", false
	}
	text, err := c.instance(rng)
	if err != nil {
		return nil, "", false // refused by check before
	}
	if r.answer != "" {
		text = r.answer
	}
	if rng.Float64() >= s.cfg.Skills.StructuredValidity {
		text = "Sure: " + text[:len(text)/2]
	}
	return textPieces(text, fieldContent), finishStop, true
}

// checkConstraint refuses what cannot be compiled, as a server does.
func (r *request) checkConstraint() *apiError {
	c, err := r.constraint()
	if err == nil && c != nil {
		_, err = c.instance(rand.New(rand.NewPCG(1, 1)))
	}
	if err != nil {
		return badRequest("structured_outputs", "invalid constraint: %v", err)
	}
	return nil
}

// grammarCache remembers which constraints were compiled.
type grammarCache struct {
	mu   sync.Mutex
	seen map[string]bool
}

// compile takes the time of a first use.
func (s *Server) compile(ctx context.Context, r *request) error {
	c, _ := r.constraint()
	if c == nil || s.cfg.Skills.IgnoreConstraints {
		return nil
	}
	key := c.key()
	s.grammars.mu.Lock()
	known := s.grammars.seen[key]
	if !known {
		if len(s.grammars.seen) >= maxCompiledGrammars {
			clear(s.grammars.seen)
		}
		s.grammars.seen[key] = true
	}
	s.grammars.mu.Unlock()
	if known {
		return nil
	}
	return sleep(ctx, s.cfg.Skills.GrammarCompile)
}
