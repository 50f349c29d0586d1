package desired

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/datapath"
)

// gateway is a NATGateway as the controller leaves it when all is well.
func gateway(name, vpc string, id uint32, addresses []string, subnets ...string) netv1.NATGateway {
	return netv1.NATGateway{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.NATGatewaySpec{VPC: vpc, Subnets: subnets},
		Status: netv1.NATGatewayStatus{VPCID: id, Addresses: addresses, Subnets: subnets},
	}
}

// claimed is a PortBlock; age orders those of a node.
func claimed(address string, first int32, node, gateway string, age int) netv1.PortBlock {
	return netv1.PortBlock{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s.%d", address, first), CreationTimestamp: metav1.NewTime(time.Unix(1000-int64(age), 0))},
		Spec:       netv1.PortBlockSpec{Address: address, FirstPort: first, Size: netv1.PortBlockSize, Node: node, NATGateway: gateway},
	}
}

func ports(address string, first uint16) datapath.PortBlock {
	return datapath.PortBlock{Address: ip(address), First: first}
}

// sharing is two VPCs, each with a NATGateway; this node has an interface in a Subnet of the first that it serves, and one in a Subnet that it
// does not.
func sharing(t *testing.T) Input {
	front, back := *redFront.DeepCopy(), *redBack.DeepCopy()
	front.Spec.VPC, back.Spec.VPC = "red", "red"
	here, other := nic("here", "node-1", front, "10.0.1.5", "198.18.0.5"), nic("other", "node-1", back, "10.0.2.5", "198.18.0.6")
	there := nic("there", "node-2", front, "10.0.1.6", "198.18.0.7")
	in := input([]Attachment{attached(t, here, front, 7, 1), attached(t, other, back, 8, 2)}, here, other, there)
	in.Subnets = []netv1.Subnet{front, back}
	in.AddressPools = []netv1.AddressPool{pool("203.0.113.0/24")}
	in.NATGateways = []netv1.NATGateway{gateway("out", "red", 1001, []string{"203.0.113.5"}, front.Name), gateway("others", "blue", 1002, []string{"203.0.113.6"}, "blue")}
	in.PortBlocks = []netv1.PortBlock{
		claimed("203.0.113.5", 1024, "node-1", "out", 1), claimed("203.0.113.5", 1536, "node-2", "out", 9), claimed("203.0.113.5", 2048, "node-1", "out", 2),
		claimed("203.0.113.6", 1024, "node-2", "others", 1), claimed("203.0.113.7", 1024, "node-1", "gone", 1), claimed("203.0.113.5", 4096, "node-9", "out", 1),
	}
	return in
}

func TestASubnetThatIsServedHasThisNodesPortsAndEveryNodeKnowsWhose(t *testing.T) {
	in := sharing(t)
	s := Compute(in)
	require.Equal(t, map[uint32][]datapath.PortBlock{1001: {ports("203.0.113.5", 2048), ports("203.0.113.5", 1024)}}, s.NAT.Subnets, "the newest is the spare one")
	require.Empty(t, s.NAT.Kept)
	require.Equal(t, map[datapath.PortBlock]netip.Addr{
		ports("203.0.113.5", 1024): {}, ports("203.0.113.5", 2048): {}, ports("203.0.113.5", 1536): ip("192.0.2.3"), ports("203.0.113.6", 1024): ip("192.0.2.3"),
	}, s.NAT.Members)
	for _, address := range []string{"203.0.113.5/32", "203.0.113.6/32"} {
		require.Equal(t, datapath.External{Kind: datapath.ExternalNAT}, s.Externals[prefixOf(address)])
	}
	require.NotContains(t, s.Externals, prefixOf("203.0.113.7/32"))

	in.GivenBack, in.Draining = map[string]bool{"203.0.113.5.1024": true}, map[string]bool{"203.0.113.5.2048": true}
	s = Compute(in)
	require.Equal(t, map[uint32][]datapath.PortBlock{1001: nil}, s.NAT.Subnets, "served, without ports: it drops")
	require.Equal(t, map[uint32][]datapath.PortBlock{1001: {ports("203.0.113.5", 2048)}}, s.NAT.Kept)
	require.NotContains(t, s.NAT.Members, ports("203.0.113.5", 1024))

	in = sharing(t)
	in.NATGateways[0].Status.Addresses, in.NATGateways[0].Status.Subnets = nil, nil // it goes
	s = Compute(in)
	require.Empty(t, s.NAT.Subnets)
	require.Equal(t, map[datapath.PortBlock]netip.Addr{ports("203.0.113.6", 1024): ip("192.0.2.3")}, s.NAT.Members)
	require.NotContains(t, s.Externals, prefixOf("203.0.113.5/32"))
}

func TestWhatIsNoBlockTranslatesNothing(t *testing.T) {
	in := sharing(t)
	in.PortBlocks = []netv1.PortBlock{
		claimed("203.0.113.5", 512, "node-1", "out", 1), claimed("203.0.113.5", 1025, "node-1", "out", 1), claimed("203.0.113.5", 65536, "node-1", "out", 1),
	}
	s := Compute(in)
	require.Equal(t, map[uint32][]datapath.PortBlock{1001: nil}, s.NAT.Subnets)
	require.Empty(t, s.NAT.Members)
}

func names(blocks []*netv1.PortBlock) []string {
	var all []string
	for _, b := range blocks {
		all = append(all, b.Name)
	}
	return all
}

func TestANodeClaimsABlockBeforeItIsNeededAndGivesBackWhatIsNot(t *testing.T) {
	in := sharing(t)
	plan := PlanPortBlocks(in, nil)
	require.Empty(t, plan.Claim)
	require.Equal(t, []string{"203.0.113.7.1024"}, names(plan.Return), "its gateway is gone")
	require.Empty(t, plan.Unneeded)
	require.Equal(t, map[string]int{"out": 4}, PlanPortBlocks(in, map[string]int{"out": 4, "others": 1}).Claim, "only what this node needs")

	in.PortBlocks = nil
	in.Attachments = nil // it is not attached yet
	require.Equal(t, map[string]int{"out": 1}, PlanPortBlocks(in, nil).Claim)
	in.Interfaces = nil
	require.Empty(t, PlanPortBlocks(in, nil).Claim)

	in = sharing(t)
	in.Attachments, in.Interfaces = nil, nil
	plan = PlanPortBlocks(in, nil)
	require.Equal(t, []string{"203.0.113.5.2048", "203.0.113.5.1024"}, names(plan.Unneeded))
	in.NATGateways[0].Status.Addresses = []string{"203.0.113.9"} // another address
	require.Equal(t, []string{"203.0.113.5.1024", "203.0.113.5.2048", "203.0.113.7.1024"}, names(PlanPortBlocks(in, nil).Return))
}

func TestFreeBlocksAreOfTheFirstAddressWhileItHasSome(t *testing.T) {
	in := sharing(t)
	g := &in.NATGateways[0]
	g.Status.Addresses = []string{"203.0.113.5", "203.0.113.9"}
	all := FreePortBlocks(in, g, 1000)
	require.Len(t, all, 126+126-4, "64,512 ports of an address")
	seen := map[string]bool{}
	for i, b := range all {
		require.False(t, seen[b.Name])
		seen[b.Name] = true
		require.Equal(t, i < 126-4, b.Spec.Address == "203.0.113.5")
		_, ok := portBlockOf(b)
		require.True(t, ok, b.Name)
	}
	in.Node = "node-2"
	require.NotEqual(t, all[0].Name, FreePortBlocks(in, g, 1)[0].Name, "another node begins elsewhere")
}

// A tenant that opens as many connections as it can leaves the others of a shared address their part.
func TestAGatewayGrowsByNoMoreThanItsPartOfAnAddressThatOthersHave(t *testing.T) {
	in := sharing(t)
	g := &in.NATGateways[0]
	g.Status.Addresses = []string{"203.0.113.5"}
	in.PortBlocks = nil
	for i := range int32(3) {
		other := *g.DeepCopy()
		other.Name, other.Status.Subnets = fmt.Sprint("other-", i), nil
		in.NATGateways = append(in.NATGateways, other)
	}
	g = &in.NATGateways[0]
	const part = 126 / 4
	for i := range int32(part - 2) { // of both nodes
		in.PortBlocks = append(in.PortBlocks, claimed("203.0.113.5", netv1.FirstNATPort+i*netv1.PortBlockSize, fmt.Sprint("node-", 1+i%2), "out", int(i)))
	}
	grow := map[string]int{"out": 16}
	require.Equal(t, 2, PlanPortBlocks(in, grow).Claim["out"])
	require.NotEmpty(t, FreePortBlocks(in, g, 2))
	for i := range int32(2) {
		in.PortBlocks = append(in.PortBlocks, claimed("203.0.113.5", 60_000/512*512+i*netv1.PortBlockSize, "node-1", "out", int(100+i)))
	}
	require.Equal(t, 1, PlanPortBlocks(in, grow).Claim["out"], "it is told that there is none")
	require.Empty(t, FreePortBlocks(in, g, 1))

	// Not on another address, nor on a node that has none.
	g.Status.Addresses = append(g.Status.Addresses, "203.0.113.9")
	require.Equal(t, 16, PlanPortBlocks(in, grow).Claim["out"])
	require.Equal(t, "203.0.113.9", FreePortBlocks(in, g, 1)[0].Spec.Address)
	g.Status.Addresses = g.Status.Addresses[:1]
	for i := range in.PortBlocks {
		in.PortBlocks[i].Spec.Node = "node-2"
	}
	require.Equal(t, 1, PlanPortBlocks(in, grow).Claim["out"])
	require.Len(t, FreePortBlocks(in, g, 1), 1)
	// Alone it may have all.
	in.NATGateways = in.NATGateways[:1]
	require.Equal(t, 16, PlanPortBlocks(in, grow).Claim["out"])
}

func TestIdleBlocksButOneGoBackWhenTheyBeginNothingAnyMore(t *testing.T) {
	in := sharing(t)
	in.PortBlocks = append(in.PortBlocks, claimed("203.0.113.5", 3072, "node-1", "out", 0))
	now := time.Unix(5000, 0)
	busy := map[datapath.PortBlock]int{ports("203.0.113.5", 2048): 3}
	var idle IdlePortBlocks
	require.Empty(t, idle.Look(in, busy, now, time.Minute))
	require.Empty(t, idle.Draining())
	now = now.Add(time.Minute)
	require.Empty(t, idle.Look(in, busy, now, time.Minute))
	require.Equal(t, map[string]bool{"203.0.113.5.3072": true}, idle.Draining(), "1024 is the spare one")
	in.Draining = idle.Draining()

	// A flow began in the moment before.
	late := map[datapath.PortBlock]int{ports("203.0.113.5", 2048): 3, ports("203.0.113.5", 3072): 1}
	require.Empty(t, idle.Look(in, late, now, time.Minute))
	require.Empty(t, idle.Draining())

	require.Empty(t, idle.Look(in, busy, now, time.Minute))
	now = now.Add(time.Minute)
	require.Empty(t, idle.Look(in, busy, now, time.Minute))
	require.Equal(t, []string{"203.0.113.5.3072"}, names(idle.Look(in, busy, now, time.Minute)))
	require.Empty(t, idle.Look(in, nil, now, time.Minute), "one that has just become idle is kept for a while")
}

// The controller took blocks while their nodes were thought to be lost: nobody translates with them, nobody gets them, and this node gives its
// own back.
func TestBlocksThatWereReleasedAreNobodysAndThisNodesGoBack(t *testing.T) {
	in := sharing(t)
	now := metav1.NowMicro()
	for i := range in.PortBlocks[:2] {
		in.PortBlocks[i].Spec.ReleasedAt = &now // one of this node and one of another
	}
	s := Compute(in)
	require.Equal(t, map[uint32][]datapath.PortBlock{1001: {ports("203.0.113.5", 2048)}}, s.NAT.Subnets)
	require.Equal(t, map[datapath.PortBlock]netip.Addr{ports("203.0.113.5", 2048): {}, ports("203.0.113.6", 1024): ip("192.0.2.3")}, s.NAT.Members)
	require.Equal(t, []string{"203.0.113.5.1024", "203.0.113.7.1024"}, names(PlanPortBlocks(in, nil).Return))
	require.NotContains(t, names(FreePortBlocks(in, &in.NATGateways[0], 1000)), "203.0.113.5.1024")

	in.PortBlocks[2].Spec.ReleasedAt = &now
	require.Equal(t, map[string]int{"out": 1}, PlanPortBlocks(in, nil).Claim, "it has none now, and needs one")
}
