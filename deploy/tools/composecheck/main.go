// Command composecheck loads compose files as Docker Compose would: it checks them against the Compose specification,
// resolves every reference between services and volumes, and says which files or folders that they mount are missing.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: composecheck FILE...")
		os.Exit(2)
	}
	failed := false
	for _, file := range os.Args[1:] {
		if err := check(file); err != nil {
			fmt.Fprintf(os.Stderr, "composecheck: %s: %v\n", file, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

func check(file string) error {
	options, err := cli.NewProjectOptions([]string{file}, cli.WithProfiles([]string{"*"}), cli.WithoutEnvironmentResolution)
	if err != nil {
		return err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return err
	}
	var errs []error
	for _, service := range project.Services {
		if service.Build != nil {
			if _, err := os.Stat(service.Build.Context + "/" + service.Build.Dockerfile); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", service.Name, err))
			}
		}
		for _, v := range service.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(v.Source); err != nil {
				errs = append(errs, fmt.Errorf("%s mounts what is not there: %w", service.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}
