package main

import (
	"context"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/apiserver"
)

var readAndWrite = []string{"get", "list", "watch", "create", "update", "patch", "delete"}

// twoWithAccounts are the Tenants acme, ada's, and globex, eve's, each with a ServiceAccount ci, as the Auth Controller leaves them.
func (w *world) twoWithAccounts() (acme *authv1.Tenant, ci *authv1.ServiceAccount) {
	w.t.Helper()
	acme = w.tenant("acme", "ada", authv1.RoleOwner, readAndWrite...)
	w.may(acme, authv1.RoleMember, readAndWrite...)
	w.may(acme, authv1.RoleViewer, "get", "list", "watch")
	globex := w.tenant("globex", "eve", authv1.RoleOwner, readAndWrite...)
	w.may(globex, authv1.RoleAdmin, readAndWrite...)
	w.account(globex, "ci", authv1.RoleAdmin)
	return acme, w.account(acme, "ci", authv1.RoleMember)
}

func (w *world) account(tenant *authv1.Tenant, name string, role authv1.Role) *authv1.ServiceAccount {
	w.t.Helper()
	account := &authv1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Status.Namespace, Name: name, Finalizers: []string{authv1.Finalizer}},
		Spec:       authv1.ServiceAccountSpec{Role: role},
	}
	w.make(account)
	w.t.Cleanup(func() { w.let(account) })
	return account
}

// let takes the finalizer from a ServiceAccount, as its controller does when it goes.
func (w *world) let(account *authv1.ServiceAccount) {
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	require.NoError(w.t, client.IgnoreNotFound(w.Patch(context.Background(), account, patch)))
}

const aVpc = `{"apiVersion":"vpc.mnicloud.jp/v1alpha1","kind":"Vpc","metadata":{"name":"NAME"},"spec":{"cidr":"10.0.0.0/16"}}`

func TestAServiceAccountWorksInItsTenantAndNowhereElseUntilItsTokenIsRevoked(t *testing.T) {
	w := newWorld(t)
	acme, ci := w.twoWithAccounts()
	ada, eve := w.login("ada", right).Access, w.login("eve", right).Access
	reads := func(token, tenant string) int {
		code, _ := w.send(http.MethodGet, vpcsOf(tenant), token, "")
		return code
	}
	makes := func(token, tenant, name string) int {
		code, _ := w.send(http.MethodPost, vpcsOf(tenant), token, strings.Replace(aVpc, "NAME", name, 1))
		return code
	}
	w.eventually("ada and eve read what is theirs", func() bool { return reads(ada, "acme") == 200 && reads(eve, "globex") == 200 })
	made := w.made(ada, `{"name":"pipeline","tenant":"acme","serviceAccount":"ci","expirationSeconds":3600}`)
	theirs := w.made(eve, `{"name":"pipeline","tenant":"globex","serviceAccount":"ci"}`)
	require.Equal(t, []string{"ci", "ada", "acme"}, []string{made.ServiceAccount, made.CreatedBy, made.Tenant})
	require.WithinDuration(t, time.Now().Add(time.Hour), made.Expires, time.Minute)

	require.Equal(t, []int{200, 403, 403, 403}, []int{reads(made.Text, "acme"), reads(made.Text, "globex"), reads(made.Text, "red"), reads(made.Text, string(acme.UID))})
	require.Equal(t, []int{403, 200}, []int{reads(theirs.Text, "acme"), reads(theirs.Text, "globex")})
	require.Equal(t, []int{201, 403}, []int{makes(made.Text, "acme", "a"), makes(made.Text, "globex", "a")})
	code, body := w.send(http.MethodGet, "/whoami", made.Text, "")
	require.Equal(t, 200, code)
	require.Contains(t, body, `{"serviceAccount":"ci","tenants":[{"name":"acme","role":"member"}],"expires":`)
	require.NotContains(t, body, string(acme.UID))

	// Who it is to Kubernetes, by its tenant's name.
	code, body = w.send(http.MethodGet, "/apis/ctr.mnicloud.jp/v1alpha1/namespaces/acme/containers", made.Text, "")
	require.Equal(t, 403, code)
	require.Contains(t, body, "mni:serviceaccount:acme:ci")
	require.NotContains(t, body, string(acme.UID))
	code, _ = w.send(http.MethodGet, "/apis/auth.mnicloud.jp/v1alpha1/users/ada", made.Text, "")
	require.Equal(t, 403, code)

	// What another role changes, it changes for what goes on too.
	ended := w.watch(vpcsOf("acme"), made.Text)
	ci.Spec.Role = authv1.RoleViewer
	require.NoError(t, w.Update(t.Context(), ci))
	w.eventually("a viewer makes nothing", func() bool { return makes(made.Text, "acme", "b") == 403 })
	require.Equal(t, 200, reads(made.Text, "acme"))
	w.ends(ended)

	// It does not hang on who made it.
	ended = w.watch(vpcsOf("acme"), made.Text)
	acme.Spec.Members = nil
	require.NoError(t, w.Update(t.Context(), acme))
	w.eventually("ada is out", func() bool { return reads(ada, "acme") == 403 })
	require.Equal(t, 200, reads(made.Text, "acme"))
	code, _ = w.send(http.MethodDelete, "/tokens/"+made.ID+"?tenant=acme&serviceAccount=ci", ada, "")
	require.Equal(t, 422, code, "ada knows the ID, and is no member any more")
	acme.Spec.Members = []authv1.Member{{User: "ada", Role: authv1.RoleAdmin}}
	require.NoError(t, w.Update(t.Context(), acme))
	code, body = w.send(http.MethodDelete, "/tokens/"+made.ID+"?tenant=acme&serviceAccount=ci", ada, "")
	require.Equal(t, 204, code, body)
	w.eventually("it is good for nothing", func() bool { return reads(made.Text, "acme") == 401 })
	w.ends(ended)
	require.Equal(t, 200, reads(theirs.Text, "globex"))
}

// ends waits until a watch has ended.
func (w *world) ends(ended chan struct{}) {
	w.t.Helper()
	select {
	case <-ended:
	case <-time.After(patience):
		w.t.Fatal("its watch goes on")
	}
}

func TestATokenOfAServiceAccountThatIsDisabledOrMadeAnewIsGoodForNothing(t *testing.T) {
	w := newWorld(t)
	acme, ci := w.twoWithAccounts()
	ada := w.login("ada", right).Access
	made := w.made(ada, `{"name":"t","tenant":"acme","serviceAccount":"ci"}`)
	is := func(code int) func() bool {
		return func() bool {
			got, _ := w.send(http.MethodGet, "/whoami", made.Text, "")
			return got == code
		}
	}
	require.True(t, is(200)())
	ci.Spec.Disabled = true
	require.NoError(t, w.Update(t.Context(), ci))
	w.eventually("it is refused", is(401))
	ci.Spec.Disabled = false
	require.NoError(t, w.Update(t.Context(), ci))
	w.eventually("it is good again", is(200))
	require.NoError(t, w.Delete(t.Context(), ci))
	w.eventually("it is refused while its account goes", is(401))
	w.let(ci)
	anew := w.account(acme, "ci", authv1.RoleAdmin)
	now := w.made(ada, `{"name":"t","tenant":"acme","serviceAccount":"ci"}`)
	w.eventually("the new one's is good", func() bool {
		code, _ := w.send(http.MethodGet, "/whoami", now.Text, "")
		return code == 200
	})
	require.True(t, is(401)(), "the old one's is not")
	require.NotEqual(t, ci.UID, anew.UID)
}

func TestTokensOfServiceAccountsAreForAdminsAndOwnersOverHTTP(t *testing.T) {
	w := newWorld(t)
	w.twoWithAccounts()
	w.account(w.red, "ci", authv1.RoleViewer) // where ada is a viewer
	ada, eve := w.login("ada", right).Access, w.login("eve", right).Access
	made := w.made(ada, `{"name":"t","tenant":"acme","serviceAccount":"ci"}`)
	own := w.made(ada, `{"name":"own"}`)
	for form, want := range map[string]int{
		`{"name":"t","tenant":"red","serviceAccount":"ci"}`: 403, `{"name":"t","tenant":"globex","serviceAccount":"ci"}`: 422,
		`{"name":"t","tenant":"acme","serviceAccount":"cd"}`: 422, `{"name":"t","serviceAccount":"ci"}`: 422,
		`{"name":"t","tenant":"acme","serviceAccount":"../ci"}`: 422, `{"name":"t","tenant":"../acme","serviceAccount":"ci"}`: 422,
		`{"name":"t","tenant":"acme","serviceAccount":"ci","role":"viewer"}`: 422, `{"name":"","tenant":"acme","serviceAccount":"ci"}`: 422,
		`{"name":"t","tenant":"acme","serviceAccount":["ci"]}`: 400,
	} {
		code, body := w.send(http.MethodPost, "/tokens", ada, form)
		require.Equal(t, want, code, "%s: %s", form, body)
		require.NotContains(t, body, "mnt_")
	}
	// No token makes, lists or revokes any: not the account's, not an admin's own.
	for _, token := range []string{made.Text, own.Text} {
		for _, to := range [][2]string{{http.MethodPost, "/tokens"}, {http.MethodGet, "/tokens?tenant=acme"}, {http.MethodDelete, "/tokens/" + made.ID + "?tenant=acme"}} {
			code, body := w.send(to[0], to[1], token, "")
			require.Equal(t, 403, code, body)
		}
	}
	list := func(token, query string) (int, string) { return w.send(http.MethodGet, "/tokens"+query, token, "") }
	for query, has := range map[string]bool{"?tenant=acme": true, "?tenant=acme&serviceAccount=ci": true, "?tenant=acme&serviceAccount=cd": false, "": false} {
		code, body := list(ada, query)
		require.Equal(t, 200, code, body)
		require.Equal(t, has, strings.Contains(body, made.ID), query)
		require.Equal(t, query == "", strings.Contains(body, own.ID), query)
		require.NotContains(t, body, made.Text[len(made.Text)-40:])
	}
	for query, want := range map[string]int{
		"?serviceAccount=ci": 400, "?tenant=": 400, "?tenant=acme&x=1": 400, "?tenant=acme&tenant=red": 400, "?tenant=acme;x": 400, "?tenant=%zz": 400,
		"?tenant=red": 403, "?tenant=globex": 422, "?tenant=..": 422,
	} {
		code, body := list(ada, query)
		require.Equal(t, want, code, "%s: %s", query, body)
		code, body = w.send(http.MethodDelete, "/tokens/"+made.ID+query, ada, "")
		require.Equal(t, want, code, "%s: %s", query, body)
	}
	for whose, to := range map[string]string{eve: "/tokens/" + made.ID, ada: "/tokens/" + own.ID + "?tenant=acme"} {
		code, body := w.send(http.MethodDelete, to, whose, "")
		require.Equal(t, 404, code, body)
	}
	code, body := w.send(http.MethodDelete, "/tokens/"+made.ID+"?tenant=globex&serviceAccount=ci", eve, "")
	require.Equal(t, 404, code, body)
	code, _ = w.send(http.MethodPost, "/tokens?tenant=acme&serviceAccount=ci", ada, `{"name":"t"}`)
	require.Equal(t, 400, code)
	code, _ = w.send(http.MethodGet, "/whoami", made.Text, "")
	require.Equal(t, 200, code, "it is still good")
}

func TestServiceAccountsOnTheCommandLine(t *testing.T) {
	w := newWorld(t)
	acme, _ := w.twoWithAccounts()
	rights := metav1.ObjectMeta{Name: "accounts", Namespace: acme.Status.Namespace}
	w.make(&rbacv1.Role{ObjectMeta: rights, Rules: []rbacv1.PolicyRule{{APIGroups: []string{authv1.GroupVersion.Group}, Resources: []string{"serviceaccounts"}, Verbs: readAndWrite}}})
	w.make(&rbacv1.RoleBinding{
		ObjectMeta: rights, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: rights.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: authv1.GroupOf(acme.UID, authv1.RoleOwner)}},
	})
	h := w.atHome()
	w.eventually("ada's tenants are known", func() bool { return strings.Contains(h.login("ada", "default").out, "acme (owner)") })

	require.Equal(t, "serviceaccount/deploy created\n", h.must("", "serviceaccount", "create", "deploy", "-t", "acme", "--role", "viewer", "--display-name", "Deploys", "--wait=false"))
	deploy := &authv1.ServiceAccount{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: acme.Status.Namespace, Name: "deploy"}, deploy))
	require.Equal(t, authv1.ServiceAccountSpec{DisplayName: "Deploys", Role: authv1.RoleViewer}, deploy.Spec)
	require.Regexp(t, `(?m)^deploy +Deploys +viewer`, h.must("", "sa", "ls", "-t", "acme"))
	require.Regexp(t, `(?m)^ci +member`, h.must("", "sa", "ls", "-t", "acme"))
	require.Contains(t, h.must("", "get", "serviceaccount", "-t", "acme", "-o", "name"), "serviceaccount.auth.mnicloud.jp/ci")
	require.Equal(t, "serviceaccount/deploy disabled\n", h.must("", "sa", "disable", "deploy", "-t", "acme"))
	require.Contains(t, h.mni("", "token", "create", "t", "-t", "acme", "--service-account", "deploy").err, "is disabled")
	require.Equal(t, "serviceaccount/deploy enabled\n", h.must("", "sa", "enable", "deploy", "-t", "acme"))
	require.Contains(t, h.mni("", "token", "create", "t", "-t", "acme", "--service-account", "deploy").err, "is not ready yet", "no controller runs")
	require.Equal(t, "serviceaccount/deploy deleted\n", h.must("", "delete", "serviceaccount", "deploy", "-t", "acme"))

	require.Contains(t, h.mni("", "token", "ls", "-t", "acme", "--service-account", "ci").err, "Service account ci has no API token.")
	require.Contains(t, h.mni("", "token", "ls", "-t", "acme", "--service-accounts").err, "The service accounts of acme have no API token.")
	h.must("", "tenant", "use", "acme")
	made := h.mni("", "token", "create", "pipeline", "--service-account", "ci", "--expires", "90d")
	require.Zero(t, made.code, made.err)
	require.Contains(t, made.err, "who has it is service account ci")
	text := strings.TrimSuffix(made.out, "\n")
	require.Regexp(t, `^mnt_[0-9a-f]{32}_\S{43}$`, text)
	for _, which := range [][]string{{"--service-account", "ci"}, {"--service-accounts", "-t", "acme"}} {
		require.Regexp(t, `(?m)^[0-9a-f]{32} +pipeline +ci +ada +(89d|90d)$`, h.must("", append([]string{"token", "ls"}, which...)...))
	}
	require.Contains(t, h.mni("", "token", "ls").err, "You have no API token.")
	id := text[4:36]
	require.Contains(t, h.must("", "__complete", "token", "rm", "--service-account", "ci", ""), id+"\tpipeline")
	require.NotContains(t, h.must("", "__complete", "token", "rm", ""), id)
	require.Equal(t, "ci\n", firstLines(h.must("", "__completeNoDesc", "token", "create", "x", "--service-account", ""), 1))
	require.Equal(t, "ci\n", firstLines(h.must("", "__completeNoDesc", "sa", "disable", ""), 1))

	// Another machine, with the token alone.
	authority := filepath.Join(t.TempDir(), "ca")
	writeFile(t, authority, w.authority)
	in := h.must(text+"\n", "login", "--profile", "robot", "--server", h.url, "--ca-file", authority, "--token-stdin")
	require.Contains(t, in, "as service account ci by a token in profile robot")
	require.Contains(t, in, "acme (member)")
	require.Regexp(t, `Service account: +ci\n`, h.must("", "whoami", "--profile", "robot"))
	h.must(strings.NewReplacer("NAME", "by-ci").Replace(aVpc), "apply", "-f", "-", "--profile", "robot")
	require.Contains(t, h.must("", "get", "vpc", "--profile", "robot", "-o", "name"), "by-ci")
	require.Equal(t, 1, h.mni("", "get", "vpc", "--profile", "robot", "-t", "globex").code)
	require.Contains(t, h.mni("", "token", "create", "more", "--profile", "robot", "--service-account", "ci").err, "an API token does not make")
	require.Contains(t, h.mni("a\nb\n", "password", "--profile", "robot", "--password-stdin").err, "has no password")
	config := filepath.Join(t.TempDir(), "kubeconfig")
	h.must("", "kubeconfig", "--profile", "robot", config)
	kubectl := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), filepath.Join(apiserver.Root(), "bin", "mni-kube"),
			append([]string{"kubectl", "--cache-dir", t.TempDir(), "--kubeconfig", config}, args...)...).CombinedOutput()
		return string(out), err
	}
	out, err := kubectl("get", "vpcs", "-o", "name")
	require.NoError(t, err, out)
	require.Contains(t, out, "by-ci")
	out, err = kubectl("delete", "vpc", "by-ci")
	require.NoError(t, err, out)

	require.Contains(t, h.mni("", "token", "rm", id).err, "you have no API token with this ID", "it is not ada's")
	require.Equal(t, "token/"+id+" revoked\n", h.must("", "token", "rm", id, "--service-account", "ci"))
	w.eventually("kubectl is out", func() bool {
		_, err := kubectl("get", "vpcs")
		return err != nil
	})
	for _, args := range [][]string{
		{"sa", "create", "x"},
		{"sa", "create", "x", "--role", "owner"},
		{"sa", "create", "--role", "viewer"},
		{"sa", "enable"},
		{"token", "create", "t", "--service-account", "ci", "--role", "viewer"},
		{"token", "ls", "-t", "acme"},
	} {
		require.Equal(t, 2, h.mni("", args...).code, args)
	}
}
