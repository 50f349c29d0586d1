package packages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// installed is the set of package names that dpkg has fully installed. Names come without architecture.
func installed(ctx context.Context) (map[string]bool, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\n")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, errors.New("dpkg-query not found: the cloud installs its packages on Debian 12 or later (or a derivative)")
	}
	if err != nil {
		return nil, fmt.Errorf("list installed packages: dpkg-query: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return parseInstalled(string(out)), nil
}

// parseInstalled reads lines of "NAME STATUS".
func parseInstalled(lines string) map[string]bool {
	set := map[string]bool{}
	for line := range strings.Lines(lines) {
		name, status, _ := strings.Cut(strings.TrimSpace(line), " ")
		if status == "installed" {
			set[name] = true
		}
	}
	return set
}

// Missing are those of the wanted packages that the machine lacks, in the same order.
func Missing(ctx context.Context, wanted []Package) ([]Package, error) {
	have, err := installed(ctx)
	if err != nil {
		return nil, err
	}
	return missing(wanted, have, func(program string) bool {
		_, err := exec.LookPath(program)
		return err == nil
	}), nil
}

// missing decides: a package is there when dpkg has it, or when every program it stands for is on PATH.
func missing(wanted []Package, have map[string]bool, onPath func(program string) bool) []Package {
	var out []Package
	for _, p := range wanted {
		if have[p.Name] || len(p.Programs) > 0 && all(p.Programs, onPath) {
			continue
		}
		out = append(out, p)
	}
	return out
}

func all(programs []string, holds func(string) bool) bool {
	for _, p := range programs {
		if !holds(p) {
			return false
		}
	}
	return true
}

// Names of the packages.
func Names(list []Package) []string {
	names := make([]string, len(list))
	for i, p := range list {
		names[i] = p.Name
	}
	return names
}
