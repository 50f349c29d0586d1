package desired

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/daemon/attachment"
	"github.com/mnicloud/mnicloud/network/datapath"
)

// sctp is known to rules without ports only: its ports are not looked at.
const sctp datapath.Protocol = 132

// networkPolicies is what Kubernetes' NetworkPolicies, and the Pods of the default Subnet that they select, are found by.
type networkPolicies struct {
	byNamespace map[string][]*networkingv1.NetworkPolicy
	namespaces  map[string]labels.Set
	pods        map[types.UID]*corev1.Pod
	// addressed are the Pods that have an address in the default Subnet, with it, in order of address.
	addressed []addressedPod
	// peers are those already found of a rule, by its first term.
	peers map[*networkingv1.NetworkPolicyPeer][]datapath.Peer
}

type addressedPod struct {
	pod     *corev1.Pod
	address netip.Addr
}

func newNetworkPolicies(in Input) *networkPolicies {
	n := &networkPolicies{
		byNamespace: map[string][]*networkingv1.NetworkPolicy{}, namespaces: map[string]labels.Set{},
		pods: map[types.UID]*corev1.Pod{}, peers: map[*networkingv1.NetworkPolicyPeer][]datapath.Peer{},
	}
	for i := range in.NetworkPolicies {
		policy := &in.NetworkPolicies[i]
		n.byNamespace[policy.Namespace] = append(n.byNamespace[policy.Namespace], policy)
	}
	for i := range in.Namespaces {
		n.namespaces[in.Namespaces[i].Name] = in.Namespaces[i].Labels
	}
	for i := range in.Pods {
		n.pods[in.Pods[i].UID] = &in.Pods[i]
	}
	for i := range in.Interfaces {
		nic := &in.Interfaces[i]
		if nic.Status.VNI != netv1.DefaultVNI || nic.Spec.Pod == nil {
			continue
		}
		pod := n.pods[nic.Spec.Pod.UID]
		if address, err := netip.ParseAddr(nic.Status.Address); err == nil && pod != nil {
			n.addressed = append(n.addressed, addressedPod{pod, address})
		}
	}
	slices.SortFunc(n.addressed, func(a, b addressedPod) int { return a.address.Compare(b.address) })
	return n
}

// of is what the NetworkPolicies allow a Pod. While the Pod's labels are not known yet, a namespace that has policies is closed
// to it.
func (n *networkPolicies) of(which attachment.Pod) Policies {
	policies := n.byNamespace[which.Namespace]
	if len(policies) == 0 {
		return Policies{}
	}
	pod := n.pods[which.UID]
	if pod == nil {
		return closed()
	}
	var p Policies
	for _, policy := range policies {
		if !selects(&policy.Spec.PodSelector, pod.Labels) {
			continue
		}
		ingress, egress := directions(policy)
		if ingress {
			p.Ingress = more(p.Ingress)
			for i := range policy.Spec.Ingress {
				p.Ingress.Rules = append(p.Ingress.Rules, n.ingress(policy.Namespace, pod, &policy.Spec.Ingress[i])...)
			}
		}
		if egress {
			p.Egress = more(p.Egress)
			for i := range policy.Spec.Egress {
				p.Egress.Rules = append(p.Egress.Rules, n.egress(policy.Namespace, &policy.Spec.Egress[i])...)
			}
		}
	}
	return p
}

func more(p *datapath.Policy) *datapath.Policy {
	if p == nil {
		return &datapath.Policy{}
	}
	return p
}

// directions are those that a policy speaks of: without policyTypes ingress, and egress when it has rules of it.
func directions(policy *networkingv1.NetworkPolicy) (ingress, egress bool) {
	if len(policy.Spec.PolicyTypes) == 0 {
		return true, len(policy.Spec.Egress) > 0
	}
	return slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress), slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
}

// ingress translates a rule. Named ports are the Pod's own.
func (n *networkPolicies) ingress(namespace string, pod *corev1.Pod, rule *networkingv1.NetworkPolicyIngressRule) []datapath.Rule {
	var ports []datapath.Ports
	for i := range rule.Ports {
		port := &rule.Ports[i]
		if name, named := nameOf(port); named {
			ports = append(ports, namedPorts(pod, name, protocolOf(port))...)
		} else if fixed, ok := fixedPorts(port); ok {
			ports = append(ports, fixed)
		}
	}
	peers := n.peersOf(namespace, rule.From)
	if (len(rule.Ports) > 0 && len(ports) == 0) || (len(rule.From) > 0 && len(peers) == 0) {
		return nil
	}
	return []datapath.Rule{{Peers: peers, Ports: ports}}
}

// egress translates a rule. Named ports are those of the Pods that are sent to, each its own.
func (n *networkPolicies) egress(namespace string, rule *networkingv1.NetworkPolicyEgressRule) []datapath.Rule {
	peers := n.peersOf(namespace, rule.To)
	if len(rule.To) > 0 && len(peers) == 0 {
		return nil
	}
	if len(rule.Ports) == 0 {
		return []datapath.Rule{{Peers: peers}}
	}
	var rules []datapath.Rule
	var ports []datapath.Ports
	for i := range rule.Ports {
		port := &rule.Ports[i]
		if name, named := nameOf(port); named {
			rules = append(rules, n.namedEgress(namespace, rule.To, name, protocolOf(port))...)
		} else if fixed, ok := fixedPorts(port); ok {
			ports = append(ports, fixed)
		}
	}
	if len(ports) > 0 {
		rules = append(rules, datapath.Rule{Peers: peers, Ports: ports})
	}
	return rules
}

// namedEgress allows a named port of every Pod that the terms (none: every term) select and that has such a port.
func (n *networkPolicies) namedEgress(namespace string, to []networkingv1.NetworkPolicyPeer, name string, protocol datapath.Protocol) []datapath.Rule {
	var rules []datapath.Rule
	for _, p := range n.addressed {
		chosen := len(to) == 0 || slices.ContainsFunc(to, func(term networkingv1.NetworkPolicyPeer) bool { return n.choosesPod(namespace, &term, p.pod) })
		if ports := namedPorts(p.pod, name, protocol); chosen && len(ports) > 0 {
			rules = append(rules, datapath.Rule{Peers: []datapath.Peer{single(p.address)}, Ports: ports})
		}
	}
	return rules
}

// peersOf are the addresses that a rule's terms choose.
func (n *networkPolicies) peersOf(namespace string, terms []networkingv1.NetworkPolicyPeer) []datapath.Peer {
	if len(terms) == 0 {
		return nil
	}
	if known, ok := n.peers[&terms[0]]; ok {
		return known
	}
	var peers []datapath.Peer
	for i := range terms {
		term := &terms[i]
		if term.IPBlock != nil {
			if block, ok := blockOf(term.IPBlock); ok {
				peers = append(peers, block)
			}
			continue
		}
		for _, p := range n.addressed {
			if n.choosesPod(namespace, term, p.pod) {
				peers = append(peers, single(p.address))
			}
		}
	}
	n.peers[&terms[0]] = peers
	return peers
}

// choosesPod tells whether a term chooses a Pod by labels.
func (n *networkPolicies) choosesPod(namespace string, term *networkingv1.NetworkPolicyPeer, pod *corev1.Pod) bool {
	switch {
	case term.IPBlock != nil || (term.PodSelector == nil && term.NamespaceSelector == nil):
		return false
	case term.NamespaceSelector == nil && pod.Namespace != namespace:
		return false
	case term.NamespaceSelector != nil:
		of, known := n.namespaces[pod.Namespace]
		if !known || !selects(term.NamespaceSelector, of) {
			return false
		}
	}
	return term.PodSelector == nil || selects(term.PodSelector, pod.Labels)
}

// selects tells whether a selector matches; one that is empty matches everything. The API server lets no wrong one pass.
func selects(selector *metav1.LabelSelector, of labels.Set) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(of)
}

func blockOf(block *networkingv1.IPBlock) (datapath.Peer, bool) {
	prefix, err := netip.ParsePrefix(block.CIDR)
	if err != nil || !prefix.Addr().Is4() {
		return datapath.Peer{}, false
	}
	peer := datapath.Peer{Prefix: prefix.Masked()}
	for _, text := range block.Except {
		if except, err := netip.ParsePrefix(text); err == nil && except.Addr().Is4() {
			peer.Except = append(peer.Except, except.Masked())
		}
	}
	return peer, true
}

func nameOf(port *networkingv1.NetworkPolicyPort) (string, bool) {
	if port.Port == nil || port.Port.Type != intstr.String {
		return "", false
	}
	return port.Port.StrVal, true
}

func protocolOf(port *networkingv1.NetworkPolicyPort) datapath.Protocol {
	if port.Protocol == nil {
		return datapath.TCP
	}
	return protocolNumber(*port.Protocol)
}

func protocolNumber(p corev1.Protocol) datapath.Protocol {
	switch p {
	case corev1.ProtocolUDP:
		return datapath.UDP
	case corev1.ProtocolSCTP:
		return sctp
	}
	return datapath.TCP
}

// fixedPorts are the ports of a term that names none. Ports of SCTP are not looked at, so that such a term allows nothing.
func fixedPorts(port *networkingv1.NetworkPolicyPort) (datapath.Ports, bool) {
	protocol := protocolOf(port)
	if port.Port == nil {
		return datapath.AllPorts(protocol), true
	}
	return portRange(protocol, &port.Port.IntVal, port.EndPort), protocol != sctp
}

// namedPorts are a Pod's ports of a name and a protocol.
func namedPorts(pod *corev1.Pod, name string, protocol datapath.Protocol) []datapath.Ports {
	var ports []datapath.Ports
	if protocol == sctp {
		return nil
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range containers {
			for _, p := range c.Ports {
				if p.Name == name && protocolNumber(p.Protocol) == protocol {
					ports = append(ports, portRange(protocol, &p.ContainerPort, nil))
				}
			}
		}
	}
	return ports
}
