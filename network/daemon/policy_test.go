package daemon

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// echo sends back what TCP clients of a port send.
func (c *cloud) echo(where place, port int) {
	var listener net.Listener
	where(func() {
		var err error
		listener, err = net.Listen("tcp4", ":"+strconv.Itoa(port))
		require.NoError(c.t, err)
	})
	c.t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
}

// connect opens a connection, or does not.
func (c *cloud) connect(where place, address string, port int) (conn net.Conn, err error) {
	where(func() {
		conn, err = net.DialTimeout("tcp4", net.JoinHostPort(address, strconv.Itoa(port)), time.Second)
	})
	if err == nil {
		c.t.Cleanup(func() { conn.Close() })
	}
	return conn, err
}

// talks tells whether what is said on a connection comes back within a time.
func talks(conn net.Conn, within time.Duration) bool {
	_ = conn.SetDeadline(time.Now().Add(within))
	said := strconv.FormatInt(time.Now().UnixNano(), 10)
	if _, err := io.WriteString(conn, said); err != nil {
		return false
	}
	heard := make([]byte, len(said))
	_, err := io.ReadFull(conn, heard)
	return err == nil && string(heard) == said
}

// opens waits until a connection can be opened.
func (c *cloud) opens(where place, address string, port int) net.Conn {
	c.t.Helper()
	var conn net.Conn
	require.Eventually(c.t, func() bool {
		var err error
		conn, err = c.connect(where, address, port)
		return err == nil
	}, patience, moment, "%s:%d does not open", address, port)
	return conn
}

func (c *cloud) patch(o client.Object, change func()) {
	base := o.DeepCopyObject().(client.Object)
	change()
	require.NoError(c.t, c.client.Patch(c.t.Context(), o, client.MergeFrom(base)))
}

func tcpFrom(cidr string, port int32) netv1.SecurityGroupRule {
	return netv1.SecurityGroupRule{Protocol: netv1.RuleTCP, Port: &port, CIDR: &cidr}
}

func TestASecurityGroupIsChangedUnderRunningConnections(t *testing.T) {
	c := running(t)
	red := c.subnet("red", "10.1.0.0/24", 1001, 1001)
	near, far := c.nodes[0].pod("near", red, "10.1.0.5", "198.18.0.5"), c.nodes[0].pod("far", red, "10.1.0.6", "198.18.0.6")
	server := c.nodes[1].pod("server", red, "10.1.0.7", "198.18.0.7")
	group := &netv1.SecurityGroup{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: netv1.SecurityGroupSpec{
		Namespace: "shop", Ingress: []netv1.SecurityGroupRule{tcpFrom("10.1.0.0/24", 8080), tcpFrom("10.1.0.0/24", 8081)},
	}}
	c.create(group)
	c.patch(server.nic, func() { server.nic.Spec.SecurityGroups = []string{"web"} })
	for _, p := range []*pod{near, far, server} {
		p.mustAdd()
	}
	for _, port := range []int{8080, 8081, 9090} {
		c.echo(server.inside, port)
	}
	c.answer(near.inside, "near")
	stays, goes := c.opens(near.inside, "10.1.0.7", 8080), c.opens(near.inside, "10.1.0.7", 8081)
	other := c.opens(far.inside, "10.1.0.7", 8080)
	_, err := c.connect(near.inside, "10.1.0.7", 9090)
	require.Error(t, err)
	c.eventually(server.inside, "10.1.0.5", "near to 10.1.0.7: hello")

	c.patch(group, func() { group.Spec.Ingress = []netv1.SecurityGroupRule{tcpFrom("10.1.0.5/32", 8080)} })
	cut := time.Now()
	require.Eventually(t, func() bool { return !talks(goes, 50*time.Millisecond) }, time.Second, time.Millisecond, "what is not allowed any more is cut within a second")
	t.Logf("cut after %v", time.Since(cut))
	require.Eventually(t, func() bool { return !talks(other, 50*time.Millisecond) }, time.Second, time.Millisecond)
	require.True(t, talks(stays, patience), "what is allowed goes on")
	require.Contains(t, c.nodes[1].get("/metrics"), `mni_drop_packets_total{interface="uid-server",namespace="shop",pod="server",reason="policy_ingress",subnet="1001",vpc="1001"}`)

	// Another group's members, a group that is not there, no group.
	peers := &netv1.SecurityGroup{ObjectMeta: metav1.ObjectMeta{Name: "peers"}, Spec: netv1.SecurityGroupSpec{Namespace: "shop"}}
	c.create(peers)
	c.patch(group, func() { group.Spec.Ingress = []netv1.SecurityGroupRule{{SecurityGroup: ptr.To("peers")}} })
	require.Eventually(t, func() bool { return !talks(stays, 50*time.Millisecond) }, time.Second, time.Millisecond)
	c.patch(far.nic, func() { far.nic.Spec.SecurityGroups = []string{"peers"} })
	c.opens(far.inside, "10.1.0.7", 9090)
	c.patch(server.nic, func() { server.nic.Spec.SecurityGroups = []string{"web", "lost"} })
	require.Eventually(t, func() bool { _, err := c.connect(far.inside, "10.1.0.7", 9090); return err != nil }, patience, moment, "closed")
	require.Empty(t, c.ask(server.inside, "10.1.0.5"), "also outwards")
	c.patch(server.nic, func() { server.nic.Spec.SecurityGroups = nil })
	c.opens(near.inside, "10.1.0.7", 9090)
}

func TestRulesThatAreTooManyCloseTheInterfaceAndNothingElse(t *testing.T) {
	c := running(t)
	red := c.subnet("red", "10.1.0.0/24", 1001, 1001)
	near, server, other := c.nodes[0].pod("near", red, "10.1.0.5", "198.18.0.5"), c.nodes[1].pod("server", red, "10.1.0.7", "198.18.0.7"), c.nodes[1].pod("other", red, "10.1.0.8", "198.18.0.8")
	hosts := &netv1.SecurityGroup{ObjectMeta: metav1.ObjectMeta{Name: "hosts"}, Spec: netv1.SecurityGroupSpec{Namespace: "shop"}}
	ports := &netv1.SecurityGroup{ObjectMeta: metav1.ObjectMeta{Name: "ports"}, Spec: netv1.SecurityGroupSpec{Namespace: "shop"}}
	for i := range 200 {
		hosts.Spec.Ingress = append(hosts.Spec.Ingress, tcpFrom(fmt.Sprintf("10.1.0.%d/32", i), 1))
		ports.Spec.Ingress = append(ports.Spec.Ingress, tcpFrom("10.0.0.0/8", int32(8080+2*i)))
	}
	c.create(hosts)
	c.create(ports)
	c.patch(server.nic, func() { server.nic.Spec.SecurityGroups = []string{"hosts", "ports"} })
	for _, p := range []*pod{near, server, other} {
		p.mustAdd()
	}
	c.echo(server.inside, 8080)
	c.echo(other.inside, 8080)
	c.opens(near.inside, "10.1.0.8", 8080)
	_, err := c.connect(near.inside, "10.1.0.7", 8080)
	require.Error(t, err)
	require.Eventually(t, func() bool { return strings.Contains(c.nodes[1].get("/metrics"), "mni_netd_closed_interfaces 1") }, patience, moment)
	// A daemon that starts is ready all the same.
	c.nodes[1].stop(syscall.SIGKILL)
	c.nodes[1].start()
	c.nodes[1].awaitReady()
	c.patch(server.nic, func() { server.nic.Spec.SecurityGroups = []string{"ports"} })
	c.opens(near.inside, "10.1.0.7", 8080)
	require.Eventually(t, func() bool { return strings.Contains(c.nodes[1].get("/metrics"), "mni_netd_closed_interfaces 0") }, patience, moment)
}

func TestPoliciesSurviveARestartOfTheDaemon(t *testing.T) {
	c := running(t)
	red := c.subnet("red", "10.1.0.0/24", 1001, 1001)
	client, server := c.nodes[0].pod("client", red, "10.1.0.5", "198.18.0.5"), c.nodes[1].pod("server", red, "10.1.0.7", "198.18.0.7")
	c.create(&netv1.SecurityGroup{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: netv1.SecurityGroupSpec{
		Namespace: "shop", Ingress: []netv1.SecurityGroupRule{tcpFrom("10.1.0.0/24", 8080)},
	}})
	c.patch(server.nic, func() { server.nic.Spec.SecurityGroups = []string{"web"} })
	client.mustAdd()
	server.mustAdd()
	c.echo(server.inside, 8080)
	c.echo(server.inside, 9090)
	conn := c.opens(client.inside, "10.1.0.7", 8080)
	for range 2 {
		c.nodes[1].stop(syscall.SIGKILL)
		c.nodes[1].start()
		c.nodes[1].awaitReady()
		require.True(t, talks(conn, patience))
		_, err := c.connect(client.inside, "10.1.0.7", 9090)
		require.Error(t, err)
	}
}

func TestNetworkPoliciesSelectPodsAcrossNodes(t *testing.T) {
	c := running(t)
	home := c.defaultSubnet()
	c.shop()
	pods := map[string]*pod{
		"web": c.nodes[0].pod("web", home, "198.18.0.5", "198.18.0.5"), "db": c.nodes[1].pod("db", home, "198.18.0.6", "198.18.0.6"),
		"batch": c.nodes[0].pod("batch", home, "198.18.0.7", "198.18.0.7"),
	}
	for name, p := range pods {
		p.object(map[string]string{"app": name})
		p.mustAdd()
		c.answer(p.inside, name)
	}
	ask := func(from, address, answer string) { c.t.Helper(); c.eventually(pods[from].inside, address, answer) }
	ask("web", "198.18.0.6", "db to 198.18.0.5: hello")
	ask("batch", "198.18.0.6", "db to 198.18.0.7: hello")
	silent := func(from, address string) {
		c.t.Helper()
		require.Eventually(t, func() bool { return c.ask(pods[from].inside, address) == "" }, patience, moment)
	}
	newAllow := func() *networkingv1.NetworkPolicy {
		return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "allow"}, Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{
				{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
			}}},
		}}
	}
	// Connections that run already: what is not allowed any more is cut within a second, the others are not.
	for _, name := range []string{"db", "batch"} {
		c.echo(pods[name].inside, 8080)
	}
	cut := func(conn net.Conn, what string) {
		t.Helper()
		started := time.Now()
		require.Eventually(t, func() bool { return !talks(conn, 50*time.Millisecond) }, time.Second, time.Millisecond, what)
		t.Logf("%s: cut after %v", what, time.Since(started))
	}
	first := c.opens(pods["batch"].inside, "198.18.0.6", 8080)
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deny"}}
	c.create(policy)
	cut(first, "by the first policy there is")
	silent("web", "198.18.0.6")
	silent("batch", "198.18.0.6")
	everybody := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "everybody"}, Spec: networkingv1.NetworkPolicySpec{
		Ingress: []networkingv1.NetworkPolicyIngressRule{{}},
	}}
	c.create(everybody)
	stays, goes := c.opens(pods["web"].inside, "198.18.0.6", 8080), c.opens(pods["batch"].inside, "198.18.0.6", 8080)
	other := c.opens(pods["db"].inside, "198.18.0.7", 8080)
	allow := newAllow()
	c.create(allow)
	require.NoError(t, c.client.Delete(t.Context(), everybody))
	cut(goes, "a Pod that no policy allows any more")
	cut(other, "to a Pod to which nobody may come")
	require.True(t, talks(stays, patience), "a Pod that a policy still allows")
	require.NoError(t, c.client.Delete(t.Context(), allow))
	cut(stays, "nothing allows it any more")

	silent("web", "198.18.0.6")
	silent("db", "198.18.0.5")
	// The node's own host, as the kubelet does.
	c.eventually(func(f func()) { c.nodes[1].inside(f) }, "198.18.0.6", "db to "+c.nodes[1].address.String()+": hello")

	allow = newAllow()
	c.create(allow)
	ask("web", "198.18.0.6", "db to 198.18.0.5: hello")
	silent("batch", "198.18.0.6")
	// A label that is changed while the Pod runs.
	batch := &corev1.Pod{}
	require.NoError(t, c.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "batch"}, batch))
	c.patch(batch, func() { batch.Labels["app"] = "web" })
	ask("batch", "198.18.0.6", "db to 198.18.0.7: hello")
	require.NoError(t, c.client.Delete(t.Context(), policy))
	require.NoError(t, c.client.Delete(t.Context(), allow))
	ask("db", "198.18.0.5", "web to 198.18.0.6: hello")
}

// shop makes the namespace of the Pods. It stays: nobody here ends namespaces.
func (c *cloud) shop() {
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	require.NoError(c.t, client.IgnoreAlreadyExists(c.client.Create(c.t.Context(), shop)))
}

// object makes the Pod's object, with the UID that the interface says.
func (p *pod) object(labels map[string]string) {
	o := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: p.name, Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}, TerminationGracePeriodSeconds: ptr.To[int64](0)},
	}
	p.node.cloud.create(o)
	c := p.node.cloud
	c.patch(p.nic, func() { p.nic.Spec.Pod.UID = o.UID })
	p.uid = o.UID
}
