package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
)

// WithTargets returns the configuration with further targets, of which only the URL is known. Each is named by its
// host and port, and path if there is one.
func (c *Config) WithTargets(urls []string) (*Config, error) {
	out := *c
	out.Targets = slices.Clone(c.Targets)
	var errs []error
	for _, raw := range urls {
		clean, err := CleanURL(raw)
		if err != nil {
			// The URL itself is not repeated: it may hold a password.
			errs = append(errs, fmt.Errorf("--target: the URL %w", err))
			continue
		}
		t := DefaultTarget()
		t.URL, t.Name = clean, nameOf(clean)
		if out.Target(t.Name) != nil {
			errs = append(errs, fmt.Errorf("--target=%s: there is a target %q already", clean, t.Name))
			continue
		}
		out.Targets = append(out.Targets, t)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &out, nil
}

func nameOf(clean string) string {
	u, err := url.Parse(clean)
	if err != nil {
		return clean
	}
	return u.Host + u.Path
}
