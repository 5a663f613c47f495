// Package promapi asks a Prometheus for the results of expressions.
package promapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// maxBody bounds an answer of Prometheus.
const maxBody = 64 << 20

// Client asks one Prometheus. It is safe for concurrent use.
type Client struct {
	URL  string // base, such as http://127.0.0.1:9090
	HTTP *http.Client
}

// Series is one series of a result.
type Series struct {
	Labels map[string]string
	Points []Point
	Cells  []Cell // of native histograms
}

// Point is one float sample.
type Point struct {
	Time  time.Time
	Value float64
}

// Cell is one bucket of one native histogram sample.
type Cell struct {
	Time         time.Time
	Lower, Upper float64
	Count        float64
}

// Empty says whether the series holds no figure: no sample, or nothing but NaN.
func (s Series) Empty() bool {
	if len(s.Cells) > 0 {
		return false
	}
	for _, p := range s.Points {
		if !math.IsNaN(p.Value) {
			return false
		}
	}
	return true
}

// Query evaluates an expression at one time.
func (c Client) Query(ctx context.Context, expr string, at time.Time) ([]Series, error) {
	return c.ask(ctx, "query", url.Values{"query": {expr}, "time": {stamp(at)}})
}

// Range evaluates an expression over a range of time.
func (c Client) Range(ctx context.Context, expr string, from, to time.Time, step time.Duration) ([]Series, error) {
	return c.ask(ctx, "query_range", url.Values{
		"query": {expr}, "start": {stamp(from)}, "end": {stamp(to)},
		"step": {strconv.FormatFloat(step.Seconds(), 'f', -1, 64)},
	})
}

func stamp(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }

// answer is the part of Prometheus' answer that is used.
type answer struct {
	Status, Error string
	Data          struct {
		ResultType string
		Result     json.RawMessage
	}
}

// series is a series in an answer, of a vector or of a matrix.
type series struct {
	Metric     map[string]string
	Value      *sample
	Values     []sample
	Histogram  *histSample
	Histograms []histSample
}

func (c Client) ask(ctx context.Context, path string, form url.Values) ([]Series, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(c.URL, "/")+"/api/v1/"+path, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, fmt.Errorf("request to Prometheus: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := c.HTTP.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask Prometheus: %w", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("read answer of Prometheus: %w", err)
	}
	var a answer
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, fmt.Errorf("answer of Prometheus, status %s: %w", res.Status, err)
	}
	if a.Status != "success" {
		return nil, fmt.Errorf("answer of Prometheus, status %s: %s", res.Status, a.Error)
	}
	return decode(a)
}

func decode(a answer) ([]Series, error) {
	if a.Data.ResultType == "scalar" {
		var s sample
		if err := json.Unmarshal(a.Data.Result, &s); err != nil {
			return nil, fmt.Errorf("scalar: %w", err)
		}
		return []Series{{Points: []Point{s.Point}}}, nil
	}
	var found []series
	if err := json.Unmarshal(a.Data.Result, &found); err != nil {
		return nil, fmt.Errorf("%s: %w", a.Data.ResultType, err)
	}
	out := make([]Series, 0, len(found))
	for _, f := range found {
		s := Series{Labels: f.Metric}
		if f.Value != nil {
			f.Values = append(f.Values, *f.Value)
		}
		for _, v := range f.Values {
			s.Points = append(s.Points, v.Point)
		}
		if f.Histogram != nil {
			f.Histograms = append(f.Histograms, *f.Histogram)
		}
		for _, h := range f.Histograms {
			s.Cells = append(s.Cells, h.cells...)
		}
		out = append(out, s)
	}
	return out, nil
}

// sample is [time, "value"].
type sample struct{ Point }

// UnmarshalJSON reads the pair.
func (s *sample) UnmarshalJSON(text []byte) error {
	var seconds float64
	var value string
	if err := json.Unmarshal(text, &[]any{&seconds, &value}); err != nil {
		return err
	}
	v, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return err
	}
	s.Time, s.Value = moment(seconds), v
	return nil
}

// histSample is [time, {count, sum, buckets: [[kind, "lower", "upper", "count"], …]}].
type histSample struct{ cells []Cell }

// UnmarshalJSON reads the pair.
func (h *histSample) UnmarshalJSON(text []byte) error {
	var seconds float64
	var value struct {
		Buckets [][4]json.RawMessage
	}
	if err := json.Unmarshal(text, &[]any{&seconds, &value}); err != nil {
		return err
	}
	for _, b := range value.Buckets {
		cell := Cell{Time: moment(seconds)}
		for i, to := range []*float64{&cell.Lower, &cell.Upper, &cell.Count} {
			var text string
			if err := json.Unmarshal(b[i+1], &text); err != nil {
				return err
			}
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return err
			}
			*to = v
		}
		h.cells = append(h.cells, cell)
	}
	return nil
}

func moment(seconds float64) time.Time { return time.UnixMilli(int64(math.Round(seconds * 1000))) }
