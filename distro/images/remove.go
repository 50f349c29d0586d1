package images

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Remove deletes REPOSITORY[:TAG] or REPOSITORY@DIGEST and returns its full short name. A tag's manifest goes with its last
// tag, and with an index the images that no other index of the repository's tags has. Blobs stay until a collection.
func (r *Remote) Remove(ctx context.Context, image string) (string, error) {
	ref, err := r.reference(image)
	if err != nil {
		return "", err
	}
	content, err := r.manifest(ctx, ref)
	if isNotFound(err) {
		return "", fmt.Errorf("no image %s in the registry; `mni image ls` lists what is there", shortName(ref))
	}
	if err != nil {
		return "", fmt.Errorf("rm %s: %w", image, r.explain(err))
	}
	others, err := r.tags(ctx, ref.Context())
	if err != nil {
		return "", fmt.Errorf("rm %s: %w", image, err)
	}
	if tag, ok := ref.(name.Tag); ok {
		delete(others, tag.TagStr())
		if tagged(others, content.digest) {
			return shortName(ref), r.delete(ctx, ref)
		}
	} else {
		for tag, other := range others {
			if other.digest == content.digest {
				delete(others, tag)
			}
		}
	}
	// The index goes before its images, so that a removal that is cut off leaves no index with missing images.
	if err := r.delete(ctx, ref.Context().Digest(content.digest.String())); err != nil {
		return "", err
	}
	for _, child := range content.images {
		if tagged(others, child.digest) {
			continue
		}
		if err := r.delete(ctx, ref.Context().Digest(child.digest.String())); err != nil {
			return "", err
		}
	}
	return shortName(ref), nil
}

// tagged tells whether one of tags is digest or has it in its index.
func tagged(tags map[string]manifest, digest v1.Hash) bool {
	for _, content := range tags {
		if content.digest == digest || slices.Contains(content.children(), digest) {
			return true
		}
	}
	return false
}

func (r *Remote) delete(ctx context.Context, ref name.Reference) error {
	err := remote.Delete(ref, r.with(ctx)...)
	if err == nil || isNotFound(err) {
		return nil // someone else was faster
	}
	return fmt.Errorf("rm %s: %w", shortName(ref), r.explain(err))
}
