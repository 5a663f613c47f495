package sim

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// FaultHeader is the request header that asks for faults:
// name[=value][;name[=value]]…, values percent-encoded where they hold ; or %.
const FaultHeader = "X-Sim-Fault"

// after is a number of output tokens at which something happens; below 0 never.
type after int

func (a after) due(sent int) bool { return a >= 0 && sent >= int(a) }

// faults is what goes wrong with one request.
type faults struct {
	spec string // as written

	status                      int
	body, contentType, redirect string
	headers                     http.Header
	hang, html, lateHeaders     bool
	reject                      []string

	gzip, buffered, crlf, cr, bom, noSpace, multiline bool
	drip, comments, roleLead                          time.Duration
	commentData, promptFilter                         bool

	slowPrefill float64
	stallAt     after
	stallFor    time.Duration

	errorAfter, errorNoDone, errorEvent, errorRaw after
	cutEOF, cutClose, cutReset                    after
	malformed, invalidUTF8                        after
	huge                                          int

	empty, noFinish, duplicateFinish, separateFinish bool
	noDone, unterminated                             bool
	finishReason                                     *string
	usageMissing, usageEvery, usageOnFinish          bool
	usageOff                                         int
	reasoning, length                                int
	reasoningField, model                            string
}

func newFaults() *faults {
	return &faults{
		headers: http.Header{}, slowPrefill: 1, reasoningField: "reasoning",
		stallAt: -1, errorAfter: -1, errorNoDone: -1, errorEvent: -1, errorRaw: -1,
		cutEOF: -1, cutClose: -1, cutReset: -1, malformed: -1, invalidUTF8: -1,
	}
}

// Fault describes one row of the table of faults.
type Fault struct {
	Name string `json:"name"`
	// Value is the form of the value; empty for a switch.
	Value string `json:"value,omitempty"`
	Help  string `json:"help"`

	set func(*faults, string) error
}

// Faults is the table of faults: what X-Sim-Fault, Config.Faults and
// POST /sim/faults understand. "n" counts output tokens sent before.
func Faults() []Fault {
	return []Fault{
		{"status", "code", "answer with this HTTP status and vLLM's error body", setInt(func(f *faults) *int { return &f.status })},
		{"body", "text", "body for status, instead of vLLM's", setString(func(f *faults) *string { return &f.body })},
		{"retry_after", "text", "Retry-After as written, for status", setHeader("Retry-After", verbatim)},
		{"retry_after_date", "duration", "Retry-After as an HTTP date that far ahead", setHeader("Retry-After", httpDate)},
		{"retry_after_ms", "number", "Retry-After-Ms, for status", setHeader("Retry-After-Ms", verbatim)},
		{"ratelimit_reset", "text", "x-ratelimit-reset-requests and -tokens (1m2s, 350ms), for status", setHeader("X-Ratelimit-Reset-Requests,X-Ratelimit-Reset-Tokens", verbatim)},
		{"redirect", "url", "307 to this URL", setString(func(f *faults) *string { return &f.redirect })},
		{"hang", "", "never answer, not even with headers", setFlag(func(f *faults) *bool { return &f.hang })},
		{"html", "", "a login page with status 200", setFlag(func(f *faults) *bool { return &f.html })},
		{"content_type", "type", "Content-Type of a good answer", setString(func(f *faults) *string { return &f.contentType })},
		{"reject", "field,…", "400 naming the first of these request fields that is present", setList(func(f *faults) *[]string { return &f.reject })},
		{"late_headers", "", "headers only with the first event", setFlag(func(f *faults) *bool { return &f.lateHeaders })},

		{"gzip", "", "Content-Encoding gzip, flushed with each event", setFlag(func(f *faults) *bool { return &f.gzip })},
		{"buffered", "", "the whole answer at its end", setFlag(func(f *faults) *bool { return &f.buffered })},
		{"drip", "duration", "each event in pieces of 16 bytes with this pause between", setDuration(func(f *faults) *time.Duration { return &f.drip })},
		{"crlf", "", "lines end with CR LF", setFlag(func(f *faults) *bool { return &f.crlf })},
		{"cr", "", "lines end with a lone CR", setFlag(func(f *faults) *bool { return &f.cr })},
		{"bom", "", "a byte order mark opens the stream", setFlag(func(f *faults) *bool { return &f.bom })},
		{"no_space", "", "no space after data:", setFlag(func(f *faults) *bool { return &f.noSpace })},
		{"multiline", "", "each JSON spread over two data lines", setFlag(func(f *faults) *bool { return &f.multiline })},
		{"comments", "duration", "a comment at this interval until the first token", setDuration(func(f *faults) *time.Duration { return &f.comments })},
		{"comment_data", "", "those comments wrapped into data: lines, as one gateway does", setFlag(func(f *faults) *bool { return &f.commentData })},
		{"prompt_filter", "", "a first chunk without choices, as Azure sends", setFlag(func(f *faults) *bool { return &f.promptFilter })},
		{"role_lead", "duration", "the role chunk this long before the first token: all tokens are delayed by it", setDuration(func(f *faults) *time.Duration { return &f.roleLead })},

		{"slow_prefill", "factor", "prefill takes this many times longer", setFactor(func(f *faults) *float64 { return &f.slowPrefill })},
		{"stall", "n:duration", "silence after n tokens; what the engine produced meanwhile follows at once", setStall},
		{"error_after", "n", "an error event, then [DONE]", setAfter(func(f *faults) *after { return &f.errorAfter })},
		{"error_no_done", "n", "an error event, then the end", setAfter(func(f *faults) *after { return &f.errorNoDone })},
		{"error_event", "n", "event: error with a comment and no data, then the end", setAfter(func(f *faults) *after { return &f.errorEvent })},
		{"error_raw", "n", "a bare JSON error without data:, then the end", setAfter(func(f *faults) *after { return &f.errorRaw })},
		{"cut_eof", "n", "the body ends properly, without finish and [DONE]", setAfter(func(f *faults) *after { return &f.cutEOF })},
		{"cut_close", "n", "the connection is closed inside the body (FIN)", setAfter(func(f *faults) *after { return &f.cutClose })},
		{"cut_reset", "n", "the connection is reset (RST)", setAfter(func(f *faults) *after { return &f.cutReset })},
		{"malformed", "n", "one event with broken JSON; the stream goes on", setAfter(func(f *faults) *after { return &f.malformed })},
		{"invalid_utf8", "n", "one chunk whose text holds bytes that are not UTF-8, in place of nothing", setAfter(func(f *faults) *after { return &f.invalidUTF8 })},
		{"huge", "bytes", "a chunk without text but with a field of this size ahead of the first token", setInt(func(f *faults) *int { return &f.huge })},

		{"empty", "", "finish without any text", setFlag(func(f *faults) *bool { return &f.empty })},
		{"no_finish", "", "no finish reason", setFlag(func(f *faults) *bool { return &f.noFinish })},
		{"duplicate_finish", "", "the finish chunk twice", setFlag(func(f *faults) *bool { return &f.duplicateFinish })},
		{"separate_finish", "", "the finish reason in a chunk of its own after the last text", setFlag(func(f *faults) *bool { return &f.separateFinish })},
		{"finish_reason", "text", "this finish reason (error, abort, or an empty one)", setFinish},
		{"no_done", "", "no [DONE]", setFlag(func(f *faults) *bool { return &f.noDone })},
		{"unterminated", "", "no blank line after the last event", setFlag(func(f *faults) *bool { return &f.unterminated })},
		{"usage_missing", "", "no usage, whatever was asked", setFlag(func(f *faults) *bool { return &f.usageMissing })},
		{"usage_every", "", "cumulative usage on every chunk", setFlag(func(f *faults) *bool { return &f.usageEvery })},
		{"usage_on_finish", "", "usage on the finish chunk, not on one of its own", setFlag(func(f *faults) *bool { return &f.usageOnFinish })},
		{"usage_off", "number", "completion_tokens too high by this (may be negative)", setInt(func(f *faults) *int { return &f.usageOff })},
		{"reasoning", "n", "the first n tokens as reasoning", setInt(func(f *faults) *int { return &f.reasoning })},
		{"reasoning_field", "name", "name of that field: reasoning (default) or reasoning_content", setString(func(f *faults) *string { return &f.reasoningField })},
		{"length", "n", "an answer of n tokens, whatever the limits say", setInt(func(f *faults) *int { return &f.length })},
		{"model_name", "text", "another model name in the answer", setString(func(f *faults) *string { return &f.model })},
	}
}

// parseFaults reads the syntax of X-Sim-Fault; an empty text is no fault.
func parseFaults(spec string) (*faults, error) {
	f := newFaults()
	f.spec = spec
	table := Faults()
	for item := range strings.SplitSeq(spec, ";") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		name, value, _ := strings.Cut(item, "=")
		row := findFault(table, name)
		if row == nil {
			return nil, fmt.Errorf("sim: unknown fault %q (GET /sim/faults lists them)", name)
		}
		v, err := url.PathUnescape(value)
		if err == nil {
			err = row.set(f, v)
		}
		if err != nil {
			return nil, fmt.Errorf("sim: fault %s=%s: want %s: %w", name, value, row.Value, err)
		}
	}
	return f, nil
}

func findFault(table []Fault, name string) *Fault {
	for i := range table {
		if table[i].Name == name {
			return &table[i]
		}
	}
	return nil
}

func parseRules(rules []FaultRule) ([]FaultRule, error) {
	for _, r := range rules {
		if _, err := parseFaults(r.Fault); err != nil {
			return nil, err
		}
		if !(r.Probability >= 0 && r.Probability <= 1) {
			return nil, fmt.Errorf("sim: fault %q: probability %v must lie between 0 and 1", r.Fault, r.Probability)
		}
	}
	return rules, nil
}

// faultRules draws the faults of each request.
type faultRules struct {
	mu    sync.Mutex
	rules []FaultRule
	rng   *rand.Rand
}

func (r *faultRules) set(rules []FaultRule) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rules = rules
}

func (r *faultRules) get() []FaultRule {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]FaultRule{}, r.rules...)
}

// draw joins the rules that strike now with what the header asks for.
func (r *faultRules) draw(header string) (*faults, error) {
	r.mu.Lock()
	var specs []string
	for _, rule := range r.rules {
		if rule.Probability >= 1 || r.rng.Float64() < rule.Probability {
			specs = append(specs, rule.Fault)
		}
	}
	r.mu.Unlock()
	if header != "" {
		specs = append(specs, header)
	}
	return parseFaults(strings.Join(specs, ";"))
}

// The setters parse one value each.

func setFlag(at func(*faults) *bool) func(*faults, string) error {
	return func(f *faults, _ string) error { *at(f) = true; return nil }
}

func setString(at func(*faults) *string) func(*faults, string) error {
	return func(f *faults, v string) error { *at(f) = v; return nil }
}

func setList(at func(*faults) *[]string) func(*faults, string) error {
	return func(f *faults, v string) error { *at(f) = strings.Split(v, ","); return nil }
}

func setInt(at func(*faults) *int) func(*faults, string) error {
	return func(f *faults, v string) (err error) { *at(f), err = strconv.Atoi(v); return err }
}

func setAfter(at func(*faults) *after) func(*faults, string) error {
	return func(f *faults, v string) error {
		n, err := strconv.Atoi(v)
		*at(f) = after(n)
		return err
	}
}

func setFactor(at func(*faults) *float64) func(*faults, string) error {
	return func(f *faults, v string) error {
		x, err := strconv.ParseFloat(v, 64)
		if err == nil && !(x > 0 && x <= 1e6) {
			err = fmt.Errorf("%v is out of range", x)
		}
		*at(f) = x
		return err
	}
}

func setDuration(at func(*faults) *time.Duration) func(*faults, string) error {
	return func(f *faults, v string) error {
		d, err := time.ParseDuration(v)
		if err == nil && d <= 0 {
			err = fmt.Errorf("%s is not above 0", d)
		}
		*at(f) = d
		return err
	}
}

func setStall(f *faults, v string) error {
	n, d, _ := strings.Cut(v, ":")
	if err := setAfter(func(f *faults) *after { return &f.stallAt })(f, n); err != nil {
		return err
	}
	return setDuration(func(f *faults) *time.Duration { return &f.stallFor })(f, d)
}

func setFinish(f *faults, v string) error { f.finishReason = &v; return nil }

func verbatim(v string) (string, error) { return v, nil }

func httpDate(v string) (string, error) {
	d, err := time.ParseDuration(v)
	return time.Now().Add(d).UTC().Format(http.TimeFormat), err
}

func setHeader(names string, form func(string) (string, error)) func(*faults, string) error {
	return func(f *faults, v string) error {
		text, err := form(v)
		for name := range strings.SplitSeq(names, ",") {
			f.headers.Set(name, text)
		}
		return err
	}
}
