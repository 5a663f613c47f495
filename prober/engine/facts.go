package engine

// Facts is what is known about a target at a moment: configured, or found out from it. It is a value: a later
// detection makes a new one.
type Facts struct {
	Engine      string // vllm, sglang, llamacpp, …; openai for any other OpenAI-compatible server
	Version     string
	Model       string
	Protocol    string
	MaxModelLen int  // tokens of prompt and output together; 0 = unknown
	Tokenizes   bool // counts tokens for us (POST /tokenize)
}

// Feature is something that a target may or may not do, learnt from its answers.
type Feature string

// The features that are learnt.
const (
	FeatureCachedTokens     Feature = "cached_tokens" // usage has told cached tokens
	FeatureChunkTokens      Feature = "chunk_tokens"  // chunks have told their exact token counts
	FeatureVision           Feature = "vision"
	FeatureAudio            Feature = "audio"
	FeatureTools            Feature = "tools"
	FeatureStructuredOutput Feature = "structured_output"
)

// Features is what a target took, refused and reported so far. It is a value: copies do not share state.
type Features struct {
	Refused map[string]bool  // optional request fields that the target refused, by their wire name; never modified in place
	Seen    map[Feature]bool // true: seen to work; false: seen not to; absent: unknown; never modified in place
}
