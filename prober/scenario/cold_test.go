package scenario

import (
	"context"
	"slices"
	"testing"

	"github.com/llmcanary/llm_canary_exporter/prober/engine"
	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// cachedSender answers every request as if so many of its prompt tokens came from the cache.
type cachedSender struct{ cached *int }

func (c cachedSender) Send(context.Context, engine.Request) engine.Answer {
	return engine.Answer{Request: result.Request{Outcome: result.Success, CachedPromptTokens: c.cached}}
}

// A cold request may share the chat template with others, and nothing more.
func TestDirtyCold(t *testing.T) {
	for _, tt := range []struct {
		cached *int
		want   bool
	}{{nil, false}, {result.Ptr(0), false}, {result.Ptr(templateTokens), false}, {result.Ptr(templateTokens + 1), true}} {
		a := sendCold(t.Context(), &Env{Sender: cachedSender{tt.cached}}, engine.Request{})
		if got := slices.Contains(a.Anomalies, result.AnomalyDirtyCold); got != tt.want {
			t.Errorf("%v cached: %v, want %v", tt.cached, got, tt.want)
		}
	}
}
