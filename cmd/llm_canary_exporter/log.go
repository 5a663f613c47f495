package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	sloggokit "github.com/tjhop/slog-gokit"
)

// newLogger returns the root logger, and the same output as log/slog for the libraries that want that. Both may
// be used concurrently.
func newLogger(w io.Writer, lvl, format string) (log.Logger, *slog.Logger, error) {
	var out log.Logger
	switch format {
	case "logfmt":
		out = log.NewLogfmtLogger(log.NewSyncWriter(w))
	case "json":
		out = log.NewJSONLogger(log.NewSyncWriter(w))
	default:
		return nil, nil, fmt.Errorf("unknown log format %q: use logfmt or json", format)
	}
	v, err := level.Parse(lvl)
	if err != nil {
		return nil, nil, fmt.Errorf("unknown log level %q: use debug, info, warn or error", lvl)
	}
	out = level.NewFilter(out, level.Allow(v))
	logger := log.With(out, "ts", log.DefaultTimestampUTC, "caller", log.DefaultCaller)
	// The filter above decides; slog's own level must not hide what it lets through.
	return logger, slog.New(sloggokit.NewGoKitHandler(renameTime{out}, slog.LevelDebug)), nil
}

// renameTime gives slog's records the time key of all other lines.
type renameTime struct{ next log.Logger }

// Log passes the line on with "ts" in the place of "time".
func (r renameTime) Log(keyvals ...any) error {
	for i := 0; i < len(keyvals); i += 2 {
		if keyvals[i] == "time" {
			keyvals[i] = "ts"
		}
	}
	return r.next.Log(keyvals...)
}
