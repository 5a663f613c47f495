package config

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxErrors is how many errors of one file are told at once.
const maxErrors = 20

// Locate returns the file and line of a setting, given its path (targets[1].url). For a setting that is not in the
// file it is the line of the nearest thing around it that is; 0 if there is none.
func (c *Config) Locate(field string) (file string, line int) {
	if c.root == nil || len(c.root.Content) == 0 {
		return c.file, 0
	}
	node := c.root.Content[0]
	for _, part := range splitPath(field) {
		next, at := child(node, part)
		if next == nil {
			break
		}
		node, line = next, at
	}
	return c.file, line
}

// has reports whether the file gives a setting.
func (c *Config) has(field string) bool {
	if c.root == nil || len(c.root.Content) == 0 {
		return false
	}
	node := c.root.Content[0]
	for _, part := range splitPath(field) {
		if node, _ = child(node, part); node == nil {
			return false
		}
	}
	return true
}

// splitPath takes a[1].b apart into a, [1], b.
func splitPath(path string) []string {
	var out []string
	for _, p := range strings.Split(path, ".") {
		for {
			i := strings.IndexByte(p, '[')
			if i < 0 {
				break
			}
			j := strings.IndexByte(p[i:], ']')
			if j < 0 {
				break
			}
			if i > 0 {
				out = append(out, p[:i])
			}
			out = append(out, p[i:i+j+1])
			p = p[i+j+1:]
		}
		if p != "" {
			out = append(out, p)
		}
	}
	return out
}

// child returns the node below n, and the line where it begins: that of its key, if it has one.
func child(n *yaml.Node, part string) (*yaml.Node, int) {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == part {
				return n.Content[i+1], n.Content[i].Line
			}
		}
	case yaml.SequenceNode:
		i, err := strconv.Atoi(strings.Trim(part, "[]"))
		if err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i].Line
		}
	}
	return nil, 0
}

// Annotate gives every FieldError in err its file and line, and sorts them by line. Other errors are kept.
func (c *Config) Annotate(err error) error {
	if err == nil {
		return nil
	}
	var list []located
	for _, e := range flatten(err) {
		l := located{err: e}
		var f *FieldError
		if errors.As(e, &f) {
			file, line := c.Locate(f.Field)
			l.line = line
			l.err = fmt.Errorf("%s: %w", position(file, line), f)
		}
		list = append(list, l)
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].line < list[j].line })
	return joinLocated(list)
}

type located struct {
	line int
	err  error
}

func joinLocated(list []located) error {
	var out []error
	for i, l := range list {
		if i == maxErrors {
			out = append(out, fmt.Errorf("and %d more errors", len(list)-i))
			break
		}
		out = append(out, l.err)
	}
	return errors.Join(out...)
}

func position(file string, line int) string {
	if line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d", file, line)
}

// flatten takes joined errors apart.
func flatten(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the join itself, not one inside
		var out []error
		for _, e := range j.Unwrap() {
			out = append(out, flatten(e)...)
		}
		return out
	}
	return []error{err}
}

var (
	lineRE      = regexp.MustCompile(`^(?:yaml: )?line (\d+): (.*)$`)
	unknownRE   = regexp.MustCompile(`^field (.+) not found in type (\S+)$`)
	duplicateRE = regexp.MustCompile(`^mapping key "(.*)" already defined at line (\d+)$`)
	cannotRE    = regexp.MustCompile("^cannot unmarshal !!(\\w+)(?: `(.*)`)? into (.+)$")
	quotedRE    = regexp.MustCompile(`"([^"]*)"`)
)

// syntaxError rewrites an error of the YAML parser.
func (c *Config) syntaxError(err error) error {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := lineRE.FindStringSubmatch(msg); m != nil {
		hint := ""
		if strings.Contains(m[2], "cannot start any token") || strings.Contains(m[2], "tab") {
			hint = " (YAML is indented with spaces, not with tabs)"
		}
		return fmt.Errorf("%s:%s: not valid YAML: %s%s", c.file, m[1], m[2], hint)
	}
	return fmt.Errorf("%s: not valid YAML: %s", c.file, msg)
}

// decodeError rewrites the errors of decoding into the types above.
func (c *Config) decodeError(err error) error {
	var te *yaml.TypeError
	if !errors.As(err, &te) {
		return c.unlocated(err)
	}
	var list []located
	for _, msg := range te.Errors {
		m := lineRE.FindStringSubmatch(msg)
		if m == nil {
			list = append(list, located{err: fmt.Errorf("%s: %s", c.file, msg)})
			continue
		}
		line, _ := strconv.Atoi(m[1])
		list = append(list, located{line, fmt.Errorf("%s:%d: %s", c.file, line, c.explain(line, m[2]))})
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].line < list[j].line })
	return joinLocated(list)
}

// explain says in people's words what the decoder complains of.
func (c *Config) explain(line int, msg string) string {
	if m := unknownRE.FindStringSubmatch(msg); m != nil {
		known := fieldsOf(m[2])
		out := fmt.Sprintf("%s: unknown field", c.pathAt(line, m[1]))
		if near := nearest(m[1], known); near != "" {
			return out + fmt.Sprintf("; did you mean %q?", near)
		}
		if len(known) > 0 && len(known) < 30 {
			out += "; there are " + strings.Join(known, ", ")
		}
		return out
	}
	if m := duplicateRE.FindStringSubmatch(msg); m != nil {
		return fmt.Sprintf("%s: is given twice, first in line %s", c.pathAt(line, m[1]), m[2])
	}
	if m := cannotRE.FindStringSubmatch(msg); m != nil {
		found := map[string]string{"seq": "a list", "map": "a mapping", "null": "nothing"}[m[1]]
		if found == "" {
			found = strconv.Quote(m[2])
		}
		return fmt.Sprintf("%s: is %s, must be %s", c.pathAt(line, ""), found, wanted(m[3]))
	}
	return msg
}

func wanted(goType string) string {
	switch {
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case strings.Contains(goType, "int"):
		return "a whole number"
	case strings.Contains(goType, "float"):
		return "a number"
	case goType == "bool":
		return "true or false"
	case strings.HasSuffix(goType, "string"), strings.HasSuffix(goType, "Secret"):
		return "text"
	case strings.HasSuffix(goType, "Duration"):
		return "a duration such as 30s"
	}
	return "a mapping of settings"
}

// unlocated rewrites an error of a value's own unmarshaler, which comes without a line: the value that it quotes is
// looked up.
func (c *Config) unlocated(err error) error {
	msg := err.Error()
	if lineRE.MatchString(msg) {
		return c.syntaxError(err)
	}
	if strings.Contains(msg, "duration string") {
		msg = strings.Replace(msg, "not a valid duration string:", "is no duration (write 30s, 5m, 1h):", 1)
	}
	if m := quotedRE.FindStringSubmatch(msg); m != nil && c.root != nil {
		if path, n := findValue(c.root, "", m[1]); n != nil {
			return fmt.Errorf("%s:%d: %s: %s", c.file, n.Line, path, msg)
		}
	}
	return fmt.Errorf("%s: %s", c.file, msg)
}

// findValue returns the first scalar with that value, and its path.
func findValue(n *yaml.Node, path, value string) (string, *yaml.Node) {
	var at string
	var found *yaml.Node
	walk(n, path, func(p string, _, v *yaml.Node) bool {
		if found == nil && v.Kind == yaml.ScalarNode && v.Value == value {
			at, found = p, v
		}
		return found == nil
	})
	return at, found
}

// pathAt returns the path of the setting on a line: the one with that key, or the last one on it.
func (c *Config) pathAt(line int, key string) string {
	out := key
	walk(c.root, "", func(path string, k, v *yaml.Node) bool {
		switch {
		case k != nil && k.Line == line && (key == "" || k.Value == key):
			out = path
		case k == nil && v.Line == line && key == "" && v.Kind == yaml.ScalarNode:
			out = path
		}
		return true
	})
	if out == "" {
		return "the file"
	}
	return out
}

// walk visits every value with its path; the key is nil for items of lists. It stops where visit returns false.
func walk(n *yaml.Node, path string, visit func(path string, key, value *yaml.Node) bool) bool {
	if n == nil {
		return true
	}
	switch n.Kind {
	case yaml.DocumentNode:
		for _, x := range n.Content {
			if !walk(x, path, visit) {
				return false
			}
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			p := n.Content[i].Value
			if path != "" {
				p = path + "." + p
			}
			if !visit(p, n.Content[i], n.Content[i+1]) || !walk(n.Content[i+1], p, visit) {
				return false
			}
		}
	case yaml.SequenceNode:
		for i, x := range n.Content {
			p := fmt.Sprintf("%s[%d]", path, i)
			if !visit(p, nil, x) || !walk(x, p, visit) {
				return false
			}
		}
	}
	return true
}

// fieldsOf lists the keys of the type of that name, as the decoder names it.
func fieldsOf(typeName string) []string {
	typeName = strings.Replace(typeName, "config.plain", "config.Target", 1)
	var out []string
	seen := map[reflect.Type]bool{}
	var visit func(t reflect.Type)
	visit = func(t reflect.Type) {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || seen[t] {
			return
		}
		seen[t] = true
		if t.String() == typeName {
			out = append(out, keysOf(t)...)
		}
		for i := range t.NumField() {
			visit(t.Field(i).Type)
		}
	}
	visit(reflect.TypeOf(Config{}))
	sort.Strings(out)
	return out
}

func keysOf(t reflect.Type) []string {
	var out []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, rest, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case strings.Contains(rest, "inline"):
			out = append(out, keysOf(f.Type)...)
		case name != "" && name != "-":
			out = append(out, name)
		}
	}
	return out
}

// nearest returns the known name that is at most two letters away.
func nearest(name string, known []string) string {
	best, at := "", 3
	for _, k := range known {
		if d := distance(name, k); d < at {
			best, at = k, d
		}
	}
	return best
}

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diagonal, row[j] = row[j], min(row[j]+1, row[j-1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
