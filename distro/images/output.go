package images

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// inputsAnnotation holds, on an image in the layout's index, the key of what it was made from.
const inputsAnnotation = "jp.mnicloud.inputs"

// output is an OCI layout that is being written; the directory is locked meanwhile.
type output struct {
	path  layout.Path
	index v1.IndexManifest
	lock  *os.File
}

// openOutput opens the layout in dir, or begins one.
func openOutput(dir string) (*output, error) {
	if err := os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o755); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), lock.Close())
	}
	o := &output{path: layout.Path(dir), lock: lock}
	content, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err == nil {
		err = json.Unmarshal(content, &o.index)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("%s: %w", dir, err), lock.Close())
	}
	o.index.SchemaVersion, o.index.MediaType = 2, types.OCIImageIndex
	return o, nil
}

func (o *output) close() { _ = o.lock.Close() }

// find returns the descriptor of an image that is there with all its blobs, and the key of its inputs.
func (o *output) find(image string) (*v1.Descriptor, string) {
	for _, descriptor := range o.index.Manifests {
		if descriptor.Annotations[refNameAnnotation] == image && o.complete(descriptor) {
			return &descriptor, descriptor.Annotations[inputsAnnotation]
		}
	}
	return nil, ""
}

// complete tells whether the blobs of an image are there with the right sizes.
func (o *output) complete(descriptor v1.Descriptor) bool {
	image, err := o.path.Image(descriptor.Digest)
	if err != nil {
		return false
	}
	manifest, err := image.Manifest()
	if err != nil {
		return false
	}
	for _, blob := range append(manifest.Layers, manifest.Config) {
		info, err := os.Stat(o.blob(blob.Digest))
		if err != nil || info.Size() != blob.Size {
			return false
		}
	}
	return true
}

func (o *output) blob(hash v1.Hash) string {
	return filepath.Join(string(o.path), "blobs", hash.Algorithm, hash.Hex)
}

// put writes an image; it takes the place of every other image of its repository.
func (o *output) put(repository, image, key string, content v1.Image) error {
	if err := o.write(content); err != nil {
		return err
	}
	descriptor, err := partial.Descriptor(content)
	if err != nil {
		return err
	}
	descriptor.Annotations = map[string]string{refNameAnnotation: image, inputsAnnotation: key}
	o.index.Manifests = slices.DeleteFunc(o.index.Manifests, func(d v1.Descriptor) bool {
		return strings.HasPrefix(d.Annotations[refNameAnnotation], repository+":")
	})
	o.index.Manifests = append(o.index.Manifests, *descriptor)
	slices.SortFunc(o.index.Manifests, func(a, b v1.Descriptor) int {
		return strings.Compare(a.Annotations[refNameAnnotation], b.Annotations[refNameAnnotation])
	})
	raw, err := json.MarshalIndent(o.index, "", "  ")
	if err != nil {
		return err
	}
	if err := o.path.WriteFile("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644); err != nil {
		return err
	}
	if err := o.path.WriteFile("index.json.new", raw, 0o644); err != nil {
		return err
	}
	return os.Rename(filepath.Join(string(o.path), "index.json.new"), filepath.Join(string(o.path), "index.json"))
}

// write stores an image's blobs. What a build that was cut off may have left half-written is removed first, since the
// library takes a file that exists for complete.
func (o *output) write(content v1.Image) error {
	config, err := content.ConfigName()
	if err != nil {
		return err
	}
	digest, err := content.Digest()
	if err != nil {
		return err
	}
	if err := errors.Join(o.path.RemoveBlob(config), o.path.RemoveBlob(digest)); err != nil {
		return err
	}
	return o.path.WriteImage(content)
}

// sweep removes blobs that no image of the index needs.
func (o *output) sweep() error {
	keep := map[string]bool{}
	for _, descriptor := range o.index.Manifests {
		image, err := o.path.Image(descriptor.Digest)
		if err != nil {
			return err
		}
		manifest, err := image.Manifest()
		if err != nil {
			return err
		}
		keep[descriptor.Digest.Hex] = true
		for _, blob := range append(manifest.Layers, manifest.Config) {
			keep[blob.Digest.Hex] = true
		}
	}
	dir := filepath.Join(string(o.path), "blobs", "sha256")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !keep[entry.Name()] {
			if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
