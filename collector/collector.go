package collector

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmcanary/llm_canary_exporter/prober/result"
)

// Options are the settings of a Collector.
type Options struct {
	// Registerer gets the Collector. Nil leaves it unregistered: it can be registered later, or served by Handler.
	Registerer prometheus.Registerer
	// Histograms says which buckets the histograms carry: "classic", "native" or "both" (also when it is empty).
	Histograms string
	// ExtraBounds are thresholds in seconds that classic buckets must hold exactly, by the histogram's name with
	// or without namespace. They are fixed for the life of the Collector: buckets that change under a running
	// series would spoil every rate over it.
	ExtraBounds map[string][]float64
	// Logger gets a line for each kind of result that cannot be exported. Nil logs nothing.
	Logger log.Logger
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Collector exports what the prober finds. It is a sink of the prober and a prometheus.Collector. All methods are
// safe for concurrent use, and none of a sink's waits for a scrape.
type Collector struct {
	now      func() time.Time
	logger   log.Logger
	groups   []group
	figures  []figure
	families []*family
	sorted   []*family          // by name
	byName   map[string]*family // without namespace

	// mu protects the maps and what targets and pairs say of themselves, not the series in their scopes. A sink's
	// method holds it for reading while it writes to scopes, so that none writes to what has been removed.
	// Lock order: mu, a pair's scope, its target's scope, the exporter's scope.
	mu      sync.RWMutex
	targets map[string]*target
	pending map[string]result.Target // found before their first pair was added
	scopes  []*scope                 // all of them, in the order of exposition; nil after a change

	self   *scope
	logged map[string]bool // what was logged once; self's lock protects it

	protoWriters sync.Pool // of *protoWriter
}

// target is a target that has been probed since it was added.
type target struct {
	name  string
	scope *scope
	pairs map[string]*pair
}

// pair is a scenario that is probed on a target.
type pair struct {
	collector *Collector
	target    *target
	scope     *scope
	result.Pair

	running     int
	consecutive int
}

// New makes a Collector and registers it.
func New(o Options) (*Collector, error) {
	classic, native, err := kinds(o.Histograms)
	if err != nil {
		return nil, err
	}
	bounds, err := boundsFor(Metrics(), o.ExtraBounds)
	if err != nil {
		return nil, err
	}
	c := &Collector{
		now: o.Now, logger: o.Logger, groups: groups(), figures: figures(), byName: map[string]*family{},
		targets: map[string]*target{}, pending: map[string]result.Target{}, logged: map[string]bool{},
	}
	if c.now == nil {
		c.now = time.Now
	}
	if c.logger == nil {
		c.logger = log.NewNopLogger()
	}
	for _, m := range Metrics() {
		name := strings.TrimPrefix(m.Name, Namespace)
		var b []float64
		if classic {
			b = bounds[name]
		}
		f := newFamily(m, len(c.families), b, native && m.Type == Histogram)
		c.families = append(c.families, f)
		c.byName[name] = f
	}
	c.sorted = sortFamilies(c.families)
	c.self = newScope(len(c.families), c.now())
	c.initSelf()
	if o.Registerer != nil {
		if err := o.Registerer.Register(c); err != nil {
			return nil, fmt.Errorf("registering the metrics of the canary: %w", err)
		}
	}
	return c, nil
}

// kinds reads the setting of the histograms' buckets.
func kinds(setting string) (classic, native bool, err error) {
	switch setting {
	case "", "both":
		return true, true, nil
	case "classic":
		return true, false, nil
	case "native":
		return false, true, nil
	}
	return false, false, fmt.Errorf("histograms: %q: must be classic, native or both", setting)
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range c.families {
		ch <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	now := c.now()
	var visible []*series
	for _, s := range c.allScopes() {
		// Sending waits for the registry, which locks the scope to read each series: so not under the lock.
		visible = s.visible(visible[:0], now)
		for _, x := range visible {
			ch <- x
		}
	}
}

// allScopes returns the scopes as they are now: the exporter's, then the targets by name, each before its pairs by
// scenario. The slice is never modified.
func (c *Collector) allScopes() []*scope {
	c.mu.RLock()
	scopes := c.scopes
	c.mu.RUnlock()
	if scopes != nil {
		return scopes
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.scopes == nil {
		c.scopes = []*scope{c.self}
		for _, name := range slices.Sorted(maps.Keys(c.targets)) {
			t := c.targets[name]
			c.scopes = append(c.scopes, t.scope)
			for _, scenario := range slices.Sorted(maps.Keys(t.pairs)) {
				c.scopes = append(c.scopes, t.pairs[scenario].scope)
			}
		}
	}
	return c.scopes
}

// visible appends the series of the scope that are exported now.
func (s *scope) visible(to []*series, now time.Time) []*series {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, list := range s.series {
		for _, x := range list {
			if !x.expired(now) {
				to = append(to, x)
			}
		}
	}
	return to
}
