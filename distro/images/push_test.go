package images

import (
	"bytes"
	"compress/gzip"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/distro/registry"
)

// serveRegistry runs an empty registry on loopback and opens it.
func serveRegistry(t *testing.T, state registry.State) (*Remote, registry.Client) {
	ctx, stop := context.WithCancel(t.Context())
	listening, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		ended <- registry.Serve(ctx, registry.Config{
			Address: "127.0.0.1:0", DataDir: state.DataDir(), HTPasswdFile: state.HTPasswdFile(), Listening: func(a net.Addr) { listening <- a },
		})
	}()
	client := registry.Client{Endpoint: registry.Endpoint{Address: (<-listening).String()}, PlainHTTP: true}
	opened, err := Dial(client)
	require.NoError(t, err)
	t.Cleanup(func() {
		opened.Close()
		stop()
		require.NoError(t, <-ended)
	})
	return opened, client
}

func newRegistry(t *testing.T) (*Remote, registry.Client) {
	return serveRegistry(t, registry.State{Dir: t.TempDir()})
}

func ignore(Progress) {}

func randomImage(t *testing.T) v1.Image {
	image, err := random.Image(10_000, 2)
	require.NoError(t, err)
	return image
}

func digestOf(t *testing.T, content Content) string {
	digest, err := content.Digest()
	require.NoError(t, err)
	return digest.String()
}

// pulled is the digest of what a name gives, with every blob checked.
func pulled(t *testing.T, from *Remote, image string) string {
	ref, err := from.reference(image)
	require.NoError(t, err)
	content, err := remote.Image(ref, from.with(t.Context())...)
	require.NoError(t, err)
	require.NoError(t, validate.Image(content))
	return digestOf(t, content)
}

func names(listed []Listed) []string {
	found := []string{}
	for _, image := range listed {
		found = append(found, image.Name+":"+image.Tag)
	}
	return found
}

func TestALayoutIsPushedUnderItsNamesAndASecondTimeNothingIsSent(t *testing.T) {
	w := newWorkshop(t)
	w.program("greet", "hello")
	farewell := greeter
	farewell.Repository = "test/farewell"
	built := w.build(greeter, farewell)
	server, client := newRegistry(t)

	push := func() map[string]Progress {
		last, mu := map[string]Progress{}, sync.Mutex{}
		require.NoError(t, PushLayout(t.Context(), w.options.Out, client, func(p Progress) {
			mu.Lock()
			defer mu.Unlock()
			last[p.Image] = p
		}))
		return last
	}
	first := push()
	require.Equal(t, built[0].Digest.String(), pulled(t, server, "test/greeter:1"))
	require.Equal(t, built[1].Digest.String(), pulled(t, server, "test/farewell:1"))
	require.True(t, first["test/greeter:1"].Done)
	require.Equal(t, first["test/greeter:1"].Total, first["test/greeter:1"].Complete)
	require.Positive(t, first["test/greeter:1"].Total)
	require.Equal(t, map[string]Progress{
		"test/greeter:1": {Image: "test/greeter:1", Done: true}, "test/farewell:1": {Image: "test/farewell:1", Done: true},
	}, push())
}

func TestALayoutThatIsNotThereSaysHowToMakeIt(t *testing.T) {
	_, client := newRegistry(t)
	require.ErrorContains(t, PushLayout(t.Context(), t.TempDir(), client, nil), "run `make build`")
}

func TestARegistryThatIsDownSaysSo(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	w := newWorkshop(t)
	w.program("greet", "hello")
	w.build(greeter)
	err = PushLayout(t.Context(), w.options.Out, registry.Client{Endpoint: registry.Endpoint{Address: address}, PlainHTTP: true}, nil)
	require.ErrorContains(t, err, "is the cloud up?")
}

func TestPushWithoutCredentialsIsRefusedAndSaysWhatToGive(t *testing.T) {
	state := registry.State{Dir: t.TempDir()}
	server, client := serveRegistry(t, state)
	require.NoError(t, state.AddUser("alice", "correct horse"))
	err := server.Push(t.Context(), randomImage(t), "shop", ignore)
	require.ErrorContains(t, err, "wants credentials: give --username and --password-stdin")
	_, err = server.List(t.Context())
	require.ErrorContains(t, err, "wants credentials")
	require.ErrorContains(t, collect(t.Context(), server, false, &bytes.Buffer{}), "wants credentials")

	client.Username, client.Password = "alice", "wrong"
	wrong, err := Dial(client)
	require.NoError(t, err)
	defer wrong.Close()
	require.ErrorContains(t, wrong.Push(t.Context(), randomImage(t), "shop", ignore), `refuses the credentials of "alice"`)

	client.Password = "correct horse"
	right, err := Dial(client)
	require.NoError(t, err)
	defer right.Close()
	require.NoError(t, right.Push(t.Context(), randomImage(t), "shop", ignore))
}

func TestNamesAreOfThisRegistryOnly(t *testing.T) {
	server, _ := newRegistry(t)
	for image, want := range map[string]string{
		"shop": "shop:latest", "team/shop:v2": "team/shop:v2", "registry.mni.internal/team/shop:v2": "team/shop:v2",
	} {
		ref, err := server.reference(image)
		require.NoError(t, err)
		require.Equal(t, want, shortName(ref))
	}
	for image, problem := range map[string]string{
		"example.com/shop": `names registry "example.com"`, "": "a repository is missing", "Shop": "is not NAME[:TAG]", "shop:bad tag": "is not NAME[:TAG]",
	} {
		_, err := server.reference(image)
		require.ErrorContains(t, err, problem, image)
	}
	_, err := server.tag("shop@sha256:0000000000000000000000000000000000000000000000000000000000000000")
	require.ErrorContains(t, err, "a tag is wanted")
}

func TestEveryKindOfFileIsRecognised(t *testing.T) {
	image := randomImage(t)
	dir := t.TempDir()
	docker := filepath.Join(dir, "docker.tar")
	tag, err := name.NewTag("shop:v1")
	require.NoError(t, err)
	require.NoError(t, tarball.WriteToFile(docker, tag, image))
	ociDir := filepath.Join(dir, "layout")
	_, err = layout.Write(ociDir, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: image}))
	require.NoError(t, err)
	archive := filepath.Join(dir, "oci.tar")
	output, err := exec.Command("tar", "-C", ociDir, "-cf", archive, ".").CombinedOutput()
	require.NoError(t, err, string(output))
	wantConfig, err := image.ConfigName()
	require.NoError(t, err)

	for _, path := range []string{docker, ociDir, archive, zipped(t, docker), zipped(t, archive)} {
		source, err := OpenSource(path)
		require.NoError(t, err, path)
		content, err := source.Content("anything:latest")
		require.NoError(t, err, path)
		config, err := content.(v1.Image).ConfigName()
		require.NoError(t, err)
		require.Equal(t, wantConfig, config, path)
		server, _ := newRegistry(t)
		require.NoError(t, server.Push(t.Context(), content, "shop:v1", ignore), path)
		require.NoError(t, source.Close())
		pulled(t, server, "shop:v1")
	}
}

func zipped(t *testing.T, path string) string {
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	var out bytes.Buffer
	writer := gzip.NewWriter(&out)
	_, err = writer.Write(content)
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	require.NoError(t, os.WriteFile(path+".gz", out.Bytes(), 0o644))
	return path + ".gz"
}

func TestOfSeveralImagesTheOneOfTheNameIsTaken(t *testing.T) {
	first, second := randomImage(t), randomImage(t)
	path := filepath.Join(t.TempDir(), "both.tar")
	images := map[name.Tag]v1.Image{}
	for image, content := range map[string]v1.Image{"shop:v1": first, "shop:v2": second} {
		tag, err := name.NewTag(image)
		require.NoError(t, err)
		images[tag] = content
	}
	require.NoError(t, tarball.MultiWriteToFile(path, images))
	source, err := OpenSource(path)
	require.NoError(t, err)
	defer source.Close()
	content, err := source.Content("shop:v2")
	require.NoError(t, err)
	want, err := second.ConfigName()
	require.NoError(t, err)
	got, err := content.(v1.Image).ConfigName()
	require.NoError(t, err)
	require.Equal(t, want, got)
	_, err = source.Content("shop:v3")
	require.ErrorContains(t, err, "none is named shop:v3")
}

func TestWhatIsNoImageIsAClearError(t *testing.T) {
	dir := t.TempDir()
	text, empty := filepath.Join(dir, "text"), filepath.Join(dir, "empty")
	require.NoError(t, os.WriteFile(text, bytes.Repeat([]byte("text "), 500), 0o644))
	require.NoError(t, os.WriteFile(empty, nil, 0o644))
	for path, problem := range map[string]string{
		text: "neither an OCI image layout or archive nor a docker archive", empty: "the file is empty", dir: "no OCI image layout",
		filepath.Join(dir, "none"): "no such file",
	} {
		_, err := OpenSource(path)
		require.ErrorContains(t, err, problem)
	}
}

func TestAnArchiveCannotWriteOutsideItsDirectory(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "in/deep"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "in/evil"), []byte("x"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "in/deep/index.json"), []byte("{}"), 0o644))
	archive := filepath.Join(dir, "evil.tar")
	output, err := exec.Command("tar", "-P", "-C", filepath.Join(dir, "in/deep"), "-cf", archive, "index.json", "../evil").CombinedOutput()
	require.NoError(t, err, string(output))
	_, err = OpenSource(archive)
	require.ErrorContains(t, err, "escapes")
}
