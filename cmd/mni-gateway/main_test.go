package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/platform/gateway/config"
	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/auth/password"
	"github.com/mnicloud/mnicloud/services/auth/session"
	"github.com/mnicloud/mnicloud/test/apiserver"
)

func TestMain(m *testing.M) { os.Exit(testsOrCredential(m)) }

// testsOrCredential runs the tests, or is the program that a kubeconfig names which they wrote, for kubectl, or the command itself.
func testsOrCredential(m *testing.M) int {
	if len(os.Args) > 1 && os.Args[1] == "credential" {
		return commandLine(context.Background(), genericiooptions.IOStreams{Out: os.Stdout, ErrOut: os.Stderr}, os.Args[1:]...)
	}
	if len(os.Args) > 1 && os.Args[1] == "gateway" {
		c := command()
		c.SetArgs(os.Args[2:])
		if err := c.ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	if err := silenceLibraries(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return apiserver.Main(m)
}

// silenceLibraries has the command line silence Kubernetes' libraries, as it does when it first looks for a cloud, before any of
// them runs here: their logger is the process's.
func silenceLibraries() error {
	file, err := os.CreateTemp("", "kubeconfig")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = file.WriteString("{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]}")
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	var said bytes.Buffer
	if commandLine(context.Background(), genericiooptions.IOStreams{Out: io.Discard, ErrOut: &said}, "api-resources", "--kubeconfig", file.Name()); !strings.Contains(said.String(), "https://127.0.0.1:1") {
		return fmt.Errorf("no cloud was looked for: %s", &said)
	}
	return nil
}

// patience bounds each wait for a condition.
const patience = 2 * time.Minute

const right = "correct horse"

// world is the command before a real API server, with the rights that are shipped and no others; User ada, who is a viewer of Tenant
// red, and eve, who is nobody anywhere.
type world struct {
	client.Client
	t   testing.TB
	url string
	// web speaks to the command.
	web *http.Client
	// authority is the certificate of who signed the command's, PEM.
	authority []byte
	red       *authv1.Tenant
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := furnished(t)
	w.serve(w.rights(apiserver.Shared(t)))
	return w
}

// furnished is a world without the command.
func furnished(t testing.TB) *world {
	t.Helper()
	direct := apiserver.Shared(t)
	direct.QPS = -1
	scheme := clientgoscheme.Scheme
	require.NoError(t, authv1.AddToScheme(scheme))
	c, err := client.New(direct, client.Options{Scheme: scheme})
	require.NoError(t, err)
	w := &world{Client: c, t: t}
	require.NoError(t, client.IgnoreAlreadyExists(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: authv1.SystemNamespace}})))
	_, err = session.New(c, c, session.Options{}).EnsureKeys(t.Context())
	require.NoError(t, err)
	w.furnish()
	return w
}

// furnish makes the Users and the Tenant as the Auth Controller and its webhook leave them.
func (w *world) furnish() {
	w.t.Helper()
	for _, name := range []string{"ada", "eve"} {
		user := &authv1.User{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: authv1.UserSpec{Password: hashOf(w.t, right)}}
		w.make(user)
	}
	w.red = w.tenant("red", "ada", authv1.RoleViewer, "get", "list", "watch")
}

// tenant is a Tenant with one member, who may do so much with what is of the VPC service.
func (w *world) tenant(name, member string, role authv1.Role, verbs ...string) *authv1.Tenant {
	w.t.Helper()
	user := &authv1.User{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Name: member}, user))
	tenant := &authv1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: authv1.TenantSpec{Members: []authv1.Member{{User: member, Role: role}}}}
	w.make(tenant)
	namespace := string(tenant.UID)
	tenant.Status = authv1.TenantStatus{Namespace: namespace, Members: []authv1.MemberStatus{{User: member, UID: user.UID, State: authv1.MemberActive}}}
	require.NoError(w.t, w.Status().Update(w.t.Context(), tenant))
	w.make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	w.may(tenant, role, verbs...)
	return tenant
}

// may lets who has a role in the Tenant do so much with what is of the VPC service.
func (w *world) may(tenant *authv1.Tenant, role authv1.Role, verbs ...string) {
	w.t.Helper()
	rights := metav1.ObjectMeta{Name: tenant.Name + "-" + string(role)}
	w.make(&rbacv1.ClusterRole{ObjectMeta: rights, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"vpc.mnicloud.jp"}, Resources: []string{"*"}, Verbs: verbs}}})
	w.make(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: rights.Name, Namespace: tenant.Status.Namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: rights.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: authv1.GroupOf(tenant.UID, role)}},
	})
}

// make makes an object that goes with the test.
func (w *world) make(o client.Object) {
	w.t.Helper()
	require.NoError(w.t, w.Create(w.t.Context(), o))
	w.t.Cleanup(func() { require.NoError(w.t, client.IgnoreNotFound(w.Delete(context.Background(), o))) })
}

func hashOf(t testing.TB, plain string) string {
	t.Helper()
	hash, err := password.Hash(plain, password.MinCost)
	require.NoError(t, err)
	return hash
}

// rights are those of a service account that has the shipped roles.
func (w *world) rights(direct *rest.Config) *rest.Config {
	w.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "mni-gateway", Namespace: authv1.SystemNamespace}}
	w.make(account)
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name, Namespace: account.Namespace}}
	files, err := config.Roles.ReadDir("rbac")
	require.NoError(w.t, err)
	for _, file := range files {
		text, err := config.Roles.ReadFile("rbac/" + file.Name())
		require.NoError(w.t, err)
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			role := &unstructured.Unstructured{}
			if err := decoder.Decode(&role.Object); err != nil {
				require.ErrorIs(w.t, err, io.EOF)
				break
			}
			w.make(role)
			ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: role.GetKind(), Name: role.GetName()}
			meta := metav1.ObjectMeta{Name: role.GetName(), Namespace: role.GetNamespace()}
			if role.GetKind() == "Role" {
				w.make(&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
				continue
			}
			w.make(&rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
		}
	}
	request := &authenticationv1.TokenRequest{}
	require.NoError(w.t, w.SubResource("token").Create(w.t.Context(), account, request))
	own := rest.AnonymousClientConfig(direct)
	own.BearerToken = request.Status.Token
	own.QPS = -1
	return own
}

// serve runs the command until the test ends, on more faces than its own if there are any.
func (w *world) serve(api *rest.Config, more ...face) {
	w.t.Helper()
	cert, key, pool := certificate(w.t)
	w.authority = readFile(w.t, cert)
	watcher, err := certwatcher.New(cert, key)
	require.NoError(w.t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	o := &options{healthAddress: "0"}
	go func() {
		done <- o.serve(ctx, api, append(more, face{listener, watcher}), slog.New(slog.NewTextHandler(w.t.Output(), nil)))
	}()
	w.t.Cleanup(func() {
		cancel()
		require.NoError(w.t, <-done)
	})
	w.url = "https://" + listener.Addr().String()
	w.web = browser(pool)
	w.t.Cleanup(w.web.CloseIdleConnections)
}

func browser(pool *x509.CertPool) *http.Client {
	return &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return content
}

func writeFile(t testing.TB, path string, content []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, content, 0o600))
}

func certificate(t testing.TB) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	cert, key = filepath.Join(t.TempDir(), "crt"), filepath.Join(t.TempDir(), "key")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	require.NoError(t, os.WriteFile(cert, text, 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), 0o600))
	pool = x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(text))
	return cert, key, pool
}

// send sends a request and returns the status and the body.
func (w *world) send(method, path, token, body string) (int, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(body))
	require.NoError(w.t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := w.web.Do(r)
	require.NoError(w.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(w.t, err)
	require.Equal(w.t, "nosniff", response.Header.Get("X-Content-Type-Options"))
	require.Equal(w.t, "no-store", response.Header.Get("Cache-Control"))
	return response.StatusCode, string(text)
}

// login logs a User in.
func (w *world) login(name, plain string) session.Tokens {
	w.t.Helper()
	code, body := w.send(http.MethodPost, "/login", "", `{"name":"`+name+`","password":"`+plain+`"}`)
	require.Equal(w.t, 200, code, body)
	var tokens session.Tokens
	require.NoError(w.t, json.Unmarshal([]byte(body), &tokens))
	return tokens
}

// eventually waits until the condition holds.
func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	require.Eventually(w.t, holds, patience, 20*time.Millisecond, what)
}
