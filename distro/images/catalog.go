package images

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/sync/errgroup"
)

// Listed is a tag in the registry.
type Listed struct {
	// Name is the repository, Tag the tag.
	Name string `json:"name"`
	Tag  string `json:"tag"`
	// Digest of the manifest or index.
	Digest string `json:"digest"`
	// SizeBytes is what its manifests and compressed blobs take; blobs that images share count for each.
	SizeBytes int64 `json:"sizeBytes"`
}

// List lists the tags of all repositories, or of those whose name is or begins (at a slash) with one of prefixes.
func (r *Remote) List(ctx context.Context, prefixes ...string) ([]Listed, error) {
	repositories, err := remote.Catalog(ctx, r.registry, r.with(ctx)...)
	if err != nil {
		return nil, r.explain(err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	var mu sync.Mutex
	listed := []Listed{}
	for _, repository := range repositories {
		if !matches(repository, prefixes) {
			continue
		}
		group.Go(func() error {
			tags, err := r.tags(ctx, r.registry.Repo(repository))
			mu.Lock()
			defer mu.Unlock()
			for tag, content := range tags {
				listed = append(listed, Listed{Name: repository, Tag: tag, Digest: content.digest.String(), SizeBytes: content.size()})
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(listed, func(a, b Listed) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Tag, b.Tag))
	})
	return listed, nil
}

func matches(repository string, prefixes []string) bool {
	return len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(prefix string) bool {
		prefix = strings.TrimSuffix(prefix, "/")
		return repository == prefix || strings.HasPrefix(repository, prefix+"/")
	})
}

// manifest is what an image manifest or an index says about its parts.
type manifest struct {
	digest v1.Hash
	bytes  int64
	// Config and Layers are an image's, Manifests an index'.
	Config    *v1.Descriptor  `json:"config"`
	Layers    []v1.Descriptor `json:"layers"`
	Manifests []v1.Descriptor `json:"manifests"`
	images    []manifest
}

// size is the whole in bytes.
func (m manifest) size() int64 {
	total := m.bytes
	if m.Config != nil {
		total += m.Config.Size
	}
	for _, layer := range m.Layers {
		total += layer.Size
	}
	for _, image := range m.images {
		total += image.size()
	}
	return total
}

// children are the digests an index refers to.
func (m manifest) children() []v1.Hash {
	var digests []v1.Hash
	for _, descriptor := range m.Manifests {
		digests = append(digests, descriptor.Digest)
	}
	return digests
}

// tags reads the manifests of a repository's tags. Tags that vanish meanwhile are left out.
func (r *Remote) tags(ctx context.Context, repository name.Repository) (map[string]manifest, error) {
	names, err := remote.List(repository, r.with(ctx)...)
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, r.explain(err)
	}
	found := map[string]manifest{}
	for _, tag := range names {
		content, err := r.manifest(ctx, repository.Tag(tag))
		if isNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", shortName(repository.Tag(tag)), r.explain(err))
		}
		found[tag] = content
	}
	return found, nil
}

// manifest reads a manifest, and those of an index.
func (r *Remote) manifest(ctx context.Context, ref name.Reference) (manifest, error) {
	descriptor, err := remote.Get(ref, r.with(ctx)...)
	if err != nil {
		return manifest{}, err
	}
	content := manifest{digest: descriptor.Digest, bytes: descriptor.Size}
	if err := json.Unmarshal(descriptor.Manifest, &content); err != nil {
		return manifest{}, err
	}
	for _, child := range content.children() {
		image, err := r.manifest(ctx, ref.Context().Digest(child.String()))
		if isNotFound(err) {
			continue // an index may name platforms that were not pushed
		}
		if err != nil {
			return manifest{}, err
		}
		content.images = append(content.images, image)
	}
	return content, nil
}
