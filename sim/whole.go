package sim

import "encoding/json"

// whole writes the answer in one piece, for requests without stream. Of the
// stream's faults those apply that mean something here.
func (a *answer) whole() error {
	finish := ""
	for finish == "" {
		select {
		case <-a.seq.notify:
		case <-a.ctx.Done():
			return a.ctx.Err()
		}
		for _, em := range a.seq.take(nil) {
			a.sent += em.n
			finish = em.finish
		}
	}
	cut := a.f.cutClose >= 0 || a.f.cutReset >= 0
	body := a.wholeBody(a.finishReason(finish))
	if a.f.malformed >= 0 || cut {
		body = body[:len(body)/2]
	}
	if err := a.w.headers("application/json"); err != nil {
		return err
	}
	if cut {
		if err := a.w.raw(RecordEvent{Kind: EventOther}, body); err != nil {
			return err
		}
		return a.w.cut(a.f.cutReset >= 0)
	}
	if err := a.w.raw(RecordEvent{Kind: EventToken, Tokens: a.sent, Finish: finish}, body); err != nil {
		return err
	}
	return a.w.close()
}

func (a *answer) wholeBody(finish string) []byte {
	var reason any
	if finish != "" || a.f.finishReason != nil {
		reason = finish
	}
	choice := map[string]any{"index": 0, "logprobs": nil, "finish_reason": reason, "stop_reason": nil}
	content := a.r.join(a.seq.pieces, fieldContent)
	object := "text_completion"
	if a.r.chat {
		object = "chat.completion"
		choice["message"] = a.message(content)
	} else {
		choice["text"] = content
	}
	var head map[string]any
	_ = json.Unmarshal([]byte(a.r.head+"null}"), &head) // our own head
	head["object"] = object
	head["choices"] = []any{choice}
	if !a.f.usageMissing {
		u := a.usage().append([]byte{'{'})
		head["usage"] = json.RawMessage(u[len(`{"usage":`):])
	}
	return marshal(head)
}

func (a *answer) message(content string) map[string]any {
	msg := map[string]any{"role": "assistant", "content": content, "tool_calls": []any{}}
	if text := a.r.join(a.seq.pieces, fieldReasoning); text != "" {
		msg[a.r.reasoning] = text
	}
	if calls := toolDeltas(a.seq.pieces); calls != nil {
		msg["tool_calls"] = calls
		if content == "" {
			msg["content"] = nil
		}
	}
	return msg
}
