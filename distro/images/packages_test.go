package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// debianArchive is a package archive on disk that apt is told to use, with packages made on the spot.
type debianArchive struct {
	t   *testing.T
	dir string
}

// newDebianArchive points apt at an empty archive, with lists and state of its own. It skips the test without apt.
func newDebianArchive(t *testing.T) debianArchive {
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs Debian's package tools: %v", err)
		}
	}
	a := debianArchive{t: t, dir: t.TempDir()}
	state := t.TempDir()
	for _, dir := range []string{"lists/partial", "cache/archives/partial", "etc/preferences.d", "etc/apt.conf.d", "etc/sources.list.d", "etc/trusted.gpg.d"} {
		require.NoError(t, os.MkdirAll(filepath.Join(state, dir), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(state, "status"), nil, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(state, "etc/sources.list"), fmt.Appendf(nil, "deb [trusted=yes] copy:%s ./\n", a.dir), 0o644))
	config := filepath.Join(state, "apt.conf")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
Dir::State "%[1]s"; Dir::State::lists "%[1]s/lists"; Dir::State::status "%[1]s/status";
Dir::Cache "%[1]s/cache"; Dir::Etc "%[1]s/etc"; APT::Sandbox::User "root";
`, state), 0o644))
	t.Setenv("APT_CONFIG", config)
	return a
}

// add makes a package with files and puts the archive's index right.
func (a debianArchive) add(name, version, depends string, files map[string]string) {
	root := a.t.TempDir()
	control := fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: Test <test@example.com>\nDescription: test\n", name, version)
	if depends != "" {
		control += "Depends: " + depends + "\n"
	}
	write := func(path, content string, mode os.FileMode) {
		require.NoError(a.t, os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755))
		require.NoError(a.t, os.WriteFile(filepath.Join(root, path), []byte(content), mode))
	}
	write("DEBIAN/control", control, 0o644)
	for path, content := range files {
		write(path, content, 0o755)
	}
	require.NoError(a.t, os.Chmod(root, 0o755))
	file := fmt.Sprintf("%s_%s_all.deb", name, version)
	output, err := exec.Command("dpkg-deb", "--root-owner-group", "--build", root, filepath.Join(a.dir, file)).CombinedOutput()
	require.NoError(a.t, err, string(output))
	a.index()
}

// index writes the archive's Packages file.
func (a debianArchive) index() {
	var index strings.Builder
	files, err := filepath.Glob(filepath.Join(a.dir, "*.deb"))
	require.NoError(a.t, err)
	for _, file := range files {
		fields, err := exec.Command("dpkg-deb", "--field", file).Output()
		require.NoError(a.t, err)
		content, err := os.ReadFile(file)
		require.NoError(a.t, err)
		fmt.Fprintf(&index, "%sFilename: ./%s\nSize: %d\nSHA256: %x\n\n", fields, filepath.Base(file), len(content), sha256.Sum256(content))
	}
	require.NoError(a.t, os.WriteFile(filepath.Join(a.dir, "Packages"), []byte(index.String()), 0o644))
}

func TestAnImageOfPackagesHasWhatTheyDependOn(t *testing.T) {
	archive := newDebianArchive(t)
	archive.add("debconf", "1", "", map[string]string{"usr/bin/debconf": "asks questions"})
	archive.add("libgreet", "2:1.0", "debconf", map[string]string{"lib/libgreet.so": "library", "usr/share/doc/libgreet/copyright": "free"})
	archive.add("greet", "1.0", "libgreet (>= 1)", map[string]string{
		"bin/greet": "program", "usr/share/man/man1/greet.1": "manual",
		"usr/share/doc/greet/README": "read me",
	})
	w := newWorkshop(t)
	packaged := recipe{Repository: "test/packaged", Tag: DefaultTag, Title: "packaged", Packages: []string{"greet"}, User: "0:0", Cmd: []string{"greet"}}

	built := w.build(packaged) // apt has no lists yet: they are fetched
	image := w.image(built[0].Digest)
	layers, err := image.Layers()
	require.NoError(t, err)
	stream, err := layers[0].Uncompressed()
	require.NoError(t, err)
	content := tree{}
	require.NoError(t, content.addTar(stream, func(string) bool { return true }))
	require.Equal(t, "program", string(content["usr/bin/greet"].content))
	require.Equal(t, "library", string(content["usr/lib/libgreet.so"].content))
	require.Contains(t, content, "usr/share/doc/libgreet/copyright")
	require.Contains(t, string(content["var/lib/dpkg/status.d/greet"].content), "Version: 1.0")
	for _, absent := range []string{"usr/bin/debconf", "usr/share/man/man1/greet.1", "usr/share/doc/greet/README"} {
		require.NotContains(t, content, absent)
	}
	config, err := image.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, "greet=1.0 libgreet=2:1.0", config.Config.Labels["jp.mnicloud.packages"])

	elsewhere := newWorkshop(t)
	require.Equal(t, built[0].Digest, elsewhere.build(packaged)[0].Digest, "the same packages give the same image")
}

func TestNewerPackagesAreTakenWhenAskedFor(t *testing.T) {
	archive := newDebianArchive(t)
	archive.add("greet", "1.0", "", map[string]string{"usr/bin/greet": "old"})
	w := newWorkshop(t)
	packaged := recipe{Repository: "test/packaged", Tag: DefaultTag, Title: "packaged", Packages: []string{"greet"}, User: "0:0", Cmd: []string{"greet"}}
	first := w.build(packaged)

	archive.add("greet", "1.1", "", map[string]string{"usr/bin/greet": "new"})
	require.False(t, w.build(packaged)[0].Fresh, "an image that is there asks apt nothing")

	require.NoError(t, exec.Command("apt-get", "update", "-qq").Run())
	w.options.Refresh = true
	second := w.build(packaged)
	require.True(t, second[0].Fresh)
	require.NotEqual(t, first[0].Digest, second[0].Digest)
	require.False(t, w.build(packaged)[0].Fresh, "nothing newer")
}

func TestADamagedPackageInTheCacheIsFetchedAgain(t *testing.T) {
	archive := newDebianArchive(t)
	archive.add("greet", "1.0", "", map[string]string{"usr/bin/greet": "program"})
	cache, err := openPackages(t.TempDir())
	require.NoError(t, err)
	wanted, err := cache.closure(t.Context(), []string{"greet"})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(cache.cache, wanted[0].file), []byte("damaged"), 0o644))
	require.NoError(t, cache.fetch(t.Context(), wanted))
	require.NoError(t, cache.check(wanted[0]))
}

func TestAnUnknownPackageIsAClearError(t *testing.T) {
	newDebianArchive(t).index()
	cache, err := openPackages(t.TempDir())
	require.NoError(t, err)
	_, err = cache.closure(t.Context(), []string{"no-such-package"})
	require.ErrorContains(t, err, "Unable to locate package no-such-package")
}

func TestAnAptLineWithoutAHashIsRefused(t *testing.T) {
	_, err := parseURIs([]byte("'copy:/greet_1_all.deb' greet_1_all.deb 10 \n"))
	require.ErrorContains(t, err, "no .deb file with a SHA-256 hash")
	found, err := parseURIs(fmt.Appendf(nil, "'copy:/x' greet_1%%3a2_all.deb 10 SHA256:%064d\n", 7))
	require.NoError(t, err)
	require.Equal(t, "1:2", found[0].version)
}

func TestFilesOfAnUnmergedPackageGoWhereTheLinksLead(t *testing.T) {
	var stream bytes.Buffer
	writer := tar.NewWriter(&stream)
	for _, header := range []*tar.Header{
		{Typeflag: tar.TypeDir, Name: "./lib/", Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: "./lib/libz.so.1.2", Mode: 0o644},
		{Typeflag: tar.TypeSymlink, Name: "./lib/libz.so.1", Linkname: "libz.so.1.2"},
		{Typeflag: tar.TypeLink, Name: "./bin/also", Linkname: "./usr/bin/zz"},
		{Typeflag: tar.TypeReg, Name: "./usr/bin/zz", Mode: 0o4755},
	} {
		require.NoError(t, writer.WriteHeader(header))
	}
	require.NoError(t, writer.Close())
	content := tree{}
	require.NoError(t, content.addTar(&stream, func(string) bool { return true }))
	content.mergeUsr()

	var out bytes.Buffer
	require.NoError(t, content.write(&out))
	var names []string
	reader := tar.NewReader(&out)
	for {
		header, err := reader.Next()
		if err != nil {
			break
		}
		names = append(names, header.Name+arrow(header.Linkname))
		require.True(t, header.ModTime.Equal(epoch))
		if header.Name == "usr/bin/zz" {
			require.EqualValues(t, 0o4755, header.Mode)
		}
	}
	require.Equal(t, []string{
		"bin -> usr/bin", "lib -> usr/lib", "usr/", "usr/bin/", "usr/bin/zz", "usr/lib/", "usr/lib/libz.so.1 -> libz.so.1.2",
		"usr/lib/libz.so.1.2", "usr/bin/also -> usr/bin/zz",
	}, names)
}

func arrow(target string) string {
	if target == "" {
		return ""
	}
	return " -> " + target
}
