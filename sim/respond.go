package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// AnswerHeader sets the text of an answer, percent-encoded; with tools in the
// request a JSON list of {"name","arguments"} makes tool calls.
const AnswerHeader = "X-Sim-Answer"

// Skills says what the simulated model can do beside filler prose, how well,
// and what it costs. Shares lie in 0..1 and are drawn for each request.
type Skills struct {
	// Unsupported lists what is refused with status 400: tools, structured,
	// image, audio, video.
	Unsupported []string

	// StructuredValidity is the share of constrained answers that obey.
	StructuredValidity float64
	// IgnoreConstraints answers constrained requests with prose.
	IgnoreConstraints bool
	// GrammarCompile delays the first use of each constraint; GrammarPerToken
	// lengthens each step that holds a constrained request.
	GrammarCompile  time.Duration
	GrammarPerToken time.Duration

	// ToolAccuracy is the share of tool calls that are right.
	ToolAccuracy float64
	// Recall is the share of questions about a document that are answered.
	Recall float64

	// MediaAccuracy is the share of images described as they are.
	MediaAccuracy float64
	// EncodePerMedia is added to the prefill for each media part, each of which
	// takes TokensPerMedia prompt tokens.
	EncodePerMedia time.Duration
	TokensPerMedia int

	// Oracle gives the right answer to the text of a request's last message,
	// where the caller knows it; see AnswerHeader for the form. It is called
	// from many goroutines.
	Oracle func(prompt string) (answer string, ok bool)
}

func defaultSkills() Skills {
	return Skills{
		StructuredValidity: 1, ToolAccuracy: 1, Recall: 1, MediaAccuracy: 1,
		EncodePerMedia: 30 * time.Millisecond, TokensPerMedia: 256,
		GrammarCompile: 40 * time.Millisecond, GrammarPerToken: 400 * time.Microsecond,
	}
}

func (k Skills) validate() error {
	var errs []error
	for name, share := range map[string]float64{
		"StructuredValidity": k.StructuredValidity, "ToolAccuracy": k.ToolAccuracy, "Recall": k.Recall, "MediaAccuracy": k.MediaAccuracy,
	} {
		if !(share >= 0 && share <= 1) {
			errs = append(errs, fmt.Errorf("sim: Skills.%s is %v and must lie between 0 and 1", name, share))
		}
	}
	if k.EncodePerMedia < 0 || k.GrammarCompile < 0 || k.GrammarPerToken < 0 || k.TokensPerMedia < 0 {
		errs = append(errs, errors.New("sim: the costs in Skills must not be negative"))
	}
	for _, what := range k.Unsupported {
		if !slices.Contains([]string{"tools", "structured", "image", "audio", "video"}, what) {
			errs = append(errs, fmt.Errorf("sim: Skills.Unsupported: %q is none of tools, structured, image, audio, video", what))
		}
	}
	return errors.Join(errs...)
}

// responder finds an answer other than filler, or says that the request is
// none of its business.
type responder func(s *Server, r *request, rng *rand.Rand) (pieces []piece, finish string, ok bool)

// responders are asked in this order.
func responders() []responder {
	return []responder{callTools, obeyConstraint, knownAnswer, describeMedia, findNeedle}
}

func (s *Server) respond(r *request, rng *rand.Rand) ([]piece, string, bool) {
	for _, f := range responders() {
		if pieces, finish, ok := f(s, r, rng); ok {
			return pieces, finish, true
		}
	}
	return nil, "", false
}

// findAnswer asks the request's header, then the oracle.
func (s *Server) findAnswer(r *request, h http.Header) *apiError {
	answer, err := url.PathUnescape(h.Get(AnswerHeader))
	if err != nil {
		return badRequest(AnswerHeader, "not percent-encoded: %v", err)
	}
	if answer == "" && s.cfg.Skills.Oracle != nil {
		if known, ok := s.cfg.Skills.Oracle(r.lastText()); ok {
			answer = known
		}
	}
	r.answer = answer
	return nil
}

func knownAnswer(_ *Server, r *request, _ *rand.Rand) ([]piece, string, bool) {
	return textPieces(r.answer, fieldContent), finishStop, r.answer != ""
}

// checkSkills refuses what is malformed, then what the model cannot do.
func (s *Server) checkSkills(r *request) *apiError {
	if _, _, _, err := r.toolRequest(); err != nil {
		return badRequest("tool_choice", "%v", err)
	}
	if apiErr := r.checkConstraint(); apiErr != nil {
		return apiErr
	}
	return s.unsupported(r)
}

// unsupported refuses what the simulated model cannot do.
func (s *Server) unsupported(r *request) *apiError {
	no := func(what string) bool { return slices.Contains(s.cfg.Skills.Unsupported, what) }
	if no("tools") && r.wantsTools() {
		return badRequest("tool_choice", `"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set`)
	}
	if c, _ := r.constraint(); no("structured") && c != nil {
		return badRequest("response_format", "structured outputs are not supported by this model")
	}
	for _, kind := range r.mediaKinds() {
		if no(kind) {
			return badRequest("messages", "At most 0 %s(s) may be provided in one prompt.", kind)
		}
	}
	return nil
}
