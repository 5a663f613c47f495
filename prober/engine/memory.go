package engine

import "maps"

// memory is what a target has taught: which fields it refuses, what it can do, and how that came to be known.
type memory struct {
	refused map[string]string    // optional field -> why
	seen    map[Feature]evidence // feature -> what is known of it
	signs   []string             // why the engine is taken for what it is
	limit   int                  // context length as a refusal told it; 0 = none did
	notes   map[string]string    // other things worth telling, such as a model that is not listed
}

type evidence struct {
	works bool
	why   string
}

func newMemory() memory {
	return memory{refused: map[string]string{}, seen: map[Feature]evidence{}, notes: map[string]string{}}
}

func (m memory) features() Features {
	f := Features{Refused: make(map[string]bool, len(m.refused)), Seen: make(map[Feature]bool, len(m.seen))}
	for name := range m.refused {
		f.Refused[name] = true
	}
	for name, e := range m.seen {
		f.Seen[name] = e.works
	}
	return f
}

// Snapshot is all that is known of a target and why, for people and for a later start. It is plain data.
type Snapshot struct {
	Facts    Facts                     `json:"facts"`
	Signs    []string                  `json:"signs,omitempty"`    // why the engine is taken for what it is
	Refused  map[string]string         `json:"refused,omitempty"`  // optional field -> what the target said
	Features map[Feature]FeatureRecord `json:"features,omitempty"` // what is known of its abilities
	Notes    map[string]string         `json:"notes,omitempty"`
}

// FeatureRecord is what is known of one ability.
type FeatureRecord struct {
	Works bool   `json:"works"`
	Why   string `json:"why"`
}

// Snapshot returns all that is known, and why.
func (t *Target) Snapshot() Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Snapshot{
		Facts: t.facts, Signs: append([]string(nil), t.memory.signs...),
		Refused: maps.Clone(t.memory.refused), Notes: maps.Clone(t.memory.notes),
		Features: make(map[Feature]FeatureRecord, len(t.memory.seen)),
	}
	for f, e := range t.memory.seen {
		s.Features[f] = FeatureRecord{Works: e.works, Why: e.why}
	}
	return s
}

// Restore takes over what an earlier Target of the same server has learnt, after a reload of the config. What is
// configured stays. It is for before the first request.
func (t *Target) Restore(s Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.facts.Engine != "" && t.facts.Engine != s.Facts.Engine {
		return // another engine forgets
	}
	t.memory = newMemory()
	t.memory.signs = append([]string(nil), s.Signs...)
	maps.Copy(t.memory.refused, s.Refused)
	maps.Copy(t.memory.notes, s.Notes)
	for f, r := range s.Features {
		t.memory.seen[f] = evidence{works: r.Works, why: r.Why}
	}
}

// refuse remembers that the target does not take a field.
func (t *Target) refuse(field, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.memory.refused[field] = why
}

// notice remembers whether a feature was seen to work.
func (t *Target) notice(f Feature, works bool, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, known := t.memory.seen[f]; known && (e.works || !works) {
		return // what once worked is not forgotten for one refusal, and the first reason stays
	}
	t.memory.seen[f] = evidence{works: works, why: why}
}

func (t *Target) knows(f Feature) (works, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, known := t.memory.seen[f]
	return e.works, known
}

func (t *Target) refusedFields() map[string]bool { return t.Features().Refused }
