package datapath

import (
	"fmt"
	"net/netip"
)

// StepKind is a decision that programs make about a packet.
type StepKind uint32

// What Number, Address and Known of a Step are is said with each kind.
const (
	// StepSource: an interface may send the packet. The VPC's identity, the source; whether it sends on what another sent.
	StepSource = StepKind(bpfTraceStepKindSTEP_SOURCE)
	// StepMember: a member's VXLAN is accepted. VNI, the member.
	StepMember = StepKind(bpfTraceStepKindSTEP_MEMBER)
	// StepMemberSource: the source is at the member that sent it. VNI, the source.
	StepMemberSource = StepKind(bpfTraceStepKindSTEP_MEMBER_SOURCE)
	// StepAnswer: an answer to whoever opened the connection to the infrastructure address. The opener's port and address.
	StepAnswer = StepKind(bpfTraceStepKindSTEP_ANSWER)
	// StepService: a Service leads to a backend. Its port and address; whether the flow is known.
	StepService = StepKind(bpfTraceStepKindSTEP_SERVICE)
	// StepServiceAnswer: a backend's answer is made to come from the Service. Its port and address.
	StepServiceAnswer = StepKind(bpfTraceStepKindSTEP_SERVICE_ANSWER)
	// StepSubnet: a Subnet of the VPC has the destination. VNI, the destination; whether it is the sender's own Subnet.
	StepSubnet = StepKind(bpfTraceStepKindSTEP_SUBNET)
	// StepRoute: a route of a route table leads to a next hop. VNI, the next hop.
	StepRoute = StepKind(bpfTraceStepKindSTEP_ROUTE)
	// StepEndpoint: something has the destination's address. EndpointKind, its node (invalid: this one).
	StepEndpoint = StepKind(bpfTraceStepKindSTEP_ENDPOINT)
	// StepOutside: the destination is outside, by the node's stack. The destination.
	StepOutside = StepKind(bpfTraceStepKindSTEP_OUTSIDE)
	// StepEgress: the sender's policy decides. PolicyID, the other side; whether the flow is known.
	StepEgress = StepKind(bpfTraceStepKindSTEP_EGRESS)
	// StepIngress: the destination's policy decides. Like StepEgress.
	StepIngress = StepKind(bpfTraceStepKindSTEP_INGRESS)
	// StepOpened: one who may opens a connection to an infrastructure address. The interface's VPC and its own address.
	StepOpened = StepKind(bpfTraceStepKindSTEP_OPENED)
	// StepExternal: the destination is an external address that an interface has. VNI and address of the interface.
	StepExternal = StepKind(bpfTraceStepKindSTEP_EXTERNAL)
	// StepFloating: it leaves the VPC from the external address that its sender has. The VPC's identity, the external address.
	StepFloating = StepKind(bpfTraceStepKindSTEP_FLOATING)
	// StepNAT: it leaves the VPC by a NATGateway. The external port and address; whether the flow is known.
	StepNAT = StepKind(bpfTraceStepKindSTEP_NAT)
	// StepNATAnswer: it is for what was sent by a NATGateway. Port and address inside.
	StepNATAnswer = StepKind(bpfTraceStepKindSTEP_NAT_ANSWER)
	// StepResolver: to the VPC's resolver, on the host. The VPC's identity, the infrastructure address that it comes from.
	StepResolver = StepKind(bpfTraceStepKindSTEP_RESOLVER)
	// StepResolved: the resolver answers. The VPC's identity, the interface's own address.
	StepResolved = StepKind(bpfTraceStepKindSTEP_RESOLVED)
	// StepPeer: a Subnet of a peer has the destination. VNI, the destination.
	StepPeer = StepKind(bpfTraceStepKindSTEP_PEER)
)

var stepNames = map[StepKind]string{
	StepSource: "source", StepMember: "member", StepMemberSource: "member-source", StepAnswer: "answer", StepService: "service",
	StepServiceAnswer: "service-answer", StepSubnet: "subnet", StepRoute: "route", StepEndpoint: "endpoint", StepOutside: "outside",
	StepEgress: "egress-policy", StepIngress: "ingress-policy", StepOpened: "infrastructure-address",
	StepExternal: "external-address", StepFloating: "floating-ip",
	StepNAT: "nat", StepNATAnswer: "nat-answer", StepResolver: "resolver", StepResolved: "resolved", StepPeer: "peer",
}

func (k StepKind) String() string {
	if name := stepNames[k]; name != "" {
		return name
	}
	return fmt.Sprintf("step_%d", uint32(k))
}

// Step is one decision.
type Step struct {
	Kind    StepKind
	Number  uint32
	Address netip.Addr
	Known   bool
}

func stepsOf(log bpfTraceLog) []Step {
	var steps []Step
	for _, s := range log.Steps[:min(int(log.Count), len(log.Steps))] {
		steps = append(steps, Step{Kind: StepKind(s.Kind), Number: s.Number, Address: fromIPv4(s.Address), Known: s.Known != 0})
	}
	return steps
}
