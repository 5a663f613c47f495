// Package remote reads the GPUs of another host from the metrics page of an exporter
// that runs there: llm_canary_exporter, dcgm-exporter or nvidia_gpu_exporter.
package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/llmcanary/llm_canary_exporter/nvml"
)

// MaxPage is the largest page that is read, in bytes.
const MaxPage = 8 << 20

// Options says how a page is read.
type Options struct {
	// Timeout of one request; 0 means 3 s. The page answers at once where it is
	// healthy: its exporter has sampled before.
	Timeout time.Duration
	// UserAgent is sent if it is not empty.
	UserAgent string
}

// Source reads one page. It is a [nvml.Source].
type Source struct {
	url    string // without credentials, for messages
	target string
	client *http.Client
	o      Options
}

// New returns a Source that reads the page at rawURL with client. Credentials, TLS and
// the policy about redirects are the client's.
func New(rawURL string, client *http.Client, o Options) (*Source, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		// The error of url.Parse repeats the URL, and with it a password.
		return nil, errors.New("the URL of a GPU exporter cannot be parsed")
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("the URL of a GPU exporter, %q, must be http://HOST… or https://HOST…", u.Redacted())
	}
	if client == nil {
		return nil, errors.New("reading a GPU exporter needs an HTTP client")
	}
	if o.Timeout <= 0 {
		o.Timeout = 3 * time.Second
	}
	return &Source{url: u.Redacted(), target: rawURL, client: client, o: o}, nil
}

// Close implements [nvml.Source]. The client stays the caller's.
func (s *Source) Close() error { return nil }

// Sample implements [nvml.Source]: it reads the page once.
func (s *Source) Sample(ctx context.Context) (nvml.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	now := time.Now()
	page, err := s.get(ctx)
	if err != nil {
		return nvml.Snapshot{}, s.down(err, "check the URL, and that the exporter on that host runs and may be reached")
	}
	snap, err := Parse(strings.NewReader(page))
	if err != nil {
		return nvml.Snapshot{}, s.down(err, "the page must be the /metrics of llm_canary_exporter, dcgm-exporter or nvidia_gpu_exporter")
	}
	snap.Time = now
	return snap, nil
}

func (s *Source) down(err error, hint string) error {
	return &nvml.DownError{Reason: nvml.ReasonRemote, Detail: "reading " + s.url + ": " + err.Error(), Hint: hint}
}

func (s *Source) get(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.target, nil)
	if err != nil {
		return "", errors.New("the request cannot be made")
	}
	req.Header.Set("Accept", "text/plain; version=0.0.4")
	if s.o.UserAgent != "" {
		req.Header.Set("User-Agent", s.o.UserAgent)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		// url.Error repeats the URL with its query; the cause is enough.
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("status %s", resp.Status)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, MaxPage+1))
	if err != nil {
		return "", fmt.Errorf("reading the body: %w", err)
	}
	if len(b) > MaxPage {
		return "", fmt.Errorf("the page is larger than %d bytes", MaxPage)
	}
	return string(b), nil
}

// Parse reads a page in the Prometheus text format. The snapshot has no time.
//
// A page on which several exporters write is read by the first dialect of which it
// holds a GPU: llm_canary_exporter, dcgm-exporter, nvidia_gpu_exporter. Figures of
// other families are ignored; sentinels and figures out of range are dropped.
func Parse(r io.Reader) (nvml.Snapshot, error) {
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(r)
	if err != nil {
		return nvml.Snapshot{}, fmt.Errorf("malformed metrics page: %w", err)
	}
	for _, read := range []func(map[string]*dto.MetricFamily) (nvml.Snapshot, error){readCanary, readDCGM, readSMI} {
		snap, err := read(families)
		if err != nil || len(snap.GPUs) > 0 {
			return snap, err
		}
	}
	return nvml.Snapshot{}, errors.New("no GPU on the page")
}

// builder collects samples by UUID.
type builder struct {
	driver nvml.Driver
	byUUID map[string]*nvml.Sample
}

func newBuilder() *builder { return &builder{byUUID: map[string]*nvml.Sample{}} }

// gpu returns the sample of a GPU, making it if there is room.
func (b *builder) gpu(uuid string) *nvml.Sample {
	if uuid == "" {
		return nil
	}
	g := b.byUUID[uuid]
	if g == nil && len(b.byUUID) < nvml.MaxGPUs {
		g = &nvml.Sample{GPU: nvml.GPU{Index: -1, UUID: uuid}}
		b.byUUID[uuid] = g
	}
	return g
}

func (b *builder) snapshot() nvml.Snapshot {
	s := nvml.Snapshot{Driver: b.driver}
	for _, g := range b.byUUID {
		s.GPUs = append(s.GPUs, *g)
	}
	slices.SortFunc(s.GPUs, func(x, y nvml.Sample) int {
		if x.Index != y.Index {
			return x.Index - y.Index
		}
		return strings.Compare(x.UUID, y.UUID)
	})
	return s
}

// labels returns the labels of a metric.
func labels(m *dto.Metric) map[string]string {
	out := make(map[string]string, len(m.GetLabel()))
	for _, l := range m.GetLabel() {
		out[l.GetName()] = l.GetValue()
	}
	return out
}

// number returns the value of a metric of any simple type. The marks with which DCGM
// says that it has no value (from 2^31-16 for 32 bits, 2^63-16 for 64) are absent.
func number(m *dto.Metric) nvml.Value {
	var v float64
	switch {
	case m.GetGauge() != nil:
		v = m.GetGauge().GetValue()
	case m.GetCounter() != nil:
		v = m.GetCounter().GetValue()
	case m.GetUntyped() != nil:
		v = m.GetUntyped().GetValue()
	default:
		return nvml.Value{}
	}
	const blank32, blank32End, blank64 = 0x7ffffff0, 0x7fffffff, 0x7ffffffffffffff0
	if v >= blank64 || v >= blank32 && v <= blank32End {
		return nvml.Value{}
	}
	return nvml.Of(v)
}
