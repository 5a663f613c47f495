package config

import (
	"fmt"
	"strings"
)

//go:generate go test . -run TestReference -update

// Field describes one setting of the file, for the reference in docs/configuration.md.
type Field struct {
	Path    string // such as targets[].url
	Default string // as it is written in the file; empty if there is none
	Help    string
}

// Reference lists every setting. A test keeps it complete and its defaults true.
func Reference() []Field {
	return []Field{
		{"global.timeout", "1m", "Deadline of a whole request. Reason `timeout_total`."},
		{"global.connect_timeout", "5s", "Deadline of name lookup, TCP and TLS together. Reason `timeout_connect`."},
		{"global.first_token_timeout", "30s", "From the start of the request to the first output. Reason `timeout_first_token`."},
		{"global.stall_timeout", "10s", "The longest silence after the first output; keep-alive comments end it too. Reason `timeout_stall`."},
		{"global.max_concurrent_probes", "16", "Probes that run at once, all targets together."},
		{"global.max_concurrent_probes_per_target", "4", "Probes that run at once against one target."},
		{"global.histograms", "both", "Buckets of the latency histograms: `classic`, `native` or `both`. Fixed at start: a reload does not change it."},
		{"global.shutdown_grace", "10s", "How long running probes may go on when the daemon is told to stop."},
		{"global.seed", "0", "Prompts are a function of the seed, target, scenario and probe number, save for a nonce at the front. 0 draws one at the start."},
		{"scenarios[].name", "", "Name of the scenario: the label `scenario`. The name of a built-in one replaces it."},
		{"scenarios[].type", "", "Scenario type: see [scenarios.md](scenarios.md)."},
		{"scenarios[].interval", "", "Mean time between two probes; the type's own if it is left out."},
		{"scenarios[].schedule", "", "Cron expression (`0 3 * * *`), instead of an interval."},
		{"scenarios[].timeout", "", "As in `global`, for this scenario; likewise the three below."},
		{"scenarios[].connect_timeout", "", ""},
		{"scenarios[].first_token_timeout", "", ""},
		{"scenarios[].stall_timeout", "", ""},
		{"scenarios[].max_tokens", "", "Output tokens of each request; the type's own if it is left out."},
		{"scenarios[].lengths", "", "Prompt sizes in tokens, for types with a ladder (`prefill`)."},
		{"targets[].name", "", "Name of the target: the label `target`. Up to 128 printable characters."},
		{"targets[].url", "", "Base URL. A trailing `/` and a trailing `/v1` are left out. No user name, password, query or fragment."},
		{"targets[].scenarios", "", "Scenarios to run; every built-in one that has a cadence if it is left out."},
		{"targets[].require", "", "Scenarios that count as failed, not as unsupported, where the target cannot do them."},
		{"targets[].model", "auto", "Name of the model; `auto` takes the first of `GET /v1/models` that is no adapter."},
		{"targets[].protocol", "auto", "Wire format: `openai_chat`, `openai_completions`; `auto` is `openai_chat`."},
		{"targets[].engine", "auto", "What the target runs (`vllm`, `sglang`, `llamacpp`, …): decides which optional fields are sent. `auto` asks the target."},
		{"targets[].engine_metrics", "auto", "Where the engine's own metrics are read: `auto` finds the page, `off` reads none, or its URL. See [engines.md](engines.md)."},
		{"targets[].gpu", "auto", "Whether this host's GPUs serve the target: `local`, `off`, or `auto`, which is `local` for a target on a loopback address."},
		{"targets[].gpu_uuids", "", "UUIDs of the GPUs that serve it; all of the host's if it is left out."},
		{"targets[].keep_alive", "false", "Use a connection for several requests. Without it every request has a fresh one, so that all figures are like with like."},
		{"targets[].price.prompt_per_million", "0", "What a million prompt tokens cost, in any one currency; for `plan`."},
		{"targets[].price.output_per_million", "0", "What a million output tokens cost; for `plan`."},
	}
}

// httpClientNote stands for the settings that come from Prometheus.
const httpClientNote = "Every target also takes the settings of [Prometheus' HTTP client](https://prometheus.io/docs/prometheus/latest/configuration/configuration/#http_config): " +
	"`authorization`, `basic_auth`, `oauth2`, `tls_config`, `http_headers`, `proxy_url` and the others. Two defaults differ: `follow_redirects: false` " +
	"(a redirected POST would send the prompt elsewhere) and `enable_http2: false` (arrival times are less exact). Secrets belong into files " +
	"(`credentials_file`, `password_file`, …): relative paths are relative to the config file. There is no expansion of environment variables.\n"

// Document writes the reference as Markdown.
func Document() string {
	var b strings.Builder
	b.WriteString("| setting | default | meaning |\n|---|---|---|\n")
	for _, f := range Reference() {
		def := ""
		if f.Default != "" {
			def = "`" + f.Default + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.Path, def, f.Help)
	}
	return b.String() + "\n" + httpClientNote
}
