package enginemetrics

// Figure names a normalised figure: the name of its metric without the namespace.
type Figure string

// The figures that are taken out of a page.
const (
	RequestsRunning           Figure = "engine_requests_running"
	RequestsWaiting           Figure = "engine_requests_waiting"
	KVCacheUsage              Figure = "engine_kv_cache_usage_ratio"
	PrefixCacheQueries        Figure = "engine_prefix_cache_queries_total"
	PrefixCacheHits           Figure = "engine_prefix_cache_hits_total"
	SpeculativeDrafts         Figure = "engine_speculative_drafts_total"
	SpeculativeDraftTokens    Figure = "engine_speculative_draft_tokens_total"
	SpeculativeAcceptedTokens Figure = "engine_speculative_accepted_tokens_total"
	Preemptions               Figure = "engine_preemptions_total"
	PromptTokens              Figure = "engine_prompt_tokens_total"
	GenerationTokens          Figure = "engine_generation_tokens_total"
)

// Figures returns all figures in the order in which they are exported.
func Figures() []Figure {
	return []Figure{
		RequestsRunning, RequestsWaiting, KVCacheUsage, PrefixCacheQueries, PrefixCacheHits, SpeculativeDrafts,
		SpeculativeDraftTokens, SpeculativeAcceptedTokens, Preemptions, PromptTokens, GenerationTokens,
	}
}

// counters are the figures that only grow while an engine runs.
func counters() []Figure {
	return []Figure{
		PrefixCacheQueries, PrefixCacheHits, SpeculativeDrafts, SpeculativeDraftTokens, SpeculativeAcceptedTokens,
		Preemptions, PromptTokens, GenerationTokens,
	}
}

// Normalised is what a page says, in one vocabulary for all engines. A figure that the page does not give is nil.
// It is plain data that is not modified once it has been handed out.
type Normalised struct {
	Dialect string // whose names the page uses; not always the engine that runs
	Variant string // which generation of them, where the names tell: v0 or v1 of vLLM
	Model   string // as the page names it; empty if it does not, or names several
	Version string // of the engine, if the page tells

	RequestsRunning *float64 // requests in the batch
	RequestsWaiting *float64 // requests in the queue

	KVCacheUsage *float64 // 0 to 1, of the fullest rank; blocks that only keep a prefix cached count as free

	// Queries and hits of the prefix cache come from the same pair of counters of the engine: in tokens, or in
	// blocks where PrefixUnit says so.
	PrefixCacheQueries *float64
	PrefixCacheHits    *float64
	PrefixUnit         string // tokens or blocks; empty without the counters

	SpeculativeDrafts         *float64 // verify steps
	SpeculativeDraftTokens    *float64
	SpeculativeAcceptedTokens *float64 // without the token that each step yields anyway

	Preemptions      *float64
	PromptTokens     *float64 // cached ones included, where the engine counts them
	GenerationTokens *float64

	// ProcessStart is the engine's own start in seconds since the epoch, where the page tells it.
	ProcessStart *float64

	// Why says which names of the page each figure was taken from.
	Why map[Figure]string
	// Missing are the figures that this dialect gives and this page lacks, in the order of Figures.
	Missing []Figure
	// Odd says why figures were left out although the page names them: out of range, or not a number.
	Odd map[Figure]string
}

// Get returns a figure, nil if the page does not give it.
func (n *Normalised) Get(f Figure) *float64 {
	if p := n.field(f); p != nil {
		return *p
	}
	return nil
}

func (n *Normalised) field(f Figure) **float64 {
	switch f {
	case RequestsRunning:
		return &n.RequestsRunning
	case RequestsWaiting:
		return &n.RequestsWaiting
	case KVCacheUsage:
		return &n.KVCacheUsage
	case PrefixCacheQueries:
		return &n.PrefixCacheQueries
	case PrefixCacheHits:
		return &n.PrefixCacheHits
	case SpeculativeDrafts:
		return &n.SpeculativeDrafts
	case SpeculativeDraftTokens:
		return &n.SpeculativeDraftTokens
	case SpeculativeAcceptedTokens:
		return &n.SpeculativeAcceptedTokens
	case Preemptions:
		return &n.Preemptions
	case PromptTokens:
		return &n.PromptTokens
	case GenerationTokens:
		return &n.GenerationTokens
	}
	return nil
}
