package collector

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
)

// HandlerOptions are the settings of Handler.
type HandlerOptions struct {
	// Rest is everything else that belongs on the page; the Collector must not be registered there. May be nil.
	Rest prometheus.Gatherer
	// MaxRequestsInFlight is how many pages are written at the same time; more get 503. 0 is no limit.
	MaxRequestsInFlight int
}

// Handler serves the page of metrics: those of the Collector, then the rest. All formats of Prometheus are served,
// among them protobuf, which it asks for when it wants native histograms. Metrics of Rest that cannot be gathered are
// left out if there are others, and are answered with 500 if there are none.
func (c *Collector) Handler(o HandlerOptions) http.Handler {
	rest := o.Rest
	if rest == nil {
		rest = prometheus.NewRegistry()
	}
	own := prometheus.NewRegistry()
	own.MustRegister(c)
	library := promhttp.HandlerFor(prometheus.Gatherers{own, rest}, promhttp.HandlerOpts{
		EnableOpenMetrics: true, ErrorHandling: promhttp.ContinueOnError,
	})
	h := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		format := expfmt.NegotiateIncludingOpenMetrics(r.Header)
		write := c.writerFor(format)
		// What people look at by hand need not be fast: a choice of names, protobuf as text.
		if write == nil || len(r.URL.Query()["name[]"]) > 0 {
			library.ServeHTTP(w, r)
			return
		}
		serve(w, r, format, write, rest)
	}))
	if o.MaxRequestsInFlight > 0 {
		h = limit(h, o.MaxRequestsInFlight)
	}
	return h
}

// writerFor returns what writes the Collector's metrics in a format, or nil if nothing does.
func (c *Collector) writerFor(format expfmt.Format) func(io.Writer) error {
	switch format.FormatType() {
	case expfmt.TypeTextPlain:
		return func(w io.Writer) error { return c.WriteText(w, false) }
	case expfmt.TypeOpenMetrics:
		return func(w io.Writer) error { return c.WriteText(w, true) }
	case expfmt.TypeProtoDelim:
		return c.WriteProtobuf
	}
	return nil
}

// limit answers 503 while n requests are being answered.
func limit(h http.Handler, n int) http.Handler {
	slots := make(chan struct{}, n)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			h.ServeHTTP(w, r)
		default:
			http.Error(w, fmt.Sprintf("%d requests for metrics are being answered already, try later", n), http.StatusServiceUnavailable)
		}
	})
}

// serve writes a page: the Collector's metrics through write, then the rest.
func serve(w http.ResponseWriter, r *http.Request, format expfmt.Format, write func(io.Writer) error, rest prometheus.Gatherer) {
	families, err := rest.Gather()
	if err != nil && len(families) == 0 {
		http.Error(w, "gathering metrics: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", string(format))
	var out io.Writer = w
	if acceptsGzip(r.Header) {
		w.Header().Set("Content-Encoding", "gzip")
		// The text repeats itself so much that the fastest level takes off 95 %.
		z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			http.Error(w, "compressing metrics: "+err.Error(), http.StatusInternalServerError)
			return
		}
		defer z.Close()
		out = z
	}
	if write(out) != nil {
		return // the reader has gone
	}
	encoder := expfmt.NewEncoder(out, format)
	for _, f := range families {
		if encoder.Encode(f) != nil {
			return
		}
	}
	if closer, ok := encoder.(expfmt.Closer); ok {
		_ = closer.Close() // writes the end mark of OpenMetrics; fails only if the reader has gone
	}
}

func acceptsGzip(h http.Header) bool {
	for _, part := range strings.Split(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		name, parameters, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.TrimSpace(name) == "gzip" {
			q := strings.ReplaceAll(parameters, " ", "")
			return q != "q=0" && !strings.HasPrefix(q, "q=0.0")
		}
	}
	return false
}
