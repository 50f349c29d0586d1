package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/yaml"

	"github.com/mnicloud/mnicloud/platform/gateway"
	"github.com/mnicloud/mnicloud/test/apiserver"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	os.Exit(apiserver.Main(m))
}

// patience bounds each wait for a condition.
const patience = 2 * time.Minute

// plenty is more than any test does.
var plenty = gateway.Limits{PerSecond: 1 << 20, Burst: 1 << 20, AtOnce: 1 << 20}

// tokens is an authenticator that a test gives identities to.
type tokens struct {
	mu  sync.Mutex
	ids map[string]*gateway.Identity
}

func (t *tokens) Authenticate(r *http.Request) (*gateway.Identity, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, ok := t.ids[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	if !ok {
		return nil, gateway.ErrUnauthenticated
	}
	own := *id
	own.Tenants = maps.Clone(id.Tenants)
	return &own, nil
}

func (t *tokens) set(token string, id *gateway.Identity) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ids == nil {
		t.ids = map[string]*gateway.Identity{}
	}
	t.ids[token] = id
}

// world is a gateway before a real API server, with two tenants, acme and globex. alice is a member of acme, bob of globex, carol a
// viewer of acme and a member of globex; root administrates the cloud; ci is a service account of acme, with a member's role.
type world struct {
	t      testing.TB
	ctx    context.Context
	direct *rest.Config
	kube   *kubernetes.Clientset
	tokens *tokens
	url    string
	ca     []byte
	// namespaces of the tenants by name.
	namespaces map[string]string
	client     *http.Client
	// handler is the gateway itself, without a connection.
	handler http.Handler
	// asked is how many requests have come to the node.
	asked atomic.Int64
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, ctx: t.Context(), direct: apiserver.Shared(t), tokens: &tokens{}, namespaces: map[string]string{}}
	w.direct.QPS = -1
	var err error
	w.kube, err = kubernetes.NewForConfig(w.direct)
	require.NoError(t, err)
	w.roles()
	for _, tenant := range []string{"acme", "globex"} {
		w.tenant(tenant)
	}
	w.user("alice", map[string]string{"acme": "member"})
	w.user("bob", map[string]string{"globex": "member"})
	w.user("carol", map[string]string{"acme": "viewer", "globex": "member"})
	w.administrator("root")
	w.account("ci", "acme", "member")
	w.serve(gateway.Config{Limits: plenty, Upstream: w.ownConfig(), Authenticator: w.tokens})
	// A kind's storage says 429 for a moment after the kind was made.
	w.eventually("the kinds can be used", func() bool { return w.send("alice", http.MethodGet, vpcs, "").code == http.StatusOK })
	return w
}

// serve starts a gateway.
func (w *world) serve(config gateway.Config) {
	w.t.Helper()
	config.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	if testing.Verbose() {
		config.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	g, err := gateway.New(config)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	server := httptest.NewUnstartedServer(g)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	w.t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		cancel()
		require.NoError(w.t, <-done)
	})
	w.url, w.client, w.handler = server.URL, server.Client(), g
	w.ca = pemOf(server.Certificate())
	w.eventually("the gateway is ready", g.Ready)
}

// ownConfig is the gateway's own way to the API server: a service account with the role that is shipped.
func (w *world) ownConfig() *rest.Config {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(apiserver.Root(), "platform/gateway/config/rbac/role.yaml"))
	require.NoError(w.t, err)
	var role rbacv1.ClusterRole
	require.NoError(w.t, yaml.UnmarshalStrict(text, &role))
	w.clusterRole(&role)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "mni-gateway", Namespace: "default"}}
	_, err = w.kube.CoreV1().ServiceAccounts("default").Create(w.ctx, account, metav1.CreateOptions{})
	w.unlessThere(err)
	w.bindAll(role.Name, rbacv1.Subject{Kind: "ServiceAccount", Name: "mni-gateway", Namespace: "default"})
	request, err := w.kube.CoreV1().ServiceAccounts("default").CreateToken(w.ctx, "mni-gateway", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	config := rest.AnonymousClientConfig(w.direct)
	config.BearerToken = request.Status.Token
	config.QPS = -1
	return config
}

func (w *world) unlessThere(err error) {
	w.t.Helper()
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(w.t, err)
	}
}

func (w *world) clusterRole(role *rbacv1.ClusterRole) {
	w.t.Helper()
	_, err := w.kube.RbacV1().ClusterRoles().Create(w.ctx, role, metav1.CreateOptions{})
	w.unlessThere(err)
}

func (w *world) bindAll(role string, subjects ...rbacv1.Subject) {
	w.t.Helper()
	_, err := w.kube.RbacV1().ClusterRoleBindings().Create(w.ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "gateway-test-" + role}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}, metav1.CreateOptions{})
	w.unlessThere(err)
}

// roles are those of tenants' members: as services/auth aggregates them, which needs a controller that is not here.
func (w *world) roles() {
	rule := func(groups, resources string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: strings.Split(groups, ","), Resources: strings.Split(resources, ","), Verbs: verbs}
	}
	const ours = "vpc.mnicloud.jp,ctr.mnicloud.jp,gadgets.mnicloud.jp"
	read := []rbacv1.PolicyRule{
		rule(ours, "*", "get", "list", "watch"), rule("auth.mnicloud.jp", "serviceaccounts,serviceaccounts/status", "get", "list", "watch"), rule("", "pods,events", "get", "list", "watch"), rule("", "pods/log", "get"),
	}
	write := []rbacv1.PolicyRule{
		rule(ours, "vpcs,subnets,routetables,securitygroups,externalips,floatingips,natgateways,vpcpeerings,containers,gadgets", "create", "update", "patch", "delete", "deletecollection"),
		rule("", "pods/exec,pods/attach,pods/portforward", "get", "create"),
	}
	w.clusterRole(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "test-viewer"}, Rules: read})
	w.clusterRole(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "test-member"}, Rules: append(read, write...)})
	// The shared watches see what a viewer of every tenant sees.
	w.sharer()
	w.bindAll("cluster-admin", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "mni:administrators"})
}

// tenant makes a tenant's namespace and the rights of its members.
func (w *world) tenant(name string) {
	w.t.Helper()
	namespace := uuid.NewString()
	w.namespaces[name] = namespace
	_, err := w.kube.CoreV1().Namespaces().Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	for _, role := range []string{"viewer", "member"} {
		_, err := w.kube.RbacV1().RoleBindings(namespace).Create(w.ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "test-" + role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "mni:tenant:" + namespace[:8] + ":" + role}},
		}, metav1.CreateOptions{})
		require.NoError(w.t, err)
	}
}

// user makes a user with a role in each tenant; the token is the user's name.
func (w *world) user(name string, roles map[string]string) {
	id := &gateway.Identity{User: "mni:user:" + name, Name: name, Groups: []string{"mni:users"}, Tenants: map[string]string{}}
	for tenant, role := range roles {
		namespace := w.namespaces[tenant]
		id.Tenants[tenant] = namespace
		id.Groups = append(id.Groups, "mni:tenant:"+namespace[:8]+":"+role)
	}
	w.tokens.set(name, id)
}

// account makes a service account of a tenant; the token is its name.
func (w *world) account(name, tenant, role string) {
	namespace := w.namespaces[tenant]
	w.tokens.set(name, &gateway.Identity{
		User: "mni:serviceaccount:" + namespace + ":" + name, Groups: []string{"mni:serviceaccounts", "mni:tenant:" + namespace[:8] + ":" + role},
		Tenants: map[string]string{tenant: namespace},
	})
}

func (w *world) administrator(name string) {
	w.tokens.set(name, &gateway.Identity{
		User: "mni:user:" + name, Name: name, Groups: []string{"mni:users", "mni:administrators"}, Administrator: true, Tenants: maps.Clone(w.namespaces),
	})
}

// eventually waits until the condition holds.
func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	deadline := time.After(patience)
	for !holds() {
		select {
		case <-deadline:
			w.t.Fatalf("not within %s: %s", patience, what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// config is a client's configuration for the gateway.
func (w *world) config(user string) *rest.Config {
	return &rest.Config{Host: w.url, BearerToken: user, TLSClientConfig: rest.TLSClientConfig{CAData: w.ca}, QPS: -1}
}

func (w *world) dynamic(user string) *dynamic.DynamicClient {
	w.t.Helper()
	c, err := dynamic.NewForConfig(w.config(user))
	require.NoError(w.t, err)
	return c
}

// reply to a request, read whole.
type reply struct {
	code   int
	header http.Header
	body   string
}

func (r *reply) json(t testing.TB) map[string]any {
	t.Helper()
	var out map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.body), &out), r.body)
	return out
}

// send sends a request of a user. headers are pairs.
func (w *world) send(user, method, path, body string, headers ...string) *reply {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.ctx, method, w.url+path, bytes.NewReader([]byte(body)))
	require.NoError(w.t, err)
	r.Header.Set("Accept", "application/json")
	if body != "" {
		r.Header.Set("Content-Type", "application/yaml")
	}
	if user != "" {
		r.Header.Set("Authorization", "Bearer "+user)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := w.client.Do(r)
	require.NoError(w.t, err)
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	require.NoError(w.t, err)
	return &reply{response.StatusCode, response.Header, string(read)}
}

// noNamespace fails when a tenant's namespace shows in a text.
func (w *world) noNamespace(text string) {
	w.t.Helper()
	for tenant, namespace := range w.namespaces {
		require.NotContains(w.t, text, namespace, "the namespace of %s shows", tenant)
	}
}
