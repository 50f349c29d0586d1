package inspect

import (
	"fmt"
	"strings"

	"github.com/mnicloud/mnicloud/network/datapath"
)

// words say a decision of the program that got p and ended with v. last: there was none after it.
func (t *tracing) words(s datapath.Step, p datapath.Packet, v datapath.Verdict, last bool) string {
	objects := t.network.Objects
	switch s.Kind {
	case datapath.StepSource:
		if s.Known {
			return fmt.Sprintf("source %s is sent on: the interface may, without source check, in VPC %s", s.Address, objects.vpcName(s.Number))
		}
		return fmt.Sprintf("source %s and its MAC address are the interface's own, in VPC %s", s.Address, objects.vpcName(s.Number))
	case datapath.StepMember:
		return fmt.Sprintf("VXLAN from %s is accepted: it is a member", objects.nodeName(s.Address))
	case datapath.StepMemberSource:
		return fmt.Sprintf("source %s is at the node that sent it", s.Address)
	case datapath.StepAnswer:
		return fmt.Sprintf("it answers what %s:%d opened", s.Address, s.Number)
	case datapath.StepService:
		return fmt.Sprintf("a Service: it goes to the backend %s:%d%s", s.Address, s.Number, ifKnown(s.Known))
	case datapath.StepServiceAnswer:
		return fmt.Sprintf("a backend's answer: it comes from the Service %s:%d", s.Address, s.Number)
	case datapath.StepSubnet:
		if s.Known {
			return fmt.Sprintf("%s is in the sender's own Subnet %s (VNI %d)", s.Address, objects.subnetName(s.Number), s.Number)
		}
		return fmt.Sprintf("a route leads %s to Subnet %s (VNI %d)", s.Address, objects.subnetName(s.Number), s.Number)
	case datapath.StepPeer:
		return fmt.Sprintf("a peering leads %s to Subnet %s (VNI %d) of VPC %s", s.Address, objects.subnetName(s.Number), s.Number, objects.vpcOfSubnet(s.Number))
	case datapath.StepRoute:
		return fmt.Sprintf("a route of the route table leads to %s in Subnet %s (VNI %d), which sends it on", s.Address, objects.subnetName(s.Number), s.Number)
	case datapath.StepEndpoint:
		return t.endpointWords(s)
	case datapath.StepOutside:
		return fmt.Sprintf("%s is outside: by the node's own stack", s.Address)
	case datapath.StepEgress:
		return t.policyWords(s, "egress", "sent to", p.Ifindex, last && v.Drop == datapath.PolicyEgress)
	case datapath.StepIngress:
		if v.Drop != 0 {
			return t.policyWords(s, "ingress", "let in from", v.DropIfindex, last && v.Drop == datapath.PolicyIngress)
		}
		return t.policyWords(s, "ingress", "let in from", v.Ifindex, false)
	case datapath.StepExternal:
		return fmt.Sprintf("an external address: %s in Subnet %s (VNI %d) has it", s.Address, objects.subnetName(s.Number), s.Number)
	case datapath.StepFloating:
		return fmt.Sprintf("it leaves VPC %s from the sender's FloatingIP %s", objects.vpcName(s.Number), s.Address)
	case datapath.StepNAT:
		return fmt.Sprintf("it leaves by a NATGateway, from %s:%d%s", s.Address, s.Number, ifKnown(s.Known))
	case datapath.StepNATAnswer:
		return fmt.Sprintf("it answers what %s:%d sent by a NATGateway", s.Address, s.Number)
	case datapath.StepResolver:
		return fmt.Sprintf("to the resolver of VPC %s on the node, as %s", objects.vpcName(s.Number), s.Address)
	case datapath.StepResolved:
		return fmt.Sprintf("the resolver answers: it is for %s in VPC %s", s.Address, objects.vpcName(s.Number))
	case datapath.StepOpened:
		return fmt.Sprintf("an infrastructure address: it is %s in VPC %s", s.Address, objects.vpcName(s.Number))
	}
	return s.Kind.String()
}

func ifKnown(known bool) string {
	if known {
		return " (of a connection that is known)"
	}
	return ""
}

func (t *tracing) endpointWords(s datapath.Step) string {
	where := "on this node"
	if s.Address.IsValid() {
		where = "on " + t.network.Objects.nodeName(s.Address)
	}
	what := map[datapath.EndpointKind]string{
		datapath.EndpointInterface: "an interface", datapath.EndpointHost: "a host", datapath.EndpointPlatform: "an interface of the platform",
		datapath.EndpointInfrastructure: "an infrastructure address",
	}[datapath.EndpointKind(s.Number)]
	return fmt.Sprintf("the destination is %s %s", what, where)
}

// policyWords say what a policy decided about the other side, and what the policy is made of.
func (t *tracing) policyWords(s datapath.Step, direction, does string, ifindex int, refused bool) string {
	by := "the " + direction + " policy" + t.madeOf(ifindex)
	switch {
	case s.Number == 0:
		return fmt.Sprintf("the interface has no %s policy: everything may pass", direction)
	case refused && s.Known:
		return fmt.Sprintf("%s does not let the connection with %s pass any more", by, s.Address)
	case refused:
		return fmt.Sprintf("no rule of %s admits what is %s %s", by, does, s.Address)
	case s.Known:
		return fmt.Sprintf("%s has let the connection with %s pass", by, s.Address)
	}
	return fmt.Sprintf("a rule of %s admits what is %s %s", by, does, s.Address)
}

// madeOf says which objects the policies of an interface of this node are made of.
func (t *tracing) madeOf(ifindex int) string {
	nic, ok := t.nics[uint32(ifindex)]
	if !ok {
		return ""
	}
	object := t.network.Objects.at(nic.VNI, nic.Address)
	if object == nil {
		return " of " + nic.Address.String()
	}
	if len(object.Spec.SecurityGroups) == 0 {
		return fmt.Sprintf(" of %s (NetworkPolicies of namespace %s)", podOf(object), object.Spec.Namespace)
	}
	var names []string
	for _, group := range object.Spec.SecurityGroups {
		names = append(names, t.network.Objects.groupName(group))
	}
	return fmt.Sprintf(" of %s (SecurityGroups %s)", podOf(object), strings.Join(names, ", "))
}
