package desired

import (
	"fmt"
	"hash/fnv"

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
	for name := range needed {
		if n := max(1-have[name], grow[name]); n > 0 {
			plan.Claim[name] = n
		}
	}
	return plan
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

// FreePortBlocks are up to n blocks of a gateway that nobody has, as far as is known: of its first address while that has some. Each
// node begins its search elsewhere, so that two seldom ask for the same.
func FreePortBlocks(in Input, gateway *netv1.NATGateway, n int) []*netv1.PortBlock {
	taken := map[string]bool{}
	for i := range in.PortBlocks {
		taken[in.PortBlocks[i].Name] = true
	}
	const blocks = (1<<16 - int(netv1.FirstNATPort)) / int(netv1.PortBlockSize)
	h := fnv.New32a()
	_, _ = h.Write([]byte(in.Node))
	var free []*netv1.PortBlock
	for _, address := range gateway.Status.Addresses {
		for i := range blocks {
			first := netv1.FirstNATPort + int32((int(h.Sum32())+i)%blocks)*netv1.PortBlockSize
			b := &netv1.PortBlock{Spec: netv1.PortBlockSpec{
				Address: address, FirstPort: first, Size: netv1.PortBlockSize, Node: in.Node, NATGateway: gateway.Name,
			}}
			b.Name = fmt.Sprintf("%s.%d", address, first)
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
