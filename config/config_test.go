package config

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	promconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "write generated files anew")

func testOptions() Options {
	return Options{
		Builtin:   []Scenario{{Name: "chat", Type: "chat", Interval: model.Duration(30 * time.Second)}, {Name: "decode", Type: "decode", Interval: model.Duration(2 * time.Minute)}},
		Protocols: []string{"openai_chat"},
		Engines:   []string{"vllm"},
	}
}

func parse(text string) (*Config, error) {
	return Parse("c.yml", []byte(text), "/etc/canary", testOptions())
}

// Every error names the file, the line and the field, and says what would be right.
func TestInvalid(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"unknown field", "globl: {}\n", `c.yml:1: globl: unknown field; did you mean "global"?`},
		{"unknown field below", "global:\n  timeot: 5s\n", `c.yml:2: global.timeot: unknown field; did you mean "timeout"?`},
		{"unknown field of a target", "targets:\n  - name: a\n    url: http://a\n    modell: x\n", `c.yml:4: targets[0].modell: unknown field; did you mean "model"?`},
		{"unknown field of a scenario", "scenarios:\n  - {name: a, type: chat, intervall: 5s}\n", `c.yml:2: scenarios[0].intervall: unknown field; did you mean "interval"?`},
		{"unknown field with no neighbour", "scenarios:\n  - name: a\n    type: chat\n    xyzzy: 1\n", "c.yml:4: scenarios[0].xyzzy: unknown field; there are connect_timeout, first_token_timeout, interval, lengths, max_tokens, name, schedule, stall_timeout, timeout, type"},
		{"text for a number", "global:\n  max_concurrent_probes: many\n", `c.yml:2: global.max_concurrent_probes: is "many", must be a whole number`},
		{"mapping for a list", "targets:\n  a: b\n", "c.yml:2: targets.a: is a mapping, must be a list"},
		{"list for a mapping", "global: [1]\n", "c.yml:1: global[0]: is a list, must be a mapping of settings"},
		{"bad duration", "global:\n  timeout: soon\n", `c.yml:2: global.timeout: is no duration (write 30s, 5m, 1h): "soon"`},
		{"given twice", "global:\n  timeout: 5s\n  timeout: 6s\n", "c.yml:3: global.timeout: is given twice, first in line 2"},
		{"tab", "global:\n\ttimeout: 5s\n", "c.yml:2: not valid YAML: found character that cannot start any token (YAML is indented with spaces, not with tabs)"},
		{"two documents", "global: {}\n---\nglobal: {}\n", "c.yml: holds more than one YAML document: keep one"},
		{"not UTF-8", "global: \xff\n", "c.yml: is not UTF-8: save it as UTF-8"},
		{"too large", strings.Repeat("#", maxFile+1), "c.yml: is larger than 4 MiB: not a configuration"},
		{"bad scenario name", "scenarios:\n  - {name: '1 a', type: chat}\n", `c.yml:2: scenarios[0].name: is "1 a", must be 1 to 64 letters, digits, '_', '.' or '-', beginning with a letter or '_'`},
		{"no type", "scenarios:\n  - name: a\n", "c.yml:2: scenarios[0].type: is missing: name a scenario type, such as chat"},
		{"two scenarios of a name", "scenarios:\n  - {name: a, type: chat}\n  - {name: a, type: chat}\n", `c.yml:3: scenarios[1].name: "a" is the name of scenarios[0] already`},
		{"interval and schedule", "scenarios:\n  - name: a\n    type: chat\n    interval: 5s\n    schedule: '@daily'\n", "c.yml:5: scenarios[0].schedule: excludes interval: give one of them"},
		{"short interval", "scenarios:\n  - {name: a, type: chat, interval: 10ms}\n", "c.yml:2: scenarios[0].interval: is 10ms, must be at least 1s"},
		{"negative tokens", "scenarios:\n  - {name: a, type: chat, max_tokens: -1}\n", "c.yml:2: scenarios[0].max_tokens: is -1, must be 1 to 1048576"},
		{"deadlines that never come first", "global:\n  timeout: 5s\n  first_token_timeout: 6s\n", "c.yml:3: global.first_token_timeout: is 6s, must not be above timeout (5s), which would always come first"},
		{"zero deadline", "global: {stall_timeout: 0s}\n", "c.yml:1: global.stall_timeout: is 0s, must be above 0"},
		{"histograms", "global: {histograms: fancy}\n", `c.yml:1: global.histograms: is "fancy", must be classic, native or both`},
		{"concurrency", "global: {max_concurrent_probes: 0}\n", "c.yml:1: global.max_concurrent_probes: is 0, must be at least 1"},
		{"no name", "targets:\n  - url: http://a\n", "c.yml:2: targets[0].name: is missing"},
		{"no URL", "targets:\n  - name: a\n", "c.yml:2: targets[0].url: is missing: the base URL of the server, such as http://host:8000"},
		{"other scheme", "targets:\n  - {name: a, url: 'ftp://a'}\n", "c.yml:2: targets[0].url: must begin with http:// or https:// and name a host"},
		{"no host", "targets:\n  - {name: a, url: 'http://'}\n", "c.yml:2: targets[0].url: must begin with http:// or https:// and name a host"},
		{"password in the URL", "targets:\n  - {name: a, url: 'http://me:hunter2@a'}\n", "c.yml:2: targets[0].url: must not hold a user name or password: use basic_auth or authorization"},
		{"query", "targets:\n  - {name: a, url: 'http://a/?x=1'}\n", "c.yml:2: targets[0].url: must not hold a query or a fragment"},
		{"two targets of a name", "targets:\n  - {name: a, url: 'http://a'}\n  - {name: a, url: 'http://b'}\n", `c.yml:3: targets[1].name: "a" is the name of targets[0] already`},
		{"unknown scenario", "targets:\n  - {name: a, url: 'http://a', scenarios: [chat, chatt]}\n", `c.yml:2: targets[0].scenarios[1]: there is no scenario "chatt"; there are chat, decode`},
		{"unknown requirement", "targets:\n  - {name: a, url: 'http://a', require: [x]}\n", `targets[0].require[0]: there is no scenario "x"`},
		{"scenario twice", "targets:\n  - {name: a, url: 'http://a', scenarios: [chat, chat]}\n", `targets[0].scenarios[1]: "chat" is listed twice`},
		{"protocol", "targets:\n  - {name: a, url: 'http://a', protocol: smoke}\n", `c.yml:2: targets[0].protocol: is "smoke", must be auto or one of openai_chat`},
		{"engine", "targets:\n  - {name: a, url: 'http://a', engine: steam}\n", `c.yml:2: targets[0].engine: is "steam", must be auto or one of vllm`},
		{"empty model", "targets:\n  - {name: a, url: 'http://a', model: ''}\n", "c.yml:2: targets[0].model: is empty"},
		{"engine metrics", "targets:\n  - {name: a, url: 'http://a', engine_metrics: maybe}\n", "c.yml:2: targets[0].engine_metrics: must be auto, off or the URL of a metrics page: it must begin with http://"},
		{"gpu", "targets:\n  - {name: a, url: 'http://a', gpu: maybe}\n", `c.yml:2: targets[0].gpu: is "maybe", must be auto, local or off`},
		{"price", "targets:\n  - {name: a, url: 'http://a', price: {prompt_per_million: -1}}\n", "c.yml:2: targets[0].price: must not be negative"},
		{"two ways of authorization", "targets:\n  - name: a\n    url: http://a\n    basic_auth: {username: u, password: hunter2}\n    authorization: {credentials: hunter2}\n", "c.yml:2: targets[0]: at most one of basic_auth, oauth2 & authorization must be configured"},
		{"several at once, in order", "targets:\n  - name: a\n    url: nope\n    model: ''\nglobal:\n  histograms: x\n", "c.yml:3: targets[0].url: must begin with http:// or https:// and name a host, such as http://host:8000\nc.yml:4: targets[0].model: is empty, must be auto or the name of a model\nc.yml:6: global.histograms: is \"x\", must be classic, native or both"},
		{"alias bomb", aliasBomb(), "c.yml"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parse(tt.in)
			if err == nil {
				t.Fatal("was accepted")
			}
			if !strings.HasPrefix(err.Error(), tt.want) && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got\n%v\nwant\n%s", err, tt.want)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error holds the password: %v", err)
			}
		})
	}
}

func aliasBomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	return b.String()
}

// A file of 500 wrong settings gives a message that can be read.
func TestManyErrors(t *testing.T) {
	_, err := parse("targets:\n" + strings.Repeat("  - {name: '', url: x}\n", 500))
	if n := strings.Count(err.Error(), "\n"); n != maxErrors || !strings.Contains(err.Error(), "more errors") {
		t.Fatalf("%d lines", n)
	}
}

func TestDefaults(t *testing.T) {
	for _, in := range []string{"", "\n", "# nothing\n", "global: {}\n", "\xef\xbb\xbfglobal: {}\n"} {
		c, err := parse(in)
		if err != nil {
			t.Fatalf("%q: %v", in, err)
		}
		if c.Global != defaultGlobal() || len(c.Scenarios) != 2 || len(c.Targets) != 0 {
			t.Errorf("%q: %+v", in, c)
		}
	}
	c, err := parse("scenarios:\n  - {name: mine, type: chat}\n  - {name: decode, type: decode, interval: 5s}\ntargets:\n  - {name: a, url: 'https://a/api/v1/'}\n")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range c.Scenarios {
		names = append(names, s.Name)
	}
	// The file's own first, in its order, so that paths of errors are those of the file.
	if !slices.Equal(names, []string{"mine", "decode", "chat"}) || time.Duration(c.Scenario("decode").Interval) != 5*time.Second {
		t.Errorf("scenarios %v", names)
	}
	a := c.Target("a")
	if a.URL != "https://a/api" || a.Model != Auto || a.HTTPClient.FollowRedirects || a.HTTPClient.EnableHTTP2 || a.KeepAlive {
		t.Errorf("target %+v", a)
	}
}

func TestTimeoutsOfScenarios(t *testing.T) {
	c, err := parse("scenarios:\n  - {name: a, type: chat, timeout: 90s}\n")
	if err != nil {
		t.Fatal(err)
	}
	short, err := parse("global: {timeout: 3s}\nscenarios:\n  - {name: a, type: chat, timeout: 2s}\n")
	if err != nil {
		t.Fatal(err)
	}
	two, three := model.Duration(2*time.Second), model.Duration(3*time.Second)
	if g := short.Global; g.StallTimeout != three || g.FirstTokenTimeout != three || g.ConnectTimeout != three {
		t.Errorf("deadlines that were not given do not follow the timeout: %+v", g.Timeouts)
	}
	if e := short.Global.Effective(short.Scenario("a").Timeouts); e != (Timeouts{Timeout: two, ConnectTimeout: two, FirstTokenTimeout: two, StallTimeout: two}) {
		t.Errorf("%+v", e)
	}
	got := c.Global.Effective(c.Scenario("a").Timeouts)
	if time.Duration(got.Timeout) != 90*time.Second || got.StallTimeout != c.Global.StallTimeout {
		t.Errorf("%+v", got)
	}
}

func TestRelativeFiles(t *testing.T) {
	c, err := parse("targets:\n  - name: a\n    url: http://a\n    authorization: {credentials_file: key}\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Targets[0].HTTPClient.Authorization.CredentialsFile; got != filepath.FromSlash("/etc/canary/key") {
		t.Errorf("credentials_file %q", got)
	}
}

func TestWithTargets(t *testing.T) {
	c, err := Default(testOptions()).WithTargets([]string{"http://a:8000/", "https://b/x/v1"})
	if err != nil || len(c.Targets) != 2 || c.Targets[0].Name != "a:8000" || c.Targets[1].Name != "b/x" || c.Targets[1].URL != "https://b/x" {
		t.Fatalf("%+v, %v", c.Targets, err)
	}
	for _, bad := range []string{"a:8000", "http://me:hunter2@a", "", "http://a:8000"} {
		if _, err := c.WithTargets([]string{bad}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A secret is written nowhere, whatever field holds it.
func TestSecretsAreNotWritten(t *testing.T) {
	const in = `
targets:
  - name: basic
    url: http://a
    basic_auth: {username: u, password: PLANTED}
    proxy_url: http://me:PLANTED@proxy
    proxy_connect_header: {X-Key: [PLANTED]}
  - name: bearer
    url: http://b
    authorization: {credentials: PLANTED}
    http_headers: {X-Api-Key: {secrets: [PLANTED]}}
  - name: oauth
    url: http://c
    oauth2: {client_id: i, client_secret: PLANTED, token_url: "http://me:PLANTED@t", endpoint_params: {assertion: PLANTED}}
    tls_config: {cert: public, key: PLANTED}
`
	c, err := parse(in)
	if err != nil && strings.Contains(err.Error(), "PLANTED") {
		t.Fatal(err)
	}
	if err != nil {
		c, err = parse(strings.Replace(in, "    tls_config: {cert: public, key: PLANTED}\n", "", 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	y, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(y, []byte("PLANTED")) || !bytes.Contains(y, []byte("<secret>")) {
		t.Errorf("%s", y)
	}
}

// The effective configuration is a configuration.
func TestYAMLLoadsAgain(t *testing.T) {
	c, err := parse("targets:\n  - {name: a, url: 'http://a', gpu_uuids: [GPU-1], price: {prompt_per_million: 2}}\nscenarios:\n  - {name: p, type: prefill, lengths: [1, 2]}\n")
	if err != nil {
		t.Fatal(err)
	}
	first, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again, err := parse(string(first))
	if err != nil {
		t.Fatalf("%v\n%s", err, first)
	}
	if second, _ := again.YAML(); !bytes.Equal(first, second) {
		t.Errorf("first\n%s\nsecond\n%s", first, second)
	}
}

func TestWarnings(t *testing.T) {
	c, err := parse("scenarios:\n  - {name: a, type: chat, interval: 5s}\ntargets:\n  - {name: a, url: 'http://a', enable_http2: true}\n")
	if err != nil || len(c.Warnings()) != 2 {
		t.Fatalf("%v, %v", c.Warnings(), err)
	}
	if w := Default(testOptions()).Warnings(); len(w) != 0 {
		t.Errorf("the defaults warn: %v", w)
	}
}

func TestLocate(t *testing.T) {
	c, err := parse("targets:\n  - name: a\n    url: http://a\n    scenarios:\n      - chat\n      - decode\n")
	if err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]int{"targets": 1, "targets[0]": 2, "targets[0].url": 3, "targets[0].scenarios[1]": 6, "targets[0].model": 2, "targets[7]": 1, "nothing": 0, "": 0} {
		if _, line := c.Locate(field); line != want {
			t.Errorf("%s: line %d, want %d", field, line, want)
		}
	}
	got := c.Annotate(Errorf("targets[0].scenarios[1]", "is odd"))
	if got.Error() != "c.yml:6: targets[0].scenarios[1]: is odd" {
		t.Error(got)
	}
}

// The reference has every setting, its defaults are the real ones, and the page is current.
func TestReference(t *testing.T) {
	var want []string
	settings("", reflect.TypeOf(Config{}), &want)
	var got []string
	for _, f := range Reference() {
		got = append(got, f.Path)
	}
	slices.Sort(want)
	sorted := slices.Sorted(slices.Values(got))
	if !slices.Equal(sorted, want) {
		t.Errorf("the reference lists\n%v\nthe types have\n%v", sorted, want)
	}
	checkDefaults(t)

	page := filepath.Join("..", "docs", "configuration.md")
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- field reference -->", "<!-- end of the field reference -->"
	before, rest, ok := strings.Cut(string(b), begin)
	if !ok {
		t.Fatalf("%s has no %s", page, begin)
	}
	_, after, _ := strings.Cut(rest, end)
	current := before + begin + "\n\n" + Document() + "\n" + end + after
	if *update {
		if err := os.WriteFile(page, []byte(current), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if current != string(b) {
		t.Errorf("%s is not current: run make docs", page)
	}
}

func settings(path string, typ reflect.Type, out *[]string) {
	if typ == reflect.TypeOf(promconfig.HTTPClientConfig{}) {
		return
	}
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, rest, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		p := strings.TrimPrefix(path+"."+name, ".")
		switch ft := f.Type; {
		case strings.Contains(rest, "inline"):
			settings(path, ft, out)
		case name == "":
		case ft.Kind() == reflect.Struct:
			settings(p, ft, out)
		case ft.Kind() == reflect.Slice && ft.Elem().Kind() == reflect.Struct:
			settings(p+"[]", ft.Elem(), out)
		default:
			*out = append(*out, p)
		}
	}
}

// checkDefaults sets each setting to its documented default and compares with leaving it out.
func checkDefaults(t *testing.T) {
	t.Helper()
	const base = "targets:\n  - {name: a, url: 'http://a'}\n"
	plain, err := parse(base)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := plain.YAML()
	for _, f := range Reference() {
		if f.Default == "" || strings.Contains(f.Path, "price") {
			continue
		}
		text := base
		key := f.Path[strings.LastIndex(f.Path, ".")+1:]
		if strings.HasPrefix(f.Path, "global.") {
			text += fmt.Sprintf("global: {%s: %s}\n", key, f.Default)
		} else {
			text = fmt.Sprintf("targets:\n  - {name: a, url: 'http://a', %s: %s}\n", key, f.Default)
		}
		c, err := parse(text)
		if err != nil {
			t.Errorf("%s: %v", f.Path, err)
			continue
		}
		if got, _ := c.YAML(); !bytes.Equal(got, want) {
			t.Errorf("%s: %s is not the default", f.Path, f.Default)
		}
	}
}

// The examples are valid.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "examples", "*.yml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		o := testOptions()
		o.Builtin = append(o.Builtin, Scenario{Name: "prefill", Type: "prefill"})
		o.Protocols, o.Engines = nil, nil
		if _, err := Load(f, o); err != nil {
			t.Error(err)
		}
	}
}

// No file makes the parser panic; one that it accepts can be written and read again.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"global: {timeout: 5s}\n", "targets:\n  - {name: a, url: 'http://a', scenarios: [chat]}\n", "scenarios:\n  - {name: x, type: chat, lengths: [1]}\n", "a: &a [*a]\n", aliasBomb()} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("f", data, "", testOptions())
		if err != nil {
			if err.Error() == "" {
				t.Fatal("an error without a text")
			}
			return
		}
		y, err := c.YAML()
		if err != nil {
			t.Fatal(err)
		}
		var written map[string]any
		if err := yaml.Unmarshal(y, &written); err != nil {
			t.Fatalf("%v\n%s", err, y)
		}
	})
}

// A secret stays out of the errors about it, whatever is wrong.
func TestSecretsAreNotInErrors(t *testing.T) {
	for _, setting := range []string{
		"proxy_url: 'http://me:PLANTED-SECRET@pro xy'", "proxy_url: ['http://me:PLANTED-SECRET@proxy']", "basic_auth: {username: u, password: [PLANTED-SECRET]}",
		"basic_auth: {username: u, password: PLANTED-SECRET}\n    authorization: {credentials: PLANTED-SECRET}", "authorization: {credentials: {PLANTED-SECRET: x}}\n    model: ''",
		"authorization: {type: Basic, credentials: PLANTED-SECRET}", "http_headers: {X-Key: {secrets: PLANTED-SECRET}}", "oauth2: {client_id: i, client_secret: PLANTED-SECRET}",
		"oauth2: {client_id: i, client_secret: PLANTED-SECRET, token_url: ':PLANTED-SECRET@'}", "tls_config: {key: PLANTED-SECRET}",
	} {
		_, err := parse("targets:\n  - name: a\n    url: http://a\n    " + setting + "\n")
		if err != nil && strings.Contains(err.Error(), "PLANTED") && !strings.Contains(setting, "{PLANTED") {
			t.Errorf("%s: %v", setting, err)
		}
	}
}
