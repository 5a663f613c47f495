package sim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quick is a configuration whose steps are short, for tests about counts.
func quick() Config {
	c := DefaultConfig()
	c.StepBase = 200 * time.Microsecond
	c.StepPerSeq = 0
	c.StepPerContextToken = 0
	c.PrefillPerToken = 0
	c.Skills.GrammarCompile, c.Skills.GrammarPerToken = 0, 0
	return c
}

type testServer struct {
	*Server
	url    string
	client *http.Client
	t      *testing.T
}

func start(t *testing.T, cfg Config) *testServer {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s.Handler())
	client := newClient()
	t.Cleanup(func() {
		client.CloseIdleConnections()
		s.Close()
		srv.Close()
	})
	return &testServer{s, srv.URL, client, t}
}

func newClient() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

type fields map[string]any

func user(text string) []fields { return []fields{{"role": "user", "content": text}} }

// do posts a body and returns the response; the caller closes it.
func (s *testServer) do(ctx context.Context, path, id, fault string, body any) *http.Response {
	s.t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, bytes.NewReader(b))
	if err != nil {
		s.t.Fatal(err)
	}
	if id != "" {
		req.Header.Set("X-Request-Id", id)
	}
	if fault != "" {
		req.Header.Set(FaultHeader, fault)
	}
	res, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	return res
}

// post returns the whole body and the error of reading it.
func (s *testServer) post(path, id, fault string, body any) (status int, header http.Header, text string, err error) {
	s.t.Helper()
	res := s.do(s.t.Context(), path, id, fault, body)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, res.Header, string(b), err
}

func (s *testServer) mustJSON(path, id string, body any) map[string]any {
	s.t.Helper()
	status, _, text, err := s.post(path, id, "", body)
	if err != nil || status != http.StatusOK {
		s.t.Fatalf("%s: status %d, error %v, body %s", path, status, err, text)
	}
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		s.t.Fatal(err)
	}
	return out
}

// chat makes a streamed chat request and returns its record.
func (s *testServer) chat(id, fault string, body fields) (Record, []string) {
	s.t.Helper()
	body["stream"] = true
	_, _, text, _ := s.post("/v1/chat/completions", id, fault, body)
	return s.ended(id), events(text)
}

// ended waits until the handler of a request has returned.
func (s *testServer) ended(id string) Record {
	s.t.Helper()
	var rec Record
	waitFor(s.t, "the end of request "+id, func() bool {
		rec, _ = s.Record(id)
		return !rec.Ended.IsZero()
	})
	return rec
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// events are the data lines of a well-formed stream.
func events(text string) []string {
	var out []string
	sc := bufio.NewScanner(strings.NewReader(text))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		if d, ok := strings.CutPrefix(sc.Text(), "data: "); ok {
			out = append(out, d)
		}
	}
	return out
}

func kinds(r Record) string {
	var out []string
	for _, ev := range r.Events {
		out = append(out, ev.Kind.String())
	}
	return strings.Join(out, " ")
}

func prompt(words int, first string) string { return first + strings.Repeat(" word", words-1) }
