package controller

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

func bgpNode(name, rack string, ready corev1.ConditionStatus) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"rack": rack}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
	}
}

func TestAPeerIsReadyWhenEveryChosenNodeHasItsSession(t *testing.T) {
	up := func(node string) netv1.BGPSession { return netv1.BGPSession{Node: node, State: netv1.BGPEstablished} }
	both := []corev1.Node{bgpNode("n1", "a", corev1.ConditionTrue), bgpNode("n2", "b", corev1.ConditionTrue)}
	down := []corev1.Node{both[0], bgpNode("n2", "b", corev1.ConditionUnknown)}
	inRack := func(rack string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"rack": rack}}
	}
	for _, tc := range []struct {
		name     string
		selector *metav1.LabelSelector
		nodes    []corev1.Node
		sessions []netv1.BGPSession
		reason   string
		says     string
	}{
		{"all", nil, both, []netv1.BGPSession{up("n1"), up("n2")}, reasonEstablished, ""},
		{"the chosen one", inRack("a"), both, []netv1.BGPSession{up("n1")}, reasonEstablished, ""},
		{"none chosen", inRack("c"), both, nil, reasonNoNode, "spec.nodeSelector"},
		{"one has not reported", nil, both, []netv1.BGPSession{up("n1")}, reasonConnecting, "n2 (no report yet)"},
		{
			"one connects", nil, both,
			[]netv1.BGPSession{up("n1"), {Node: "n2", State: netv1.BGPConnecting, LastError: "Socket: Connection refused"}},
			reasonConnecting, "n2 (Connecting: Socket: Connection refused)",
		},
		{
			"one refuses", nil, both,
			[]netv1.BGPSession{up("n1"), {Node: "n2", State: netv1.BGPRefused, LastError: "spec.passwordSecret: x"}},
			reasonSessionRefused, "spec.passwordSecret: x",
		},
		{"what a lost node said is old", nil, down, []netv1.BGPSession{up("n1"), up("n2")}, reasonConnecting, "n2 (the node is not ready"},
		{
			"a selector that is none", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: "No"}}}, both, nil,
			reasonSelectorInvalid, "spec.nodeSelector",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := decidePeer(&netv1.BGPPeer{Spec: netv1.BGPPeerSpec{NodeSelector: tc.selector}, Status: netv1.BGPPeerStatus{Sessions: tc.sessions}}, tc.nodes)
			require.Equal(t, tc.reason, got.Reason)
			require.Contains(t, got.Message, tc.says)
		})
	}
}

func TestBadBGPInputIsRefusedAtAdmission(t *testing.T) {
	w := idleWorld(t)
	good := netv1.BGPPeerSpec{ASN: 64513, LocalASN: 64512, Address: "192.0.2.1"}
	for name, tc := range map[string]struct {
		change func(*netv1.BGPPeerSpec)
		says   string
	}{
		"asn 0":               {func(s *netv1.BGPPeerSpec) { s.ASN = 0 }, "spec.asn"},
		"asn 2^32":            {func(s *netv1.BGPPeerSpec) { s.ASN = 1 << 32 }, "spec.asn"},
		"asn -1":              {func(s *netv1.BGPPeerSpec) { s.ASN = -1 }, "spec.asn"},
		"AS_TRANS":            {func(s *netv1.BGPPeerSpec) { s.ASN = 23456 }, "reserved"},
		"last asn":            {func(s *netv1.BGPPeerSpec) { s.ASN = 65535 }, "reserved"},
		"own asn reserved":    {func(s *netv1.BGPPeerSpec) { s.LocalASN = 23456 }, "localASN"},
		"no address":          {func(s *netv1.BGPPeerSpec) { s.Address = "" }, "spec.address"},
		"IPv6":                {func(s *netv1.BGPPeerSpec) { s.Address = "fd00::1" }, "IPv4"},
		"name":                {func(s *netv1.BGPPeerSpec) { s.Address = "router" }, "IPv4"},
		"injection":           {func(s *netv1.BGPPeerSpec) { s.Address = "1.2.3.4; }" }, "IPv4"},
		"loopback":            {func(s *netv1.BGPPeerSpec) { s.Address = "127.0.0.1" }, "must be one that a router can have"},
		"multicast":           {func(s *netv1.BGPPeerSpec) { s.Address = "224.0.0.5" }, "must be one that a router can have"},
		"unspecified":         {func(s *netv1.BGPPeerSpec) { s.Address = "0.0.0.0" }, "must be one that a router can have"},
		"link-local":          {func(s *netv1.BGPPeerSpec) { s.Address = "169.254.1.1" }, "must be one that a router can have"},
		"port":                {func(s *netv1.BGPPeerSpec) { s.Port = 70000 }, "spec.port"},
		"hold time":           {func(s *netv1.BGPPeerSpec) { s.HoldTimeSeconds = 2 }, "spec.holdTimeSeconds"},
		"restart time":        {func(s *netv1.BGPPeerSpec) { s.GracefulRestartSeconds = 4000 }, "spec.gracefulRestartSeconds"},
		"BFD":                 {func(s *netv1.BGPPeerSpec) { s.BFD = &netv1.BFD{IntervalMilliseconds: 1} }, "spec.bfd.intervalMilliseconds"},
		"multihop of own ASN": {func(s *netv1.BGPPeerSpec) { s.ASN, s.Multihop = 64512, 3 }, "multihop is for peers of another ASN"},
	} {
		spec := good
		tc.change(&spec)
		err := w.Create(w.ctx, &netv1.BGPPeer{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Spec: spec})
		require.ErrorContains(t, err, tc.says, name)
	}
	long := &netv1.BGPPeer{ObjectMeta: metav1.ObjectMeta{Name: "a123456789012345678901234567890123456789012345678901"}, Spec: good}
	require.ErrorContains(t, w.Create(w.ctx, long), "50 characters")

	for cidrs, says := range map[string]string{
		"":                                "spec.cidrs",
		"x":                               "IPv4 ranges",
		"fd00::/64":                       "IPv4 ranges",
		"203.0.113.5/24":                  "canonical",
		"0.0.0.0/0":                       "/8",
		"127.0.0.0/8":                     "a host can have",
		"169.0.0.0/8":                     "a host can have",
		"224.0.0.0/24":                    "a host can have",
		"203.0.113.0/24 203.0.113.128/25": "contain one another",
		"203.0.113.0/24 203.0.113.0/24":   "Duplicate",
	} {
		pool := newPool("bad", 0, cidrs, "")
		require.ErrorContains(t, w.Create(w.ctx, &netv1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Spec: pool.Spec}), says, cidrs)
	}

	for _, spec := range []netv1.BGPAdvertisementSpec{
		{Communities: []netv1.Community{"65536:1"}},
		{Communities: []netv1.Community{"1"}},
		{Communities: []netv1.Community{"a:b"}},
		{Communities: []netv1.Community{"1:1); reject; #"}},
		{LargeCommunities: []netv1.LargeCommunity{"1:2"}},
		{LargeCommunities: []netv1.LargeCommunity{"4294967296:1:1"}},
	} {
		require.ErrorContains(t, w.Create(w.ctx, &netv1.BGPAdvertisement{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Spec: spec}), "community is", "%+v", spec)
	}
}
