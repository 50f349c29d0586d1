package gateway_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// hash is what the API server has of a User's password.
const hash = "$2a$10$abcdefghijklmnopqrstuvabcdefghijklmnopqrstuvabcdefg12"

func TestNobodyIsShownTheHashOfAPassword(t *testing.T) {
	w := newWorld(t)
	direct, err := dynamic.NewForConfig(w.direct)
	require.NoError(t, err)
	w.userObject(direct, "alice")
	stored := func() *unstructured.Unstructured {
		user, err := direct.Resource(userResource).Get(t.Context(), "alice", metav1.GetOptions{})
		require.NoError(t, err)
		return user
	}
	storedHash := func() string {
		text, _, err := unstructured.NestedString(stored().Object, "spec", "password")
		require.NoError(t, err)
		return text
	}
	require.Equal(t, hash, storedHash())
	const users = "/apis/auth.mnicloud.jp/v1alpha1/users"
	const short = "/apis/auth/v1alpha/users"
	for _, user := range []string{"alice", "root"} {
		for _, path := range []string{users, users + "/alice", short, short + "/alice"} {
			for _, form := range []string{"application/json", "application/yaml", "application/json;as=Table;v=v1;g=meta.k8s.io"} {
				got := w.send(user, http.MethodGet, path+"?includeObject=Object", "", "Accept", form)
				require.Equal(t, 200, got.code, "%s %s %s: %s", user, path, form, got.body)
				require.Contains(t, got.body, markerOf("user-alice"))
				require.NotContains(t, got.body, hash)
			}
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+users+"?watch=true&fieldSelector=metadata.name%3Dalice", nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer root")
	response, err := w.client.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	event, err := bufio.NewReader(response.Body).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, event, markerOf("user-alice"))
	require.NotContains(t, event, hash)

	for _, patch := range []string{
		`[{"op":"copy","from":"/spec/password","path":"/spec/displayName"}]`, `[{"op":"move","from":"/spec/password","path":"/spec/displayName"}]`,
		`[{"op":"test","path":"/spec/password","value":"` + hash + `"}]`, `[{"op":"test","path":"/spec","value":{}}]`,
		`[{"op":"copy","from":"/spec","path":"/metadata/annotations"}]`,
	} {
		refused := w.send("root", http.MethodPatch, users+"/alice", patch, "Content-Type", "application/json-patch+json")
		require.Equal(t, 400, refused.code, "%s: %s", patch, refused.body)
	}
	patched := w.send("root", http.MethodPatch, users+"/alice", `[{"op":"add","path":"/spec/displayName","value":"A"}]`, "Content-Type", "application/json-patch+json")
	require.Equal(t, 200, patched.code, patched.body)
	require.NotContains(t, patched.body, hash)
}

func TestAnUpdateOfAUserKeepsThePasswordThatItCannotKnow(t *testing.T) {
	w := newWorld(t)
	direct, err := dynamic.NewForConfig(w.direct)
	require.NoError(t, err)
	w.userObject(direct, "alice")
	users := w.dynamic("root").Resource(userResource)
	read, err := users.Get(t.Context(), "alice", metav1.GetOptions{})
	require.NoError(t, err)
	password := func() string {
		user, err := direct.Resource(userResource).Get(t.Context(), "alice", metav1.GetOptions{})
		require.NoError(t, err)
		text, _, err := unstructured.NestedString(user.Object, "spec", "password")
		require.NoError(t, err)
		return text
	}
	old := read.DeepCopy()
	require.NoError(t, unstructured.SetNestedField(read.Object, "A", "spec", "displayName"))
	_, err = users.Update(t.Context(), read, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, hash, password())
	_, err = users.Update(t.Context(), old, metav1.UpdateOptions{})
	require.ErrorContains(t, err, "has been modified", "an old version stays an old version")
	read, err = users.Get(t.Context(), "alice", metav1.GetOptions{})
	require.NoError(t, err)
	other := strings.Replace(hash, "12", "34", 1)
	require.NoError(t, unstructured.SetNestedField(read.Object, other, "spec", "password"))
	_, err = users.Update(t.Context(), read, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, other, password(), "one that is given counts")
	_, err = users.Patch(t.Context(), "alice", "application/merge-patch+json", []byte(`{"spec":{"password":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.Empty(t, password(), "and can be taken away by who says so")
	_, err = w.dynamic("alice").Resource(userResource).Update(t.Context(), read, metav1.UpdateOptions{})
	require.ErrorContains(t, err, "forbidden")
}
