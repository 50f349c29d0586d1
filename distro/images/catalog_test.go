package images

import (
	"bytes"
	"encoding/json"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/stretchr/testify/require"
)

func TestImagesAreListedByNameWithDigestAndSize(t *testing.T) {
	server, _ := newRegistry(t)
	image := randomImage(t)
	for _, tag := range []string{"team/shop:v2", "team/shop:v1", "teapot:latest"} {
		require.NoError(t, server.Push(t.Context(), image, tag, ignore))
	}
	listed, err := server.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"team/shop:v1", "team/shop:v2", "teapot:latest"}, names(listed))
	require.Equal(t, digestOf(t, image), listed[0].Digest)
	require.Equal(t, sizeOf(t, image), listed[0].SizeBytes)

	listed, err = server.List(t.Context(), "team/")
	require.NoError(t, err)
	require.Equal(t, []string{"team/shop:v1", "team/shop:v2"}, names(listed))
}

func sizeOf(t *testing.T, image v1.Image) int64 {
	parts, err := image.Manifest()
	require.NoError(t, err)
	total, err := image.Size()
	require.NoError(t, err)
	total += parts.Config.Size
	for _, layer := range parts.Layers {
		total += layer.Size
	}
	return total
}

func TestAnEmptyRegistryListsNothing(t *testing.T) {
	server, _ := newRegistry(t)
	listed, err := server.List(t.Context())
	require.NoError(t, err)
	require.Empty(t, listed)
	var out bytes.Buffer
	require.NoError(t, listFormats["json"](&out, listed))
	require.JSONEq(t, "[]", out.String())
}

func TestListsInEveryFormat(t *testing.T) {
	listed := []Listed{{Name: "shop", Tag: "v1", Digest: "sha256:0123456789abcdef", SizeBytes: 2_500_000}}
	for format, want := range map[string]string{
		"table": "NAME   TAG   DIGEST                SIZE\nshop   v1    sha256:0123456789ab   2.5 MB\n",
		"wide":  "NAME   TAG   DIGEST                    SIZE\nshop   v1    sha256:0123456789abcdef   2.5 MB\n",
		"yaml":  "- digest: sha256:0123456789abcdef\n  name: shop\n  sizeBytes: 2500000\n  tag: v1\n",
		"name":  "registry.mni.internal/shop:v1\n",
	} {
		var out bytes.Buffer
		require.NoError(t, listFormats[format](&out, listed))
		require.Equal(t, want, out.String(), format)
	}
	var out bytes.Buffer
	require.NoError(t, listFormats["json"](&out, listed))
	var back []Listed
	require.NoError(t, json.Unmarshal(out.Bytes(), &back))
	require.Equal(t, listed, back)
}

func TestRemovingOneOfTwoTagsKeepsTheImage(t *testing.T) {
	server, client := newRegistry(t)
	image := randomImage(t)
	require.NoError(t, server.Push(t.Context(), image, "shop:v1", ignore))
	require.NoError(t, server.Push(t.Context(), image, "shop:stable", ignore))

	removed, err := server.Remove(t.Context(), "shop:v1")
	require.NoError(t, err)
	require.Equal(t, "shop:v1", removed)
	_, err = client.Collect(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, digestOf(t, image), pulled(t, server, "shop:stable"))
	listed, err := server.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"shop:stable"}, names(listed))
}

func TestRemovingTheLastTagFreesTheSpace(t *testing.T) {
	server, client := newRegistry(t)
	kept, gone := randomImage(t), randomImage(t)
	require.NoError(t, server.Push(t.Context(), kept, "shop:v1", ignore))
	before, err := client.Collect(t.Context(), false)
	require.NoError(t, err)
	require.NoError(t, server.Push(t.Context(), gone, "shop:v2", ignore))

	_, err = server.Remove(t.Context(), "shop:v2")
	require.NoError(t, err)
	after, err := client.Collect(t.Context(), false)
	require.NoError(t, err)
	require.GreaterOrEqual(t, after.FreedBytes, sizeOf(t, gone))
	require.Less(t, after.UsedBytes-before.UsedBytes, int64(1000), "only small links may be left")
	require.Equal(t, digestOf(t, kept), pulled(t, server, "shop:v1"))
}

func TestRemovingByDigestTakesAllItsTags(t *testing.T) {
	server, _ := newRegistry(t)
	image := randomImage(t)
	for _, tag := range []string{"shop:v1", "shop:stable"} {
		require.NoError(t, server.Push(t.Context(), image, tag, ignore))
	}
	require.NoError(t, server.Push(t.Context(), randomImage(t), "shop:v2", ignore))
	_, err := server.Remove(t.Context(), "shop@"+digestOf(t, image))
	require.NoError(t, err)
	listed, err := server.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"shop:v2"}, names(listed))
}

func TestAnIndexGoesWithTheImagesThatNoOtherIndexHas(t *testing.T) {
	server, client := newRegistry(t)
	shared, own := randomImage(t), randomImage(t)
	base, err := random.Index(10, 1, 0)
	require.NoError(t, err)
	both := mutate.AppendManifests(base, mutate.IndexAddendum{Add: shared}, mutate.IndexAddendum{Add: own})
	one := mutate.AppendManifests(base, mutate.IndexAddendum{Add: shared})
	require.NoError(t, server.Push(t.Context(), both, "shop:both", ignore))
	require.NoError(t, server.Push(t.Context(), one, "shop:one", ignore))
	listed, err := server.List(t.Context())
	require.NoError(t, err)
	require.Greater(t, listed[0].SizeBytes, sizeOf(t, shared)+sizeOf(t, own))

	_, err = server.Remove(t.Context(), "shop:both")
	require.NoError(t, err)
	result, err := client.Collect(t.Context(), false)
	require.NoError(t, err)
	require.GreaterOrEqual(t, result.FreedBytes, sizeOf(t, own))
	pulled(t, server, "shop@"+digestOf(t, shared))
	_, err = server.Remove(t.Context(), "shop@"+digestOf(t, own))
	require.ErrorContains(t, err, "no image shop@")
}

func TestRemovingWhatIsNotThereSaysHowToFindWhatIs(t *testing.T) {
	server, _ := newRegistry(t)
	_, err := server.Remove(t.Context(), "shop:v1")
	require.ErrorContains(t, err, "no image shop:v1 in the registry; `mni image ls` lists")
	require.NoError(t, server.Push(t.Context(), randomImage(t), "shop:v1", ignore))
	_, err = server.Remove(t.Context(), "shop:v2")
	require.ErrorContains(t, err, "no image shop:v2")
}

func TestAnImageWithoutATagGoesOnlyWhenAskedFor(t *testing.T) {
	server, client := newRegistry(t)
	old, renewed := randomImage(t), randomImage(t)
	require.NoError(t, server.Push(t.Context(), old, "shop:v1", ignore))
	require.NoError(t, server.Push(t.Context(), renewed, "shop:v1", ignore))
	_, err := client.Collect(t.Context(), false)
	require.NoError(t, err)
	pulled(t, server, "shop@"+digestOf(t, old))

	result, err := client.Collect(t.Context(), true)
	require.NoError(t, err)
	require.GreaterOrEqual(t, result.FreedBytes, sizeOf(t, old))
	_, err = server.Remove(t.Context(), "shop@"+digestOf(t, old))
	require.ErrorContains(t, err, "no image")
	require.Equal(t, digestOf(t, renewed), pulled(t, server, "shop:v1"))
}
