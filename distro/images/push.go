package images

import (
	"context"
	"fmt"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/sync/errgroup"

	"github.com/mnicloud/mnicloud/distro/registry"
)

// refNameAnnotation names an image in a layout's index (OCI image specification, annotations).
const refNameAnnotation = "org.opencontainers.image.ref.name"

// Progress of a transfer, in bytes of compressed blobs.
type Progress struct {
	// Image is REPOSITORY:TAG.
	Image string
	// Complete of Total bytes are there; both are 0 when the image was there already.
	Complete, Total int64
	// Done is set once, when the tag is written or was right already.
	Done bool
}

// PushLayout brings every named image of the layout in dir to a registry, under the names in the layout (mni/whoami:latest).
// A tag that is there with the same digest costs one request, and of the others only missing blobs are sent. progress, if
// not nil, is called from several goroutines.
func PushLayout(ctx context.Context, dir string, to registry.Client, progress func(Progress)) error {
	path, err := layout.FromPath(dir)
	if err != nil {
		return fmt.Errorf("images: no OCI layout in %s: run `make build` or `mni image build`: %w", dir, err)
	}
	index, err := path.ImageIndex()
	if err != nil {
		return fmt.Errorf("images: %s: %w", dir, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return fmt.Errorf("images: %s: %w", dir, err)
	}
	server, err := Dial(to)
	if err != nil {
		return err
	}
	defer server.Close()
	if progress == nil {
		progress = func(Progress) {}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for _, descriptor := range manifest.Manifests {
		image := descriptor.Annotations[refNameAnnotation]
		if image == "" {
			continue
		}
		group.Go(func() error {
			content, err := contentOf(index, descriptor)
			if err != nil {
				return fmt.Errorf("images: %s in %s: %w", image, dir, err)
			}
			return server.Push(ctx, content, image, progress)
		})
	}
	return group.Wait()
}

// Content is an image or an index of images that can be pushed.
type Content interface {
	remote.Taggable
	Digest() (v1.Hash, error)
}

func contentOf(index v1.ImageIndex, descriptor v1.Descriptor) (Content, error) {
	if descriptor.MediaType.IsIndex() {
		return index.ImageIndex(descriptor.Digest)
	}
	return index.Image(descriptor.Digest)
}

// Push brings one image to the registry as REPOSITORY[:TAG].
func (r *Remote) Push(ctx context.Context, content Content, image string, progress func(Progress)) error {
	tag, err := r.tag(image)
	if err != nil {
		return err
	}
	digest, err := content.Digest()
	if err != nil {
		return fmt.Errorf("%s: %w", image, err)
	}
	event := Progress{Image: shortName(tag)}
	there, err := r.head(ctx, tag)
	if err != nil {
		return fmt.Errorf("push %s: %w", image, err)
	}
	if there != nil && there.Digest == digest {
		event.Done = true
		progress(event)
		return nil
	}
	updates := make(chan v1.Update, 64)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for update := range updates {
			event.Complete, event.Total = update.Complete, update.Total
			progress(event)
		}
	}()
	err = r.write(ctx, tag, content, updates)
	<-finished
	if err != nil {
		return fmt.Errorf("push %s: %w", image, r.explain(err))
	}
	event.Done = true
	progress(event)
	return nil
}

// write sends content; the library closes updates.
func (r *Remote) write(ctx context.Context, tag name.Tag, content Content, updates chan v1.Update) error {
	options := r.with(ctx, remote.WithProgress(updates))
	switch content := content.(type) {
	case v1.Image:
		return remote.Write(tag, content, options...)
	case v1.ImageIndex:
		return remote.WriteIndex(tag, content, options...)
	}
	close(updates)
	return fmt.Errorf("neither an image nor an index: %T", content)
}
