package images

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const (
	// nonroot is the user of images that need no rights, as in other minimal images.
	nonroot    = "65532:65532"
	searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// recipe is how one image is made: from one of our programs, Debian packages, or both.
type recipe struct {
	// Repository, and Tag if it does not come from VersionOf.
	Repository, Tag string
	// Set is what the image belongs to: Cloud, or what is built only on request.
	Set string `json:",omitempty"`
	// Title and Description are for people.
	Title, Description string
	// Program is a file in the programs' directory; it becomes /Program.
	Program string
	// Files are files in the programs' directory, with their places in the image.
	Files map[string]string `json:",omitempty"`
	// VersionOf is the Go module in Program whose version is the tag.
	VersionOf string
	// Packages are Debian packages; what they depend on comes too.
	Packages []string
	// Applets makes busybox' links.
	Applets bool
	// Links are symbolic links, with what they lead to, that packages' maintainer scripts would make (update-alternatives). They
	// come before busybox'.
	Links map[string]string `json:",omitempty"`
	// Roots makes the bundle of certificate authorities from ca-certificates.
	Roots bool
	// Directories are empty ones that everybody may write to.
	Directories []string `json:",omitempty"`

	User       string
	Entrypoint []string
	Cmd        []string
}

// Sets of images.
const (
	// Cloud is what every cloud has in its registry.
	Cloud = ""
	// Conformance is what Kubernetes' own end-to-end tests of the network run (test/conformance). Names and tags are those
	// that the tests ask for (k8s.io/kubernetes/test/utils/image).
	Conformance = "conformance"
)

// recipes are the images, all sets.
var recipes = []recipe{
	{
		Repository: "mni/pause", Tag: "1", Title: "pause", Description: "Holds the namespaces of a Pod",
		Program: "pause", User: "65535:65535", Entrypoint: []string{"/pause"},
	},
	{
		// As user 0, so that port 53 can be had with NET_BIND_SERVICE alone, all other capabilities dropped, and without
		// file capabilities, which not every file system of a node can store.
		Repository: "mni/coredns", Title: "CoreDNS", Description: "Cluster DNS",
		Program: "mni-coredns", VersionOf: "github.com/coredns/coredns", User: "0:0", Entrypoint: []string{"/mni-coredns"},
	},
	{
		Repository: "mni/whoami", Tag: DefaultTag, Title: "whoami", Description: "Answers HTTP and UDP with its own identity",
		Program: "whoami", Packages: []string{"busybox"}, Applets: true, User: nonroot, Entrypoint: []string{"/whoami"},
	},
	{
		Repository: "mni/busybox", Tag: DefaultTag, Title: "BusyBox", Description: "Shell and small tools: httpd, wget, nc, ping, ip",
		Packages: []string{"busybox"}, Applets: true, User: "0:0", Cmd: []string{"sh"},
	},
	{
		Repository: "mni/curl", Tag: DefaultTag, Title: "curl", Description: "HTTP client, and a shell",
		Packages: []string{"busybox", "ca-certificates", "curl"}, Applets: true, Roots: true, User: nonroot,
		Entrypoint: []string{"/usr/bin/curl"}, Cmd: []string{"--help"},
	},
	{
		Repository: "e2e/agnhost", Tag: "2.63.0", Set: Conformance, Title: "agnhost", Description: "Servers and clients of Kubernetes' tests",
		// The certificate is what its TLS servers show; libc-bin has getent.
		Program: "agnhost", Files: map[string]string{"agnhost.crt": "localhost.crt", "agnhost.key": "localhost.key"},
		Packages: []string{"bash", "bind9-dnsutils", "busybox", "curl", "iproute2", "libc-bin", "netcat-openbsd"}, Applets: true,
		Links: map[string]string{"usr/bin/nc": "nc.openbsd"}, Directories: []string{"uploads"}, User: "0:0", Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"},
	},
	{
		Repository: "e2e/glibc-dns-testing", Tag: "2.0.0", Set: Conformance, Title: "glibc-dns-testing", Description: "Resolves names through glibc",
		Packages: []string{"bind9-dnsutils", "busybox", "libc-bin"}, Applets: true, User: "0:0", Cmd: []string{"sh"},
	},
	{
		Repository: "e2e/busybox", Tag: "1.37.0-1", Set: Conformance, Title: "BusyBox", Description: "Shell and small tools",
		Packages: []string{"busybox"}, Applets: true, User: "0:0", Cmd: []string{"sh"},
	},
	{
		Repository: "e2e/pause", Tag: "3.10.2", Set: Conformance, Title: "pause", Description: "Does nothing",
		Program: "pause", User: "65535:65535", Entrypoint: []string{"/pause"},
	},
}

// tag is the recipe's tag.
func (r recipe) tag(programs string) (string, error) {
	if r.VersionOf == "" {
		return r.Tag, nil
	}
	path := filepath.Join(programs, r.Program)
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	version, ok := versionIn(info, r.VersionOf)
	if !ok {
		return "", fmt.Errorf("%s is not built with module %s", path, r.VersionOf)
	}
	return version, nil
}

// versionIn is the version of a module in a program, without the leading v.
func versionIn(info *buildinfo.BuildInfo, module string) (string, bool) {
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return strings.TrimPrefix(dependency.Version, "v"), true
		}
	}
	return "", false
}

// content is what is in the image. The packages are in the cache.
func (r recipe) content(ctx context.Context, in inputs, cache packages) (tree, error) {
	content := tree{}
	for _, d := range in.chosen {
		if err := cache.unpack(ctx, d, content); err != nil {
			return nil, err
		}
	}
	for link, target := range r.Links {
		content.symlink(link, target)
	}
	if r.Applets {
		if err := applets(ctx, content); err != nil {
			return nil, err
		}
	}
	if r.Roots {
		bundle(content)
	}
	if r.Program != "" {
		content.file(r.Program, 0o755, in.program)
	}
	for name, data := range in.files {
		content.file(r.Files[name], 0o644, data)
	}
	for _, directory := range r.Directories {
		content.dir(directory, 0o1777)
	}
	content.mergeUsr()
	base(content)
	return content, nil
}

// base adds what every image has: the users that images run as, and the directories and files programs expect.
func base(content tree) {
	content.dir("root", 0o700)
	content.file("etc/nsswitch.conf", 0o644, []byte("hosts: files dns\n"))
	content.file("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\nnonroot:x:65532:65532:nonroot:/:/bin/false\n"))
	content.file("etc/group", 0o644, []byte("root:x:0:\nnogroup:x:65534:\nnonroot:x:65532:\n"))
	content.dir("tmp", 0o1777)
}

// applets adds a link to busybox for each thing it can do, as it says itself, where no package has a file of that name.
func applets(ctx context.Context, content tree) error {
	const busybox = "usr/bin/busybox"
	dir, err := os.MkdirTemp("", "mni-busybox-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "busybox")
	if err := os.WriteFile(program, content[busybox].content, 0o700); err != nil {
		return err
	}
	list, err := run(ctx, "", program, "--list")
	if err != nil {
		return err
	}
	for _, applet := range strings.Fields(string(list)) {
		if name := "usr/bin/" + applet; !content.has(name) {
			content.symlink(name, "busybox")
		}
	}
	content.dir("usr/sbin", 0o755)
	return nil
}

// bundle adds what ca-certificates' maintainer script would make.
func bundle(content tree) {
	var names []string
	for name := range content {
		if strings.HasPrefix(name, "usr/share/ca-certificates/") && strings.HasSuffix(name, ".crt") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var all bytes.Buffer
	for _, name := range names {
		all.Write(bytes.TrimSpace(content[name].content))
		all.WriteByte('\n')
	}
	content.file("etc/ssl/certs/ca-certificates.crt", 0o644, all.Bytes())
}

// config is the image's configuration.
func (r recipe) config(architecture, tag string, wanted []debianPackage) *v1.ConfigFile {
	labels := map[string]string{
		"org.opencontainers.image.title":       r.Title,
		"org.opencontainers.image.description": r.Description,
		"org.opencontainers.image.vendor":      "mNi Cloud",
	}
	if tag != DefaultTag {
		labels["org.opencontainers.image.version"] = tag
	}
	if len(wanted) > 0 {
		var list []string
		for _, d := range wanted {
			list = append(list, d.name+"="+d.version)
		}
		labels["jp.mnicloud.packages"] = strings.Join(list, " ")
	}
	return &v1.ConfigFile{
		Architecture: architecture, OS: "linux", Created: v1.Time{Time: epoch}, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{User: r.User, Env: []string{searchPath}, Entrypoint: r.Entrypoint, Cmd: r.Cmd, WorkingDir: "/", Labels: labels},
	}
}
