package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/apiserver"
)

// program is the command as a process of its own, before the world's API server.
type program struct {
	*world
	pid int
	// login is ada's access token.
	login string
	// own are the command's rights.
	own *rest.Config
}

// start starts the command, without the limits that would keep one user from being many.
func start(t testing.TB) *program {
	t.Helper()
	w := furnished(t)
	direct := apiserver.Shared(t)
	w.tenant("bench", "ada", authv1.RoleMember, "get", "list", "watch", "create", "update", "patch", "delete")
	w.make(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "shared"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "bench-member"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "mni:gateway"}},
	})
	own := w.rights(direct)
	dir := t.TempDir()
	config := clientcmdapi.NewConfig()
	config.Clusters["a"] = &clientcmdapi.Cluster{Server: own.Host, CertificateAuthorityData: own.CAData}
	config.AuthInfos["a"] = &clientcmdapi.AuthInfo{Token: own.BearerToken}
	config.Contexts["a"] = &clientcmdapi.Context{Cluster: "a", AuthInfo: "a"}
	config.CurrentContext = "a"
	require.NoError(t, clientcmd.WriteToFile(*config, filepath.Join(dir, "kubeconfig")))
	cert, key, pool := certificate(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.NoError(t, free.Close())
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "gateway", "--kubeconfig", filepath.Join(dir, "kubeconfig"), "--address", address, "--cert", cert, "--key", key,
		"--user-rate", "1e6", "--user-burst", "1000000", "--user-open", "1000000")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	w.url = "https://" + address
	w.web, w.authority = browser(pool), readFile(t, cert)
	p := &program{world: w, pid: cmd.Process.Pid, own: own}
	w.eventually("the program answers", func() bool {
		response, err := w.web.Post(w.url+"/login", "application/json", strings.NewReader(`{"name":"ada","password":"`+right+`"}`))
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	p.login = w.login("ada", right).Access
	w.eventually("ada lists", func() bool {
		code, _ := w.send(http.MethodGet, vpcsOf("bench"), p.login, "")
		return code == 200
	})
	return p
}

func vpcsOf(tenant string) string { return strings.Replace(vpcsOfRed, "red", tenant, 1) }

// resident is the process's memory in bytes: what it has in RAM that is its own.
func (p *program) resident() int64 {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	require.NoError(p.t, err)
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "RssAnon:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			require.NoError(p.t, err)
			return kib << 10
		}
	}
	p.t.Fatal("the process has no RssAnon")
	return 0
}

// namespaceOf is a Tenant's namespace.
func (w *world) namespaceOf(tenant string) string {
	w.t.Helper()
	stored := &authv1.Tenant{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Name: tenant}, stored))
	return stored.Status.Namespace
}

// store puts Secrets and ConfigMaps into etcd, n of each in the namespace, past the API server, which would take a minute: its watches
// tell of them all the same.
func (w *world) store(namespace string, n int) {
	w.t.Helper()
	type put struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	}
	type operation struct {
		Put put `json:"requestPut"`
	}
	content := strings.Repeat("x", 1000)
	var batch []operation
	for i := range n {
		meta := metav1.ObjectMeta{Name: fmt.Sprintf("foreign-%d", i), Namespace: namespace, Labels: map[string]string{"app": "foreign"}}
		for key, o := range map[string]any{
			"/registry/secrets/": &corev1.Secret{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: meta, Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"a": []byte(content)},
			},
			"/registry/configmaps/": &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: meta, Data: map[string]string{"a": content}},
		} {
			value, err := json.Marshal(o)
			require.NoError(w.t, err)
			batch = append(batch, operation{put{[]byte(key + namespace + "/" + meta.Name), value}})
		}
		if len(batch) < 100 && i < n-1 {
			continue
		}
		w.etcd("/v3/kv/txn", map[string]any{"success": batch})
		batch = nil
	}
}

// clear takes out what store put in.
func (w *world) clear(namespace string) {
	w.t.Helper()
	for _, key := range []string{"/registry/secrets/", "/registry/configmaps/"} {
		prefix := key + namespace + "/foreign"
		w.etcd("/v3/kv/deleterange", map[string]any{"key": []byte(prefix + "-"), "range_end": []byte(prefix + ".")})
	}
}

// etcd asks etcd.
func (w *world) etcd(path string, question any) {
	w.t.Helper()
	body, err := json.Marshal(question)
	require.NoError(w.t, err)
	response, err := http.Post(apiserver.SharedEtcd(w.t)+path, "application/json", bytes.NewReader(body))
	require.NoError(w.t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	require.NoError(w.t, err)
	require.Equal(w.t, http.StatusOK, response.StatusCode, "%s", answer)
}

func TestForeignSecretsAndConfigMapsTakeNoMemoryOfTheGateways(t *testing.T) {
	p := start(t)
	for range 50 {
		code, _ := p.send(http.MethodGet, vpcsOf("bench"), p.login, "")
		require.Equal(t, 200, code)
	}
	before := p.resident()
	for _, namespace := range []string{"default", authv1.SystemNamespace} {
		p.store(namespace, 2500)
		t.Cleanup(func() { p.clear(namespace) })
		p.eventually("the API server tells of them", func() bool {
			for _, kind := range []string{"SecretList", "ConfigMapList"} {
				list := &metav1.PartialObjectMetadataList{}
				list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
				require.NoError(t, p.List(t.Context(), list, client.InNamespace(namespace), client.Limit(1)))
				if more := list.GetRemainingItemCount(); more == nil || *more < 2499 {
					return false
				}
			}
			return true
		})
	}
	for range 50 {
		code, _ := p.send(http.MethodGet, vpcsOf("bench"), p.login, "")
		require.Equal(t, 200, code)
	}
	grown := p.resident() - before
	t.Logf("the gateway's memory: %d KiB, and %d more with 10,000 foreign objects", before>>10, grown>>10)
	require.Less(t, grown, int64(5<<20))
}
