package engine

import (
	"encoding/json"
	"net/http"
	"strings"
)

// openAICompletions is POST /v1/completions.
type openAICompletions struct{}

func (openAICompletions) Name() string { return "openai_completions" }

func (openAICompletions) Path(Facts) string { return "/v1/completions" }

func (openAICompletions) Rules() Rules { return Rules{WantsDone: true} }

func (openAICompletions) Parser() Parser { return &openAIParser{} }

func (openAICompletions) Encode(r Request, f Facts, refused map[string]bool) ([]byte, http.Header, error) {
	b := openAIBody(r, f, refused)
	if refused["max_tokens"] { // completions never had another name for it
		delete(b, "max_completion_tokens")
		b["max_tokens"] = r.MaxTokens
	}
	b["prompt"] = plainPrompt(r.Messages)
	body, err := json.Marshal(b)
	return body, nil, err
}

// plainPrompt is a conversation as one text, for protocols without roles.
func plainPrompt(messages []Message) string {
	if len(messages) == 1 {
		return messages[0].Text
	}
	var b strings.Builder
	for _, m := range messages {
		switch m.Role {
		case User:
			b.WriteString("User: ")
		case Assistant:
			b.WriteString("Assistant: ")
		}
		b.WriteString(m.Text)
		b.WriteString("\n\n")
	}
	b.WriteString("Assistant:")
	return b.String()
}
