package engine

import (
	"bytes"
	"compress/gzip"
	"context"

	promconfig "github.com/prometheus/common/config"
)

func gzipped(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(s))
	_ = w.Close()
	return b.String()
}

func authorization(key string) *promconfig.Authorization {
	return &promconfig.Authorization{Type: "Bearer", Credentials: promconfig.Secret(key)}
}

func secretHeader(name, value string) *promconfig.Headers {
	return &promconfig.Headers{Headers: map[string]promconfig.Header{name: {Secrets: []promconfig.Secret{promconfig.Secret(value)}}}}
}

// t0 is a context that never ends.
var t0 = context.Background()
