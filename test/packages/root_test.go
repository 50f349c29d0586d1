//go:build e2e

package packages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// repository is the folder of the project: a test's working directory is its package.
func repository() string {
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		panic(err)
	}
	return dir
}

// mirror is one entry of the machine's own apt configuration.
type mirror struct{ uri, codename, label string }

// mirrors are the Debian entries of the machine's apt configuration for its own release, the release itself first.
func mirrors(t *testing.T) []mirror {
	t.Helper()
	release := osRelease(t, "VERSION_CODENAME")
	list := configured(t, release)
	if len(list) == 0 { // apt knows what a source is only once it has its lists
		mustRun(t, "apt-get", "update", "--quiet")
		list = configured(t, release)
	}
	require.NotEmpty(t, list, "the machine's apt configuration has no Debian mirror of its release %q", release)
	require.Equal(t, release, list[0].codename)
	return list
}

// configured reads the mirrors of a release and of its updates from the machine's apt configuration.
func configured(t *testing.T, release string) []mirror {
	t.Helper()
	out, err := exec.Command("apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(LABEL)",
		"Created-By: Packages", "Origin: Debian", "Component: main").Output()
	require.NoError(t, err, "read the machine's apt configuration")
	var list []mirror
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) != 3 || !strings.HasPrefix(fields[1], release) {
			continue
		}
		m := mirror{fields[0], fields[1], fields[2]}
		if m.codename == release {
			list = append([]mirror{m}, list...)
		} else {
			list = append(list, m)
		}
	}
	return list
}

// osRelease is a field of os-release(5).
func osRelease(t *testing.T, field string) string {
	t.Helper()
	data, err := os.ReadFile("/etc/os-release")
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), field+"="); ok {
			return strings.Trim(value, `"`)
		}
	}
	t.Fatalf("no %s in /etc/os-release", field)
	return ""
}

// bareTar is the bare root as an archive, made once and kept under build/.
func bareTar(t *testing.T) string {
	t.Helper()
	from := mirrors(t)[0]
	tar := filepath.Join(repository(), "build", "debian-"+from.codename+"-minbase.tar")
	if _, err := os.Stat(tar); err == nil {
		return tar
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(tar), 0o755))
	dir, err := os.MkdirTemp(filepath.Dir(tar), "debootstrap-") //nolint:usetesting // /tmp may be small, or mounted nodev or noexec
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	bare := filepath.Join(dir, "root")
	// A mount namespace of its own: debootstrap's /proc and /sys go with it, whatever happens.
	mustRun(t, "unshare", "--mount", "--", "debootstrap", "--variant=minbase", from.codename, bare, from.uri)
	mustRun(t, "chroot", bare, "apt-get", "clean")
	mustRun(t, "tar", "--create", "--file", tar+".new", "--one-file-system", "--directory", bare, ".")
	require.NoError(t, os.Rename(tar+".new", tar))
	return tar
}

func mustRun(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %s\n%s", name, strings.Join(args, " "), out)
}

// debian is a bare Debian with the mni command in it.
type debian struct {
	t   *testing.T
	dir string
}

// bareDebian unpacks a fresh bare Debian that uses the machine's own mirrors. It is gone when the test ends.
func bareDebian(t *testing.T) debian {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("makes a root file system and installs packages in it, which only root may: run it with sudo")
	}
	tar := bareTar(t)
	dir, err := os.MkdirTemp(filepath.Join(repository(), "build"), "debian-") //nolint:usetesting // /tmp may be small, or mounted nodev or noexec
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	mustRun(t, "tar", "--extract", "--file", tar, "--directory", dir)
	mustRun(t, "install", "-m", "755", filepath.Join(repository(), "bin", "mni"), filepath.Join(dir, "usr/local/bin/mni"))
	require.NoError(t, os.MkdirAll(archives(), 0o755))
	d := debian{t, dir}
	d.write("/etc/dpkg/dpkg.cfg.d/unsafe-io", "force-unsafe-io\n", 0o644) // the root is thrown away: no need to wait for the disk
	for _, file := range []string{"/etc/resolv.conf", "/etc/hosts"} {
		if data, err := os.ReadFile(file); err == nil {
			d.write(file, string(data), 0o644)
		}
	}
	var sources strings.Builder
	for _, m := range mirrors(t) {
		fmt.Fprintf(&sources, "deb %s %s main\n", m.uri, m.codename)
	}
	d.write("/etc/apt/sources.list", sources.String(), 0o644)
	out, err := exec.Command("apt-config", "dump", "--format", "%F %v;%n").Output()
	require.NoError(t, err)
	var acquire strings.Builder // proxies and the like
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "Acquire::http") || strings.HasPrefix(line, "Acquire::Check-") {
			name, value, _ := strings.Cut(strings.TrimSuffix(strings.TrimSpace(line), ";"), " ")
			fmt.Fprintf(&acquire, "%s %q;\n", name, value)
		}
	}
	d.write("/etc/apt/apt.conf.d/99machine", acquire.String(), 0o644)
	return d
}

func (d debian) path(path string) string { return filepath.Join(d.dir, path) }

func (d debian) write(path, content string, mode os.FileMode) {
	d.t.Helper()
	require.NoError(d.t, os.MkdirAll(filepath.Dir(d.path(path)), 0o755))
	require.NoError(d.t, os.WriteFile(d.path(path), []byte(content), mode))
	require.NoError(d.t, os.Chmod(d.path(path), mode))
}

func (d debian) read(path string) string {
	d.t.Helper()
	data, err := os.ReadFile(d.path(path))
	require.NoError(d.t, err)
	return string(data)
}

// archives is where downloaded packages are kept from one test to the next.
func archives() string { return filepath.Join(repository(), "build", "archives") }

// enter mounts what a Debian has mounted, over the folder that is its first argument, and runs the rest of the arguments in it.
const enter = `set -e
root=$1 archives=$2; shift 2
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
mount --bind "$archives" "$root/var/cache/apt/archives"
exec chroot "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"`

// run runs a command in the root, in mount and process namespaces of its own: whatever it starts ends with it. It returns
// what was printed, and the exit code.
func (d debian) run(args ...string) (string, int) {
	d.t.Helper()
	return d.runContext(d.t.Context(), args...)
}

func (d debian) runContext(ctx context.Context, args ...string) (string, int) {
	d.t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "unshare", append([]string{
		"--mount", "--pid", "--fork", "--kill-child", "--", "sh", "-c", enter, "sh", d.dir, archives(),
	}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		d.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out.String())
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// must is run for what has to succeed.
func (d debian) must(args ...string) string {
	d.t.Helper()
	out, code := d.run(args...)
	require.Zero(d.t, code, "%s\n%s", strings.Join(args, " "), out)
	return out
}
