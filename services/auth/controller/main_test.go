package controller

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"text/template"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/mnicloud/mnicloud/distro/parts"
	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	authconfig "github.com/mnicloud/mnicloud/services/auth/config"
	"github.com/mnicloud/mnicloud/services/auth/password"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/apiserver"
	"github.com/mnicloud/mnicloud/test/writes"
)

// server is the API server of the package's tests, with the distribution's audit policy and what Kubernetes itself does for tenants.
var server apiserver.Server

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	ctrl.SetLogger(logr.Discard())
	if err := flag.Set("test.parallel", "8"); err != nil { // what runs in parallel here waits
		panic(err)
	}
	return apiserver.MainWhole(m, apiserver.Options{
		AuditPolicy: parts.AuditPolicy,
		Controllers: []string{"namespace-controller", "resourcequota-controller", "clusterrole-aggregation-controller"},
	}, func(s apiserver.Server) { server = s })
}

// patience bounds each wait for a condition.
const patience = 2 * time.Minute

func testScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, authv1.AddToScheme, vpcv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
}

// world is a test's view of the API server: a client with every right and without a cache.
type world struct {
	t *testing.T
	client.Client
	ctx context.Context
	// stop stops the controllers and the webhook; nil when they do not run.
	stop func()
	// only is the one Tenant that the controllers know of; all when it is empty.
	only string
}

var install sync.Once

// newWorld runs the controllers and the webhook until the test ends. All that the test made is gone then.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := idleWorld(t)
	w.start(nil, true)
	return w
}

// idleWorld is a world in which nothing runs yet, with the policies, roles and the webhook's registration installed.
func idleWorld(t *testing.T) *world {
	t.Helper()
	w := connect(t)
	install.Do(func() { w.install() })
	t.Cleanup(w.clear)
	return w
}

// connect is a world without a cleanup.
func connect(t *testing.T) *world {
	t.Helper()
	c, err := client.New(restConfig(), client.Options{Scheme: testScheme()})
	require.NoError(t, err)
	return &world{t: t, Client: c, ctx: context.Background()}
}

// restConfig of the server, without a limit of requests.
func restConfig() *rest.Config {
	c := rest.CopyConfig(server.Config)
	c.QPS = -1
	return c
}

// serving is the webhook's server: where it listens, and its certificate, which is its own authority.
var serving struct {
	port int
	dir  string
	pem  []byte
}

// install installs what the distribution does for the auth service.
func (w *world) install() {
	w.t.Helper()
	w.makeCertificate()
	text := &strings.Builder{}
	require.NoError(w.t, template.Must(template.New("").Parse(authconfig.Webhook)).Execute(text, map[string]string{
		"WebhookURL": fmt.Sprintf("https://127.0.0.1:%d", serving.port), "CABundle": base64.StdEncoding.EncodeToString(serving.pem),
	}))
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: authv1.SystemNamespace}})
	documents := text.String()
	for _, pattern := range []string{"services/auth/config/policy/*.yaml", "services/auth/config/roles/*.yaml", "services/*/config/rbac/tenant.yaml"} {
		paths, err := filepath.Glob(filepath.Join(apiserver.Root(), pattern))
		require.NoError(w.t, err)
		require.NotEmpty(w.t, paths, pattern)
		for _, path := range paths {
			content, err := os.ReadFile(path)
			require.NoError(w.t, err)
			documents += "\n---\n" + string(content)
		}
	}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(documents), 4096)
	for {
		obj := &unstructured.Unstructured{}
		if err := decoder.Decode(&obj.Object); err != nil {
			require.ErrorContains(w.t, err, "EOF")
			break
		}
		if len(obj.Object) > 0 {
			w.create(obj)
		}
	}
	// Admission follows its configuration with a delay: wait for the webhook to be asked (nobody answers yet), and for the policies.
	w.eventually("the webhook is asked", func() bool {
		err := w.Create(w.ctx, &authv1.User{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: authv1.UserSpec{Password: "correct horse"}}, client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "failed calling webhook")
	})
}

func (w *world) makeCertificate() {
	// The webhook is served at this port again and again, so it is none that the kernel gives to others meanwhile (32768 to 60999).
	w.eventually("there is a free port", func() bool {
		serving.port = 20000 + mathrand.IntN(10000)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", serving.port))
		return err == nil && listener.Close() == nil
	})
	serving.dir = filepath.Dir(server.AuditLog)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(w.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "webhook"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(w.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(w.t, err)
	serving.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	require.NoError(w.t, os.WriteFile(filepath.Join(serving.dir, "webhook.crt"), serving.pem, 0o600))
	require.NoError(w.t, os.WriteFile(filepath.Join(serving.dir, "webhook.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}

// start runs the controllers, whose writes go through the log when there is one, and the webhook if it is wanted.
func (w *world) start(log *writes.Log, hook bool) {
	w.t.Helper()
	objects := CacheByObject()
	if w.only != "" {
		objects[&authv1.Tenant{}] = cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", w.only)}
	}
	mgr, err := ctrl.NewManager(restConfig(), ctrl.Options{
		Scheme:  testScheme(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:   cache.Options{ByObject: objects},
		// controller-runtime 0.24's priority queue can hang when it is shut down, as cmd/mni-cloud says.
		Controller: config.Controller{SkipNameValidation: ptr.To(true), UsePriorityQueue: ptr.To(false)},
	})
	require.NoError(w.t, err)
	cfg := Config{PasswordCost: password.MinCost}
	if hook {
		cfg.Webhooks = webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: serving.port, CertDir: serving.dir, CertName: "webhook.crt", KeyName: "webhook.key"})
		require.NoError(w.t, mgr.Add(cfg.Webhooks))
	}
	c := mgr.GetClient()
	if log != nil {
		c = log.Client(c)
	}
	require.NoError(w.t, setup(w.ctx, mgr, cfg, c))
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("the controllers ended with: %v", err)
		}
		w.stop = nil
	}
	require.True(w.t, mgr.GetCache().WaitForCacheSync(ctx))
	if hook {
		w.eventually("the webhook is served", func() bool { return cfg.Webhooks.StartedChecker()(nil) == nil })
	}
}

// clear asks everything to go, and waits until it is gone.
func (w *world) clear() {
	if w.stop == nil {
		w.start(nil, false)
	}
	defer func() { w.stop() }()
	require.NoError(w.t, w.DeleteAllOf(w.ctx, &authv1.Tenant{}))
	require.NoError(w.t, w.DeleteAllOf(w.ctx, &authv1.User{}))
	w.eventually("all Users and Tenants are gone", func() bool {
		var users authv1.UserList
		var tenants authv1.TenantList
		require.NoError(w.t, errors.Join(w.List(w.ctx, &users), w.List(w.ctx, &tenants)))
		return len(users.Items)+len(tenants.Items) == 0
	})
}

func (w *world) create(obj client.Object) {
	w.t.Helper()
	require.NoError(w.t, w.Create(w.ctx, obj))
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	require.Eventually(w.t, ok, patience, 20*time.Millisecond, what)
}

// user makes a User.
func (w *world) user(name, plain string) *authv1.User {
	w.t.Helper()
	user := &authv1.User{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: authv1.UserSpec{Password: plain}}
	w.create(user)
	return user
}

// tenant makes a Tenant; members are pairs of user and role. It waits until the Tenant is ready and its members are as many.
func (w *world) tenant(name string, members ...string) *authv1.Tenant {
	w.t.Helper()
	tenant := &authv1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for i := 0; i+1 < len(members); i += 2 {
		tenant.Spec.Members = append(tenant.Spec.Members, authv1.Member{User: members[i], Role: authv1.Role(members[i+1])})
	}
	w.create(tenant)
	w.untilReady(tenant)
	return tenant
}

func (w *world) untilReady(tenant *authv1.Tenant) {
	w.t.Helper()
	w.eventually("Tenant "+tenant.Name+" is ready", func() bool {
		return w.read(tenant) && tenant.Status.Phase == "Ready" && tenant.Status.ObservedGeneration == tenant.Generation
	})
}

// read reads the object anew; it tells whether the object exists.
func (w *world) read(obj client.Object) bool {
	w.t.Helper()
	err := w.Get(w.ctx, client.ObjectKeyFromObject(obj), obj)
	if apierrors.IsNotFound(err) {
		return false
	}
	require.NoError(w.t, err)
	return true
}

// as is a client that is who the members of Tenants are to Kubernetes.
func (w *world) as(user string, groups ...string) client.Client {
	w.t.Helper()
	c := restConfig()
	c.Impersonate = rest.ImpersonationConfig{UserName: authv1.UserName(user), Groups: append(groups, "system:authenticated", authv1.GroupUsers)}
	out, err := client.New(c, client.Options{Scheme: testScheme()})
	require.NoError(w.t, err)
	return out
}

func containsAll(text string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}
