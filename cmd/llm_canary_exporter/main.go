// Command llm_canary_exporter watches LLM inference servers from the client's side: it sends a low, steady trickle
// of canary prompts, measures each answer token by token, and exposes what it finds to Prometheus.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the default handling is back: a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], options{stdout: os.Stdout, stderr: os.Stderr})
	stop()
	os.Exit(code)
}
