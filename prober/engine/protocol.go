package engine

import (
	"errors"
	"fmt"

	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// Protocol is a wire format of requests and their streamed answers.
type Protocol interface {
	// Name is the protocol's name in configs and labels.
	Name() string
	// Format is how the answer is framed: stream.FormatSSE or stream.FormatNDJSON.
	Format() stream.Format
	// Path is the path and query below the target's base URL.
	Path(w Wire) string
	// Encode puts the request into the body. A request that the protocol cannot carry is an *UnsupportedError.
	Encode(r Request, w Wire, b *Body) error
	// Parser returns a parser for one answer.
	Parser() Parser
}

// Parser reads the events of one answer. It is used by one goroutine.
type Parser interface {
	// Event reads one event and tells the accumulator what is in it. An error means that the event is malformed:
	// what it holds cannot be known. An error that the server reports is no such error: it goes to Fail.
	Event(ev stream.Event, a *Accumulator) error
}

// Wire is what a protocol may know of the target when it writes a request.
type Wire struct {
	Facts
	APIVersion string // Azure
}

// Protocols returns the table of protocols: a new one is one file and one line here.
func Protocols() []Protocol {
	return []Protocol{
		openAIChat{},
		openAICompletions{},
		openAIResponses{},
		anthropicMessages{},
		sglangGenerate{},
		tgiGenerate{},
		tritonGenerate{},
		llamacppCompletion{},
		ollamaChat{},
		ollamaGenerate{},
	}
}

// ProtocolNames returns the names of the protocols.
func ProtocolNames() []string {
	var names []string
	for _, p := range Protocols() {
		names = append(names, p.Name())
	}
	return names
}

// LookupProtocol returns the protocol of that name.
func LookupProtocol(name string) (Protocol, bool) {
	for _, p := range Protocols() {
		if p.Name() == name {
			return p, true
		}
	}
	return nil, false
}

// UnsupportedError says that a request cannot be carried by a protocol or engine.
type UnsupportedError struct {
	What string // structured output by grammar, audio, …
	Why  string
}

func (e *UnsupportedError) Error() string { return fmt.Sprintf("%s: %s", e.What, e.Why) }

// errMalformed marks an event that cannot be read.
var errMalformed = errors.New("an event of the stream is not JSON")
