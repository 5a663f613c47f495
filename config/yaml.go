package config

import (
	"bytes"

	"go.yaml.in/yaml/v3"
)

// YAML writes the whole effective configuration, with every secret as <secret>.
func (c *Config) YAML() ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(c); err != nil {
		return nil, err
	}
	if err := e.Close(); err != nil {
		return nil, err
	}
	return []byte(c.redact(b.String())), nil
}
