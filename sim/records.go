package sim

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// EventKind says what an event on the wire was.
type EventKind uint8

// The kinds of events. An output-bearing chunk is always EventToken, also when
// it carries the finish reason; EventFinish has no output text.
const (
	EventHeaders EventKind = iota
	EventRole
	EventToken
	EventFinish
	EventUsage
	EventDone
	EventError
	EventComment
	EventOther
)

var eventNames = [...]string{"headers", "role", "token", "finish", "usage", "done", "error", "comment", "other"}

// String is the kind's name in JSON.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", k)
}

// MarshalText implements encoding.TextMarshaler.
func (k EventKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *EventKind) UnmarshalText(b []byte) error {
	i := slices.Index(eventNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("sim: unknown event kind %q", b)
	}
	*k = EventKind(i)
	return nil
}

// RecordEvent is one write. The bytes left the server between Before, taken
// just ahead of the write, and After, taken when write and flush had returned.
type RecordEvent struct {
	Kind EventKind `json:"kind"`
	// Tokens is how many output tokens the event accounts for in usage; the stop
	// token makes an EventFinish with one.
	Tokens int       `json:"tokens,omitempty"`
	Finish string    `json:"finish,omitempty"`
	Before time.Time `json:"before"`
	After  time.Time `json:"after"`
}

// Record is the truth about one request.
type Record struct {
	// ID is the request's X-Request-Id, else the generated id without its prefix.
	ID       string    `json:"id"`
	Path     string    `json:"path"`
	Received time.Time `json:"received"`
	Status   int       `json:"status"`
	// Faults is the fault specification in force, if any.
	Faults           string        `json:"faults,omitempty"`
	PromptTokens     int           `json:"prompt_tokens"`
	CachedTokens     int           `json:"cached_tokens"`
	CompletionTokens int           `json:"completion_tokens"`
	FinishReason     string        `json:"finish_reason,omitempty"`
	Preemptions      int           `json:"preemptions,omitempty"`
	Timing           Timing        `json:"timing"`
	Spec             SpecCounts    `json:"spec"`
	Events           []RecordEvent `json:"events"`
	// Ended is when the handler returned; zero while the request is in progress.
	Ended time.Time `json:"ended,omitzero"`
	// Aborted is true when the client left before the answer's end.
	Aborted bool `json:"aborted,omitempty"`
}

// records keeps the last requests, bounded by requests and by events.
type records struct {
	maxRequests, maxEvents int

	mu     sync.Mutex
	order  []*Record // oldest first
	byID   map[string]*Record
	events int
}

func newRecords(requests, events int) *records {
	return &records{maxRequests: requests, maxEvents: events, byID: map[string]*Record{}}
}

func (r *records) start(id, path string, received time.Time) *Record {
	rec := &Record{ID: id, Path: path, Received: received}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.order = append(r.order, rec)
	r.byID[id] = rec
	r.trim()
	return rec
}

// update changes a record under the lock that readers take.
func (r *records) update(rec *Record, change func(*Record)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(rec)
}

func (r *records) add(rec *Record, ev RecordEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec.Events = append(rec.Events, ev)
	rec.CompletionTokens += ev.Tokens
	if ev.Finish != "" && rec.FinishReason == "" {
		rec.FinishReason = ev.Finish
	}
	r.events++
	r.trim()
}

// trim drops the oldest records, but never the newest. A dropped record that is
// still in progress keeps growing without being counted: r.events is then a
// little too high until it ends, which only makes the bound tighter.
func (r *records) trim() {
	for len(r.order) > 1 && (len(r.order) > r.maxRequests || r.events > r.maxEvents) {
		old := r.order[0]
		r.order = slices.Delete(r.order, 0, 1)
		r.events -= len(old.Events)
		if r.byID[old.ID] == old {
			delete(r.byID, old.ID)
		}
	}
}

func (r *records) get(id string) (Record, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, ok := r.byID[id]
	if !ok {
		return Record{}, false
	}
	return rec.clone(), true
}

func (r *records) all() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Record, len(r.order))
	for i, rec := range r.order {
		out[i] = rec.clone()
	}
	return out
}

func (r *Record) clone() Record {
	c := *r
	c.Events = slices.Clone(r.Events)
	return c
}
