package engine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"go.uber.org/goleak"

	"github.com/llmcanary/llm_canary_exporter/config"
	"github.com/llmcanary/llm_canary_exporter/prober/stream"
)

// TestMain keeps the kernel stamping what arrives for all tests: it begins a moment after it was asked to, so that the
// first answers of a lone test would have the user's clock.
func TestMain(m *testing.M) {
	release, err := stream.HoldKernelStamps()
	if err == nil {
		defer release()
		awaitStamps()
	}
	goleak.VerifyTestMain(m)
}

// awaitStamps sends bytes to itself until they come with a stamp, or it is clear that none will.
func awaitStamps() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return
	}
	defer l.Close()
	for range 100 {
		if stamped(l) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func stamped(l net.Listener) bool {
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return false
	}
	c := stream.NewConn(raw)
	defer c.Close()
	peer, err := l.Accept()
	if err != nil {
		return false
	}
	defer peer.Close()
	if _, err := peer.Write([]byte("x")); err != nil {
		return false
	}
	if _, err := c.Read(make([]byte, 1)); err != nil {
		return false
	}
	return c.LastArrival().Clock == stream.ClockKernel
}

// step is what a scripted server does with a connection after it has read a request.
type step func(s *scripted, c net.Conn) error

// scripted is a server that says exactly what it is told, byte for byte.
type scripted struct {
	listener net.Listener
	answer   func(n int, r *http.Request, body []byte) []step // n counts requests from 0
	wg       sync.WaitGroup
	closed   chan struct{}

	mu       sync.Mutex
	requests []*http.Request
	bodies   [][]byte
	wrote    []time.Time
	conns    int
}

func serve(t *testing.T, answer func(n int, r *http.Request, body []byte) []step) *scripted {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scripted{listener: l, answer: answer, closed: make(chan struct{})}
	s.wg.Go(s.accept)
	t.Cleanup(s.close)
	return s
}

func (s *scripted) close() {
	close(s.closed)
	s.listener.Close()
	s.wg.Wait()
}

func (s *scripted) url() string { return "http://" + s.listener.Addr().String() }

func (s *scripted) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns++
		s.mu.Unlock()
		s.wg.Go(func() { s.handle(c) })
	}
}

func (s *scripted) handle(c net.Conn) {
	defer c.Close()
	stop := make(chan struct{})
	defer close(stop)
	s.wg.Go(func() {
		select {
		case <-s.closed:
			c.Close()
		case <-stop:
		}
	})
	in := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		n := len(s.requests)
		s.requests, s.bodies = append(s.requests, r), append(s.bodies, body)
		s.mu.Unlock()
		for _, do := range s.answer(n, r, body) {
			if do(s, c) != nil {
				return
			}
		}
	}
}

func (s *scripted) seen(i int) (*http.Request, map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i >= len(s.requests) {
		return nil, nil
	}
	var body map[string]any
	_ = json.Unmarshal(s.bodies[i], &body)
	return s.requests[i], body
}

// written returns when the write with that number was made.
func (s *scripted) written(i int) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wrote[i]
}

func (s *scripted) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

// raw writes bytes as they are, in one write, and notes when.
func raw(text string) step {
	return func(s *scripted, c net.Conn) error {
		s.mu.Lock()
		s.wrote = append(s.wrote, time.Now())
		s.mu.Unlock()
		_, err := io.WriteString(c, text)
		return err
	}
}

// chunk writes one chunk of a chunked body.
func chunk(text string) step { return raw(fmt.Sprintf("%x\r\n%s\r\n", len(text), text)) }

// wait does nothing for a while.
func wait(d time.Duration) step {
	return func(s *scripted, _ net.Conn) error {
		select {
		case <-time.After(d):
			return nil
		case <-s.closed:
			return io.EOF
		}
	}
}

// hang does nothing until the server is closed or the client goes.
func hang() step {
	return func(s *scripted, c net.Conn) error {
		_, err := c.Read(make([]byte, 1))
		if err == nil {
			err = io.EOF
		}
		return err
	}
}

// fin closes the connection in order, rst resets it.
func fin() step { return func(*scripted, net.Conn) error { return io.EOF } }

func rst() step {
	return func(_ *scripted, c net.Conn) error {
		_ = c.(*net.TCPConn).SetLinger(0)
		return io.EOF
	}
}

const (
	sseHead    = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	ndjsonHead = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
	endOfBody  = "0\r\n\r\n"
)

// sse makes a chunked event stream of whole texts, one chunk each, and its proper end.
func sse(events ...string) []step {
	steps := []step{raw(sseHead)}
	for _, e := range events {
		steps = append(steps, chunk(e))
	}
	return append(steps, raw(endOfBody))
}

func data(events ...string) []step {
	var framed []string
	for _, e := range events {
		framed = append(framed, "data: "+e+"\n\n")
	}
	return sse(framed...)
}

func ndjson(lines ...string) []step {
	steps := []step{raw(ndjsonHead)}
	for _, l := range lines {
		steps = append(steps, chunk(l+"\n"))
	}
	return append(steps, raw(endOfBody))
}

// plain makes an answer with a length.
func plain(status int, contentType, body string, headers ...string) []step {
	var head strings.Builder
	fmt.Fprintf(&head, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n", status, http.StatusText(status), contentType, len(body))
	for _, h := range headers {
		head.WriteString(h + "\r\n")
	}
	return []step{raw(head.String() + "\r\n" + body)}
}

func jsonReply(status int, body string, headers ...string) []step {
	return plain(status, "application/json", body, headers...)
}

// always answers every request alike.
func always(steps []step) func(int, *http.Request, []byte) []step {
	return func(int, *http.Request, []byte) []step { return steps }
}

// A chunk of chat, and its parts.
func delta(fields string) string {
	return `{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{` + fields + `},"finish_reason":null}]}`
}

func finish(reason string) string {
	return `{"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
}

func usage(prompt, completion int) string {
	return fmt.Sprintf(`{"id":"c","model":"m","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, prompt, completion, prompt+completion)
}

const (
	role = `{"id":"c","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`
	done = "[DONE]"
)

func content(text string) string {
	b, _ := json.Marshal(text)
	return delta(`"content":` + string(b))
}

func timeouts() config.Timeouts {
	return config.Timeouts{
		Timeout: model.Duration(10 * time.Second), ConnectTimeout: model.Duration(5 * time.Second),
		FirstTokenTimeout: model.Duration(5 * time.Second), StallTimeout: model.Duration(5 * time.Second),
	}
}

func ask() Request {
	return Request{Messages: []Message{{Role: User, Text: "Count to two, please, and then say nothing more."}}, MaxTokens: 64, Seed: 7}
}

func newTarget(t *testing.T, url string, change func(*config.Target)) *Target {
	t.Helper()
	c := config.Target{Name: "t", URL: url, Model: "m", Protocol: "openai_chat", Engine: config.Auto}
	if change != nil {
		change(&c)
	}
	target, err := NewTarget(c, Options{UserAgent: "llm_canary_exporter/test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(target.Close)
	return target
}

func send(t *testing.T, s *scripted, change func(*config.Target)) Answer {
	t.Helper()
	return newTarget(t, s.url(), change).Send(context.Background(), ask(), timeouts())
}

func compact(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
	return strings.TrimSpace(b.String())
}
