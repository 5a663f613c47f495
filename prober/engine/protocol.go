package engine

import (
	"fmt"
	"net/http"

	"github.com/valyala/fastjson"

	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// Protocol is the wire format of one kind of request. Implementations are stateless.
type Protocol interface {
	// Name is the protocol's name in configurations and labels, such as openai_chat.
	Name() string
	// Path is where requests go, below the target's base URL.
	Path(f Facts) string
	// Encode makes the body of a request, and headers beyond the common ones. Fields for which refused is true are
	// left out.
	Encode(r Request, f Facts, refused map[string]bool) (body []byte, header http.Header, err error)
	// Parser returns a parser for one answer.
	Parser() Parser
	// Rules say how an answer of this protocol ends.
	Rules() Rules
}

// Parser folds the events of one answer into an Accumulator. An error means that the stream is malformed.
type Parser interface {
	Event(ev stream.Event, v *fastjson.Value, acc *Accumulator) error
}

// Rules say how an answer of a protocol ends.
type Rules struct {
	WantsDone      bool // [DONE] ends it; without one the answer is complete, but odd
	FinishOptional bool // nothing says that it is finished but the end of the stream
}

// Protocols returns the table of protocols: a new one is one file and one line here.
func Protocols() []Protocol {
	return []Protocol{
		openAIChat{},
		openAICompletions{},
	}
}

// LookupProtocol returns the protocol of that name.
func LookupProtocol(name string) (Protocol, error) {
	for _, p := range Protocols() {
		if p.Name() == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("there is no protocol %q", name)
}
