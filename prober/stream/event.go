package stream

import "time"

// Kind says what an Event is.
type Kind uint8

const (
	// Message is an event with a payload, or one named "error" whether it has a payload or not.
	Message Kind = iota
	// Comment is a sign of life without a payload: an SSE comment line, and what servers and gateways send
	// in its place (see Event.Nonstandard).
	Comment
	// BareJSON is a line in an SSE body that begins with a brace instead of a field name: how some servers
	// send an error once the stream has begun. Always Nonstandard.
	BareJSON
	// Done is the end mark "[DONE]".
	Done
)

// String returns the kind's name in lower case.
func (k Kind) String() string {
	switch k {
	case Message:
		return "message"
	case Comment:
		return "comment"
	case BareJSON:
		return "bare_json"
	case Done:
		return "done"
	default:
		return "unknown"
	}
}

// Event is one unit of a stream. Name and Data are valid until the next call of Next.
type Event struct {
	Kind Kind
	// Name is the SSE event name; empty if the server gave none, and always for NDJSON.
	Name []byte
	// Data is the payload as the server sent it, several SSE data lines joined with a line feed. It is not
	// checked to be JSON or UTF-8. For a Comment it is the comment's text.
	Data []byte
	// At is the arrival of the last byte of Data: of the event's last data line, not of the blank line that
	// ends the event, which servers may send with the next one. For an event without data it is that of the
	// last line that said something.
	At time.Time
	// Lag is how late that byte was read; 0 where Clock is ClockUser.
	Lag time.Duration
	// Clock is the clock that At is from.
	Clock Clock
	// Unterminated marks the last event of a stream that ended before the event did: no blank line after it
	// in SSE, no line feed in NDJSON. Its data was complete nevertheless.
	Unterminated bool
	// Nonstandard marks framing that the SSE specification does not know or would drop: bare JSON, a comment
	// or nothing where data should be, "[DONE]" without a field name, an error event without data.
	Nonstandard bool
}

func (e *Event) stamp(a Arrival) { e.At, e.Lag, e.Clock = a.At, a.Lag, a.Clock }
