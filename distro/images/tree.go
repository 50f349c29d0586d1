package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// epoch is the modification time of every file: nothing of an image depends on when it was made.
var epoch = time.Unix(0, 0).UTC()

// tree is the content of a layer, by path without a leading slash.
type tree map[string]node

// node is a file, directory or link.
type node struct {
	kind     byte  // tar.TypeReg, TypeDir, TypeSymlink or TypeLink
	mode     int64 // permissions with set-user-ID, set-group-ID and sticky bits, as in tar
	uid, gid int
	target   string // of a link
	content  []byte
}

// merged are the directories that are links into usr/ since Debian merged them (and in every image made here).
var merged = []string{"bin", "lib", "lib32", "lib64", "libx32", "sbin"}

// place is where a path goes in a merged file system: bin/sh is usr/bin/sh.
func place(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	first, _, _ := strings.Cut(name, "/")
	if slices.Contains(merged, first) {
		return "usr/" + name
	}
	return name
}

func (t tree) dir(name string, mode int64) {
	t[place(name)] = node{kind: tar.TypeDir, mode: mode}
}

func (t tree) file(name string, mode int64, content []byte) {
	t[place(name)] = node{kind: tar.TypeReg, mode: mode, content: content}
}

func (t tree) symlink(name, target string) {
	t[place(name)] = node{kind: tar.TypeSymlink, mode: 0o777, target: target}
}

// mergeUsr adds the top-level links (bin -> usr/bin, ...) for those directories that are there.
func (t tree) mergeUsr() {
	for _, name := range merged {
		if t.has("usr/" + name) {
			t[name] = node{kind: tar.TypeSymlink, mode: 0o777, target: "usr/" + name}
		}
	}
}

// has tells whether name or something below it is in the tree.
func (t tree) has(name string) bool {
	for other := range t {
		if other == name || strings.HasPrefix(other, name+"/") {
			return true
		}
	}
	return false
}

// addTar adds the members of a tar stream that keep says yes to.
func (t tree) addTar(stream io.Reader, keep func(name string) bool) error {
	reader := tar.NewReader(stream)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := place(header.Name)
		if name == "" || !keep(name) {
			continue
		}
		n := node{kind: header.Typeflag, mode: header.Mode & 0o7777, uid: header.Uid, gid: header.Gid}
		switch header.Typeflag {
		case tar.TypeReg:
			if n.content, err = io.ReadAll(reader); err != nil {
				return err
			}
		case tar.TypeSymlink:
			n.target = header.Linkname
		case tar.TypeLink:
			n.target = place(header.Linkname)
		case tar.TypeDir:
			if before, ok := t[name]; ok && before.kind == tar.TypeDir {
				continue
			}
		default:
			return fmt.Errorf("%s: members of type %q are not supported", name, header.Typeflag)
		}
		t[name] = n
	}
}

// withParents adds the missing directories above every entry, and drops directories that a link stands for.
func (t tree) withParents() tree {
	whole := maps.Clone(t)
	for name := range t {
		for parent := path.Dir(name); parent != "."; parent = path.Dir(parent) {
			if _, ok := whole[parent]; !ok {
				whole[parent] = node{kind: tar.TypeDir, mode: 0o755}
			}
		}
	}
	return whole
}

// write writes the tree as a tar stream: sorted, so that parents come first, hard links last (they follow their targets).
func (t tree) write(to io.Writer) error {
	whole := t.withParents()
	names := slices.SortedFunc(maps.Keys(whole), func(a, b string) int {
		if la, lb := whole[a].kind == tar.TypeLink, whole[b].kind == tar.TypeLink; la != lb {
			if la {
				return 1
			}
			return -1
		}
		return strings.Compare(a, b)
	})
	writer := tar.NewWriter(to)
	for _, name := range names {
		n := whole[name]
		header := &tar.Header{
			Typeflag: n.kind, Name: name, Linkname: n.target, Size: int64(len(n.content)), Mode: n.mode,
			Uid: n.uid, Gid: n.gid, ModTime: epoch, Format: tar.FormatPAX,
		}
		if n.kind == tar.TypeDir {
			header.Name += "/"
		}
		if err := writer.WriteHeader(header); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if _, err := writer.Write(n.content); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return writer.Close()
}

// layer is the tree as a gzipped OCI layer.
func (t tree) layer() (v1.Layer, error) {
	var content bytes.Buffer
	if err := t.write(&content); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression),
		tarball.WithCompressedCaching)
}
