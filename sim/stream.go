package sim

import (
	"context"
	"errors"
	"strings"
	"time"
)

// answer carries one request's output from the engine to the wire.
type answer struct {
	ctx      context.Context
	eng      *engine
	work     work
	seq      *sequence
	req      *request
	f        *faults
	w        *wireWriter
	r        *renderer
	received time.Time
	roleAt   time.Duration // after received, or RoleWithFirstToken
	report   bool          // cached tokens

	roleSent, stalled, broken, garbled, hugeSent bool
	sent                                         int // tokens
	ended                                        bool
}

// errEnded ends a stream early but properly.
var errEnded = errors.New("sim: stream ended by a fault")

// stream writes the answer as server-sent events until it is complete, a fault
// ends it, or the client leaves.
func (a *answer) stream() error {
	if !a.f.lateHeaders {
		if err := a.w.headers("text/event-stream; charset=utf-8"); err != nil {
			return err
		}
	}
	if a.f.promptFilter {
		if err := a.w.event(RecordEvent{Kind: EventOther}, []byte(`{"id":"","object":"","created":0,"model":"","choices":[],"prompt_filter_results":[{"prompt_index":0}]}`), false); err != nil {
			return err
		}
	}
	err := a.follow()
	if errors.Is(err, errEnded) {
		err = nil
	}
	if err != nil {
		return err
	}
	return a.w.close()
}

// follow waits for what the engine produces.
func (a *answer) follow() error {
	var role, comments <-chan time.Time
	if a.roleAt >= 0 && a.r.chat {
		t := time.NewTimer(time.Until(a.received.Add(a.roleAt)))
		defer t.Stop()
		role = t.C
	}
	if a.f.comments > 0 {
		t := time.NewTicker(a.f.comments)
		defer t.Stop()
		comments = t.C
	}
	var ems []emission
	for !a.ended {
		var err error
		select {
		case <-a.seq.notify:
			ems = a.seq.take(ems)
			for i := 0; i < len(ems) && err == nil; i++ {
				err = a.emission(ems[i])
			}
			comments = nil
		case <-role:
			err = a.role()
		case <-comments:
			err = a.comment()
		case <-a.ctx.Done():
			err = a.ctx.Err()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *answer) comment() error {
	if a.f.commentData {
		return a.w.lines(EventComment, "data: : keep-alive\n\n")
	}
	return a.w.lines(EventComment, ": keep-alive\n\n")
}

func (a *answer) role() error {
	if a.roleSent || !a.r.chat {
		return nil
	}
	a.roleSent = true
	return a.w.event(RecordEvent{Kind: EventRole}, a.r.chunk(true, nil, "", a.continuous()), false)
}

// continuous is the usage that a choice chunk carries, if it does.
func (a *answer) continuous() *usage {
	o := a.req.StreamOptions
	asked := o != nil && o.IncludeUsage && o.ContinuousUsageStats
	if a.f.usageMissing || !(asked || a.f.usageEvery) {
		return nil
	}
	return &usage{len(a.seq.prompt), a.sent + a.f.usageOff, -1}
}

func (a *answer) usage() usage {
	cached := -1
	if a.report {
		cached, _, _, _ = a.eng.progress(a.seq)
	}
	return usage{len(a.seq.prompt), a.sent + a.f.usageOff, cached}
}

// emission writes what one step produced.
func (a *answer) emission(em emission) error {
	if err := a.role(); err != nil {
		return err
	}
	if a.f.roleLead > 0 {
		if err := sleep(a.ctx, time.Until(em.at.Add(a.f.roleLead))); err != nil {
			return err
		}
	}
	if err := a.disturb(); err != nil {
		return err
	}
	pieces := a.seq.pieces[em.first : em.first+em.n]
	finish := a.finishReason(em.finish)
	a.sent += em.n
	kind := EventOther
	switch {
	case hasText(pieces):
		kind = EventToken
	case em.finish != "":
		kind = EventFinish
	}
	if a.f.separateFinish && kind == EventToken {
		finish = ""
	}
	if !(kind == EventFinish && finish == "") {
		if err := a.choice(kind, em.n, pieces, finish); err != nil {
			return err
		}
	}
	if em.finish == "" {
		return nil
	}
	return a.end(finish, a.finishReason(em.finish))
}

// choice writes a choice chunk.
func (a *answer) choice(kind EventKind, tokens int, pieces []piece, finish string) error {
	u := a.continuous()
	if finish != "" && a.f.usageOnFinish && !a.f.usageMissing {
		whole := a.usage()
		u = &whole
	}
	open := finish != "" && a.f.unterminated && a.f.noDone && !a.usageChunkFollows()
	return a.w.event(RecordEvent{Kind: kind, Tokens: tokens, Finish: finish}, a.r.chunk(false, pieces, finish, u), open)
}

func (a *answer) usageChunkFollows() bool {
	o := a.req.StreamOptions
	return o != nil && o.IncludeUsage && !a.f.usageMissing && !a.f.usageOnFinish
}

func (a *answer) finishReason(reason string) string {
	switch {
	case reason == "" || a.f.noFinish:
		return ""
	case a.f.finishReason != nil:
		return *a.f.finishReason
	default:
		return reason
	}
}

// end writes what follows the last token.
func (a *answer) end(sent, reason string) error {
	a.ended = true
	if sent == "" && reason != "" {
		if err := a.choice(EventFinish, 0, nil, reason); err != nil {
			return err
		}
	}
	if a.f.duplicateFinish {
		if err := a.choice(EventFinish, 0, nil, reason); err != nil {
			return err
		}
	}
	if a.usageChunkFollows() {
		if err := a.w.event(RecordEvent{Kind: EventUsage}, a.r.usageChunk(a.usage()), a.f.unterminated && a.f.noDone); err != nil {
			return err
		}
	}
	if a.f.noDone {
		return nil
	}
	return a.done(a.f.unterminated)
}

func (a *answer) done(open bool) error {
	return a.w.event(RecordEvent{Kind: EventDone}, []byte("[DONE]"), open)
}

// disturb lets those faults happen that are due after the tokens sent so far.
func (a *answer) disturb() error {
	if a.f.huge > 0 && !a.hugeSent {
		a.hugeSent = true
		chunk := a.r.chunk(true, nil, "", nil)
		chunk = append(append(chunk[:len(chunk)-1], `,"padding":"`+strings.Repeat("x", a.f.huge)...), `"}`...)
		if err := a.w.event(RecordEvent{Kind: EventOther}, chunk, false); err != nil {
			return err
		}
	}
	if a.f.stallAt.due(a.sent) && !a.stalled {
		a.stalled = true
		if err := sleep(a.ctx, a.f.stallFor); err != nil {
			return err
		}
	}
	if a.f.malformed.due(a.sent) && !a.broken {
		a.broken = true
		if err := a.w.event(RecordEvent{Kind: EventOther}, []byte(`{"id":"x","choices":[{"index":0,"delta":{"content":"brok`), false); err != nil {
			return err
		}
	}
	if a.f.invalidUTF8.due(a.sent) && !a.garbled {
		a.garbled = true
		chunk := a.r.chunk(false, []piece{{text: "!"}}, "", nil)
		chunk = []byte(strings.Replace(string(chunk), `"!"`, "\"\xe4\xbd\"", 1))
		if err := a.w.event(RecordEvent{Kind: EventToken}, chunk, false); err != nil {
			return err
		}
	}
	return a.breakOff()
}

// breakOff ends the stream if a fault says so.
func (a *answer) breakOff() error {
	body := string((&apiError{500, "InternalServerError", "", "simulated engine failure"}).body())
	var err error
	switch {
	case a.f.errorAfter.due(a.sent):
		if err = a.w.event(RecordEvent{Kind: EventError}, []byte(body), false); err == nil {
			err = a.done(false)
		}
	case a.f.errorNoDone.due(a.sent):
		err = a.w.event(RecordEvent{Kind: EventError}, []byte(body), false)
	case a.f.errorEvent.due(a.sent):
		err = a.w.lines(EventError, "event: error\n: simulated engine failure\n\n")
	case a.f.errorRaw.due(a.sent):
		err = a.w.lines(EventError, body+"\n")
	case a.f.cutEOF.due(a.sent):
	case a.f.cutClose.due(a.sent):
		return a.w.cut(false)
	case a.f.cutReset.due(a.sent):
		return a.w.cut(true)
	default:
		return nil
	}
	if err != nil {
		return err
	}
	return errEnded
}

func hasText(pieces []piece) bool {
	for _, p := range pieces {
		if p.text != "" {
			return true
		}
	}
	return false
}
