package registry_test

import (
	"net/http"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/distro/registry"
)

func layersOf(t *testing.T, image v1.Image) []v1.Layer {
	layers, err := image.Layers()
	require.NoError(t, err)
	return layers
}

func TestCollectingFreesWhatNoManifestRefersTo(t *testing.T) {
	r := start(t, registry.State{Dir: t.TempDir()})
	kept, gone := randomImage(t), randomImage(t)
	r.push("app:kept", kept)
	r.push("app:gone", gone)
	digest, err := gone.Digest()
	require.NoError(t, err)
	require.Equal(t, http.StatusAccepted, r.request(http.MethodDelete, "/v2/app/manifests/"+digest.String(), "", ""))

	result, err := r.client.Collect(t.Context(), false)
	require.NoError(t, err)
	require.Greater(t, result.FreedBytes, int64(3000), "three layers of 1000 bytes")
	r.pullable("app:kept", kept)
	again, err := r.client.Collect(t.Context(), false)
	require.NoError(t, err)
	require.Zero(t, again.FreedBytes)
	require.Equal(t, result.UsedBytes, again.UsedBytes)
}

func TestCollectingInAnEmptyRegistryIsFine(t *testing.T) {
	r := start(t, registry.State{Dir: t.TempDir()})
	result, err := r.client.Collect(t.Context(), true)
	require.NoError(t, err)
	require.Equal(t, registry.Collected{}, result)
}

// The blobs of a push are there before the manifest that refers to them.
func TestCollectingDuringAPushTakesNothingFromIt(t *testing.T) {
	for _, untagged := range []bool{false, true} {
		r := start(t, registry.State{Dir: t.TempDir()})
		image := randomImage(t)
		for _, layer := range layersOf(t, image) {
			require.NoError(t, remote.WriteLayer(r.ref("app:v1").Context(), layer, r.options("", "")...))
		}
		_, err := r.client.Collect(t.Context(), untagged)
		require.NoError(t, err)
		for _, layer := range layersOf(t, image) {
			digest, err := layer.Digest()
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, r.request(http.MethodHead, "/v2/app/blobs/"+digest.String(), "", ""))
		}
		r.push("app:v1", image)
		r.pullable("app:v1", image)
	}
}

// A push that finds a blob there does not send it, so the blob must stay although what held it is deleted meanwhile.
func TestABlobThatAPushWasToldOfStays(t *testing.T) {
	r := start(t, registry.State{Dir: t.TempDir()})
	old := randomImage(t)
	r.push("app:v1", old)
	digest, err := layersOf(t, old)[0].Digest()
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, r.request(http.MethodHead, "/v2/app/blobs/"+digest.String(), "", ""))

	manifest, err := old.Digest()
	require.NoError(t, err)
	require.Equal(t, http.StatusAccepted, r.request(http.MethodDelete, "/v2/app/manifests/"+manifest.String(), "", ""))
	_, err = r.client.Collect(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, r.request(http.MethodHead, "/v2/app/blobs/"+digest.String(), "", ""))

	// The push ends with an image on that layer; once this is deleted too, the layer goes.
	renewed, err := mutate.AppendLayers(empty.Image, layersOf(t, old)[0])
	require.NoError(t, err)
	r.push("app:v2", renewed)
	manifest, err = renewed.Digest()
	require.NoError(t, err)
	require.Equal(t, http.StatusAccepted, r.request(http.MethodDelete, "/v2/app/manifests/"+manifest.String(), "", ""))
	_, err = r.client.Collect(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, r.request(http.MethodHead, "/v2/app/blobs/"+digest.String(), "", ""))
}

// The images of an index are written by digest, without a tag, before the index.
func TestImagesOfAnIndexThatIsBeingPushedStay(t *testing.T) {
	r := start(t, registry.State{Dir: t.TempDir()})
	image := randomImage(t)
	digest, err := image.Digest()
	require.NoError(t, err)
	require.NoError(t, remote.Write(r.ref("app@"+digest.String()), image, r.options("", "")...))
	_, err = r.client.Collect(t.Context(), true)
	require.NoError(t, err)
	r.pullable("app@"+digest.String(), image)

	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: image})
	require.NoError(t, remote.WriteIndex(r.ref("app:v1"), index, r.options("", "")...))
	_, err = r.client.Collect(t.Context(), true)
	require.NoError(t, err)
	r.pullable("app@"+digest.String(), image)
}

func TestAManifestWithMissingBlobsIsRefused(t *testing.T) {
	r := start(t, registry.State{Dir: t.TempDir()})
	pusher, err := remote.NewPusher(r.options("", "")...)
	require.NoError(t, err)
	err = pusher.Put(t.Context(), r.ref("app:v1"), randomImage(t))
	require.ErrorContains(t, err, "MANIFEST_BLOB_UNKNOWN")
}
