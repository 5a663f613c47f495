package config

import (
	"errors"
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// secretKeys are the settings whose values nobody may read in an error or on a page, whatever is wrong with them.
var secretKeys = []string{
	"password", "credentials", "client_secret", "secrets", "key", "proxy_connect_header", "endpoint_params", "bearer_token", "client_certificate_key",
}

// urlKeys are settings that may hold a user name and a password inside of a URL.
var urlKeys = []string{"proxy_url", "token_url", "url", "engine_metrics"}

const (
	redacted  = "<secret>"
	minSecret = 4 // shorter values are part of too many words
	yamlShort = 7 // the decoder shortens a value in its messages to this
)

// secrets collects the values that must not be shown, and what the decoder makes of them, longest first.
func (c *Config) secrets() []string {
	var out []string
	add := func(v string) {
		if len(v) >= minSecret && v != redacted {
			out = append(out, v)
			if len(v) > yamlShort {
				out = append(out, v[:yamlShort])
			}
		}
	}
	var collect func(n *yaml.Node, secret bool)
	collect = func(n *yaml.Node, secret bool) {
		if n == nil {
			return
		}
		if n.Kind == yaml.MappingNode {
			for i := 0; i+1 < len(n.Content); i += 2 {
				key, value := n.Content[i].Value, n.Content[i+1]
				if slices.Contains(urlKeys, key) && value.Kind == yaml.ScalarNode {
					addUserinfo(value.Value, add)
				}
				collect(value, secret || slices.Contains(secretKeys, key))
			}
			return
		}
		if n.Kind == yaml.ScalarNode && secret {
			add(n.Value)
		}
		for _, x := range n.Content {
			collect(x, secret)
		}
	}
	collect(c.root, false)
	slices.SortFunc(out, func(a, b string) int { return len(b) - len(a) })
	return out
}

// addUserinfo finds what stands before the @ of a URL, also of one that does not parse.
func addUserinfo(raw string, add func(string)) {
	_, rest, ok := strings.Cut(raw, "://")
	if !ok {
		rest = raw
	}
	at := strings.LastIndex(rest, "@")
	if at < 0 {
		return
	}
	add(rest[:at])
	user, password, _ := strings.Cut(rest[:at], ":")
	for _, v := range []string{user, password} {
		add(v)
		if plain, err := url.PathUnescape(v); err == nil {
			add(plain)
		}
	}
}

// redact takes secrets out of a text.
func (c *Config) redact(text string) string {
	for _, s := range c.secrets() {
		text = strings.ReplaceAll(text, s, redacted)
	}
	return text
}

// redactError takes secrets out of an error. One that holds none stays what it is.
func (c *Config) redactError(err error) error {
	if err == nil {
		return nil
	}
	if text := c.redact(err.Error()); text != err.Error() {
		return errors.New(text)
	}
	return err
}
