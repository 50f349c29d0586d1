package bgp

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/config"
	"github.com/mnicloud/mnicloud/network/datapath/testnet"
	"github.com/mnicloud/mnicloud/test/apiserver"
)

const waitTimeout = 2 * time.Minute

// router is FRR's configuration.
const router = `router bgp 64513
 bgp router-id 192.0.2.254
 bgp graceful-restart
 no bgp default ipv4-unicast
 no bgp ebgp-requires-policy
 neighbor 192.0.2.1 remote-as 64512
 neighbor 192.0.2.1 password s3cret
 neighbor 192.0.2.1 timers connect 2
 address-family ipv4 unicast
  neighbor 192.0.2.1 activate
 exit-address-family
`

// cluster is an API server with the speaker's rights, and a client with all.
type cluster struct {
	t testing.TB
	client.Client
	kubeconfig string
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	admin := apiserver.Start(t)
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, netv1.AddToScheme(scheme))
	c, err := client.New(admin, client.Options{Scheme: scheme})
	require.NoError(t, err)
	k := &cluster{t: t, Client: c}
	k.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: netv1.BGPSecretNamespace}})
	k.grant()
	k.kubeconfig = writeKubeconfig(t, admin, "system:mni:bgpd:node-1", "system:mni:bgpd")
	return k
}

// grant installs the generated roles and binds them as a cloud does.
func (k *cluster) grant() {
	content, err := config.Roles.ReadFile("rbac/bgpd.yaml")
	require.NoError(k.t, err)
	documents := strings.Split(string(content), "\n---\n")
	require.Len(k.t, documents, 2)
	var role rbacv1.ClusterRole
	require.NoError(k.t, yaml.UnmarshalStrict([]byte(strings.TrimPrefix(documents[0], "---\n")), &role))
	var secrets rbacv1.Role
	require.NoError(k.t, yaml.UnmarshalStrict([]byte(documents[1]), &secrets))
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:mni:bgpd"}}
	k.create(&role)
	k.create(&secrets)
	k.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bgpd"}, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
	})
	k.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bgpd", Namespace: secrets.Namespace}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: secrets.Name},
	})
}

func (k *cluster) create(o client.Object) {
	k.t.Helper()
	require.NoError(k.t, k.Create(k.t.Context(), o))
}

// writeKubeconfig writes a client configuration that acts as a user.
func writeKubeconfig(t testing.TB, admin *rest.Config, user, group string) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthorityData: admin.CAData}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: admin.CertData, ClientKeyData: admin.KeyData, Impersonate: user, ImpersonateGroups: []string{group},
	}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*c, file))
	return file
}

// inNamespace is a program that is BIRD in a namespace: the speaker itself stays where the API server is.
func inNamespace(t testing.TB, ns *testnet.Namespace) string {
	t.Helper()
	bird, err := exec.LookPath("bird")
	require.NoError(t, err, "Debian's package bird2 is not installed")
	script := filepath.Join(t.TempDir(), "bird")
	text := fmt.Sprintf("#!/bin/sh\nexec nsenter --net=%s %s \"$@\"\n", ns.Path(), bird)
	require.NoError(t, os.WriteFile(script, []byte(text), 0o755))
	return script
}

// startSpeaker runs a speaker until the returned function is called, and ends its BIRD with the test.
func startSpeaker(t testing.TB, k *cluster, network *testnet.Network) (runDir string, stop func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "bgpd") //nolint:usetesting // t.TempDir's parents are not for other users
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	t.Cleanup(func() {
		require.NoError(t, network.Nodes[0].Do(func() error { return Cleanup(filepath.Join(dir, "run"), log) }))
		require.NoDirExists(t, filepath.Join(dir, "run"))
		require.NoError(t, os.RemoveAll(dir))
	})
	options := Options{Kubeconfig: k.kubeconfig, NodeName: "node-1", BIRD: inNamespace(t, network.Nodes[0].Namespace), RunDir: filepath.Join(dir, "run")}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, options, log) }()
	stop = func() {
		cancel()
		require.NoError(t, <-ended)
		ended <- nil
	}
	t.Cleanup(stop)
	return dir, stop
}

// session is the node's entry in a peer's status.
func (k *cluster) session(peer string) netv1.BGPSession {
	k.t.Helper()
	var p netv1.BGPPeer
	require.NoError(k.t, k.Get(k.t.Context(), client.ObjectKey{Name: peer}, &p))
	for _, s := range p.Status.Sessions {
		if s.Node == "node-1" {
			return s
		}
	}
	return netv1.BGPSession{}
}

func (k *cluster) eventually(what string, holds func() bool) {
	k.t.Helper()
	require.Eventually(k.t, holds, waitTimeout, 100*time.Millisecond, what)
}

func TestASpeakerAnnouncesWhatTheAPIServerSaysAndReportsItsSessions(t *testing.T) {
	k := newCluster(t)
	network := testnet.New(t, 1)
	r := testnet.StartRouter(t, network.Outside, router)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	k.create(node)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: network.Nodes[0].Address.String()}}
	require.NoError(t, k.Status().Update(t.Context(), node))
	pool := &netv1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: netv1.AddressPoolSpec{CIDRs: []string{"203.0.113.0/24"}}}
	k.create(pool)
	peer := &netv1.BGPPeer{
		ObjectMeta: metav1.ObjectMeta{Name: "router"},
		Spec:       netv1.BGPPeerSpec{ASN: 64513, Address: "192.0.2.254", PasswordSecret: "router"},
	}
	k.create(peer)
	k.create(&netv1.BGPAdvertisement{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: netv1.BGPAdvertisementSpec{HostRoutes: true, Communities: []netv1.Community{"64512:7"}}})
	_, stop := startSpeaker(t, k, network)

	k.eventually("a peer whose password is missing is refused, and why", func() bool {
		s := k.session("router")
		return s.State == netv1.BGPRefused && strings.Contains(s.LastError, "no Secret router in namespace mni-bgp")
	})
	k.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "router", Namespace: netv1.BGPSecretNamespace}, StringData: map[string]string{netv1.BGPPasswordKey: "s3cret"},
	})
	k.eventually("the session is up", func() bool { return k.session("router").State == netv1.BGPEstablished })
	require.Empty(t, r.Routes(), "a pool that nobody has confirmed is not announced")
	pool.Status.CIDRs = pool.Spec.CIDRs
	require.NoError(t, k.Status().Update(t.Context(), pool))
	k.eventually("the router has the pool", func() bool { return len(r.Routes()) == 1 && r.Routes()[0] == "203.0.113.0/24 via 192.0.2.1" })
	require.Contains(t, r.Ask("show bgp ipv4 unicast 203.0.113.0/24"), "64512:7")
	k.eventually("the route is counted", func() bool { return k.session("router").RoutesSent == 1 })

	// An external address that leads to an interface here is announced by itself; one that leads elsewhere is not.
	since := k.session("router").Since
	fips := map[string]*netv1.FloatingIP{}
	for name, node := range map[string]string{"203.0.113.7": "node-1", "203.0.113.8": "node-2"} {
		fip := &netv1.FloatingIP{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.FloatingIPSpec{ExternalIP: name}}
		k.create(fip)
		fip.Status = netv1.FloatingIPStatus{ExternalAddress: name, VPCID: 1001, VNI: 1001, Address: "10.0.1.7", Node: node}
		require.NoError(t, k.Status().Update(t.Context(), fip))
		fips[name] = fip
	}
	has := func(routes ...string) func() bool {
		return func() bool { return strings.Join(r.Routes(), ", ") == strings.Join(routes, ", ") }
	}
	k.eventually("the router has the host route", has("203.0.113.0/24 via 192.0.2.1", "203.0.113.7/32 via 192.0.2.1"))
	fips["203.0.113.7"].Status = netv1.FloatingIPStatus{}
	require.NoError(t, k.Status().Update(t.Context(), fips["203.0.113.7"]))
	k.eventually("it is withdrawn", has("203.0.113.0/24 via 192.0.2.1"))
	require.Equal(t, since, k.session("router").Since, "no session was reset for it")
	before := k.session("router")
	require.NotNil(t, before.Since)
	require.Empty(t, before.LastError)

	t.Run("in steady state nothing is written", func(t *testing.T) {
		require.NoError(t, k.Get(t.Context(), client.ObjectKeyFromObject(peer), peer))
		version := peer.ResourceVersion
		// Not require.Never: its last look may come after the test has ended.
		<-time.After(2*lookInterval + 2*time.Second)
		require.NoError(t, k.Get(t.Context(), client.ObjectKeyFromObject(peer), peer))
		require.Equal(t, version, peer.ResourceVersion)
	})
	t.Run("another node's entry stays", func(t *testing.T) {
		require.NoError(t, k.Get(t.Context(), client.ObjectKeyFromObject(peer), peer))
		peer.Status.Sessions = append(peer.Status.Sessions, netv1.BGPSession{Node: "node-2", State: netv1.BGPEstablished})
		require.NoError(t, k.Status().Update(t.Context(), peer))
		node.Labels = map[string]string{"rack": "a"}
		require.NoError(t, k.Update(t.Context(), node))
		require.NoError(t, k.Get(t.Context(), client.ObjectKeyFromObject(peer), peer))
		peer.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"rack": "b"}}
		require.NoError(t, k.Update(t.Context(), peer))
		k.eventually("the own one goes with the session", func() bool {
			require.NoError(t, k.Get(t.Context(), client.ObjectKeyFromObject(peer), peer))
			return len(peer.Status.Sessions) == 1 && peer.Status.Sessions[0].Node == "node-2"
		})
		k.eventually("and the route", func() bool { return len(r.Routes()) == 0 })
		peer.Spec.NodeSelector = nil
		require.NoError(t, k.Update(t.Context(), peer))
		k.eventually("both come back", func() bool { return k.session("router").RoutesSent == 1 && len(r.Routes()) == 1 })
	})
	t.Run("a node that is removed announces nothing, and does again when it is back", func(t *testing.T) {
		require.NoError(t, k.Delete(t.Context(), node))
		k.eventually("its route is gone", func() bool { return len(r.Routes()) == 0 })
		back := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels}}
		k.create(back)
		back.Status.Addresses = node.Status.Addresses
		require.NoError(t, k.Status().Update(t.Context(), back))
		k.eventually("it is back", func() bool { return len(r.Routes()) == 1 && k.session("router").State == netv1.BGPEstablished })
	})
	t.Run("a speaker that stops leaves BIRD running", func(t *testing.T) {
		since := k.session("router").Since
		stop()
		require.Len(t, r.Routes(), 1)
		require.NotEmpty(t, since)
		require.Contains(t, r.Ask("show bgp summary"), "192.0.2.1")
	})
}
