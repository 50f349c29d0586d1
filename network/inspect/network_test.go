package inspect

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/datapath"
	"github.com/mnicloud/mnicloud/network/datapath/testnet"
)

// world is two nodes in namespaces with the datapath attached, and what an API would say of them: VPC red (7) with the Subnets front
// (1001, 10.0.1.0/24) and back (1002, 10.0.2.0/24), VPC blue (8) with the Subnet blue (2001) of the same range as front.
type world struct {
	*Network
	t     testing.TB
	net   *testnet.Network
	nodes []*node
	// web and db are of red, on both nodes; other is of blue.
	web, cache, db, other *pod
	objects               []client.Object
}

type node struct {
	*testnet.Node
	*datapath.Datapath
}

type pod struct {
	*testnet.Pod
	node *node
	nic  datapath.NIC
	name string
}

func gatewayMAC(vni uint32) datapath.MAC {
	return datapath.MAC{2, 0xee, 0, 0, byte(vni >> 8), byte(vni)}
}

const (
	infrastructure = "198.18.0.0/17"
	services       = "198.19.0.0/17"
	mtu            = 1450
)

func newWorld(t *testing.T, clsact bool) *world {
	w := &world{t: t, net: testnet.New(t, 2), Network: &Network{}}
	for i, n := range w.net.Nodes {
		devices := n.AddDevices(mtu, datapath.DefaultVXLANPort, infrastructure, services)
		bpffs := t.TempDir()
		require.NoError(t, unix.Mount("bpffs", bpffs, "bpf", 0, ""), "mount a bpffs (needs root)")
		t.Cleanup(func() { require.NoError(t, unix.Unmount(bpffs, 0)) })
		pins := filepath.Join(bpffs, "node")
		d, err := datapath.Load(datapath.Config{
			PinPath: pins, DefaultVNI: 1, DefaultVPCID: 1, InfrastructureCIDR: netip.MustParsePrefix(infrastructure),
			ServiceCIDR: netip.MustParsePrefix(services), MTU: mtu, ForceClsact: clsact, ConntrackEntries: 1024, FlowEntries: 1024,
			HostIfindex: devices.Host.Attrs().Index, HostMAC: datapath.MAC(devices.Host.Attrs().HardwareAddr),
			HostPeerIfindex: devices.HostPeer.Attrs().Index, VXLANIfindex: devices.VXLAN.Attrs().Index,
			UplinkIfindex: n.Link(testnet.UplinkName).Attrs().Index, NodeAddress: n.Address,
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		w.nodes = append(w.nodes, &node{Node: n, Datapath: d})
		require.NoError(t, n.Do(d.AttachHost))
		require.NoError(t, n.Do(d.AttachVXLAN))
		require.NoError(t, n.Do(d.AttachUplink))
		name := fmt.Sprintf("node-%d", i+1)
		w.Members = append(w.Members, Member{Name: name, PinPath: pins, Netns: n.Path()})
		object := &corev1.Node{}
		object.Name = name
		object.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.Address.String()}}
		w.objects = append(w.objects, object)
	}
	for _, n := range w.nodes {
		for _, member := range w.nodes {
			host := datapath.Endpoint{VPCID: 1, Kind: datapath.EndpointHost, Node: member.Address}
			if member == n {
				host.Node = netip.Addr{}
			} else {
				require.NoError(t, n.Members.Set(member.Address, datapath.Member{}))
			}
			require.NoError(t, n.Endpoints.Set(datapath.EndpointKey{VNI: 1, Address: member.Address}, host))
		}
		require.NoError(t, n.Routes.Set(datapath.RouteKey{VNI: 1001, Prefix: netip.MustParsePrefix("10.0.2.0/24")}, datapath.Route{VNI: 1002}))
		require.NoError(t, n.Routes.Set(datapath.RouteKey{VNI: 1002, Prefix: netip.MustParsePrefix("10.0.1.0/24")}, datapath.Route{VNI: 1001}))
	}
	w.vpc("default", 1)
	w.vpc("red", 7)
	w.vpc("blue", 8)
	w.subnet("front", "red", 7, 1001, "10.0.1.0/24")
	w.subnet("back", "red", 7, 1002, "10.0.2.0/24")
	w.subnet("blue", "blue", 8, 2001, "10.0.1.0/24")
	w.web = w.pod(0, "web", "front", 7, 1001, "10.0.1.11")
	w.cache = w.pod(0, "cache", "front", 7, 1001, "10.0.1.13")
	w.db = w.pod(1, "db", "back", 7, 1002, "10.0.2.12")
	w.other = w.pod(0, "other", "blue", 8, 2001, "10.0.1.11")
	w.read()
	return w
}

func (w *world) vpc(name string, id uint32) {
	v := &netv1.VPC{Status: netv1.VPCStatus{ID: id}}
	v.Name = name
	w.objects = append(w.objects, v)
}

func (w *world) subnet(name, vpc string, id, vni uint32, cidr string) {
	s := &netv1.Subnet{Spec: netv1.SubnetSpec{VPC: vpc, CIDR: cidr}, Status: netv1.SubnetStatus{VNI: vni, VPCID: id}}
	s.Name = name
	w.objects = append(w.objects, s)
	prefix := netip.MustParsePrefix(cidr)
	for _, n := range w.nodes {
		require.NoError(w.t, n.Subnets.Set(vni, datapath.Subnet{VPCID: id, Prefix: prefix, Gateway: prefix.Addr().Next(), GatewayMAC: gatewayMAC(vni)}))
	}
}

func (w *world) pod(at int, name, subnet string, vpc, vni uint32, address string) *pod {
	n, ip := w.nodes[at], netip.MustParseAddr(address)
	gateway := netip.PrefixFrom(ip, 24).Masked().Addr().Next()
	p := &pod{Pod: n.AddPod(name, address+"/24", gateway.String(), mtu), node: n, name: "team/" + name}
	ifindex := p.HostLink.Attrs().Index
	p.nic = datapath.NIC{VNI: vni, VPCID: vpc, Address: ip, PrefixLength: 24, MAC: datapath.MAC(p.MAC), GatewayMAC: gatewayMAC(vni)}
	p.set()
	for _, to := range w.nodes {
		e := datapath.Endpoint{VPCID: vpc, MAC: p.nic.MAC, Node: n.Address}
		if to == n {
			e.Node, e.Ifindex = netip.Addr{}, uint32(ifindex)
		}
		require.NoError(w.t, to.Endpoints.Set(datapath.EndpointKey{VNI: vni, Address: ip}, e))
	}
	require.NoError(w.t, n.Do(func() error { return n.AttachPod(ifindex) }))
	p.Serve(8080)
	nic := &netv1.NetworkInterface{
		Spec: netv1.NetworkInterfaceSpec{
			Subnet: subnet, Namespace: "team", Node: w.Members[at].Name, SecurityGroups: []string{"group-of-" + name},
			Pod: &netv1.PodReference{Namespace: "team", Name: name},
		},
		Status: netv1.NetworkInterfaceStatus{Address: address, VNI: vni, VPCID: vpc},
	}
	nic.Name = "nic-" + name
	group := &netv1.SecurityGroup{}
	group.Name = "group-of-" + name
	w.objects = append(w.objects, nic, group)
	return p
}

// set writes the interface's entry.
func (p *pod) set() {
	if err := p.node.NICs.Set(uint32(p.HostLink.Attrs().Index), p.nic); err != nil {
		panic(err)
	}
}

// police gives the interface an ingress policy.
func (p *pod) police(t *testing.T, policy datapath.Policy) {
	id, err := p.node.Policies.Number(policy)
	require.NoError(t, err)
	p.nic.IngressPolicy = id
	p.set()
}

// read reads the objects from an API.
func (w *world) read() {
	scheme := runtime.NewScheme()
	require.NoError(w.t, corev1.AddToScheme(scheme))
	require.NoError(w.t, netv1.AddToScheme(scheme))
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(w.objects...).Build()
	var err error
	w.Objects, err = Read(w.t.Context(), api, client.Object.GetName)
	require.NoError(w.t, err)
}
