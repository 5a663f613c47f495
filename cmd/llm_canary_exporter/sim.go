package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"

	"github.com/llmcanary/llm_canary_exporter/sim"
)

// simFlags set the simulated engine up from the command line.
type simFlags struct {
	address          string
	model            string
	apiKey           string
	seed             uint64
	step             time.Duration
	prefill          float64
	maxNumSeqs       int
	blocks           int
	speculative      bool
	acceptance       float64
	noPrefixCache    bool
	noReportedCached bool
	faults           []string
}

func (s *simFlags) register(cmd *kingpin.CmdClause, addressFlag, address string) {
	d := sim.DefaultConfig()
	cmd.Flag(addressFlag, "Address to listen on.").Default(address).StringVar(&s.address)
	cmd.Flag("sim.model", "Name of the served model.").Default(d.Model).StringVar(&s.model)
	cmd.Flag("sim.api-key", "Key that requests must carry; empty = none.").StringVar(&s.apiKey)
	cmd.Flag("sim.seed", "Seed of every random decision.").Default(fmt.Sprint(d.Seed)).Uint64Var(&s.seed)
	cmd.Flag("sim.step", "Duration of a decode step of an empty batch: the time per output token of a lone request.").Default(d.StepBase.String()).DurationVar(&s.step)
	cmd.Flag("sim.prefill-rate", "Prompt tokens that are computed per second.").Default(fmt.Sprintf("%.0f", 1/d.PrefillPerToken.Seconds())).Float64Var(&s.prefill)
	cmd.Flag("sim.max-num-seqs", "Requests that run at once; others wait.").Default(fmt.Sprint(d.MaxNumSeqs)).IntVar(&s.maxNumSeqs)
	cmd.Flag("sim.kv-blocks", "KV cache blocks of 16 tokens.").Default(fmt.Sprint(d.Blocks)).IntVar(&s.blocks)
	cmd.Flag("sim.speculative", "Decode with a draft model: several tokens per chunk.").BoolVar(&s.speculative)
	cmd.Flag("sim.acceptance", "Probability that a drafted token is accepted.").Default("0.7").Float64Var(&s.acceptance)
	cmd.Flag("sim.no-prefix-cache", "Compute every prompt anew.").BoolVar(&s.noPrefixCache)
	cmd.Flag("sim.no-cached-tokens", "Leave cached tokens out of usage, as vLLM does without --enable-prompt-tokens-details.").BoolVar(&s.noReportedCached)
	cmd.Flag("sim.fault", "Fault that strikes every request, such as stall=5:2s or status=429. Repeatable. See docs/simulator.md.").PlaceHolder("FAULT").StringsVar(&s.faults)
}

func (s *simFlags) config() (sim.Config, error) {
	c := sim.DefaultConfig()
	c.Model, c.APIKey, c.Seed = s.model, s.apiKey, s.seed
	if !(s.prefill > 0) {
		return c, fmt.Errorf("--sim.prefill-rate=%v: must be above 0", s.prefill)
	}
	c.StepBase, c.PrefillPerToken = s.step, time.Duration(float64(time.Second)/s.prefill)
	c.MaxNumSeqs, c.Blocks = s.maxNumSeqs, s.blocks
	c.PrefixCache, c.ReportCachedTokens = !s.noPrefixCache, !s.noReportedCached
	c.Speculative.Enabled, c.Speculative.Acceptance = s.speculative, []float64{s.acceptance}
	for _, f := range s.faults {
		c.Faults = append(c.Faults, sim.FaultRule{Fault: f, Probability: 1})
	}
	return c, c.Validate()
}

// runSim serves the simulated engine until ctx ends.
func runSim(ctx context.Context, f *flags, o options, logger log.Logger) int {
	c, err := f.sim.config()
	if err != nil {
		fmt.Fprintf(o.stderr, "%s: %v\n", programName, err)
		return exitUsage
	}
	engine, err := startSim(c, f.sim.address)
	if err != nil {
		fmt.Fprintf(o.stderr, "%s: %v\n", programName, err)
		return exitUsage
	}
	o.listening("sim", engine.addr())
	level.Info(logger).Log("msg", "simulated engine", "url", "http://"+engine.addr().String(), "model", c.Model)
	err = engine.wait(ctx)
	if err != nil {
		level.Error(logger).Log("msg", "the simulated engine stopped", "err", err)
		return exitFailed
	}
	return exitOK
}

// simServer is the simulated engine with a listener.
type simServer struct {
	engine   *sim.Server
	server   *http.Server
	listener net.Listener
	done     chan error
}

func startSim(c sim.Config, address string) (*simServer, error) {
	engine, err := sim.New(c)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		engine.Close()
		return nil, fmt.Errorf("the simulated engine cannot listen: %w", err)
	}
	s := &simServer{
		engine: engine, listener: l, done: make(chan error, 1),
		server: &http.Server{Handler: engine.Handler(), ReadHeaderTimeout: 10 * time.Second},
	}
	go func() { s.done <- s.server.Serve(l) }()
	return s, nil
}

func (s *simServer) addr() net.Addr { return s.listener.Addr() }

// wait serves until ctx ends or serving fails, then closes everything.
func (s *simServer) wait(ctx context.Context) error {
	var err error
	select {
	case <-ctx.Done():
		_ = s.server.Close()
		<-s.done
	case err = <-s.done:
	}
	s.engine.Close()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
