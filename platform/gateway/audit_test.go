package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/mnicloud/mnicloud/platform/audit"
	"github.com/mnicloud/mnicloud/platform/gateway"
	"github.com/mnicloud/mnicloud/test/apiserver"
)

// auditedWorld is a world whose gateway keeps an audit trail; olga owns acme, otto globex.
func auditedWorld(t testing.TB) *world {
	t.Helper()
	w := newWorld(t)
	_, err := w.kube.CoreV1().Namespaces().Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mni-system"}}, metav1.CreateOptions{})
	w.unlessThere(err)
	text, err := os.ReadFile(filepath.Join(apiserver.Root(), "platform/gateway/config/rbac/audit.yaml"))
	require.NoError(t, err)
	var role rbacv1.Role
	require.NoError(t, yaml.UnmarshalStrict(text, &role))
	_, err = w.kube.RbacV1().Roles(role.Namespace).Create(w.ctx, &role, metav1.CreateOptions{})
	w.unlessThere(err)
	_, err = w.kube.RbacV1().RoleBindings(role.Namespace).Create(w.ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "mni-gateway", Namespace: "default"}},
	}, metav1.CreateOptions{})
	w.unlessThere(err)
	for owner, tenant := range map[string]string{"olga": "acme", "otto": "globex"} {
		w.user(owner, map[string]string{tenant: "owner"})
		short := w.namespaces[tenant][:8]
		group := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "mni:tenant:" + short + ":owner"}
		rights := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "test-owner-" + short}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"auth.mnicloud.jp"}, Resources: []string{"tenants/audit"}, ResourceNames: []string{tenant}, Verbs: []string{"get"}},
			{APIGroups: []string{"auth.mnicloud.jp"}, Resources: []string{"tenants"}, ResourceNames: []string{tenant}, Verbs: []string{"get", "update", "patch", "delete"}},
		}}
		w.clusterRole(rights)
		w.bindAll(rights.Name, group)
	}
	w.replica(audit.Options{}, nil)
	return w
}

// replica starts a gateway that keeps an audit trail, and has the world speak to it. wrap changes how that is written.
func (w *world) replica(o audit.Options, wrap func(client.WithWatch) client.Client) (trail *audit.Trail, kill func()) {
	w.t.Helper()
	own := w.ownConfig()
	c, err := client.NewWithWatch(own, client.Options{Scheme: clientgoscheme.Scheme})
	require.NoError(w.t, err)
	var store client.Client = c
	if wrap != nil {
		store = wrap(c)
	}
	trail = audit.New(store, o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- trail.Run(ctx) }()
	killed := false
	kill = func() {
		if !killed {
			killed = true
			cancel()
			require.NoError(w.t, <-done)
		}
	}
	w.t.Cleanup(kill)
	w.serve(gateway.Config{Limits: plenty, Upstream: own, Authenticator: w.tokens, Trail: trail})
	return trail, kill
}

// told are the entries of a tenant's trail that somebody is shown, the oldest first, in short.
func (w *world) told(user, tenant, query string) []string {
	w.t.Helper()
	var out []string
	next := ""
	for {
		got := w.send(user, http.MethodGet, "/audit?tenant="+tenant+query+"&continue="+url.QueryEscape(next), "")
		require.Equal(w.t, 200, got.code, got.body)
		w.noNamespace(got.body)
		answer := got.json(w.t)
		for _, e := range answer["entries"].([]any) {
			e := e.(map[string]any)
			line := fmt.Sprintf("%v %v %v %v %v %v", e["user"], e["verb"], e["resource"], e["name"], e["code"], e["reason"])
			out = append([]string{strings.ReplaceAll(line, "<nil>", "-")}, out...)
			at, err := time.Parse(time.RFC3339Nano, e["time"].(string))
			require.NoError(w.t, err)
			require.WithinDuration(w.t, time.Now(), at, time.Hour)
			require.Equal(w.t, "127.0.0.1", e["source"])
		}
		next, _ = answer["continue"].(string)
		if next == "" {
			return out
		}
	}
}

// soonTold waits until the trail has so many entries.
func (w *world) soonTold(user, tenant, query string, n int) []string {
	w.t.Helper()
	var told []string
	w.eventually(fmt.Sprintf("%d entries in the trail of %s", n, tenant), func() bool {
		told = w.told(user, tenant, query)
		return len(told) >= n
	})
	return told
}

func TestAnOwnerReadsWhoDidWhat(t *testing.T) {
	w := auditedWorld(t)
	w.serviceAccounts()
	w.node()
	pods := "/api/v1/namespaces/acme/pods/web"
	sent := func(user, method, path, body string, code int, headers ...string) {
		t.Helper()
		got := w.send(user, method, path, body, headers...)
		require.Equal(t, code, got.code, got.body)
	}
	sent("alice", http.MethodPost, vpcs, demoVpc, 201)
	sent("alice", http.MethodPost, vpcs, demoVpc, 409)
	sent("carol", http.MethodDelete, vpcs+"/demo", "", 403)
	sent("carol", http.MethodPost, vpcs, strings.Replace(demoVpc, "demo", "hers", 1), 403)
	sent("alice", http.MethodPatch, vpcs+"/demo", `{"metadata":{"labels":{"a":"b"}}}`, 200, "Content-Type", "application/merge-patch+json")
	sent("alice", http.MethodPatch, vpcs+"/demo?fieldManager=x", strings.Replace(demoVpc, "10.42", "10.43", 1), 409, "Content-Type", "application/apply-patch+yaml")
	sent("alice", http.MethodPost, vpcs, strings.Replace(demoVpc, "name: demo", "generateName: made-", 1), 201)
	sent("alice", http.MethodPost, "/apply", strings.Replace(demoVpc, "demo", "two", 1)+"---"+strings.NewReplacer("demo", "bad", "10.42.0.0", "nonsense").Replace(demoVpc), 207)
	sent("alice", http.MethodGet, pods+"/log", "", 200)
	sent("carol", http.MethodGet, pods+"/exec?command=id&stdout=true", "", 400)
	sent("root", http.MethodDelete, vpcs, "", 200)
	// What leaves no trace: looking, dry runs, what is not this tenant's, what somebody unknown asks, what there is not.
	sent("carol", http.MethodGet, vpcs, "", 200)
	sent("alice", http.MethodPost, vpcs+"?dryRun=All", demoVpc, 201)
	sent("alice", http.MethodDelete, vpcs+"/none", `{"dryRun":["All"]}`, 404)
	sent("carol", http.MethodPost, strings.Replace(vpcs, "acme", "globex", 1), strings.ReplaceAll(demoVpc, "acme", "globex"), 201)
	sent("bob", http.MethodDelete, vpcs+"/demo", "", 403)
	sent("nobody", http.MethodDelete, vpcs+"/demo", "", 401)
	sent("alice", http.MethodDelete, strings.Replace(vpcs, "vpcs", "palaces", 1)+"/demo", "", 404)
	sent("alice", http.MethodDelete, vpcs+"/last", "", 404)

	told := w.soonTold("olga", "acme", "", 13)
	require.Regexp(t, "^alice create vpcs made-.{5} 201 -$", told[6])
	told[6] = "made"
	require.Equal(t, []string{
		"alice create vpcs demo 201 -", "alice create vpcs demo 409 AlreadyExists", "carol delete vpcs demo 403 Forbidden", "carol create vpcs hers 403 Forbidden",
		"alice patch vpcs demo 200 -", "alice apply vpcs demo 409 Conflict", "made", "alice apply vpcs two 201 -", "alice apply vpcs bad 422 Invalid",
		"alice log pods web 200 -", "carol exec pods web 400 BadRequest", "root deletecollection vpcs - 200 -", "alice delete vpcs last 404 NotFound",
	}, told)
	require.Equal(t, []string{"carol create vpcs demo 201 -"}, w.soonTold("otto", "globex", "", 1))
	require.Equal(t, told[2:3], w.told("olga", "acme", "&user=carol&verb=delete&resource=vpc&name=demo"))
	require.Len(t, w.told("root", "acme", "&limit=3"), 13, "in pages")
	require.Empty(t, w.told("root", "acme", "&until=2020-01-01T00:00:00Z"))

	for user, code := range map[string]int{"alice": 403, "carol": 403, "bob": 403, "otto": 403, "": 401} {
		got := w.send(user, http.MethodGet, "/audit?tenant=acme", "")
		require.Equal(t, code, got.code, "%s: %s", user, got.body)
	}
	require.Equal(t, 403, w.send("olga", http.MethodGet, "/audit?tenant=acme&former=true", "").code)
	require.Equal(t, 403, w.send("olga", http.MethodGet, "/audit?tenant="+w.namespaces["acme"], "").code)
	for _, bad := range []string{"", "?tenant=", "?tenant=a/b", "?tenant=acme&since=now", "?tenant=acme&limit=0", "?tenant=acme&limit=1e9", "?tenant=acme&x=y", "?tenant=acme&tenant=globex", "?tenant=acme&continue=x", "?tenant=acme&former=perhaps"} {
		got := w.send("olga", http.MethodGet, "/audit"+bad, "")
		require.Equal(t, 400, got.code, "%s: %s", bad, got.body)
	}
	require.Equal(t, 405, w.send("olga", http.MethodDelete, "/audit?tenant=acme", "").code)
}

// The API server passes over the query of a deletion with a body: a dry run was none.
func TestADeletionWithABodyTakesItsOptionsFromThere(t *testing.T) {
	w := auditedWorld(t)
	require.Equal(t, 201, w.send("alice", http.MethodPost, vpcs, demoVpc).code)
	for _, body := range []string{`{}`, `{"dryRun":[]}`, `{"dryRun":["All"]}`, `{"gracePeriodSeconds":0}`} {
		refused := w.send("alice", http.MethodDelete, vpcs+"/demo?dryRun=All", body)
		require.Equal(t, 400, refused.code, refused.body)
		require.Contains(t, refused.body, "dryRun")
	}
	require.Equal(t, 200, w.send("alice", http.MethodDelete, vpcs+"/demo?dryRun=All", "").code)
	require.Equal(t, 200, w.send("alice", http.MethodDelete, vpcs+"/demo", `{"dryRun":["All"]}`).code)
	require.Equal(t, 200, w.send("alice", http.MethodGet, vpcs+"/demo", "").code, "it is still there")
	require.Equal(t, 200, w.send("alice", http.MethodDelete, vpcs+"/demo", `{}`).code)
	require.Equal(t, 404, w.send("alice", http.MethodGet, vpcs+"/demo", "").code)
}

func TestTheTrailNamesAServiceAccountByItsTenant(t *testing.T) {
	w := auditedWorld(t)
	require.Equal(t, 201, w.send("ci", http.MethodPost, vpcs, demoVpc).code)
	require.Equal(t, []string{"serviceaccount:acme:ci create vpcs demo 201 -"}, w.soonTold("olga", "acme", "", 1))
}

func TestOddDryRunsAreToldAsRefused(t *testing.T) {
	w := auditedWorld(t)
	for i, odd := range []string{"?dryRun=", "?dryRun=all", "?dryRun=All&dryRun=x"} {
		require.Less(t, 399, w.send("alice", http.MethodPost, vpcs+odd, strings.Replace(demoVpc, "demo", fmt.Sprint("v-", i), 1)).code)
	}
	require.Len(t, w.soonTold("olga", "acme", "&verb=create", 3), 3)
}

func TestNobodyForgesOrBreaksEntries(t *testing.T) {
	w := auditedWorld(t)
	names := []string{"web\\nroot delete vpcs x 200", "\\u001b[2Jweb", "\\u202egnp", strings.Repeat("w", 1<<20), "\\u0000", "../../x", "私の"}
	for _, name := range names {
		got := w.send("alice", http.MethodPost, vpcs, `{"apiVersion":"vpc.mnicloud.jp/v1alpha1","kind":"Vpc","metadata":{"name":"`+name+`"},"spec":{"cidr":"10.0.0.0/16"}}`,
			"Content-Type", "application/json", "X-Forwarded-For", "203.0.113.1", "Forwarded", "for=203.0.113.1", "X-Real-Ip", "203.0.113.1")
		require.LessOrEqual(t, 400, got.code)
		require.Less(t, got.code, 500, got.body)
	}
	told := w.soonTold("olga", "acme", "", len(names))
	require.Len(t, told, len(names))
	for _, line := range told {
		require.Regexp(t, "^alice create vpcs [^\\x00-\\x1f\\x7f\\x{202e}]{1,260} 4\\d\\d [A-Za-z]+$", line)
	}
	require.Equal(t, 201, w.send("alice", http.MethodPost, vpcs, demoVpc).code)
	require.Equal(t, "alice create vpcs demo 201 -", w.soonTold("olga", "acme", "", len(names)+1)[len(names)])
}

func TestChangesOfATenantItselfAreInItsTrail(t *testing.T) {
	w := auditedWorld(t)
	c, err := dynamic.NewForConfig(w.direct)
	require.NoError(t, err)
	w.tenantObject(c, "acme", w.namespaces["acme"])
	const tenants = "/apis/auth.mnicloud.jp/v1alpha1/tenants"
	member := `{"spec":{"members":[{"user":"carol","role":"viewer"}]}}`
	require.Equal(t, 200, w.send("olga", http.MethodPatch, tenants+"/acme", member, "Content-Type", "application/merge-patch+json").code)
	require.Equal(t, 403, w.send("carol", http.MethodPatch, tenants+"/acme", member, "Content-Type", "application/merge-patch+json").code)
	require.Equal(t, 403, w.send("bob", http.MethodPatch, tenants+"/acme", member, "Content-Type", "application/merge-patch+json").code)
	require.Equal(t, 200, w.send("olga", http.MethodDelete, tenants+"/acme", "").code)
	require.Equal(t, []string{
		"olga patch tenants acme 200 -", "carol patch tenants acme 403 Forbidden", "olga delete tenants acme 200 -",
	}, w.soonTold("olga", "acme", "", 3))

	// One that nobody can name yet, and that is no more afterwards.
	made := w.send("root", http.MethodPost, tenants, "{apiVersion: auth.mnicloud.jp/v1alpha1, kind: Tenant, metadata: {name: phoenix}}")
	require.Equal(t, 201, made.code, made.body)
	require.Equal(t, 200, w.send("root", http.MethodDelete, tenants+"?fieldSelector=metadata.name%3Dphoenix", "").code)
	require.Equal(t, []string{"root create tenants phoenix 201 -", "root deletecollection tenants phoenix 200 -"}, w.soonTold("root", "phoenix", "&former=true", 2))
	require.Equal(t, 403, w.send("root", http.MethodGet, "/audit?tenant=phoenix", "").code)
}

func TestReplicasWriteOneTrailAndAKilledOneIsFollowedByAnother(t *testing.T) {
	w := auditedWorld(t)
	_, kill := w.replica(audit.Options{}, nil)
	urls, clients := []string{w.url}, []*http.Client{w.client}
	w.replica(audit.Options{}, nil)
	urls, clients = append(urls, w.url), append(clients, w.client)
	for i := range 10 {
		w.url, w.client = urls[i%2], clients[i%2]
		require.Equal(t, 201, w.send("alice", http.MethodPost, vpcs, strings.Replace(demoVpc, "demo", fmt.Sprint("v-", i), 1)).code)
	}
	require.Len(t, w.soonTold("olga", "acme", "", 10), 10)
	here := w.told("olga", "acme", "")
	w.url, w.client = urls[0], clients[0]
	require.Equal(t, here, w.told("olga", "acme", ""))
	kill()
	third, _ := w.replica(audit.Options{}, nil)
	require.Equal(t, 200, w.send("alice", http.MethodDelete, vpcs+"/v-0", "").code)
	require.NoError(t, third.Close(t.Context()))
	told := w.told("olga", "acme", "")
	require.Len(t, told, 11)
	require.Equal(t, "alice delete vpcs v-0 200 -", told[10])
}

func TestWhatCannotBeRecordedIsNotDone(t *testing.T) {
	w := auditedWorld(t)
	var broken atomic.Bool
	broken.Store(true)
	trail, _ := w.replica(audit.Options{Capacity: 8}, func(c client.WithWatch) client.Client {
		return interceptor.NewClient(c, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if broken.Load() {
				return errors.New("no")
			}
			return c.Create(ctx, o, opts...)
		}})
	})
	vpc := func(name string) *reply {
		return w.send("alice", http.MethodPost, vpcs, strings.Replace(demoVpc, "demo", name, 1))
	}
	require.Equal(t, 201, vpc("one").code)
	require.Equal(t, 201, vpc("two").code)
	refused := vpc("three")
	require.Equal(t, 503, refused.code, refused.body)
	require.Contains(t, refused.body, "the audit trail cannot be written at the moment")
	require.Equal(t, "1", refused.header.Get("Retry-After"))
	require.Equal(t, 404, w.send("alice", http.MethodGet, vpcs+"/three", "").code, "it was not done, and looking goes on")
	require.Equal(t, 201, w.send("carol", http.MethodPost, strings.Replace(vpcs, "acme", "globex", 1), strings.ReplaceAll(demoVpc, "acme", "globex")).code, "another tenant has room")
	broken.Store(false)
	w.eventually("there is room again", func() bool { return vpc("three").code == 201 })
	require.NoError(t, trail.Close(t.Context()))
	told := w.told("olga", "acme", "&verb=create")
	require.Equal(t, []string{"alice create vpcs one 201 -", "alice create vpcs two 201 -", "alice create vpcs three 201 -"}, told)
}

func TestAStreamIsToldOfWhenItBegins(t *testing.T) {
	w := auditedWorld(t)
	w.serviceAccounts()
	w.node()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"/api/v1/namespaces/acme/pods/web/log?follow=true", http.NoBody)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer carol")
	response, err := w.client.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	_, err = io.ReadFull(response.Body, make([]byte, 5))
	require.NoError(t, err)
	require.Equal(t, []string{"carol log pods web 200 -"}, w.soonTold("olga", "acme", "", 1))
}
