package registry_test

import (
	"net/http"
	"os"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/distro/registry"
)

func requireRefused(t *testing.T, err error) {
	t.Helper()
	var answer *transport.Error
	require.ErrorAs(t, err, &answer)
	require.Equal(t, http.StatusUnauthorized, answer.StatusCode)
}

func TestWithAuthenticationOnNothingIsDoneWithoutCredentials(t *testing.T) {
	r := start(t, registry.State{Dir: t.TempDir()})
	image := randomImage(t)
	nobody := r.options("", "")
	require.NoError(t, remote.Write(r.ref("app:v1"), image, nobody...), "the registry is open before the first user")

	require.NoError(t, r.state.AddUser("alice", "correct horse"))
	_, err := remote.Image(r.ref("app:v1"), nobody...)
	requireRefused(t, err)
	requireRefused(t, remote.Write(r.ref("app:v2"), image, nobody...))
	require.Equal(t, http.StatusUnauthorized, r.request(http.MethodDelete, "/v2/app/manifests/v1", "", ""))
	_, err = remote.Catalog(t.Context(), r.ref("app:v1").Context().Registry, nobody...)
	requireRefused(t, err)
	_, err = registry.Client{Endpoint: r.endpoint}.Collect(t.Context(), false)
	require.ErrorIs(t, err, registry.ErrUnauthorized)

	_, err = remote.Image(r.ref("app:v1"), r.options("alice", "wrong horse")...)
	requireRefused(t, err)
	_, err = remote.Image(r.ref("app:v1"), r.options("mallory", "correct horse")...)
	requireRefused(t, err)
	_, err = remote.Image(r.ref("app:v1"), r.options("alice", "correct horse")...)
	require.NoError(t, err)
}

func TestARemovedUserIsRefusedAtOnceAndAuthenticationStaysOn(t *testing.T) {
	r := start(t, registry.State{Dir: t.TempDir()})
	require.NoError(t, r.state.AddUser("alice", "correct horse"))
	r.push("app:v1", randomImage(t))
	_, err := remote.Image(r.ref("app:v1"), r.options("alice", "correct horse")...)
	require.NoError(t, err)

	require.NoError(t, r.state.RemoveUser("alice"))
	_, err = remote.Image(r.ref("app:v1"), r.options("alice", "correct horse")...)
	requireRefused(t, err)
	names, on, err := r.state.Users()
	require.NoError(t, err)
	require.True(t, on)
	require.Empty(t, names)

	require.NoError(t, r.state.TurnOffAuthentication())
	_, err = remote.Image(r.ref("app:v1"), r.options("", "")...)
	require.NoError(t, err)
}

func TestANodePullsTheCloudsImagesAndNothingElse(t *testing.T) {
	r := start(t, registry.State{Dir: t.TempDir()})
	require.NoError(t, r.state.AddUser("alice", "correct horse"))
	system, private := randomImage(t), randomImage(t)
	r.push("mni/pause:1", system)
	r.push("shop/app:v1", private)
	own, err := r.state.Credentials()
	require.NoError(t, err)
	node := r.options(registry.NodeUser, own.Node)

	_, err = remote.Image(r.ref("mni/pause:1"), node...)
	require.NoError(t, err)
	_, err = remote.Image(r.ref("shop/app:v1"), node...)
	requireRefused(t, err)
	requireRefused(t, remote.Write(r.ref("mni/pause:2"), system, node...))
	_, err = remote.Catalog(t.Context(), r.ref("mni/pause:1").Context().Registry, node...)
	requireRefused(t, err)
	_, err = registry.Client{Endpoint: r.endpoint, Username: registry.NodeUser, Password: own.Node}.Collect(t.Context(), false)
	require.ErrorIs(t, err, registry.ErrUnauthorized)
	// Taking another repository's blob along into one's own is a pull of the other.
	layers, err := private.Layers()
	require.NoError(t, err)
	digest, err := layers[0].Digest()
	require.NoError(t, err)
	answer := r.request(http.MethodPost, "/v2/mni/pause/blobs/uploads/?mount="+digest.String()+"&from=shop/app", registry.NodeUser, own.Node)
	require.Equal(t, http.StatusUnauthorized, answer)
}

func TestADamagedUserFileLetsNobodyIn(t *testing.T) {
	r := start(t, registry.State{Dir: t.TempDir()})
	r.push("app:v1", randomImage(t))
	require.NoError(t, os.WriteFile(r.state.HTPasswdFile(), []byte("alice:plain text\n"), 0o600))
	_, err := remote.Image(r.ref("app:v1"), r.options("alice", "plain text")...)
	require.Error(t, err)
	_, _, err = r.state.Users()
	require.ErrorContains(t, err, "line 1: not USER:HASH with a bcrypt hash")
}

func TestUsersThatCannotBeAreRefused(t *testing.T) {
	state := registry.State{Dir: t.TempDir()}
	for name, problem := range map[string]string{
		"": "letters, digits", "a:b": "letters, digits", "a\nb": "letters, digits", registry.NodeUser: "the cloud's own", registry.MachineUser: "the cloud's own",
	} {
		require.ErrorContains(t, state.AddUser(name, "correct horse"), problem, "%q", name)
	}
	require.ErrorContains(t, state.AddUser("alice", "short"), "between 8 and 72 bytes")
	_, on, err := state.Users()
	require.NoError(t, err)
	require.False(t, on, "a refused user must not turn authentication on")
	require.ErrorContains(t, state.RemoveUser("alice"), `no user "alice"`)
	require.ErrorContains(t, state.RemoveUser(registry.NodeUser), "the cloud's own")
}

func TestTheCloudsOwnPasswordsStayTheSame(t *testing.T) {
	state := registry.State{Dir: t.TempDir()}
	first, err := state.Credentials()
	require.NoError(t, err)
	second, err := state.Credentials()
	require.NoError(t, err)
	require.Equal(t, first, second)
	require.NotEqual(t, first.Machine, first.Node)
	info, err := os.Stat(state.Dir + "/credentials.json")
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode())
}
