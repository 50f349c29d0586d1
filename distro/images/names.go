package images

import (
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/mnicloud/mnicloud/distro/registry"
)

// DefaultTag is the tag of a name without one.
const DefaultTag = "latest"

// tag parses REPOSITORY[:TAG], with or without the registry's own name in front, as a tag on this registry.
func (r *Remote) tag(image string) (name.Tag, error) {
	ref, err := r.reference(image)
	if err != nil {
		return name.Tag{}, err
	}
	tag, ok := ref.(name.Tag)
	if !ok {
		return name.Tag{}, fmt.Errorf("image name %q: a tag is wanted here, not a digest", image)
	}
	return tag, nil
}

// reference parses REPOSITORY[:TAG] or REPOSITORY@DIGEST, with or without the registry's own name in front. Naming
// another registry is refused: nothing may go elsewhere by mistake.
func (r *Remote) reference(image string) (name.Reference, error) {
	local := strings.TrimPrefix(image, registry.Name+"/")
	if first, _, more := strings.Cut(local, "/"); more && strings.ContainsAny(first, ".:") {
		return nil, fmt.Errorf("image name %q names registry %q: this is about the cloud's own registry; write %s/NAME[:TAG] or just NAME[:TAG]",
			image, first, registry.Name)
	}
	if local == "" {
		return nil, fmt.Errorf("image name %q: a repository is missing; write NAME[:TAG]", image)
	}
	ref, err := name.ParseReference(r.registry.Name()+"/"+local, name.WithDefaultTag(DefaultTag))
	if err != nil {
		return nil, fmt.Errorf("image name %q is not NAME[:TAG] or NAME@sha256:DIGEST (lower-case letters, digits and . _ - /): %w", image, err)
	}
	return ref, nil
}

// shortName is a reference without the registry.
func shortName(ref name.Reference) string {
	if digest, ok := ref.(name.Digest); ok {
		return ref.Context().RepositoryStr() + "@" + digest.DigestStr()
	}
	return ref.Context().RepositoryStr() + ":" + ref.Identifier()
}
