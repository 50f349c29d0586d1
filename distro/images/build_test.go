package images

import (
	"debug/buildinfo"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"
)

var greeter = recipe{
	Repository: "test/greeter", Tag: "1", Title: "greeter", Program: "greet", User: nonroot, Entrypoint: []string{"/greet"},
}

// workshop is a place with programs to build images from.
type workshop struct {
	t       *testing.T
	options BuildOptions
}

func newWorkshop(t *testing.T) workshop {
	dir := t.TempDir()
	w := workshop{t: t, options: BuildOptions{Out: filepath.Join(dir, "images"), Programs: filepath.Join(dir, "bin"), Packages: filepath.Join(dir, "packages")}}
	require.NoError(t, os.Mkdir(w.options.Programs, 0o755))
	return w
}

func (w workshop) program(name, content string) {
	require.NoError(w.t, os.WriteFile(filepath.Join(w.options.Programs, name), []byte(content), 0o755))
}

func (w workshop) build(recipes ...recipe) []Built {
	var all []Built
	require.NoError(w.t, build(w.t.Context(), w.options, recipes, func(b Built) { all = append(all, b) }))
	return all
}

func (w workshop) image(digest v1.Hash) v1.Image {
	image, err := layout.Path(w.options.Out).Image(digest)
	require.NoError(w.t, err)
	return image
}

// content is what is in an image.
func (w workshop) content(digest v1.Hash) tree {
	layers, err := w.image(digest).Layers()
	require.NoError(w.t, err)
	stream, err := layers[0].Uncompressed()
	require.NoError(w.t, err)
	content := tree{}
	require.NoError(w.t, content.addTar(stream, func(string) bool { return true }))
	return content
}

func (w workshop) blobs() []string {
	entries, err := os.ReadDir(filepath.Join(w.options.Out, "blobs", "sha256"))
	require.NoError(w.t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestTheSameInputsGiveTheSameDigestWhereverAndWheneverTheyAreBuilt(t *testing.T) {
	one, other := newWorkshop(t), newWorkshop(t)
	one.program("greet", "hello")
	other.program("greet", "hello")
	past := time.Now().Add(-1000 * time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(other.options.Programs, "greet"), past, past))

	require.Equal(t, one.build(greeter)[0].Digest, other.build(greeter)[0].Digest)
}

func TestAnImageIsWhatItsRecipeSays(t *testing.T) {
	w := newWorkshop(t)
	w.program("greet", "hello")
	built := w.build(greeter)
	image := w.image(built[0].Digest)
	require.NoError(t, validate.Image(image))
	config, err := image.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, "linux", config.OS)
	require.Equal(t, "layers", config.RootFS.Type)
	require.Equal(t, []string{"/greet"}, config.Config.Entrypoint)
	require.Equal(t, nonroot, config.Config.User)
	require.Equal(t, []string{searchPath}, config.Config.Env)
	require.Equal(t, "1", config.Config.Labels["org.opencontainers.image.version"])

	content := w.content(built[0].Digest)
	require.Equal(t, "hello", string(content["greet"].content))
	require.EqualValues(t, 0o755, content["greet"].mode)
	require.EqualValues(t, 0o1777, content["tmp"].mode)
	require.Contains(t, string(content["etc/passwd"].content), "nonroot:x:65532")
}

func TestUnchangedInputsAreNotBuiltAgain(t *testing.T) {
	w := newWorkshop(t)
	w.program("greet", "hello")
	first := w.build(greeter)
	require.True(t, first[0].Fresh)
	second := w.build(greeter)
	require.False(t, second[0].Fresh)
	require.Equal(t, first[0].Digest, second[0].Digest)
}

func TestAChangedProgramGivesAnotherImageInPlaceOfTheOld(t *testing.T) {
	w := newWorkshop(t)
	w.program("greet", "hello")
	first := w.build(greeter)
	w.program("greet", "good evening")
	second := w.build(greeter)
	require.True(t, second[0].Fresh)
	require.NotEqual(t, first[0].Digest, second[0].Digest)
	require.Len(t, w.blobs(), 3, "manifest, config and layer of the new image, nothing of the old")
	require.NoError(t, validate.Image(w.image(second[0].Digest)))
}

func TestAFileIsInItsPlaceAndAChangedOneGivesAnotherImage(t *testing.T) {
	w := newWorkshop(t)
	w.program("greet", "hello")
	w.program("greet.crt", "a certificate")
	shown := greeter
	shown.Files = map[string]string{"greet.crt": "localhost.crt"}
	first := w.build(shown)
	require.Equal(t, "a certificate", string(w.content(first[0].Digest)["localhost.crt"].content))
	w.program("greet.crt", "another")
	second := w.build(shown)
	require.True(t, second[0].Fresh)
	require.Equal(t, "another", string(w.content(second[0].Digest)["localhost.crt"].content))
}

func TestADamagedLayoutIsRepaired(t *testing.T) {
	w := newWorkshop(t)
	w.program("greet", "hello")
	digest := w.build(greeter)[0].Digest
	for _, blob := range w.blobs() {
		require.NoError(t, os.Truncate(filepath.Join(w.options.Out, "blobs", "sha256", blob), 1))
		require.True(t, w.build(greeter)[0].Fresh)
		require.NoError(t, validate.Image(w.image(digest)))
	}
}

func TestAMissingProgramIsNamed(t *testing.T) {
	w := newWorkshop(t)
	err := build(t.Context(), w.options, []recipe{greeter}, func(Built) {})
	require.ErrorContains(t, err, "test/greeter: no program greet in "+w.options.Programs)
}

func TestTheVersionOfAModuleInTheProgramIsTheTag(t *testing.T) {
	info := &buildinfo.BuildInfo{Deps: []*debug.Module{{Path: "example.com/other", Version: "v9.0.0"}, {Path: "example.com/greet", Version: "v1.2.3"}}}
	version, ok := versionIn(info, "example.com/greet")
	require.True(t, ok)
	require.Equal(t, "1.2.3", version)
	_, ok = versionIn(info, "example.com/none")
	require.False(t, ok)
}

func TestAProgramThatIsNoGoProgramHasNoVersion(t *testing.T) {
	w := newWorkshop(t)
	w.program("greet", "hello")
	versioned := greeter
	versioned.Tag, versioned.VersionOf = "", "example.com/greet"
	err := build(t.Context(), w.options, []recipe{versioned}, func(Built) {})
	require.ErrorContains(t, err, "greet")
}

func TestEveryRecipeHasWhatAnImageNeeds(t *testing.T) {
	for _, r := range recipes {
		require.Regexp(t, map[string]string{Cloud: `^mni/[a-z]+$`, Conformance: `^e2e/[a-z-]+$`}[r.Set], r.Repository)
		require.True(t, (r.Tag == "") != (r.VersionOf == ""), "%s: a tag, or a module whose version it is", r.Repository)
		require.NotEmpty(t, r.User, r.Repository)
		require.NotEmpty(t, r.Title, r.Repository)
		require.True(t, r.Program != "" || len(r.Packages) > 0, r.Repository)
		require.True(t, len(r.Entrypoint) > 0 || len(r.Cmd) > 0, r.Repository)
	}
}
