// Package engine speaks to inference servers: it turns a Request without wire format into the bytes of a
// protocol, sends it, reads the streamed answer and measures it. One file per protocol, one table of them.
package engine

import (
	"encoding/json"
	"time"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// Role is who says a message.
type Role string

// The roles of messages.
const (
	System    Role = "system"
	User      Role = "user"
	Assistant Role = "assistant"
)

// Message is one turn of a conversation.
type Message struct {
	Role  Role
	Text  string
	Media []Media // images or audio that go with a user's turn
}

// Media is one image or sound.
type Media struct {
	Kind     MediaKind
	MIMEType string // image/png, audio/wav
	Data     []byte
}

// MediaKind tells images from sounds.
type MediaKind string

// The kinds of media.
const (
	Image MediaKind = "image"
	Audio MediaKind = "audio"
)

// Request is what a scenario wants to be sent, in no wire format. It is not modified by Send and may be used again.
type Request struct {
	Variant   string
	Messages  []Message
	MaxTokens int    // hard cap of output tokens, always > 0
	Fixed     bool   // the output should have exactly MaxTokens tokens, where the engine allows it
	Seed      int64  // for sampling; temperature is always 0
	CacheSalt string // isolates the prefix cache, where the engine knows it; empty = none

	Constraint *Constraint
	Tools      []Tool
	ToolChoice string // "", auto, none, required, or the name of a tool
}

// ConstraintKind is the kind of structured output.
type ConstraintKind string

// The kinds of structured output.
const (
	JSONSchema ConstraintKind = "json_schema"
	Regex      ConstraintKind = "regex"
	Choice     ConstraintKind = "choice"
	Grammar    ConstraintKind = "grammar"
)

// Constraint is what the output must obey.
type Constraint struct {
	Kind   ConstraintKind
	Name   string          // of the schema
	Schema json.RawMessage // JSONSchema
	Text   string          // Regex, Grammar (EBNF)
	Values []string        // Choice
}

// Tool is a function that the model may call.
type Tool struct {
	Name        string
	Description string
	Parameters  json.RawMessage // JSON Schema
}

// ToolCall is a call that the model made. Arguments is the text that it wrote: it may not be JSON.
type ToolCall struct {
	ID        string
	Name      string
	Arguments string
}

// Answer is a measured answer.
type Answer struct {
	result.Request // what the sinks see

	Text      string // the answer's content, bounded
	Reasoning string
	ToolCalls []ToolCall

	// RetryAfter is how long the target asked to be left alone (Retry-After in any of its forms); 0 = it did not.
	RetryAfter time.Duration
}
