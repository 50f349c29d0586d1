package images

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// builderVersion is part of what an image is made from; raise it when the same inputs shall give another image.
const builderVersion = "2"

// BuildOptions say where an image build reads and writes.
type BuildOptions struct {
	// Out is the OCI layout's directory.
	Out string
	// Programs is the directory of our static programs: pause, whoami, mni-coredns.
	Programs string
	// Packages is where .deb files are kept; next to Out when empty.
	Packages string
	// Refresh asks apt for newer packages. Without it an image of packages is built once.
	Refresh bool
	// Set is the set of images to build: Cloud or Conformance.
	Set string
	// Only builds these repositories (mni/busybox) of the set; all when empty.
	Only []string
}

// Built is an image of the layout.
type Built struct {
	// Image is REPOSITORY:TAG.
	Image  string
	Digest v1.Hash
	// Fresh is false when the inputs are those of the image that was there.
	Fresh bool
}

// Build makes the cloud's images as an OCI layout. Images whose inputs did not change stay as they are; what no image needs
// any more is removed. Builds into the same directory wait for each other.
func Build(ctx context.Context, options BuildOptions, report func(Built)) error {
	chosen := selected(options.Set, options.Only)
	if len(chosen) == 0 {
		return fmt.Errorf("images: no image is called %v in the set %q", options.Only, options.Set)
	}
	return build(ctx, options, chosen, report)
}

func build(ctx context.Context, options BuildOptions, recipes []recipe, report func(Built)) error {
	if options.Packages == "" {
		options.Packages = filepath.Join(filepath.Dir(filepath.Clean(options.Out)), "packages")
	}
	out, err := openOutput(options.Out)
	if err != nil {
		return fmt.Errorf("images: %w", err)
	}
	defer out.close()
	cache, err := openPackages(options.Packages)
	if err != nil {
		return fmt.Errorf("images: %w", err)
	}
	b := builder{BuildOptions: options, out: out, cache: cache}
	for _, r := range recipes {
		built, err := b.build(ctx, r)
		if err != nil {
			return fmt.Errorf("images: %s: %w", r.Repository, err)
		}
		report(built)
	}
	if err := out.sweep(); err != nil {
		return fmt.Errorf("images: %w", err)
	}
	return nil
}

func selected(set string, only []string) []recipe {
	return slices.DeleteFunc(slices.Clone(recipes), func(r recipe) bool {
		return r.Set != set || len(only) > 0 && !slices.Contains(only, r.Repository)
	})
}

type builder struct {
	BuildOptions
	out   *output
	cache packages
}

// inputs are what an image is made from.
type inputs struct {
	tag     string
	program []byte
	// files are the contents of the recipe's Files.
	files map[string][]byte
	// recipe is the hash of everything but the packages that apt chose; packages is the hash of those, once asked for.
	recipe, packages string
	chosen           []debianPackage
}

// key stands for the inputs in the layout.
func (in inputs) key() string { return in.recipe + in.packages }

func (b builder) build(ctx context.Context, r recipe) (Built, error) {
	in, err := b.inputs(r)
	if err != nil {
		return Built{}, err
	}
	image := r.Repository + ":" + in.tag
	before, key := b.out.find(image)
	made := Built{Image: image}
	if before != nil && strings.HasPrefix(key, in.recipe) && (len(r.Packages) == 0 || !b.Refresh) {
		made.Digest = before.Digest
		return made, nil
	}
	if len(r.Packages) > 0 {
		if err := b.choose(ctx, r, &in); err != nil {
			return Built{}, err
		}
		if before != nil && key == in.key() {
			made.Digest = before.Digest
			return made, nil
		}
	}
	content, err := b.content(ctx, r, in)
	if err != nil {
		return Built{}, err
	}
	result, err := assemble(content, r.config(runtime.GOARCH, in.tag, in.chosen))
	if err != nil {
		return Built{}, err
	}
	made.Fresh = true
	if made.Digest, err = result.Digest(); err != nil {
		return Built{}, err
	}
	return made, b.out.put(r.Repository, image, in.key(), result)
}

// inputs reads the program and the files and hashes them with the recipe.
func (b builder) inputs(r recipe) (inputs, error) {
	in := inputs{files: map[string][]byte{}}
	var err error
	if r.Program != "" {
		if in.program, err = b.read(r.Program); err != nil {
			return in, err
		}
	}
	for name := range r.Files {
		if in.files[name], err = b.read(name); err != nil {
			return in, err
		}
	}
	if in.tag, err = r.tag(b.Programs); err != nil {
		return in, err
	}
	description, err := json.Marshal(r)
	if err != nil {
		return in, err
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%s %s %s %s %x", builderVersion, runtime.GOARCH, in.tag, description, sha256.Sum256(in.program))
	for _, name := range slices.Sorted(maps.Keys(in.files)) {
		fmt.Fprintf(hash, " %s %x", name, sha256.Sum256(in.files[name]))
	}
	in.recipe = fmt.Sprintf("%x", hash.Sum(nil))
	return in, nil
}

// read is a file of the programs' directory.
func (b builder) read(name string) ([]byte, error) {
	content, err := os.ReadFile(filepath.Join(b.Programs, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no program %s in %s: run `make build`", name, b.Programs)
	}
	return content, err
}

// choose asks apt for the packages and notes their hash.
func (b builder) choose(ctx context.Context, r recipe, in *inputs) error {
	chosen, err := b.cache.closure(ctx, r.Packages)
	if err != nil {
		return err
	}
	hash := sha256.New()
	in.chosen = chosen
	for _, d := range chosen {
		fmt.Fprintln(hash, d.file, d.sha256)
	}
	in.packages = fmt.Sprintf("%x", hash.Sum(nil))
	return nil
}

func (b builder) content(ctx context.Context, r recipe, in inputs) (tree, error) {
	if err := b.cache.fetch(ctx, in.chosen); err != nil {
		return nil, err
	}
	return r.content(ctx, in, b.cache)
}

// assemble makes an OCI image of one layer.
func assemble(content tree, config *v1.ConfigFile) (v1.Image, error) {
	layer, err := content.layer()
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, err
	}
	return mutate.Append(image, mutate.Addendum{
		Layer: layer, History: v1.History{Created: v1.Time{Time: epoch}, CreatedBy: "mni image build"},
	})
}
