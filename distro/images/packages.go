package images

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// withoutPackages are dependencies that only maintainer scripts use, which an image never runs: debconf asks questions,
// openssl names certificates for a directory that the bundle made here replaces.
var withoutPackages = []string{"debconf", "openssl"}

// debianPackage is a .deb file that apt would download.
type debianPackage struct {
	name, version string
	file          string // its name in the cache
	sha256        string
}

// packages finds and keeps Debian packages, through the machine's own apt configuration and keys.
type packages struct {
	cache string // directory of .deb files
}

var uriLine = regexp.MustCompile(`^'[^']*' (([a-z0-9][a-z0-9+.-]*)_(.+)_[a-z0-9-]+\.deb) \d+ SHA256:([a-f0-9]{64})`)

// openPackages makes the cache directory when it is missing.
func openPackages(cache string) (packages, error) {
	return packages{cache: cache}, os.MkdirAll(cache, 0o755)
}

// closure lists names and everything they depend on, as apt would install them on an empty system, by name.
func (p packages) closure(ctx context.Context, names []string) ([]debianPackage, error) {
	args := []string{
		"install", "--print-uris", "--yes", "-qq", "--no-install-recommends",
		"-o", "Dir::State::status=/dev/null", "-o", "Debug::NoLocking=true", "-o", "Acquire::ForceHash=SHA256",
	}
	output, err := p.apt(ctx, append(args, names...))
	if err != nil {
		// The machine may have no package lists yet, or old ones.
		if _, updateErr := p.apt(ctx, []string{"update", "-qq"}); updateErr != nil {
			return nil, errors.Join(err, updateErr)
		}
		if output, err = p.apt(ctx, append(args, names...)); err != nil {
			return nil, err
		}
	}
	found, err := parseURIs(output)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(d debianPackage) bool { return slices.Contains(withoutPackages, d.name) })
	if len(found) == 0 {
		return nil, fmt.Errorf("apt-get finds no package to download for %s; it says:\n%s", strings.Join(names, ", "), output)
	}
	slices.SortFunc(found, func(a, b debianPackage) int { return strings.Compare(a.name, b.name) })
	return found, nil
}

// parseURIs reads the lines of apt-get --print-uris: 'URI' FILE SIZE HASH.
func parseURIs(output []byte) ([]debianPackage, error) {
	var found []debianPackage
	for line := range strings.Lines(string(output)) {
		if !strings.HasPrefix(line, "'") {
			continue
		}
		match := uriLine.FindStringSubmatch(line)
		if match == nil {
			return nil, fmt.Errorf("apt-get names no .deb file with a SHA-256 hash: %s", strings.TrimSpace(line))
		}
		version := strings.ReplaceAll(match[3], "%3a", ":")
		found = append(found, debianPackage{name: match[2], version: version, file: match[1], sha256: match[4]})
	}
	return found, nil
}

// fetch downloads what is not in the cache yet. apt checks signatures and hashes; the cache is checked here.
func (p packages) fetch(ctx context.Context, wanted []debianPackage) error {
	args := []string{"download", "-qq", "-o", "APT::Sandbox::User=root"}
	count := len(args)
	for _, d := range wanted {
		if p.check(d) != nil {
			args = append(args, d.name+"="+d.version)
		}
	}
	if len(args) == count {
		return nil
	}
	if _, err := p.apt(ctx, args); err != nil {
		return err
	}
	for _, d := range wanted {
		if err := p.check(d); err != nil {
			return err
		}
	}
	return nil
}

// check compares a package in the cache with its hash.
func (p packages) check(d debianPackage) error {
	content, err := os.ReadFile(filepath.Join(p.cache, d.file))
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != d.sha256 {
		return fmt.Errorf("%s: SHA-256 is %x, not %s", filepath.Join(p.cache, d.file), sum, d.sha256)
	}
	return nil
}

// unpack adds a package's files to a tree, without manuals, translations and the like, and notes the package where
// scanners look for it.
func (p packages) unpack(ctx context.Context, d debianPackage, into tree) error {
	file := filepath.Join(p.cache, d.file)
	members, err := run(ctx, "", "dpkg-deb", "--fsys-tarfile", file)
	if err != nil {
		return err
	}
	if err := into.addTar(bytes.NewReader(members), keepOfPackage); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	fields, err := run(ctx, "", "dpkg-deb", "--field", file)
	if err != nil {
		return err
	}
	into.file("var/lib/dpkg/status.d/"+d.name, 0o644, fields)
	return nil
}

// unwanted are directories of packages that no container needs. Of usr/share/doc the copyright files stay.
var unwanted = []string{
	"etc/init.d", "usr/share/bash-completion", "usr/share/bug", "usr/share/doc-base", "usr/share/fish", "usr/share/info",
	"usr/share/lintian", "usr/share/locale", "usr/share/man", "usr/share/zsh",
}

func keepOfPackage(name string) bool {
	if doc, ok := strings.CutPrefix(name, "usr/share/doc/"); ok {
		_, file, below := strings.Cut(doc, "/")
		return !below || file == "copyright"
	}
	return !slices.ContainsFunc(unwanted, func(dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") })
}

func (p packages) apt(ctx context.Context, args []string) ([]byte, error) {
	return run(ctx, p.cache, "apt-get", args...)
}

// run executes a command in dir and returns its output, or an error with what it printed.
func run(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("%s is not on this machine; images of Debian packages need Debian's apt and dpkg", name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, args[0], err, strings.TrimSpace(stderr.String()))
	}
	return output, nil
}
