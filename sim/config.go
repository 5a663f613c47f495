package sim

import (
	"errors"
	"fmt"
	"time"
)

// RoleWithFirstToken as Config.RoleChunkDelay makes the role chunk wait for the
// first token, as vLLM does.
const RoleWithFirstToken time.Duration = -1

// Config is everything that can be set about a simulated engine. Start from
// DefaultConfig: the zero value is not valid.
type Config struct {
	// Seed decides every draw: texts, lengths, draft acceptance, faults.
	Seed uint64
	// Model is the one served model name.
	Model string
	// Version is what GET /version answers.
	Version string
	// APIKey guards the paths under /v1 when it is not empty.
	APIKey string
	// MaxModelLen is the limit of prompt plus output, in tokens.
	MaxModelLen int

	// A step that holds s sequences with c tokens of context between them and
	// computes p prompt tokens lasts
	// StepBase + s·StepPerSeq + c·StepPerContextToken + p·PrefillPerToken.
	StepBase            time.Duration
	StepPerSeq          time.Duration
	StepPerContextToken time.Duration
	PrefillPerToken     time.Duration
	// MaxBatchedTokens is the token budget of one step; longer prompts are
	// prefilled in chunks.
	MaxBatchedTokens int
	// MaxNumSeqs is how many sequences run at once; the others wait.
	MaxNumSeqs int

	// Blocks is the size of the KV cache in blocks of BlockSize tokens.
	Blocks    int
	BlockSize int
	// PrefixCache turns the reuse of blocks between requests on.
	PrefixCache bool
	// ReportCachedTokens puts prompt_tokens_details.cached_tokens into usage.
	ReportCachedTokens bool

	// OutputTokensMean is the mean natural length of an answer; lengths are
	// uniform within half of it to either side.
	OutputTokensMean int
	// RoleChunkDelay is when the role chunk leaves, counted from the receipt of
	// the request (at the latest with the first token), or RoleWithFirstToken.
	RoleChunkDelay time.Duration

	Speculative Speculative
	Skills      Skills

	// Faults apply to every inference request, each with its probability.
	Faults []FaultRule
	// MetricsDialect names the row of the table of metric names.
	MetricsDialect string

	// RecordLimit bounds the recorded requests, RecordEventLimit the events of
	// all of them together; the oldest are dropped first.
	RecordLimit      int
	RecordEventLimit int
}

// Speculative describes speculative decoding.
type Speculative struct {
	Enabled bool
	// NumTokens is how many tokens the draft proposes in each decode step.
	NumTokens int
	// Acceptance is the probability that a position is accepted given that all
	// before it were. One value holds for every position.
	Acceptance []float64
	// DraftPerToken is the time that one draft token adds to a step.
	DraftPerToken time.Duration
}

// FaultRule is one fault, in the syntax of the X-Sim-Fault header, and how
// often it strikes.
type FaultRule struct {
	Fault string `json:"fault"`
	// Probability lies in 0..1; a rule given over HTTP without one strikes always.
	Probability float64 `json:"probability"`
}

// DefaultConfig is about an 8B model on one recent data-centre GPU.
func DefaultConfig() Config {
	return Config{
		Seed:                1,
		Model:               "sim-8b",
		Version:             "0.27.0+sim",
		MaxModelLen:         32768,
		StepBase:            8 * time.Millisecond,
		StepPerSeq:          100 * time.Microsecond,
		StepPerContextToken: 40 * time.Nanosecond,
		PrefillPerToken:     50 * time.Microsecond,
		MaxBatchedTokens:    2048,
		MaxNumSeqs:          256,
		Blocks:              16384,
		BlockSize:           16,
		PrefixCache:         true,
		ReportCachedTokens:  true,
		OutputTokensMean:    128,
		RoleChunkDelay:      RoleWithFirstToken,
		Speculative:         Speculative{NumTokens: 3, Acceptance: []float64{0.7}},
		Skills:              defaultSkills(),
		MetricsDialect:      "vllm",
		RecordLimit:         4096,
		RecordEventLimit:    1 << 19,
	}
}

// Validate says everything that is wrong with the configuration.
func (c Config) Validate() error {
	var errs []error
	positive := func(name string, v int) {
		if v <= 0 {
			errs = append(errs, fmt.Errorf("sim: %s is %d and must be above 0 (start from DefaultConfig)", name, v))
		}
	}
	positive("MaxModelLen", c.MaxModelLen)
	positive("MaxBatchedTokens", c.MaxBatchedTokens)
	positive("MaxNumSeqs", c.MaxNumSeqs)
	positive("Blocks", c.Blocks)
	positive("BlockSize", c.BlockSize)
	positive("OutputTokensMean", c.OutputTokensMean)
	positive("RecordLimit", c.RecordLimit)
	positive("RecordEventLimit", c.RecordEventLimit)
	if c.Model == "" {
		errs = append(errs, errors.New("sim: Model is empty: name the served model"))
	}
	if c.StepBase <= 0 {
		errs = append(errs, fmt.Errorf("sim: StepBase is %s and must be above 0", c.StepBase))
	}
	if c.StepPerSeq < 0 || c.StepPerContextToken < 0 || c.PrefillPerToken < 0 {
		errs = append(errs, errors.New("sim: StepPerSeq, StepPerContextToken and PrefillPerToken must not be negative"))
	}
	if c.Blocks*c.BlockSize < c.MaxModelLen+c.drafts() {
		errs = append(errs, fmt.Errorf("sim: %d blocks of %d tokens cannot hold one request of MaxModelLen %d: raise Blocks or lower MaxModelLen",
			c.Blocks, c.BlockSize, c.MaxModelLen))
	}
	if _, ok := dialects()[c.MetricsDialect]; !ok {
		errs = append(errs, fmt.Errorf("sim: unknown MetricsDialect %q", c.MetricsDialect))
	}
	errs = append(errs, c.Speculative.validate(c.MaxBatchedTokens), c.Skills.validate())
	_, err := parseRules(c.Faults)
	return errors.Join(append(errs, err)...)
}

func (s Speculative) validate(budget int) error {
	if !s.Enabled {
		return nil
	}
	if s.NumTokens <= 0 || s.NumTokens >= budget {
		return fmt.Errorf("sim: Speculative.NumTokens is %d and must lie between 1 and MaxBatchedTokens", s.NumTokens)
	}
	if len(s.Acceptance) != 1 && len(s.Acceptance) != s.NumTokens {
		return fmt.Errorf("sim: Speculative.Acceptance has %d values: give one, or one for each of the %d positions", len(s.Acceptance), s.NumTokens)
	}
	for i, p := range s.Acceptance {
		if !(p >= 0 && p <= 1) {
			return fmt.Errorf("sim: Speculative.Acceptance[%d] is %v and must lie between 0 and 1", i, p)
		}
	}
	return nil
}

// drafts is how many tokens a decode step computes beside the sampled one.
func (c Config) drafts() int {
	if !c.Speculative.Enabled {
		return 0
	}
	return c.Speculative.NumTokens
}

// acceptance is the conditional probability of draft position i.
func (s Speculative) acceptance(i int) float64 {
	if len(s.Acceptance) == 1 {
		return s.Acceptance[0]
	}
	return s.Acceptance[i]
}
