package desired

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/datapath"
)

func prefixOf(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func aPod(namespace, name string, ports []corev1.ContainerPort, labels map[string]string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("pod-" + name), Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Ports: ports}}},
	}
}

func aNamespace(name string, labels map[string]string) corev1.Namespace {
	return corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func matching(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func npPort(protocol corev1.Protocol, port any, end ...int32) networkingv1.NetworkPolicyPort {
	p := networkingv1.NetworkPolicyPort{Protocol: &protocol}
	switch port := port.(type) {
	case int:
		p.Port = ptr.To(intstr.FromInt32(int32(port)))
	case string:
		p.Port = ptr.To(intstr.FromString(port))
	}
	if len(end) > 0 {
		p.EndPort = &end[0]
	}
	return p
}

// The Pod web of namespace shop, on this node, among Pods of two namespaces, by the policies of its namespace.
func TestNetworkPoliciesBecomePolicies(t *testing.T) {
	type (
		np    = networkingv1.NetworkPolicySpec
		in    = networkingv1.NetworkPolicyIngressRule
		out   = networkingv1.NetworkPolicyEgressRule
		peer  = networkingv1.NetworkPolicyPeer
		ports = []networkingv1.NetworkPolicyPort
	)
	const ingress, egress = networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress
	all := metav1.LabelSelector{}
	tcp80 := datapath.Ports{Protocol: datapath.TCP, First: 80, Last: 80}
	blocks := []peer{{IPBlock: &networkingv1.IPBlock{CIDR: "203.0.113.77/24", Except: []string{"203.0.113.64/26", "fd00::/8"}}}}
	block := datapath.Peer{Prefix: prefixOf("203.0.113.0/24"), Except: []netip.Prefix{prefixOf("203.0.113.64/26")}}

	for name, c := range map[string]struct {
		policies []np
		want     Policies
	}{
		"none: everything":                {nil, Policies{}},
		"one of others":                   {[]np{{PodSelector: *matching("app", "db")}}, Policies{}},
		"default deny of ingress":         {[]np{{PodSelector: all}}, Policies{Ingress: rulesOf()}},
		"default deny of egress":          {[]np{{PodSelector: all, PolicyTypes: []networkingv1.PolicyType{egress}}}, Policies{Egress: rulesOf()}},
		"of both":                         {[]np{{PodSelector: *matching("app", "web"), PolicyTypes: []networkingv1.PolicyType{ingress, egress}}}, closed()},
		"egress rules make it of both":    {[]np{{PodSelector: all, Egress: []out{{}}}}, Policies{Ingress: rulesOf(), Egress: rulesOf(datapath.Rule{})}},
		"everything from everyone":        {[]np{{PodSelector: all, Ingress: []in{{}}}}, Policies{Ingress: rulesOf(datapath.Rule{})}},
		"Pods of the namespace":           {[]np{{PodSelector: all, Ingress: []in{{From: []peer{{PodSelector: matching("app", "db")}}}}}}, Policies{Ingress: rulesOf(datapath.Rule{Peers: peers("198.18.0.6/32")})}},
		"all Pods of the namespace":       {[]np{{PodSelector: all, Ingress: []in{{From: []peer{{PodSelector: &all}}}}}}, Policies{Ingress: rulesOf(datapath.Rule{Peers: peers("198.18.0.5/32", "198.18.0.6/32")})}},
		"all Pods of some namespaces":     {[]np{{PodSelector: all, Ingress: []in{{From: []peer{{NamespaceSelector: matching("team", "b")}}}}}}, Policies{Ingress: rulesOf(datapath.Rule{Peers: peers("198.18.0.7/32", "198.18.0.8/32")})}},
		"some Pods of some namespaces":    {[]np{{PodSelector: all, Ingress: []in{{From: []peer{{NamespaceSelector: matching("team", "b"), PodSelector: matching("app", "db")}}}}}}, Policies{Ingress: rulesOf(datapath.Rule{Peers: peers("198.18.0.8/32")})}},
		"terms add up":                    {[]np{{PodSelector: all, Ingress: []in{{From: []peer{{NamespaceSelector: matching("team", "b")}, {PodSelector: matching("app", "db")}}}}}}, Policies{Ingress: rulesOf(datapath.Rule{Peers: peers("198.18.0.7/32", "198.18.0.8/32", "198.18.0.6/32")})}},
		"nobody is not everybody":         {[]np{{PodSelector: all, Ingress: []in{{From: []peer{{PodSelector: matching("app", "none")}}}}, Egress: []out{{To: []peer{{PodSelector: matching("app", "none")}}}}}}, closed()},
		"a range without some":            {[]np{{PodSelector: all, Ingress: []in{{From: blocks}}}}, Policies{Ingress: rulesOf(datapath.Rule{Peers: []datapath.Peer{block}})}},
		"a range of the other family":     {[]np{{PodSelector: all, Ingress: []in{{From: []peer{{IPBlock: &networkingv1.IPBlock{CIDR: "fd00::/8"}}}}}}}, Policies{Ingress: rulesOf()}},
		"policies add up":                 {[]np{{PodSelector: all, Ingress: []in{{From: blocks}}}, {PodSelector: *matching("app", "web"), Ingress: []in{{Ports: ports{npPort("TCP", 80)}}}}}, Policies{Ingress: rulesOf(datapath.Rule{Peers: []datapath.Peer{block}}, datapath.Rule{Ports: []datapath.Ports{tcp80}})}},
		"TCP is the default":              {[]np{{PodSelector: all, Ingress: []in{{Ports: ports{{Port: ptr.To(intstr.FromInt32(80))}}}}}}, Policies{Ingress: rulesOf(datapath.Rule{Ports: []datapath.Ports{tcp80}})}},
		"all ports of a protocol":         {[]np{{PodSelector: all, Ingress: []in{{Ports: ports{npPort("UDP", nil)}}}}}, Policies{Ingress: rulesOf(datapath.Rule{Ports: []datapath.Ports{datapath.AllPorts(datapath.UDP)}})}},
		"a range of ports":                {[]np{{PodSelector: all, Egress: []out{{Ports: ports{npPort("UDP", 1000, 2000)}}}, PolicyTypes: []networkingv1.PolicyType{egress}}}, Policies{Egress: rulesOf(datapath.Rule{Ports: []datapath.Ports{{Protocol: datapath.UDP, First: 1000, Last: 2000}}})}},
		"ports of SCTP are not looked at": {[]np{{PodSelector: all, Ingress: []in{{Ports: ports{npPort("SCTP", 80)}}, {Ports: ports{npPort("SCTP", nil)}}}}}, Policies{Ingress: rulesOf(datapath.Rule{Ports: []datapath.Ports{datapath.AllPorts(132)}})}},
		"the Pod's own named port":        {[]np{{PodSelector: all, Ingress: []in{{Ports: ports{npPort("TCP", "http"), npPort("TCP", "lost")}}}}}, Policies{Ingress: rulesOf(datapath.Rule{Ports: []datapath.Ports{tcp80}})}},
		"a name of another protocol":      {[]np{{PodSelector: all, Ingress: []in{{Ports: ports{npPort("UDP", "http")}}}}}, Policies{Ingress: rulesOf()}},
		"named ports of those it sends to": {
			[]np{{PodSelector: all, PolicyTypes: []networkingv1.PolicyType{egress}, Egress: []out{{To: []peer{{NamespaceSelector: &all}}, Ports: ports{npPort("TCP", "http")}}}}},
			Policies{Egress: rulesOf(datapath.Rule{Peers: peers("198.18.0.5/32"), Ports: []datapath.Ports{tcp80}},
				datapath.Rule{Peers: peers("198.18.0.8/32"), Ports: []datapath.Ports{{Protocol: datapath.TCP, First: 8080, Last: 8080}}})},
		},
		"a named port of everyone": {
			[]np{{PodSelector: all, PolicyTypes: []networkingv1.PolicyType{egress}, Egress: []out{{Ports: ports{npPort("TCP", "http"), npPort("TCP", 80)}}}}},
			Policies{Egress: rulesOf(datapath.Rule{Peers: peers("198.18.0.5/32"), Ports: []datapath.Ports{tcp80}},
				datapath.Rule{Peers: peers("198.18.0.8/32"), Ports: []datapath.Ports{{Protocol: datapath.TCP, First: 8080, Last: 8080}}},
				datapath.Rule{Ports: []datapath.Ports{tcp80}})},
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := shopInput(t)
			for _, spec := range c.policies {
				i.NetworkPolicies = append(i.NetworkPolicies, networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}, Spec: spec})
			}
			i.NetworkPolicies = append(i.NetworkPolicies, networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere"}})
			require.Equal(t, c.want, Compute(i).Policies[7])
		})
	}
}

func shopInput(t *testing.T) Input {
	web := nic("web", "node-1", defaultSubnet, "198.18.0.5", "198.18.0.5")
	in := func(namespace string, n netv1.NetworkInterface) netv1.NetworkInterface {
		n.Spec.Namespace, n.Spec.Pod.Namespace = namespace, namespace
		return n
	}
	i := input([]Attachment{attached(t, web, defaultSubnet, 7, 1)}, web,
		in("shop", nic("db", "node-2", defaultSubnet, "198.18.0.6", "198.18.0.6")),
		in("b", nic("b-web", "node-2", defaultSubnet, "198.18.0.7", "198.18.0.7")),
		in("b", nic("b-db", "node-2", defaultSubnet, "198.18.0.8", "198.18.0.8")),
		in("shop", nic("tenant", "node-2", redFront, "10.0.1.9", "198.18.0.9")),
		in("shop", nic("unseen", "node-2", defaultSubnet, "198.18.0.10", "198.18.0.10")))
	port := func(name string, number int32) []corev1.ContainerPort {
		return []corev1.ContainerPort{{Name: name, ContainerPort: number, Protocol: corev1.ProtocolTCP}}
	}
	i.Pods = []corev1.Pod{
		aPod("shop", "web", port("http", 80), map[string]string{"app": "web"}),
		aPod("shop", "db", nil, map[string]string{"app": "db"}),
		aPod("shop", "tenant", nil, map[string]string{"app": "db"}),
		aPod("b", "b-web", nil, map[string]string{"app": "web"}),
		aPod("b", "b-db", port("http", 8080), map[string]string{"app": "db"}),
	}
	i.Namespaces = []corev1.Namespace{aNamespace("shop", map[string]string{"team": "a"}), aNamespace("b", map[string]string{"team": "b"})}
	return i
}

func TestAPodWhoseLabelsAreUnknownIsClosedWhereThereArePolicies(t *testing.T) {
	i := shopInput(t)
	i.Pods = nil
	require.Equal(t, Policies{}, Compute(i).Policies[7])
	i.NetworkPolicies = []networkingv1.NetworkPolicy{{ObjectMeta: metav1.ObjectMeta{Namespace: "b"}}}
	require.Equal(t, Policies{}, Compute(i).Policies[7])
	i.NetworkPolicies = append(i.NetworkPolicies, networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}, Spec: networkingv1.NetworkPolicySpec{PodSelector: *matching("app", "db")},
	})
	require.Equal(t, closed(), Compute(i).Policies[7])
}

func TestNetworkPoliciesAreNotForTenantsInterfaces(t *testing.T) {
	local := nic("web", "node-1", redFront, "10.0.1.5", "198.18.0.5")
	i := input([]Attachment{attached(t, local, redFront, 7, 1)}, local)
	i.NetworkPolicies = []networkingv1.NetworkPolicy{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}}
	require.Empty(t, Compute(i).Policies)
}
