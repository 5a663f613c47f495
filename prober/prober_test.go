package prober

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

func TestChatOnItsCadence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		h.apply(t, conf([]string{"a"}, sc("chat", 30*time.Second)))
		h.start()
		time.Sleep(time.Hour)
		h.end(t)
		probes := h.rec.of("a", "chat")
		skips := h.rec.skipped(result.SkipOverlap)
		if n := len(probes) + skips; n < 90 || n > 150 {
			t.Errorf("%d probes and %d skips in an hour with a mean interval of 30 s", len(probes), skips)
		}
		for _, p := range probes {
			if p.Outcome != result.Success || p.ScheduleLagSeconds == nil || *p.ScheduleLagSeconds != 0 || p.DurationSeconds != 1 || len(p.Requests) != 1 {
				t.Fatalf("not as it was: %+v", p)
			}
			if v, ok := p.Values.Get("output_tokens_per_second", "default"); !ok || v != 100 {
				t.Fatalf("output_tokens_per_second is %v, %v; TPOT is 10 ms", v, ok)
			}
		}
	})
}
