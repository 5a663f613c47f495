package web

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

const (
	scrapeTimeoutHeader = "X-Prometheus-Scrape-Timeout-Seconds"
	// timeoutOffset is what is left of the scrape timeout for writing and transporting the page.
	timeoutOffset = 500 * time.Millisecond
)

// probe answers /probe?target=&scenario=, the multi-target pattern. A wrong parameter is 400; a probe that ran is
// 200, whatever its outcome: Prometheus would drop the body of any other answer, and with it the reason.
func (h *handler) probe(w http.ResponseWriter, r *http.Request) {
	target, scenario, err := h.probeParams(r)
	if err != nil {
		text(w, http.StatusBadRequest, err.Error()+"\n")
		return
	}
	select {
	case h.probeSlots <- struct{}{}:
		defer func() { <-h.probeSlots }()
	default:
		text(w, http.StatusServiceUnavailable, fmt.Sprintf("%d probes asked for over HTTP run already\n", h.MaxProbes))
		return
	}
	ctx := r.Context()
	timeout, limited := scrapeTimeout(r.Header.Get(scrapeTimeoutHeader))
	if limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	res, err := h.Backend.Probe(ctx, target, scenario)
	if err != nil {
		text(w, http.StatusBadRequest, err.Error()+"\n")
		return
	}
	reg := prometheus.NewRegistry()
	registerProbeGauges(reg, res, timeout, limited)
	gatherers := prometheus.Gatherers{reg}
	if h.ProbeGatherer != nil {
		g, err := h.ProbeGatherer(res)
		if err != nil {
			text(w, http.StatusInternalServerError, "cannot expose the result: "+err.Error()+"\n")
			return
		}
		gatherers = append(gatherers, g)
	}
	promhttp.HandlerFor(gatherers, promhttp.HandlerOpts{EnableOpenMetrics: true}).ServeHTTP(w, r)
}

// registerProbeGauges adds the gauges that every /probe endpoint of the Prometheus family has.
func registerProbeGauges(reg *prometheus.Registry, res *result.Probe, timeout time.Duration, limited bool) {
	gauge := func(name, help string, v float64) {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		g.Set(v)
		reg.MustRegister(g)
	}
	ok := 0.0
	if res.Outcome == result.Success {
		ok = 1
	}
	gauge("probe_success", "Whether the probe succeeded.", ok)
	gauge("probe_duration_seconds", "How long the probe took.", res.DurationSeconds)
	if limited {
		gauge("probe_timeout_seconds", "The deadline of the probe, from the scrape timeout.", timeout.Seconds())
	}
}

func (h *handler) probeParams(r *http.Request) (target, scenario string, err error) {
	q := r.URL.Query()
	for _, name := range []string{"target", "scenario"} {
		if len(q[name]) > 1 {
			return "", "", fmt.Errorf("parameter %q is given %d times: give it once", name, len(q[name]))
		}
	}
	if q.Get("target") == "" {
		return "", "", fmt.Errorf("parameter \"target\" is missing: /probe?target=NAME&scenario=NAME")
	}
	target, err = h.Backend.ResolveTarget(q.Get("target"))
	if err != nil {
		return "", "", err
	}
	known := h.Backend.Scenarios(target)
	scenario = q.Get("scenario")
	if scenario == "" {
		return "", "", fmt.Errorf("parameter \"scenario\" is missing: one of %s", strings.Join(known, ", "))
	}
	if !slices.Contains(known, scenario) {
		return "", "", fmt.Errorf("target %q has no scenario %q: it has %s", target, scenario, strings.Join(known, ", "))
	}
	return target, scenario, nil
}

// scrapeTimeout reads Prometheus' header. One that makes no sense is as if it were missing.
func scrapeTimeout(header string) (time.Duration, bool) {
	s, err := strconv.ParseFloat(header, 64)
	if err != nil || !(s > 0) || s > 86400 {
		return 0, false
	}
	d := time.Duration(s * float64(time.Second))
	if d > 2*timeoutOffset {
		return d - timeoutOffset, true
	}
	return d / 2, true
}
