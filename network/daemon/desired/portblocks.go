package desired

import (
	"fmt"
	"hash/fnv"
	"slices"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// PortBlockPlan is what this node should do about its PortBlocks.
type PortBlockPlan struct {
	// Claim are how many more it needs, by the gateway's name.
	Claim map[string]int
	// Return are those that it has no right to any more: of a gateway that is gone, or that has another address; and those that were released
	// while the node was thought to be lost.
	Return []*netv1.PortBlock
	// Unneeded are those of gateways that nothing here leaves by.
	Unneeded []*netv1.PortBlock
}

// PlanPortBlocks says what this node should do: a block for every gateway that an interface here leaves by, before it sends anything.
// More are asked for when the last is in use: grow, by the gateway's name.
func PlanPortBlocks(in Input, grow map[string]int) PortBlockPlan {
	plan := PortBlockPlan{Claim: map[string]int{}}
	needed := neededGateways(in)
	have := map[string]int{}
	mine := map[string]bool{}
	for _, b := range OwnPortBlocks(in) {
		mine[b.Name] = true
		if in.GivenBack[b.Name] || in.Draining[b.Name] {
			continue
		}
		have[b.Spec.NATGateway]++
		if needed[b.Spec.NATGateway] == nil {
			plan.Unneeded = append(plan.Unneeded, b)
		}
	}
	for i := range in.PortBlocks {
		if b := &in.PortBlocks[i]; b.Spec.Node == in.Node && b.DeletionTimestamp.IsZero() && !mine[b.Name] {
			plan.Return = append(plan.Return, b)
		}
	}
	for name, gateway := range needed {
		first := 1 - have[name]
		// Without room one is asked for nevertheless, so that it is told that there is none.
		if n := max(first, min(grow[name], max(1, roomOf(in, gateway)))); n > 0 {
			plan.Claim[name] = n
		}
	}
	return plan
}

// blocksOfAddress is how many PortBlocks an external address has.
const blocksOfAddress = (1<<16 - int(netv1.FirstNATPort)) / int(netv1.PortBlockSize)

// roomOf is how many more blocks a gateway may grow by.
func roomOf(in Input, gateway *netv1.NATGateway) (n int) {
	for _, address := range gateway.Status.Addresses {
		n += max(0, roomAt(in, gateway, address))
	}
	return n
}

// roomAt is how many more blocks of an address a gateway may grow by. Of one that others have, too, it gets an equal part, so that none of them uses it up;
// a node's first block is not asked about it.
func roomAt(in Input, gateway *netv1.NATGateway, address string) int {
	others := 0
	for i := range in.NATGateways {
		if g := &in.NATGateways[i]; g.Name != gateway.Name && slices.Contains(g.Status.Addresses, address) {
			others++
		}
	}
	held := 0
	for i := range in.PortBlocks {
		if b := &in.PortBlocks[i]; b.Spec.NATGateway == gateway.Name && b.Spec.Address == address {
			held++
		}
	}
	return max(1, blocksOfAddress/(1+others)) - held
}

// neededGateways are those that serve a Subnet with an interface that is, or is to be, on this node.
func neededGateways(in Input) map[string]*netv1.NATGateway {
	serving := Serving(in)
	needed := map[string]*netv1.NATGateway{}
	if len(serving) == 0 || in.Node == "" {
		return needed
	}
	for i := range in.Interfaces {
		nic := &in.Interfaces[i]
		if g := serving[nic.Status.VNI]; g != nil && nic.Spec.Node == in.Node && nic.Spec.Pod != nil {
			needed[g.Name] = g
		}
	}
	for _, a := range in.Attachments {
		if g := serving[a.Interface.VNI]; g != nil {
			needed[g.Name] = g
		}
	}
	return needed
}

// FreePortBlocks are up to n blocks of a gateway that nobody has, as far as is known: of its first address while that has some, and while the
// gateway may grow there, unless it is this node's first. Each node begins its search elsewhere, so that two seldom ask for the same.
func FreePortBlocks(in Input, gateway *netv1.NATGateway, n int) []*netv1.PortBlock {
	taken := map[string]bool{}
	for i := range in.PortBlocks {
		taken[in.PortBlocks[i].Name] = true
	}
	first := !slices.ContainsFunc(OwnPortBlocks(in), func(b *netv1.PortBlock) bool {
		return b.Spec.NATGateway == gateway.Name && !in.GivenBack[b.Name] && !in.Draining[b.Name]
	})
	h := fnv.New32a()
	_, _ = h.Write([]byte(in.Node))
	var free []*netv1.PortBlock
	for _, address := range gateway.Status.Addresses {
		if !first && roomAt(in, gateway, address) <= 0 {
			continue
		}
		for i := range blocksOfAddress {
			port := netv1.FirstNATPort + int32((int(h.Sum32())+i)%blocksOfAddress)*netv1.PortBlockSize
			b := &netv1.PortBlock{Spec: netv1.PortBlockSpec{
				Address: address, FirstPort: port, Size: netv1.PortBlockSize, Node: in.Node, NATGateway: gateway.Name,
			}}
			b.Name = fmt.Sprintf("%s.%d", address, port)
			if taken[b.Name] {
				continue
			}
			if len(free) == n {
				return free
			}
			free = append(free, b)
		}
	}
	return free
}
