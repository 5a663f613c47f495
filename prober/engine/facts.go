package engine

// The engines that are known. EngineOpenAI is any server that speaks OpenAI's API and is none of the others.
const (
	EngineVLLM         = "vllm"
	EngineSGLang       = "sglang"
	EngineTGI          = "tgi"
	EngineTRTLLM       = "trtllm"
	EngineTriton       = "triton"
	EngineNIM          = "nim"
	EngineDynamo       = "dynamo"
	EngineLlamaCPP     = "llamacpp"
	EngineOllama       = "ollama"
	EngineLMDeploy     = "lmdeploy"
	EngineLiteLLM      = "litellm"
	EngineAzure        = "azure"
	EngineOpenAIHosted = "openai_hosted" // OpenAI's own service
	EngineAnthropic    = "anthropic"
	EngineOpenAI       = "openai"
)

// Engines returns the engines that are known.
func Engines() []string {
	return []string{
		EngineVLLM, EngineSGLang, EngineTGI, EngineTRTLLM, EngineTriton, EngineNIM, EngineDynamo, EngineLlamaCPP,
		EngineOllama, EngineLMDeploy, EngineLiteLLM, EngineAzure, EngineOpenAIHosted, EngineAnthropic, EngineOpenAI,
	}
}

// Facts is what is known about a target at a moment: configured, or found out from it. It is a value that can be
// compared: a later detection makes a new one.
type Facts struct {
	Engine      string `json:"engine,omitempty"` // one of Engines, or empty as long as nothing is known
	Version     string `json:"version,omitempty"`
	Model       string `json:"model,omitempty"`
	Protocol    string `json:"protocol,omitempty"`
	MaxModelLen int    `json:"max_model_len,omitempty"` // tokens of prompt and output together; 0 = unknown
	Tokenizes   bool   `json:"tokenizes"`               // counts tokens for us (POST /tokenize)
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
