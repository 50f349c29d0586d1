package images

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/mnicloud/mnicloud/distro/registry"
)

// containerdNameAnnotation is how docker and containerd note an image's whole name in an OCI layout's index.
const containerdNameAnnotation = "io.containerd.image.name"

// Source is something on disk that holds images: an OCI layout's directory, or an archive of one or of docker's, gzipped
// or not.
type Source struct {
	index   v1.ImageIndex // of an OCI layout
	archive string        // docker's
	temp    string        // removed by Close
}

// OpenSource finds out what is at path. Close removes what had to be unpacked.
func OpenSource(path string) (*Source, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, errors.Unwrap(err))
	}
	if info.IsDir() {
		return openLayout(path)
	}
	temp, err := os.MkdirTemp("", "mni-image-")
	if err != nil {
		return nil, err
	}
	source, err := openArchive(path, temp)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(temp))
	}
	source.temp = temp
	return source, nil
}

// Close removes temporary files.
func (s *Source) Close() error {
	if s.temp == "" {
		return nil
	}
	return os.RemoveAll(s.temp)
}

// Content is the only image of the source, or the one that is named want (REPOSITORY:TAG) in it.
func (s *Source) Content(want string) (Content, error) {
	if s.archive != "" {
		return s.dockerImage(want)
	}
	manifest, err := s.index.IndexManifest()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, descriptor := range manifest.Manifests {
		stored := descriptor.Annotations[containerdNameAnnotation]
		if stored == "" {
			stored = descriptor.Annotations[refNameAnnotation]
		}
		if sameImage(stored, want) || len(manifest.Manifests) == 1 {
			return contentOf(s.index, descriptor)
		}
		names = append(names, stored)
	}
	return nil, several(want, names)
}

func (s *Source) dockerImage(want string) (Content, error) {
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(s.archive) })
	if err != nil {
		return nil, fmt.Errorf("manifest.json: %w", err)
	}
	if len(manifest) == 1 {
		// The library wants no tag then, whatever RepoTags says.
		return tarball.ImageFromPath(s.archive, nil)
	}
	var names []string
	for _, image := range manifest {
		for _, stored := range image.RepoTags {
			if sameImage(stored, want) {
				tag, err := name.NewTag(stored)
				if err != nil {
					return nil, err
				}
				return tarball.ImageFromPath(s.archive, &tag)
			}
			names = append(names, stored)
		}
	}
	return nil, several(want, names)
}

// sameImage tells whether a name in an archive, which may have docker's default registry in front, is want.
func sameImage(name, want string) bool {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "docker.io/"), "library/")
	return name == want || name == strings.TrimPrefix(want, registry.Name+"/")
}

func several(want string, names []string) error {
	if len(names) == 0 {
		return errors.New("it holds no image")
	}
	return fmt.Errorf("it holds %d images (%s) and none is named %s: push them under their own names, or a file with one image",
		len(names), strings.Join(names, ", "), want)
}

func openLayout(dir string) (*Source, error) {
	path, err := layout.FromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("%s is a directory but no OCI image layout (it has no index.json)", dir)
	}
	index, err := path.ImageIndex()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return &Source{index: index}, nil
}

// openArchive unpacks an OCI archive, or a gzipped docker archive, into temp.
func openArchive(path, temp string) (*Source, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	stream, gzipped, err := plain(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	kind, err := kindOf(stream)
	if err != nil {
		return nil, fmt.Errorf("%s is neither an OCI image layout or archive nor a docker archive: %w", path, err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	if stream, _, err = plain(file); err != nil {
		return nil, err
	}
	switch {
	case kind == ociArchive:
		if err := untar(stream, temp); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return openLayout(temp)
	case !gzipped:
		return &Source{archive: path}, nil
	}
	plainFile := filepath.Join(temp, "archive.tar")
	return &Source{archive: plainFile}, copyTo(plainFile, stream)
}

// plain undoes gzip, if there is any.
func plain(file io.Reader) (stream io.Reader, gzipped bool, err error) {
	buffered := bufio.NewReader(file)
	magic, err := buffered.Peek(2)
	if err != nil {
		return nil, false, errors.New("the file is empty")
	}
	if !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return buffered, false, nil
	}
	stream, err = gzip.NewReader(buffered)
	return stream, true, err
}

type archiveKind int

const (
	ociArchive archiveKind = iota
	dockerArchive
)

// kindOf looks for the file that says what an archive is. docker's newer archives are both; they are taken as OCI.
func kindOf(stream io.Reader) (archiveKind, error) {
	reader := tar.NewReader(stream)
	docker := false
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) && docker {
			return dockerArchive, nil
		}
		if errors.Is(err, io.EOF) {
			return 0, errors.New("it is a tar file without index.json or manifest.json")
		}
		if err != nil {
			return 0, err
		}
		switch strings.TrimPrefix(header.Name, "./") {
		case "index.json":
			return ociArchive, nil
		case "manifest.json":
			docker = true
		}
	}
}

// untar unpacks the files of an OCI archive into dir. os.Root keeps names that point elsewhere out.
func untar(stream io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	reader := tar.NewReader(stream)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if err := root.MkdirAll(filepath.Dir(header.Name), 0o755); err != nil {
			return err
		}
		file, err := root.Create(header.Name)
		if err != nil {
			return err
		}
		_, err = io.Copy(file, reader)
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
}

func copyTo(path string, stream io.Reader) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, stream)
	return errors.Join(err, file.Close())
}
