package desired

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/daemon/attachment"
	"github.com/mnicloud/mnicloud/network/datapath"
)

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

func node(name, address string) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: name},
			{Type: corev1.NodeInternalIP, Address: "fd00::1"},
			{Type: corev1.NodeInternalIP, Address: address},
		}},
	}
}

func subnet(name, cidr, gateway string, vpc, vni uint32) netv1.Subnet {
	return netv1.Subnet{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.SubnetSpec{CIDR: cidr},
		Status: netv1.SubnetStatus{VNI: vni, VPCID: vpc, GatewayAddress: gateway, GatewayMAC: "02:00:00:00:ff:01"},
	}
}

// nic is one of a Pod that has its name and, as UID, "pod-" and its name.
func nic(name, node string, s netv1.Subnet, address, infrastructure string) netv1.NetworkInterface {
	prefix := netip.MustParsePrefix(s.Spec.CIDR)
	return netv1.NetworkInterface{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("nic-" + name)},
		Spec: netv1.NetworkInterfaceSpec{
			Subnet: s.Name, Namespace: "shop", Node: node, Pod: &netv1.PodReference{Namespace: "shop", Name: name, UID: types.UID("pod-" + name)},
		},
		Status: netv1.NetworkInterfaceStatus{
			Address: address, PrefixLength: int32(prefix.Bits()), GatewayAddress: s.Status.GatewayAddress, MAC: "02:00:00:00:00:05",
			InfrastructureAddress: infrastructure, VNI: s.Status.VNI, VPCID: s.Status.VPCID,
		},
	}
}

func attached(t *testing.T, n netv1.NetworkInterface, s netv1.Subnet, ifindex int, sequence uint64) Attachment {
	i, err := InterfaceOf(&n, &s)
	require.NoError(t, err)
	return Attachment{Record: attachment.Record{ContainerID: "c", IfName: "eth0", Interface: i, Sequence: sequence}, Ifindex: ifindex}
}

var (
	defaultSubnet = subnet("default", "198.18.0.0/17", "198.18.0.1", netv1.DefaultVPCID, netv1.DefaultVNI)
	redFront      = subnet("red-front", "10.0.1.0/24", "10.0.1.1", 1001, 1001)
	redBack       = subnet("red-back", "10.0.2.0/24", "10.0.2.1", 1001, 1002)
	blue          = subnet("blue", "10.0.1.0/24", "10.0.1.1", 1002, 1003)
)

func input(attachments []Attachment, interfaces ...netv1.NetworkInterface) Input {
	return Input{
		Node: "node-1", Address: ip("192.0.2.2"), ExtraHosts: []netip.Addr{ip("192.0.2.1")},
		Nodes:   []corev1.Node{node("node-1", "192.0.2.2"), node("node-2", "192.0.2.3")},
		Subnets: []netv1.Subnet{defaultSubnet, redFront, redBack, blue}, Interfaces: interfaces, Attachments: attachments,
	}
}

func TestMembersAreAcceptedAndTheirHostsReachable(t *testing.T) {
	s := Compute(input(nil))
	require.Equal(t, map[netip.Addr]datapath.Member{ip("192.0.2.1"): {}, ip("192.0.2.3"): {}}, s.Members)
	host := datapath.Endpoint{VPCID: 1, Kind: datapath.EndpointHost}
	machine, other := host, host
	machine.Node, other.Node = ip("192.0.2.1"), ip("192.0.2.3")
	require.Equal(t, map[datapath.EndpointKey]datapath.Endpoint{
		{VNI: 1, Address: ip("192.0.2.2")}: host,
		{VNI: 1, Address: ip("192.0.2.1")}: machine,
		{VNI: 1, Address: ip("192.0.2.3")}: other,
	}, s.Endpoints)
}

// The programs take what is at a member for one of a member.
func TestEndpointsAreOnlyAtMembers(t *testing.T) {
	gone := nic("gone", "node-9", redFront, "10.0.1.9", "198.18.0.9")
	local, remote := nic("local", "node-1", redFront, "10.0.1.5", "198.18.0.5"), nic("remote", "node-2", redFront, "10.0.1.6", "198.18.0.6")
	s := Compute(input([]Attachment{attached(t, local, redFront, 7, 1)}, local, remote, gone))
	require.Contains(t, s.Endpoints, datapath.EndpointKey{VNI: redFront.Status.VNI, Address: ip("10.0.1.6")})
	for key, endpoint := range s.Endpoints {
		if endpoint.Node.IsValid() {
			require.Contains(t, s.Members, endpoint.Node, "%v", key)
		}
	}
}

// https://github.com/cilium/cilium/issues/31528
func TestAChangedNodeAddressIsFollowed(t *testing.T) {
	remote := nic("dns", "node-2", defaultSubnet, "198.18.0.9", "198.18.0.9")
	in := input(nil, remote)
	in.Nodes[1] = node("node-2", "192.0.2.77")
	s := Compute(in)
	require.Contains(t, s.Members, ip("192.0.2.77"))
	require.NotContains(t, s.Members, ip("192.0.2.3"))
	require.Equal(t, ip("192.0.2.77"), s.Endpoints[datapath.EndpointKey{VNI: 1, Address: ip("198.18.0.9")}].Node)
}

func TestANodeKnowsOnlyTheVPCsOfItsInterfaces(t *testing.T) {
	local := nic("web", "node-1", redFront, "10.0.1.5", "198.18.0.5")
	peer := nic("db", "node-2", redBack, "10.0.2.6", "198.18.0.6")
	stranger := nic("other", "node-2", blue, "10.0.1.5", "198.18.0.7")
	ordinary := nic("dns", "node-2", defaultSubnet, "198.18.0.9", "198.18.0.9")
	s := Compute(input([]Attachment{attached(t, local, redFront, 7, 1)}, local, peer, stranger, ordinary))

	mac := datapath.MAC{2, 0, 0, 0, 0, 5}
	endpoint := func(vni uint32, address string) datapath.Endpoint {
		return s.Endpoints[datapath.EndpointKey{VNI: vni, Address: ip(address)}]
	}
	require.Equal(t, datapath.Endpoint{VPCID: 1001, MAC: mac, Ifindex: 7}, endpoint(1001, "10.0.1.5"))
	require.Equal(t, datapath.Endpoint{VPCID: 1001, MAC: mac, Node: ip("192.0.2.3")}, endpoint(1002, "10.0.2.6"))
	require.Equal(t, datapath.Endpoint{VPCID: 1, MAC: mac, Node: ip("192.0.2.3")}, endpoint(1, "198.18.0.9"))
	require.NotContains(t, s.Endpoints, datapath.EndpointKey{VNI: 1003, Address: ip("10.0.1.5")})
	for address, vpc := range map[string]uint32{"198.18.0.5": 1001, "198.18.0.6": 1001, "198.18.0.7": 1002} {
		require.Equal(t, datapath.EndpointInfrastructure, endpoint(1, address).Kind)
		require.Equal(t, vpc, endpoint(1, address).VPCID)
	}
	require.Equal(t, map[datapath.RouteKey]datapath.Route{
		{VNI: 1001, Prefix: netip.MustParsePrefix("10.0.2.0/24")}: {VNI: 1002},
	}, s.Routes)
	require.Len(t, s.Subnets, 3)
	require.NotContains(t, s.Subnets, uint32(1003))
	require.Equal(t, map[uint32]datapath.NIC{7: {
		VNI: 1001, VPCID: 1001, Address: ip("10.0.1.5"), PrefixLength: 24, MAC: mac,
		GatewayMAC: datapath.MAC{2, 0, 0, 0, 255, 1}, Infrastructure: ip("198.18.0.5"), NoServices: true,
	}}, s.NICs)
}

func TestAnInterfaceOfThePlatformsIsKnownAsSuchEverywhere(t *testing.T) {
	local, remote := nic("scraper", "node-1", defaultSubnet, "198.18.0.8", "198.18.0.8"), nic("agent", "node-2", defaultSubnet, "198.18.0.9", "198.18.0.9")
	tenant := nic("web", "node-2", redFront, "10.0.1.5", "198.18.0.5")
	for _, n := range []*netv1.NetworkInterface{&local, &remote, &tenant} {
		n.Spec.Platform = true
	}
	s := Compute(input([]Attachment{attached(t, local, defaultSubnet, 7, 1)}, local, remote, tenant))
	for address, kind := range map[string]datapath.EndpointKind{
		"198.18.0.8": datapath.EndpointPlatform, "198.18.0.9": datapath.EndpointPlatform, "198.18.0.5": datapath.EndpointInfrastructure,
	} {
		require.Equal(t, kind, s.Endpoints[datapath.EndpointKey{VNI: 1, Address: ip(address)}].Kind, address)
	}
}

func TestTheAPIServersSubnetsAndAnAttachmentsAreTheSame(t *testing.T) {
	local := nic("web", "node-1", redFront, "10.0.1.5", "198.18.0.5")
	a := attached(t, local, redFront, 7, 1)
	require.Equal(t, Compute(input([]Attachment{a}, local)).Subnets[1001], Local(a).Subnets[1001])
}

func TestOnlyTheHolderOfAnInterfaceIsConnected(t *testing.T) {
	local := nic("web", "node-1", redFront, "10.0.1.5", "198.18.0.5")
	moved, released, taken := local, local, local
	moved.Spec.Node = "node-2"
	released.Spec.Pod = nil
	taken.Spec.Pod = &netv1.PodReference{Namespace: "shop", Name: "web", UID: "pod-next"}
	again := local
	again.UID = "nic-again"
	for name, c := range map[string]struct {
		interfaces []netv1.NetworkInterface
		remote     bool
	}{
		"gone":                         {nil, false},
		"moved to another node":        {[]netv1.NetworkInterface{moved}, true},
		"released":                     {[]netv1.NetworkInterface{released}, false},
		"another Pod's now":            {[]netv1.NetworkInterface{taken}, false},
		"another of the same name now": {[]netv1.NetworkInterface{again}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := Compute(input([]Attachment{attached(t, local, redFront, 7, 1)}, c.interfaces...))
			require.Empty(t, s.NICs)
			infrastructure, ok := s.Endpoints[datapath.EndpointKey{VNI: 1, Address: ip("198.18.0.5")}]
			require.Equal(t, c.remote, ok)
			require.Zero(t, infrastructure.Ifindex)
		})
	}
}

func TestAMemberWithAForwardingInterfaceMaySendAsOthersOfTheVPC(t *testing.T) {
	local := nic("web", "node-1", redFront, "10.0.1.5", "198.18.0.5")
	router := nic("router", "node-2", redBack, "10.0.2.6", "198.18.0.6")
	router.Spec.SourceDestCheck = new(bool)
	stranger := nic("other", "node-2", blue, "10.0.1.5", "198.18.0.7")
	stranger.Spec.SourceDestCheck = new(bool)
	s := Compute(input([]Attachment{attached(t, local, redFront, 7, 1)}, local, router, stranger))
	want := map[datapath.ForwarderKey]datapath.Forwarder{{Member: ip("192.0.2.3"), VPCID: 1001}: {}}
	require.Equal(t, want, s.Forwarders)
	require.Equal(t, want, s.Of(attached(t, local, redFront, 7, 1), false).Forwarders)
	router.Spec.Pod = nil
	require.Empty(t, Compute(input([]Attachment{attached(t, local, redFront, 7, 1)}, local, router)).Forwarders)
}

func TestTheNewestAttachmentOfAnInterfaceHasTheTraffic(t *testing.T) {
	local := nic("web", "node-1", redFront, "10.0.1.5", "198.18.0.5")
	s := Compute(input([]Attachment{attached(t, local, redFront, 8, 2), attached(t, local, redFront, 7, 1)}, local))
	require.Len(t, s.NICs, 1)
	require.Equal(t, uint32(8), s.Endpoints[datapath.EndpointKey{VNI: 1001, Address: ip("10.0.1.5")}].Ifindex)
}

func TestAnInterfaceThatIsNotAllocatedSaysWhatIsMissing(t *testing.T) {
	whole := nic("web", "node-1", redFront, "10.0.1.5", "198.18.0.5")
	for field, spoil := range map[string]func(*netv1.NetworkInterface, *netv1.Subnet){
		"status.address":               func(n *netv1.NetworkInterface, _ *netv1.Subnet) { n.Status.Address = "" },
		"status.prefixLength":          func(n *netv1.NetworkInterface, _ *netv1.Subnet) { n.Status.PrefixLength = 0 },
		"status.infrastructureAddress": func(n *netv1.NetworkInterface, _ *netv1.Subnet) { n.Status.InfrastructureAddress = "" },
		"status.mac":                   func(n *netv1.NetworkInterface, _ *netv1.Subnet) { n.Status.MAC = "" },
		"status.gatewayAddress":        func(n *netv1.NetworkInterface, _ *netv1.Subnet) { n.Status.GatewayAddress = "" },
		"status.gatewayMAC":            func(_ *netv1.NetworkInterface, s *netv1.Subnet) { s.Status.GatewayMAC = "" },
		"status.vni":                   func(n *netv1.NetworkInterface, _ *netv1.Subnet) { n.Status.VNI = 0 },
	} {
		n, s := *whole.DeepCopy(), *redFront.DeepCopy()
		spoil(&n, &s)
		_, err := InterfaceOf(&n, &s)
		require.ErrorContains(t, err, field)
	}
}
