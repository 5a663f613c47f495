package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"regexp/syntax"
	"strings"
)

// Bounds of what hostile patterns may cost: bytes of an instance, nodes visited
// for it, levels of a grammar's recursion, and rules expanded in all.
const (
	maxRegexBytes    = 1 << 16
	maxRegexNodes    = 1 << 16
	maxGrammarDepth  = 12
	maxGrammarRules  = 2000
	maxGrammarSource = 1 << 16
)

// regexInstance makes a text that a regular expression matches as a whole.
func regexInstance(expr string, rng *rand.Rand) (string, error) {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return "", fmt.Errorf("regular expression: %w", err)
	}
	m := regexMatch{rng: rng, left: maxRegexNodes}
	m.write(re)
	if m.left <= 0 || m.Len() > maxRegexBytes {
		return "", errors.New("regular expression: the match is too long")
	}
	return m.String(), nil
}

type regexMatch struct {
	strings.Builder
	rng  *rand.Rand
	left int // nodes
}

// write walks the expression; open repetitions run 0 to 3 times over
// their minimum. Assertions (\b, ^, $) are taken as true.
func (m *regexMatch) write(re *syntax.Regexp) {
	if m.left--; m.left <= 0 || m.Len() > maxRegexBytes {
		return
	}
	repeat := func(low, high int) {
		if high < 0 || high > low+3 {
			high = low + 3
		}
		for range low + m.rng.IntN(high-low+1) {
			m.write(re.Sub[0])
		}
	}
	switch re.Op {
	case syntax.OpLiteral:
		m.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		m.WriteRune(pickRune(re.Rune, m.rng))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		m.WriteRune('a' + rune(m.rng.IntN(26)))
	case syntax.OpStar:
		repeat(0, -1)
	case syntax.OpPlus:
		repeat(1, -1)
	case syntax.OpQuest:
		repeat(0, 1)
	case syntax.OpRepeat:
		repeat(re.Min, re.Max)
	case syntax.OpAlternate:
		m.write(re.Sub[m.rng.IntN(len(re.Sub))])
	default:
		for _, sub := range re.Sub {
			m.write(sub)
		}
	}
}

// pickRune prefers printable ASCII, since negated classes reach far.
func pickRune(ranges []rune, rng *rand.Rand) rune {
	var printable []rune
	for i := 0; i+1 < len(ranges); i += 2 {
		for r := max(ranges[i], 0x20); r <= min(ranges[i+1], 0x7e); r++ {
			printable = append(printable, r)
		}
	}
	if len(printable) > 0 {
		return printable[rng.IntN(len(printable))]
	}
	if len(ranges) == 0 {
		return 'a'
	}
	return ranges[0]
}

// grammarInstance makes a text of a grammar in the GBNF/EBNF form that vLLM's
// back ends take (name ::= "literal" | [class] name ( … ) * + ?). Recursion is
// unrolled to a fixed depth, so only grammars that can end within it work.
func grammarInstance(grammar string, rng *rand.Rand) (string, error) {
	if len(grammar) > maxGrammarSource {
		return "", fmt.Errorf("grammar: %d bytes are more than %d", len(grammar), maxGrammarSource)
	}
	rules, first, err := grammarRules(grammar)
	if err != nil {
		return "", err
	}
	if _, ok := rules["root"]; ok {
		first = "root"
	}
	g := grammarExpander{rules: rules, left: maxGrammarRules}
	expr, err := g.rule(first, 0)
	if err != nil {
		return "", err
	}
	return regexInstance(expr, rng)
}

// grammarRules cuts a grammar into rules; a line without ::= or : continues one.
func grammarRules(grammar string) (rules map[string]string, first string, err error) {
	head := regexp.MustCompile(`^\s*\??([A-Za-z_][\w-]*)\s*(?:::=|:)\s*`)
	rules = map[string]string{}
	name := ""
	for line := range strings.Lines(grammar) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "//") {
			continue
		}
		if m := head.FindStringSubmatch(line); m != nil {
			name, line = m[1], line[len(m[0]):]
			if first == "" {
				first = name
			}
		}
		if name == "" {
			return nil, "", fmt.Errorf("grammar: %q stands before the first rule", line)
		}
		rules[name] += " " + line
	}
	if first == "" {
		return nil, "", errors.New("grammar: no rule")
	}
	return rules, first, nil
}

type grammarExpander struct {
	rules map[string]string
	left  int // rules to expand
}

// rule turns one rule into a regular expression. Alternatives that
// would recurse too deep are given up, and the rule only if none is left.
func (g *grammarExpander) rule(name string, depth int) (string, error) {
	body, ok := g.rules[name]
	if !ok {
		return "", fmt.Errorf("grammar: rule %q is missing", name)
	}
	if g.left--; g.left < 0 {
		return "", errors.New("grammar: too many rules to expand")
	}
	if depth > maxGrammarDepth {
		return "", errTooDeep
	}
	var alternatives []string
	for _, alt := range splitAlternatives(body) {
		expr, err := g.sequence(alt, depth)
		if errors.Is(err, errTooDeep) {
			continue
		}
		if err != nil {
			return "", err
		}
		alternatives = append(alternatives, expr)
	}
	if len(alternatives) == 0 {
		return "", errTooDeep
	}
	if depth > maxGrammarDepth/3 {
		alternatives = alternatives[len(alternatives)-1:] // keep the unrolled size small
	}
	return "(?:" + strings.Join(alternatives, "|") + ")", nil
}

var errTooDeep = errors.New("grammar: recursion does not end")

func grammarTokens(text string) []string {
	return regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|[A-Za-z_][\w-]*|[()|*+?]|\S`).FindAllString(text, -1)
}

// splitAlternatives cuts at the bars outside of parentheses.
func splitAlternatives(body string) [][]string {
	out := [][]string{nil}
	depth := 0
	for _, t := range grammarTokens(body) {
		switch t {
		case "(":
			depth++
		case ")":
			depth--
		}
		if t == "|" && depth == 0 {
			out = append(out, nil)
			continue
		}
		out[len(out)-1] = append(out[len(out)-1], t)
	}
	return out
}

func (g *grammarExpander) sequence(tokens []string, depth int) (string, error) {
	var b strings.Builder
	for _, t := range tokens {
		switch {
		case t[0] == '"' && len(t) > 1:
			text := strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\n`, "\n", `\t`, "\t").Replace(t[1 : len(t)-1])
			b.WriteString("(?:" + regexp.QuoteMeta(text) + ")")
		case t[0] == '[' || strings.Contains("|*+?)", t):
			b.WriteString(t)
		case t == "(":
			b.WriteString("(?:")
		case t[0] == '_' || (t[0]|0x20 >= 'a' && t[0]|0x20 <= 'z'):
			expr, err := g.rule(t, depth+1)
			if err != nil {
				return "", err
			}
			b.WriteString(expr)
		default:
			return "", fmt.Errorf("grammar: %q is not understood", t)
		}
	}
	return b.String(), nil
}
