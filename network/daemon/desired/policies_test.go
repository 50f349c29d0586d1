package desired

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/datapath"
)

func group(name, namespace string, ingress, egress []netv1.SecurityGroupRule) netv1.SecurityGroup {
	return netv1.SecurityGroup{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.SecurityGroupSpec{Namespace: namespace, Ingress: ingress, Egress: egress},
	}
}

func fromCIDR(cidr string) netv1.SecurityGroupRule { return netv1.SecurityGroupRule{CIDR: &cidr} }

func fromGroup(name string) netv1.SecurityGroupRule {
	return netv1.SecurityGroupRule{SecurityGroup: &name}
}

func peers(prefixes ...string) []datapath.Peer {
	var out []datapath.Peer
	for _, p := range prefixes {
		out = append(out, datapath.Peer{Prefix: prefixOf(p)})
	}
	return out
}

func rulesOf(rules ...datapath.Rule) *datapath.Policy { return &datapath.Policy{Rules: rules} }

func TestSecurityGroupsBecomePolicies(t *testing.T) {
	in := func(n netv1.NetworkInterface, groups ...string) netv1.NetworkInterface {
		n.Spec.SecurityGroups = groups
		return n
	}
	db := in(nic("db", "node-2", redBack, "10.0.2.6", "198.18.0.6"), "db")
	other := in(nic("other", "node-2", redFront, "10.0.1.7", "198.18.0.8"), "db")
	elsewhere := in(nic("elsewhere", "node-2", blue, "10.0.1.6", "198.18.0.7"), "db")
	foreign := in(nic("foreign", "node-2", redFront, "10.0.1.8", "198.18.0.9"), "db")
	foreign.Spec.Namespace = "strangers"
	web, anyone := fromCIDR("0.0.0.0/0"), fromCIDR("10.0.0.0/8")
	web.Protocol, web.Port = netv1.RuleTCP, ptr.To[int32](80)
	ranged := fromCIDR("10.0.0.0/8")
	ranged.Protocol, ranged.Port, ranged.EndPort = netv1.RuleUDP, ptr.To[int32](10), ptr.To[int32](20)
	udp, icmp, echo, code := fromCIDR("10.0.0.0/8"), fromCIDR("10.0.0.0/8"), fromCIDR("10.0.0.0/8"), fromCIDR("10.0.0.0/8")
	udp.Protocol, icmp.Protocol, echo.Protocol, code.Protocol = netv1.RuleUDP, netv1.RuleICMP, netv1.RuleICMP, netv1.RuleICMP
	echo.ICMPType, code.ICMPType, code.ICMPCode = ptr.To[int32](8), ptr.To[int32](3), ptr.To[int32](4)
	type rules = []netv1.SecurityGroupRule

	for name, c := range map[string]struct {
		names  []string
		groups []netv1.SecurityGroup
		want   Policies
	}{
		"no group: everything":     {nil, []netv1.SecurityGroup{group("db", "shop", nil, nil)}, Policies{}},
		"no rules: nothing in":     {[]string{"db"}, []netv1.SecurityGroup{group("db", "shop", nil, nil)}, Policies{Ingress: rulesOf()}},
		"unknown: closed":          {[]string{"db", "lost"}, []netv1.SecurityGroup{group("db", "shop", rules{anyone}, nil)}, closed()},
		"another tenant's: closed": {[]string{"theirs"}, []netv1.SecurityGroup{group("theirs", "strangers", rules{anyone}, nil)}, closed()},
		"protocols and ports": {[]string{"db"}, []netv1.SecurityGroup{group("db", "shop", rules{web, ranged, udp, icmp, echo, code, anyone}, nil)}, Policies{Ingress: rulesOf(
			datapath.Rule{Peers: peers("0.0.0.0/0"), Ports: []datapath.Ports{{Protocol: datapath.TCP, First: 80, Last: 80}}},
			datapath.Rule{Peers: peers("10.0.0.0/8"), Ports: []datapath.Ports{{Protocol: datapath.UDP, First: 10, Last: 20}}},
			datapath.Rule{Peers: peers("10.0.0.0/8"), Ports: []datapath.Ports{datapath.AllPorts(datapath.UDP)}},
			datapath.Rule{Peers: peers("10.0.0.0/8"), Ports: []datapath.Ports{datapath.AllPorts(datapath.ICMP)}},
			datapath.Rule{Peers: peers("10.0.0.0/8"), Ports: []datapath.Ports{datapath.ICMPType(8)}},
			datapath.Rule{Peers: peers("10.0.0.0/8"), Ports: []datapath.Ports{datapath.ICMPCode(3, 4)}},
			datapath.Rule{Peers: peers("10.0.0.0/8")},
		)}},
		"members of this VPC and tenant": {
			[]string{"web"},
			[]netv1.SecurityGroup{group("db", "shop", nil, nil), group("web", "shop", rules{fromGroup("db")}, nil)},
			Policies{Ingress: rulesOf(datapath.Rule{Peers: peers("10.0.1.7/32", "10.0.2.6/32")})},
		},
		"itself": {
			[]string{"web"},
			[]netv1.SecurityGroup{group("web", "shop", rules{fromGroup("web")}, nil)},
			Policies{Ingress: rulesOf(datapath.Rule{Peers: peers("10.0.1.5/32")})},
		},
		"an unknown or foreign peer allows nothing": {
			[]string{"web"},
			[]netv1.SecurityGroup{group("db", "strangers", nil, nil), group("web", "shop", rules{fromGroup("db"), fromGroup("lost")}, rules{fromGroup("lost")})},
			Policies{Ingress: rulesOf(), Egress: rulesOf()},
		},
		"several add up; egress rules of one restrict": {
			[]string{"db", "web"},
			[]netv1.SecurityGroup{group("db", "shop", rules{anyone}, nil), group("web", "shop", rules{web}, rules{anyone})},
			Policies{Ingress: rulesOf(datapath.Rule{Peers: peers("10.0.0.0/8")}, datapath.Rule{
				Peers: peers("0.0.0.0/0"), Ports: []datapath.Ports{{Protocol: datapath.TCP, First: 80, Last: 80}},
			}), Egress: rulesOf(datapath.Rule{Peers: peers("10.0.0.0/8")})},
		},
	} {
		t.Run(name, func(t *testing.T) {
			local := in(nic("web", "node-1", redFront, "10.0.1.5", "198.18.0.5"), c.names...)
			i := input([]Attachment{attached(t, local, redFront, 7, 1)}, local, db, other, elsewhere, foreign)
			i.SecurityGroups = c.groups
			require.Equal(t, c.want, Compute(i).Policies[7])
		})
	}
}
