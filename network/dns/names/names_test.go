package names

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

func vpc(id uint32, object, name string, namespaces ...string) netv1.VPC {
	v := netv1.VPC{ObjectMeta: metav1.ObjectMeta{Name: object}, Spec: netv1.VPCSpec{Namespaces: namespaces}, Status: netv1.VPCStatus{ID: id}}
	if name != "" {
		v.Labels = map[string]string{netv1.LabelDNSName: name}
	}
	return v
}

func nic(id uint32, namespace, name, address, infrastructure string) netv1.NetworkInterface {
	return netv1.NetworkInterface{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + name, Labels: map[string]string{netv1.LabelDNSName: name}},
		Spec:       netv1.NetworkInterfaceSpec{Namespace: namespace},
		Status:     netv1.NetworkInterfaceStatus{VPCID: id, Address: address, PrefixLength: 24, InfrastructureAddress: infrastructure},
	}
}

func service(namespace, name, clusterIP string) corev1.Service {
	return corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ServiceSpec{ClusterIP: clusterIP}}
}

func ported(s corev1.Service, ports ...corev1.ServicePort) corev1.Service {
	s.Spec.Ports = ports
	return s
}

func external(namespace, name, target string) corev1.Service {
	s := service(namespace, name, "")
	s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, target
	return s
}

func slice(namespace, of string, endpoints ...discoveryv1.Endpoint) discoveryv1.EndpointSlice {
	return discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: of + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: of}},
		Endpoints:  endpoints,
	}
}

func endpoint(ready *bool, addresses ...string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: addresses, Conditions: discoveryv1.EndpointConditions{Ready: ready}}
}

// world is two tenants that have named everything alike, and one that has two VPCs.
func world() Input {
	byPod := nic(1003, "team-c", "", "10.0.1.6", "198.18.0.6")
	byPod.Spec.Pod = &netv1.PodReference{Namespace: "team-c", Name: "pod-0"}
	in := Input{
		VPCs: []netv1.VPC{
			vpc(1, "default", ""), vpc(1001, "uid-a", "shop", "team-a"), vpc(1002, "uid-b", "shop", "team-b"),
			vpc(1003, "uid-c", "front", "team-c"), vpc(1004, "back", "", "team-c"), vpc(0, "uid-new", "new", "team-a"),
		},
		Interfaces: []netv1.NetworkInterface{
			nic(1001, "team-a", "web", "10.0.1.5", "198.18.0.1"), nic(1001, "team-a", "db", "10.0.2.5", "198.18.0.2"),
			nic(1002, "team-b", "web", "10.0.1.7", "198.18.0.3"), nic(1002, "team-b", "only-b", "10.0.1.5", "198.18.0.4"),
			nic(1003, "team-c", "web", "10.0.1.5", "198.18.0.5"), byPod,
			nic(1004, "team-c", "web", "10.0.1.9", "198.18.0.7"), nic(1004, "team-c", "web", "10.0.1.8", "198.18.0.8"),
			nic(1, "default", "ordinary", "198.18.0.50", "198.18.0.50"),
			nic(1001, "team-b", "smuggled", "10.0.1.66", "198.18.0.66"), // of a namespace that the VPC does not list
		},
		Services: []corev1.Service{
			ported(service("team-a", "db", "198.19.0.1"), corev1.ServicePort{Name: "sql", Port: 5432}, corev1.ServicePort{Name: "sql-u", Protocol: corev1.ProtocolUDP, Port: 53}),
			ported(service("team-b", "db", "198.19.0.2"), corev1.ServicePort{Port: 5432}),
			service("team-c", "all", corev1.ClusterIPNone), service("team-c", "none", corev1.ClusterIPNone), service("team-c", "new", ""),
			service("default", "kubernetes", "198.19.0.9"),
			external("team-a", "elsewhere", "Example.COM"), external("team-a", "near", "web.shop.internal"), external("team-a", "nearer", "near.team-a.svc.cluster.local."),
			external("team-a", "theirs", "db.team-b.svc.cluster.local"), external("team-a", "round", "round.team-a.svc.cluster.local"), external("team-a", "address", "192.0.2.1"),
		},
		Slices: []discoveryv1.EndpointSlice{
			// A tenant's slice that names what is none of its own leads nowhere.
			slice("team-c", "all", endpoint(nil, "198.18.0.5"), endpoint(ptr.To(true), "198.18.0.7"), endpoint(ptr.To(false), "198.18.0.6"),
				endpoint(nil, "198.18.0.1"), endpoint(nil, "192.0.2.1"), endpoint(nil, "no address")),
		},
	}
	in.Slices[0].Ports = []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(8080))}, {Name: ptr.To("none")}}
	in.Slices[0].Endpoints[0].Hostname = ptr.To("first")
	return in
}

// said is an answer in short: its kind and either its code or its records' data.
func said(d *Directory, source, name string, kind uint16) string {
	a := d.Answer(netip.MustParseAddr(source), dns.Question{Name: name, Qtype: kind, Qclass: dns.ClassINET})
	out := string(a.Kind)
	if a.Rcode != dns.RcodeSuccess {
		out += " " + dns.RcodeToString[a.Rcode]
	}
	for i, r := range a.Records {
		if i == 0 && r.Header().Name != name {
			out += " NOT THE NAME"
		}
		switch r := r.(type) {
		case *dns.A:
			out += " " + r.A.String()
		case *dns.PTR:
			out += " " + r.Ptr
		case *dns.SOA:
			out += " SOA"
		case *dns.CNAME:
			out += " is " + r.Target
		case *dns.SRV:
			out += fmt.Sprintf(" %s:%d", r.Target, r.Port)
		}
	}
	for _, r := range a.Extra {
		if r, ok := r.(*dns.A); ok {
			out += " (" + r.Hdr.Name + " " + r.A.String() + ")"
		}
	}
	if a.Outside != "" {
		out += " outside " + a.Outside
	}
	for _, r := range a.Authority {
		out += " by " + r.Header().Name
	}
	return out
}

func TestNames(t *testing.T) {
	d := Make(world())
	for _, tc := range []struct {
		source, name string
		kind         uint16
		want         string
	}{
		{"198.18.0.1", "web.shop.internal.", dns.TypeA, "vpc 10.0.1.5"},
		{"198.18.0.1", "WEB.Shop.INTERNAL.", dns.TypeA, "vpc 10.0.1.5"},
		{"198.18.0.2", "db.shop.internal.", dns.TypeANY, "vpc 10.0.2.5"},
		{"198.18.0.1", "web.shop.internal.", dns.TypeAAAA, "vpc by shop.internal."},
		{"198.18.0.1", "web.shop.internal.", dns.TypeTXT, "vpc by shop.internal."},
		{"198.18.0.1", "nobody.shop.internal.", dns.TypeA, "vpc NXDOMAIN by shop.internal."},
		{"198.18.0.1", "a.web.shop.internal.", dns.TypeA, "vpc NXDOMAIN by shop.internal."},
		{"198.18.0.1", "shop.internal.", dns.TypeSOA, "vpc SOA"},
		{"198.18.0.1", "shop.internal.", dns.TypeA, "vpc by shop.internal."},
		{"198.18.0.1", "internal.", dns.TypeA, "vpc by internal."},
		{"198.18.0.6", "pod-0.front.internal.", dns.TypeA, "vpc 10.0.1.6"},                   // a Pod's own name
		{"198.18.0.8", "web.back.internal.", dns.TypeA, "vpc 10.0.1.8 10.0.1.9"},             // two of one name, by the VPC's own name
		{"198.18.0.3", "web.shop.internal.", dns.TypeA, "vpc 10.0.1.7"},                      // a VPC of the same name is another
		{"198.18.0.3", "only-b.shop.internal.", dns.TypeA, "vpc 10.0.1.5"},                   // and so are its names,
		{"198.18.0.1", "only-b.shop.internal.", dns.TypeA, "vpc NXDOMAIN by shop.internal."}, // which nobody else has
		{"198.18.0.1", "web.front.internal.", dns.TypeA, "vpc NXDOMAIN by internal."},
		{"198.18.0.5", "web.back.internal.", dns.TypeA, "vpc NXDOMAIN by internal."}, // the tenant's other VPC
		{"198.18.0.1", "smuggled.shop.internal.", dns.TypeA, "vpc NXDOMAIN by shop.internal."},
		{"198.18.0.1", "metadata.google.internal.", dns.TypeA, "vpc NXDOMAIN by internal."},

		{"198.18.0.1", "db.team-a.svc.cluster.local.", dns.TypeA, "service 198.19.0.1"},
		{"198.18.0.3", "db.team-b.svc.cluster.local.", dns.TypeA, "service 198.19.0.2"},
		{"198.18.0.1", "db.team-b.svc.cluster.local.", dns.TypeA, "service NXDOMAIN by cluster.local."},
		{"198.18.0.1", "kubernetes.default.svc.cluster.local.", dns.TypeA, "service NXDOMAIN by cluster.local."},
		{"198.18.0.1", "elsewhere.team-a.svc.cluster.local.", dns.TypeA, "service is example.com. outside example.com."},
		{"198.18.0.1", "elsewhere.team-a.svc.cluster.local.", dns.TypeCNAME, "service is example.com."},
		{"198.18.0.3", "elsewhere.team-a.svc.cluster.local.", dns.TypeA, "service NXDOMAIN by cluster.local."},
		{"198.18.0.1", "near.team-a.svc.cluster.local.", dns.TypeA, "service is web.shop.internal. 10.0.1.5"},
		{"198.18.0.1", "near.team-a.svc.cluster.local.", dns.TypeTXT, "service is web.shop.internal. by shop.internal."},
		{"198.18.0.1", "nearer.team-a.svc.cluster.local.", dns.TypeA, "service is near.team-a.svc.cluster.local. is web.shop.internal. 10.0.1.5"},
		{"198.18.0.1", "theirs.team-a.svc.cluster.local.", dns.TypeA, "service NXDOMAIN is db.team-b.svc.cluster.local. by cluster.local."},
		{"198.18.0.1", "round.team-a.svc.cluster.local.", dns.TypeA, "service SERVFAIL"},
		{"198.18.0.1", "address.team-a.svc.cluster.local.", dns.TypeA, "service NXDOMAIN by cluster.local."},
		{"198.18.0.1", "_sql._tcp.db.team-a.svc.cluster.local.", dns.TypeSRV, "service db.team-a.svc.cluster.local.:5432 (db.team-a.svc.cluster.local. 198.19.0.1)"},
		{"198.18.0.1", "_sql-u._udp.db.team-a.svc.cluster.local.", dns.TypeSRV, "service db.team-a.svc.cluster.local.:53 (db.team-a.svc.cluster.local. 198.19.0.1)"},
		{"198.18.0.1", "_sql._tcp.db.team-a.svc.cluster.local.", dns.TypeA, "service by cluster.local."},
		{"198.18.0.1", "_tcp.db.team-a.svc.cluster.local.", dns.TypeSRV, "service by cluster.local."},
		{"198.18.0.1", "_sql._udp.db.team-a.svc.cluster.local.", dns.TypeSRV, "service NXDOMAIN by cluster.local."},
		{"198.18.0.3", "_sql._tcp.db.team-a.svc.cluster.local.", dns.TypeSRV, "service NXDOMAIN by cluster.local."},
		{"198.18.0.3", "_._tcp.db.team-b.svc.cluster.local.", dns.TypeSRV, "service NXDOMAIN by cluster.local."}, // a port without a name
		{"198.18.0.5", "_http._tcp.all.team-c.svc.cluster.local.", dns.TypeSRV, "service first.all.team-c.svc.cluster.local.:8080 (first.all.team-c.svc.cluster.local. 10.0.1.5)"},
		{"198.18.0.7", "_http._tcp.all.team-c.svc.cluster.local.", dns.TypeSRV, "service 10-0-1-9.all.team-c.svc.cluster.local.:8080 (10-0-1-9.all.team-c.svc.cluster.local. 10.0.1.9)"},
		{"198.18.0.5", "first.all.team-c.svc.cluster.local.", dns.TypeA, "service 10.0.1.5"},
		{"198.18.0.7", "first.all.team-c.svc.cluster.local.", dns.TypeA, "service NXDOMAIN by cluster.local."},
		{"198.18.0.1", "team-a.svc.cluster.local.", dns.TypeA, "service by cluster.local."},
		{"198.18.0.1", "svc.cluster.local.", dns.TypeA, "service by cluster.local."},
		{"198.18.0.1", "team-b.svc.cluster.local.", dns.TypeA, "service NXDOMAIN by cluster.local."},
		{"198.18.0.5", "all.team-c.svc.cluster.local.", dns.TypeA, "service 10.0.1.5"}, // headless: the VPC's own Pods
		{"198.18.0.7", "all.team-c.svc.cluster.local.", dns.TypeA, "service 10.0.1.9"},
		{"198.18.0.7", "none.team-c.svc.cluster.local.", dns.TypeA, "service by cluster.local."},
		{"198.18.0.7", "new.team-c.svc.cluster.local.", dns.TypeA, "service NXDOMAIN by cluster.local."},

		{"198.18.0.1", "5.1.0.10.in-addr.arpa.", dns.TypePTR, "reverse web.shop.internal."},
		{"198.18.0.3", "5.1.0.10.in-addr.arpa.", dns.TypePTR, "reverse only-b.shop.internal."},
		{"198.18.0.5", "5.1.0.10.in-addr.arpa.", dns.TypePTR, "reverse web.front.internal."}, // not the headless Service's
		{"198.18.0.1", "5.1.0.10.in-addr.arpa.", dns.TypeA, "reverse by 1.0.10.in-addr.arpa."},
		{"198.18.0.1", "7.1.0.10.in-addr.arpa.", dns.TypePTR, "reverse NXDOMAIN by 1.0.10.in-addr.arpa."},
		{"198.18.0.1", "1.0.19.198.in-addr.arpa.", dns.TypePTR, "reverse db.team-a.svc.cluster.local."},
		{"198.18.0.1", "2.0.19.198.in-addr.arpa.", dns.TypePTR, "reverse NXDOMAIN by 19.198.in-addr.arpa."},
		{"198.18.0.1", "1.1.168.192.in-addr.arpa.", dns.TypePTR, "reverse NXDOMAIN by 168.192.in-addr.arpa."},
		{"198.18.0.1", "10.in-addr.arpa.", dns.TypeSOA, "reverse by 10.in-addr.arpa."},
		{"198.18.0.1", "8.8.8.8.in-addr.arpa.", dns.TypePTR, "outside"},

		{"198.18.0.1", "example.com.", dns.TypeA, "outside"},
		{"198.18.0.1", "notinternal.", dns.TypeA, "outside"},
		{"198.18.0.1", "shop.internal.example.com.", dns.TypeA, "outside"},
		{"198.18.0.1", "example.com.", dns.TypeAXFR, "refused REFUSED"},
		{"198.18.0.50", "web.shop.internal.", dns.TypeA, "refused REFUSED"}, // an ordinary Pod
		{"198.18.0.66", "web.shop.internal.", dns.TypeA, "refused REFUSED"},
		{"192.0.2.1", "example.com.", dns.TypeA, "refused REFUSED"},
	} {
		require.Equal(t, tc.want, said(d, tc.source, tc.name, tc.kind), "%s asks for %s %s", tc.source, dns.TypeToString[tc.kind], tc.name)
	}
	chaos := d.Answer(netip.MustParseAddr("198.18.0.1"), dns.Question{Name: "version.bind.", Qtype: dns.TypeTXT, Qclass: dns.ClassCHAOS})
	require.Equal(t, Refused, chaos.Kind)
}

func TestAnAddressThatTwoInterfacesHaveIsNobodys(t *testing.T) {
	in := world()
	in.Interfaces = append(in.Interfaces, nic(1002, "team-b", "late", "10.0.1.99", "198.18.0.1"))
	require.Equal(t, "refused REFUSED", said(Make(in), "198.18.0.1", "web.shop.internal.", dns.TypeA))
}

func TestAnInterfaceThatIsToGoMayAskButHasNoName(t *testing.T) {
	in := world()
	in.Interfaces[0].DeletionTimestamp = ptr.To(metav1.Now())
	d := Make(in)
	require.Equal(t, "vpc NXDOMAIN by shop.internal.", said(d, "198.18.0.2", "web.shop.internal.", dns.TypeA))
	require.Equal(t, "vpc 10.0.2.5", said(d, "198.18.0.1", "db.shop.internal.", dns.TypeA))
}

func TestADirectoryIsTheSameInAnyOrderAndFromAFile(t *testing.T) {
	in := world()
	first, err := json.Marshal(Make(in))
	require.NoError(t, err)
	slices.Reverse(in.VPCs)
	slices.Reverse(in.Interfaces)
	slices.Reverse(in.Services)
	slices.Reverse(in.Slices)
	slices.Reverse(in.Slices[0].Endpoints)
	again, err := json.Marshal(Make(in))
	require.NoError(t, err)
	require.Equal(t, string(first), string(again))
	var read Directory
	require.NoError(t, json.Unmarshal(first, &read))
	read.Index()
	require.Equal(t, Make(world()), &read)
}

func TestADirectoryFromAFileThatLacksPartsAnswers(t *testing.T) {
	var d Directory
	require.NoError(t, json.Unmarshal([]byte(`{"sources":{"198.18.0.1":1001,"198.18.0.2":1002},"vpcs":{"1001":{"zone":"a.internal."},"1002":null}}`), &d))
	d.Index()
	require.Equal(t, "vpc NXDOMAIN by a.internal.", said(&d, "198.18.0.1", "web.a.internal.", dns.TypeA))
	require.Equal(t, "refused REFUSED", said(&d, "198.18.0.2", "web.a.internal.", dns.TypeA))
}
