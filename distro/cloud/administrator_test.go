package cloud

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/auth/password"
)

func TestTheFirstAdministratorIsMadeOnceWithThePasswordInTheFile(t *testing.T) {
	var made []authv1.User
	fail := true
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, status int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	mux.HandleFunc("GET /apis", func(w http.ResponseWriter, _ *http.Request) {
		version := map[string]any{"groupVersion": "auth.mnicloud.jp/v1alpha1", "version": "v1alpha1"}
		answer(w, http.StatusOK, map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{
			map[string]any{"name": "auth.mnicloud.jp", "versions": []any{version}, "preferredVersion": version},
		}})
	})
	mux.HandleFunc("GET /api", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"kind": "APIVersions", "versions": []string{"v1"}})
	})
	mux.HandleFunc("GET /apis/auth.mnicloud.jp/v1alpha1", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{
			"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "auth.mnicloud.jp/v1alpha1",
			"resources": []any{map[string]any{"name": "users", "singularName": "user", "namespaced": false, "kind": "User", "verbs": []string{"create"}}},
		})
	})
	mux.HandleFunc("POST /apis/auth.mnicloud.jp/v1alpha1/users", func(w http.ResponseWriter, r *http.Request) {
		if fail {
			answer(w, http.StatusInternalServerError, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500})
			return
		}
		var user authv1.User
		_ = json.NewDecoder(r.Body).Decode(&user)
		made = append(made, user)
		answer(w, http.StatusCreated, user)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	file := filepath.Join(t.TempDir(), "administrator.json")
	config := &rest.Config{Host: server.URL}

	_, err := administrator(t.Context(), config, file)
	require.Error(t, err, "the start is cut off")
	stat, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), stat.Mode().Perm())
	before, err := os.ReadFile(file)
	require.NoError(t, err)
	var login Login
	require.NoError(t, json.Unmarshal(before, &login))

	fail = false
	first, err := administrator(t.Context(), config, file)
	require.NoError(t, err)
	require.Equal(t, login.Password, first.Password, "the next start goes on with the password in the file")
	require.Len(t, made, 1)
	require.True(t, made[0].Spec.Administrator)
	require.Equal(t, login.Password, made[0].Spec.Password)
	_, err = password.Prepare(login.Password)
	require.NoError(t, err)

	again, err := administrator(t.Context(), config, file)
	require.NoError(t, err)
	require.Nil(t, again, "it is printed once")
	require.Len(t, made, 1)
}
