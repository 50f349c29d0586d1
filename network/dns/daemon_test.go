package dns

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/miekg/dns"
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
	"github.com/mnicloud/mnicloud/network/dns/names"
	"github.com/mnicloud/mnicloud/test/apiserver"
)

const (
	waitTimeout = 2 * time.Minute
	moment      = 20 * time.Millisecond
)

// Two tenants' infrastructure addresses, from which the tests ask, and one that is nobody's.
const tenantA, tenantB, nobody = "127.0.0.11", "127.0.0.12", "127.0.0.13"

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

// freeAddress is a port of 127.0.0.1 that nobody has, by UDP and TCP.
func freeAddress(t testing.TB) netip.AddrPort {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return netip.MustParseAddrPort(listener.Addr().String())
}

// start runs a resolver until the returned function is called, or the test ends.
func start(t testing.TB, options Options) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, options, slog.New(slog.NewTextHandler(t.Output(), nil))) }()
	stop = func() {
		cancel()
		require.NoError(t, <-ended)
		ended <- nil
	}
	t.Cleanup(stop)
	return stop
}

// ask asks from an address and returns the answer's code and data in short.
func ask(network, source string, at netip.AddrPort, name string, kind uint16) (string, error) {
	local := net.Addr(&net.UDPAddr{IP: net.ParseIP(source)})
	if network == "tcp" {
		local = &net.TCPAddr{IP: net.ParseIP(source)}
	}
	c := dns.Client{Net: network, Timeout: 5 * time.Second, Dialer: &net.Dialer{LocalAddr: local, Timeout: 5 * time.Second}}
	m := new(dns.Msg).SetQuestion(name, kind)
	reply, _, err := c.Exchange(m, at.String())
	if err != nil {
		return "", err
	}
	said := []string{dns.RcodeToString[reply.Rcode]}
	for _, r := range reply.Answer {
		said = append(said, strings.TrimPrefix(r.String(), r.Header().String()))
	}
	return strings.Join(said, " "), nil
}

// eventually waits until both protocols answer so.
func eventually(t testing.TB, source string, at netip.AddrPort, name, want string) {
	t.Helper()
	var last string
	for _, network := range []string{"udp", "tcp"} {
		require.Eventually(t, func() bool {
			said, err := ask(network, source, at, name, dns.TypeA)
			last = fmt.Sprint(said, " ", err)
			return err == nil && said == want
		}, waitTimeout, moment, "%s asks for %s by %s: %s", source, name, network, &last)
	}
}

// outside is a resolver outside, by UDP and TCP. It returns its address, which stands for a resolv.conf that lists it.
func outside(t testing.TB, handler dns.HandlerFunc) string {
	t.Helper()
	packets, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp4", "127.0.0.1:0")
	require.NoError(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", packets.LocalAddr().String())
	require.NoError(t, err)
	for _, server := range []*dns.Server{{PacketConn: packets, Handler: handler}, {Listener: listener, Handler: handler}} {
		go func() { _ = server.ActivateAndServe() }()
		t.Cleanup(func() { _ = server.Shutdown() })
	}
	return packets.LocalAddr().String()
}

func create(t testing.TB, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		want := o.DeepCopyObject().(client.Object)
		require.NoError(t, c.Create(t.Context(), o))
		switch o := o.(type) {
		case *netv1.VPC:
			o.Status = want.(*netv1.VPC).Status
			require.NoError(t, c.Status().Update(t.Context(), o))
		case *netv1.NetworkInterface:
			o.Status = want.(*netv1.NetworkInterface).Status
			require.NoError(t, c.Status().Update(t.Context(), o))
		}
	}
}

func aVPC(id uint32, namespace string) *netv1.VPC {
	return &netv1.VPC{
		ObjectMeta: metav1.ObjectMeta{Name: "uid-" + namespace, Labels: map[string]string{netv1.LabelDNSName: "shop"}},
		Spec:       netv1.VPCSpec{Namespaces: []string{namespace}}, Status: netv1.VPCStatus{ID: id},
	}
}

func aNIC(id uint32, namespace, name, address, infrastructure string) *netv1.NetworkInterface {
	return &netv1.NetworkInterface{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + name, Labels: map[string]string{netv1.LabelDNSName: name}},
		Spec:       netv1.NetworkInterfaceSpec{Subnet: "s", Namespace: namespace},
		Status:     netv1.NetworkInterfaceStatus{VPCID: id, Address: address, PrefixLength: 24, InfrastructureAddress: infrastructure},
	}
}

func TestAResolverLearnsFromTheAPIServerAndAnswersWithoutIt(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	admin := apiserver.Start(t)
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, netv1.AddToScheme(scheme))
	c, err := client.New(admin, client.Options{Scheme: scheme})
	require.NoError(t, err)
	content, err := config.Roles.ReadFile("rbac/dns.yaml") // the rights that it has, and no others
	require.NoError(t, err)
	var role rbacv1.ClusterRole
	require.NoError(t, yaml.UnmarshalStrict(content, &role))
	create(t, c, &role, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "dns"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:mni:dns"}},
	})
	create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-b"}},
		aVPC(1001, "team-a"), aVPC(1002, "team-b"), aNIC(1001, "team-a", "web", "10.0.1.5", tenantA), aNIC(1002, "team-b", "web", "10.0.1.7", tenantB))
	db := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "db"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 5432}}}}
	create(t, c, db)

	options := Options{
		Kubeconfig: writeKubeconfig(t, admin, "system:mni:dns:node-1", "system:mni:dns"), File: filepath.Join(t.TempDir(), "new", "directory.json"),
		Listen: freeAddress(t), MetricsAddress: freeAddress(t).String(),
		ResolvConf: outside(t, func(w dns.ResponseWriter, m *dns.Msg) {
			reply := new(dns.Msg).SetReply(m)
			reply.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: m.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.IPv4(203, 0, 113, 9)}}
			_ = w.WriteMsg(reply)
		}),
	}
	at := options.Listen
	stop := start(t, options)
	known := func() {
		t.Helper()
		eventually(t, tenantA, at, "web.shop.internal.", "NOERROR 10.0.1.5")
		eventually(t, tenantB, at, "web.shop.internal.", "NOERROR 10.0.1.7")
		eventually(t, nobody, at, "web.shop.internal.", "REFUSED")
		eventually(t, nobody, at, "example.com.", "REFUSED")
		eventually(t, tenantA, at, "example.com.", "NOERROR 203.0.113.9")
		eventually(t, tenantA, at, "db.team-a.svc.cluster.local.", "NOERROR "+db.Spec.ClusterIP)
		eventually(t, tenantB, at, "db.team-a.svc.cluster.local.", "NXDOMAIN")
	}
	known()
	eventually(t, tenantA, at, "late.shop.internal.", "NXDOMAIN")
	late := aNIC(1001, "team-a", "late", "10.0.1.9", "127.0.0.19")
	create(t, c, late)
	eventually(t, tenantA, at, "late.shop.internal.", "NOERROR 10.0.1.9")
	eventually(t, tenantB, at, "late.shop.internal.", "NXDOMAIN")
	require.NoError(t, c.Delete(t.Context(), late))
	eventually(t, tenantA, at, "late.shop.internal.", "NXDOMAIN")

	t.Log("a resolver that starts while no API server answers knows what the last one knew")
	require.Eventually(t, func() bool {
		data, err := os.ReadFile(options.File)
		return err == nil && !strings.Contains(string(data), "late")
	}, waitTimeout, moment)
	stop()
	gone := rest.CopyConfig(admin)
	gone.Host = "https://" + freeAddress(t).String()
	options.Kubeconfig = writeKubeconfig(t, gone, "system:mni:dns:node-1", "system:mni:dns")
	kept, err := os.Stat(options.File)
	require.NoError(t, err)
	start(t, options)
	known()
	same, err := os.Stat(options.File)
	require.NoError(t, err)
	require.Equal(t, kept.ModTime(), same.ModTime(), "nothing that is known has changed, so nothing is written")
}

func TestWhatIsKeptIsReadAgainAndNothingElse(t *testing.T) {
	s := store{path: filepath.Join(t.TempDir(), "directory.json")}
	none, err := s.load()
	require.NoError(t, err)
	require.Nil(t, none)
	d := names.Make(names.Input{VPCs: []netv1.VPC{*aVPC(1001, "team-a")}, Interfaces: []netv1.NetworkInterface{*aNIC(1001, "team-a", "web", "10.0.1.5", tenantA)}})
	require.NoError(t, s.save(d))
	again := store{path: s.path}
	read, err := again.load()
	require.NoError(t, err)
	require.Equal(t, d, read)
	before, err := os.Stat(s.path)
	require.NoError(t, err)
	require.NoError(t, again.save(read))
	after, err := os.Stat(s.path)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "the same is not written again")
	require.EqualValues(t, 0o600, after.Mode().Perm(), "tenants' names are nobody else's")
	for _, content := range []string{"", "{", `{"version":2,"directory":{}}`, `{"version":1}`, `{"version":1,"directory":{"sources":{"no address":1}}}`} {
		require.NoError(t, os.WriteFile(s.path, []byte(content), 0o600))
		_, err := s.load()
		require.Error(t, err, content)
	}
	left, err := filepath.Glob(s.path + ".*")
	require.NoError(t, err)
	require.Empty(t, left)
	require.True(t, json.Valid(s.last))
}

func TestOptionsThatAreMissingAreNamed(t *testing.T) {
	err := Run(t.Context(), Options{}, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "--kubeconfig is missing")
	require.ErrorContains(t, err, "--file is missing")
	var o Options
	_ = o.complete()
	require.Equal(t, "169.254.0.53:53", o.Listen.String())
}
