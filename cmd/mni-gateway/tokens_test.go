package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/auth/session"
	"github.com/mnicloud/mnicloud/test/apiserver"
)

// made makes an API token over HTTP.
func (w *world) made(access, form string) madeToken {
	w.t.Helper()
	code, body := w.send(http.MethodPost, "/tokens", access, form)
	require.Equal(w.t, 200, code, body)
	var made madeToken
	require.NoError(w.t, json.Unmarshal([]byte(body), &made))
	require.NotEmpty(w.t, made.Text)
	return made
}

// watch watches by a token, and closes the channel when the watch has ended.
func (w *world) watch(path, token string) (ended chan struct{}) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.url+path+"?watch=1", nil)
	require.NoError(w.t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := w.web.Do(r) //nolint:bodyclose // closed by its reader
	require.NoError(w.t, err)
	require.Equal(w.t, 200, response.StatusCode)
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		defer response.Body.Close()
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			continue
		}
	}()
	return ended
}

func TestAnAPITokenIsMadeListedUsedAndRevokedOverHTTP(t *testing.T) {
	w := newWorld(t)
	w.tenant("blue", "ada", authv1.RoleViewer, "get", "list", "watch")
	access := w.login("ada", right).Access
	reads := func(token, tenant string) int {
		code, _ := w.send(http.MethodGet, strings.Replace(vpcsOfRed, "red", tenant, 1), token, "")
		return code
	}
	w.eventually("ada reads in both tenants", func() bool { return reads(access, "red") == 200 && reads(access, "blue") == 200 })
	all := w.made(access, `{"name":"all"}`)
	one := w.made(access, `{"name":"one","tenant":"red","role":"viewer","expirationSeconds":3600}`)
	require.WithinDuration(t, time.Now().Add(usualTokenLife), all.Expires, time.Minute)
	require.WithinDuration(t, time.Now().Add(time.Hour), one.Expires, time.Minute)
	require.Equal(t, session.Scope{Tenant: "red", Role: "viewer"}, one.Scope)
	require.Equal(t, []int{200, 200, 200, 403}, []int{reads(all.Text, "red"), reads(all.Text, "blue"), reads(one.Text, "red"), reads(one.Text, "blue")})

	code, list := w.send(http.MethodGet, "/tokens", access, "")
	require.Equal(t, 200, code)
	for _, token := range []madeToken{all, one} {
		require.Contains(t, list, token.ID)
		require.NotContains(t, list, token.Text[len(token.Text)-40:], "it is shown once")
	}
	code, body := w.send(http.MethodGet, "/whoami", one.Text, "")
	require.Equal(t, 200, code)
	require.Contains(t, body, `"user":"ada","tenants":[{"name":"red","role":"viewer"}]`)

	// A watch by a token ends with it.
	ended := w.watch(vpcsOfRed, one.Text)
	code, body = w.send(http.MethodDelete, "/tokens/"+one.ID, access, "")
	require.Equal(t, 204, code, body)
	began := time.Now()
	w.eventually("a token that was revoked is good for nothing", func() bool { return reads(one.Text, "red") == 401 })
	t.Logf("revoked after %s", time.Since(began).Round(time.Millisecond))
	select {
	case <-ended:
		t.Logf("its watch ended after %s", time.Since(began).Round(time.Millisecond))
	case <-time.After(patience):
		t.Fatal("its watch goes on")
	}
	require.Equal(t, 200, reads(all.Text, "red"))
}

func TestAnAPITokenIsForItsUserAloneAndMakesNoOthers(t *testing.T) {
	w := newWorld(t)
	ada, eve := w.login("ada", right).Access, w.login("eve", right).Access
	w.eventually("ada's tenants are known", func() bool {
		_, body := w.send(http.MethodGet, "/whoami", ada, "")
		return strings.Contains(body, "red")
	})
	made := w.made(ada, `{"name":"t"}`)
	code, list := w.send(http.MethodGet, "/tokens", eve, "")
	require.Equal(t, 200, code)
	require.JSONEq(t, `{"tokens":[]}`, list)
	for path, token := range map[string]string{"/tokens/" + made.ID: eve, "/tokens/" + strings.Repeat("0", 32): ada, "/tokens/x": ada} {
		code, body := w.send(http.MethodDelete, path, token, "")
		require.Equal(t, 404, code, body)
	}
	for method, path := range map[string]string{http.MethodGet: "/tokens", http.MethodPost: "/tokens", http.MethodDelete: "/tokens/" + made.ID} {
		code, body := w.send(method, path, made.Text, "")
		require.Equal(t, 403, code, body)
		code, _ = w.send(method, path, "", "")
		require.Equal(t, 401, code)
		code, _ = w.send(method, path, made.Text[:len(made.Text)-1]+"_", "")
		require.Equal(t, 401, code)
	}
	for form, want := range map[string]int{
		`{}`: 422, `{"name":""}`: 422, `{"name":"t","expirationSeconds":-1}`: 422, `{"name":"t","expirationSeconds":9223372036854775807}`: 422,
		`{"name":"t","expirationSeconds":1}`: 422, `{"name":"t","role":"root"}`: 422, `{"name":"t","tenant":"blue"}`: 422, `{"name":"t","x":1}`: 400,
		`{"name":"t","user":"eve"}`: 400, `[]`: 400,
	} {
		code, body := w.send(http.MethodPost, "/tokens", ada, form)
		require.Equal(t, want, code, "%s: %s", form, body)
		require.NotContains(t, body, "mnt_")
	}
	for path, method := range map[string]string{"/tokens": http.MethodDelete, "/tokens/" + made.ID: http.MethodGet} {
		code, _ := w.send(method, path, ada, "")
		require.Equal(t, 405, code)
	}
	for _, path := range []string{"/tokens/", "/tokens/a/b", "/tokens/%2e%2e", "/tokens//" + made.ID} {
		code, _ := w.send(http.MethodDelete, path, ada, "")
		require.GreaterOrEqual(t, code, 400, path)
	}
	code, _ = w.send(http.MethodGet, "/whoami", made.Text, "")
	require.Equal(t, 200, code, "it is still good")
}

func TestTokensOnTheCommandLine(t *testing.T) {
	w := newWorld(t)
	h := w.atHome()
	w.eventually("ada's tenants are known", func() bool { return strings.Contains(h.login("ada", "default").out, "red (viewer)") })
	require.Contains(t, h.mni("", "token", "ls").err, "You have no API token.")
	made := h.mni("", "token", "create", "deploy", "--tenant", "red", "--role", "viewer", "--expires", "90d")
	require.Zero(t, made.code, made.err)
	text := strings.TrimSuffix(made.out, "\n")
	require.Regexp(t, `^mnt_[0-9a-f]{32}_\S{43}$`, text)
	require.NotContains(t, made.err, text)
	list := h.must("", "token", "ls")
	require.Regexp(t, `(?m)^[0-9a-f]{32} +deploy +red +viewer +(89d|90d)$`, list)
	require.NotContains(t, list, text)
	id := strings.Fields(strings.Split(list, "\n")[1])[0]
	require.Contains(t, h.must("", "token", "ls", "-o", "json"), `"tenant": "red"`)
	require.Contains(t, h.must("", "__complete", "token", "rm", ""), id+"\tdeploy")

	// Another machine, with the token alone.
	authority := filepath.Join(t.TempDir(), "ca")
	writeFile(t, authority, w.authority)
	in := h.must(text+"\n", "login", "--profile", "robot", "--server", h.url, "--ca-file", authority, "--token-stdin")
	require.Contains(t, in, "as ada by a token in profile robot")
	require.Contains(t, in, "red (viewer)")
	h.must("", "get", "vpc", "--profile", "robot")
	require.Contains(t, h.must("", "whoami", "--profile", "robot"), "ada")
	refused := h.mni("", "token", "create", "more", "--profile", "robot")
	require.Equal(t, 1, refused.code)
	require.Contains(t, refused.err, "an API token does not make")
	kubectl := func() (string, error) {
		out, err := exec.CommandContext(t.Context(), filepath.Join(apiserver.Root(), "bin", "mni-kube"), "kubectl", "--cache-dir", t.TempDir(),
			"--server", h.url, "--certificate-authority", authority, "--token", text, "-n", "red", "get", "vpcs", "-o", "name").CombinedOutput()
		return string(out), err
	}
	out, err := kubectl()
	require.NoError(t, err, out)

	require.Equal(t, "token/"+id+" revoked\n", h.must("", "token", "rm", id))
	w.eventually("kubectl is out", func() bool {
		_, err := kubectl()
		return err != nil
	})
	w.eventually("mni is out", func() bool { return strings.Contains(h.mni("", "get", "vpc", "--profile", "robot").err, "has ended") })
	require.Contains(t, h.must("", "logout", "--profile", "robot"), "Logged out of")
	for _, args := range [][]string{
		{"token", "create"},
		{"token", "create", "a", "b"},
		{"token", "rm"},
		{"token", "create", "a", "--expires", "soon"},
		{"token", "create", "a", "--expires", "-3d"},
		{"login", "--token-stdin", "--user", "ada", "--server", h.url},
	} {
		require.Equal(t, 2, h.mni("", args...).code, args)
	}
	require.Equal(t, 2, h.mni("a b\n", "login", "--token-stdin", "--server", h.url, "--ca-file", authority).code)
	gone := h.mni("", "token", "rm", id, "../x")
	require.Equal(t, 1, gone.code)
	require.Contains(t, gone.err, "you have no API token with this ID")
}

func TestATokenOfAUserWhoIsDisabledIsGoodForNothing(t *testing.T) {
	w := newWorld(t)
	access := w.login("ada", right).Access
	made := w.made(access, `{"name":"t"}`)
	ada := &authv1.User{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: "ada"}, ada))
	ada.Spec.Disabled = true
	require.NoError(t, w.Update(t.Context(), ada))
	w.eventually("it is refused", func() bool {
		code, _ := w.send(http.MethodGet, "/whoami", made.Text, "")
		return code == 401
	})
}
