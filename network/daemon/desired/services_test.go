package desired

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/datapath"
)

func dnsService() corev1.Service {
	return corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "dns"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIPs: []string{"198.19.0.10", "fd00::10"},
			Ports: []corev1.ServicePort{
				{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53},
				{Name: "dns-tcp", Protocol: corev1.ProtocolTCP, Port: 53},
				{Name: "sctp", Protocol: corev1.ProtocolSCTP, Port: 99},
			},
		},
	}
}

func dnsSlice(endpoints ...discoveryv1.Endpoint) discoveryv1.EndpointSlice {
	return discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "kube-system", Name: "dns-x", Labels: map[string]string{discoveryv1.LabelServiceName: "dns"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints,
		Ports: []discoveryv1.EndpointPort{
			{Name: ptr.To("dns"), Protocol: ptr.To(corev1.ProtocolUDP), Port: ptr.To[int32](1053)},
			{Name: ptr.To("dns-tcp"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](1054)},
		},
	}
}

func endpoint(address, node string, ready, serving, terminating bool) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses: []string{address}, NodeName: &node,
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
	}
}

func udpBackends(t *testing.T, service corev1.Service, slices ...discoveryv1.EndpointSlice) []datapath.Backend {
	s := newState()
	s.addServices([]corev1.Service{service}, slices, tenants{}, "node-1")
	require.Len(t, s.Services, 2)
	return s.Services[datapath.ServiceKey{VPCID: 1, Address: ip("198.19.0.10"), Port: 53, Protocol: datapath.UDP}].Backends
}

func TestBackends(t *testing.T) {
	a := endpoint("198.18.0.20", "node-1", true, true, false)
	b := endpoint("198.18.0.10", "node-2", true, true, false)
	leaving := endpoint("198.18.0.30", "node-2", false, true, true)
	broken := endpoint("198.18.0.40", "node-1", false, false, false)
	backend := func(address string) datapath.Backend { return datapath.Backend{Address: ip(address), Port: 1053} }
	local := dnsService()
	local.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	otherFamily := dnsSlice(endpoint("fd00::1", "node-1", true, true, false))
	otherFamily.AddressType = discoveryv1.AddressTypeIPv6

	for name, c := range map[string]struct {
		service corev1.Service
		slices  []discoveryv1.EndpointSlice
		want    []datapath.Backend
	}{
		"ready ones, once, in order": {
			dnsService(),
			[]discoveryv1.EndpointSlice{dnsSlice(a, leaving), dnsSlice(b, a, broken)},
			[]datapath.Backend{backend("198.18.0.10"), backend("198.18.0.20")},
		},
		"terminating ones when none is ready": {
			dnsService(),
			[]discoveryv1.EndpointSlice{dnsSlice(leaving, broken)},
			[]datapath.Backend{backend("198.18.0.30")},
		},
		"none":          {dnsService(), nil, nil},
		"this node's":   {local, []discoveryv1.EndpointSlice{dnsSlice(a, b)}, []datapath.Backend{backend("198.18.0.20")}},
		"this family's": {dnsService(), []discoveryv1.EndpointSlice{otherFamily}, nil},
		"unknown is ready": {
			dnsService(),
			[]discoveryv1.EndpointSlice{dnsSlice(discoveryv1.Endpoint{Addresses: []string{"198.18.0.50"}})},
			[]datapath.Backend{backend("198.18.0.50")},
		},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, udpBackends(t, c.service, c.slices...)) })
	}
}

func TestServicesWithoutAClusterIPAreNotBalanced(t *testing.T) {
	headless, external := dnsService(), dnsService()
	headless.Spec.ClusterIPs = []string{corev1.ClusterIPNone}
	external.Spec.Type = corev1.ServiceTypeExternalName
	s := newState()
	s.addServices([]corev1.Service{headless, external}, nil, tenants{}, "node-1")
	require.Empty(t, s.Services)
}

func TestAffinityIsTheServicesTimeout(t *testing.T) {
	service := dnsService()
	service.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	key := datapath.ServiceKey{VPCID: 1, Address: ip("198.19.0.10"), Port: 53, Protocol: datapath.TCP}
	s := newState()
	s.addServices([]corev1.Service{service}, nil, tenants{}, "node-1")
	require.Equal(t, 3*time.Hour, s.Services[key].Affinity)
	service.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](30)}}
	s.addServices([]corev1.Service{service}, nil, tenants{}, "node-1")
	require.Equal(t, 30*time.Second, s.Services[key].Affinity)
}

// shop is a Service of a tenant's namespace, and its slice.
func shop(endpoints ...discoveryv1.Endpoint) ([]corev1.Service, []discoveryv1.EndpointSlice) {
	service, slice := dnsService(), dnsSlice(endpoints...)
	service.Namespace, slice.Namespace = "shop", "shop"
	return []corev1.Service{service}, []discoveryv1.EndpointSlice{slice}
}

func TestATenantsServiceBalancesOverItsPodsInTheVPC(t *testing.T) {
	front, back := nic("front", "node-1", redFront, "10.0.1.5", "198.18.0.5"), nic("back", "node-2", redBack, "10.0.2.6", "198.18.0.6")
	other := nic("other", "node-1", blue, "10.0.1.5", "198.18.0.7")
	absent := nic("absent", "node-2", subnet("green", "10.0.1.0/24", "10.0.1.1", 1003, 1004), "10.0.1.9", "198.18.0.8")
	ordinary := nic("plain", "node-2", defaultSubnet, "198.18.0.9", "198.18.0.9")
	foreign := nic("foreign", "node-1", redFront, "10.0.1.7", "198.18.0.10")
	foreign.Spec.Namespace = "elsewhere"
	in := input([]Attachment{attached(t, front, redFront, 7, 1), attached(t, other, blue, 8, 1)}, front, back, other, absent, ordinary, foreign)
	all := func(addresses ...string) (endpoints []discoveryv1.Endpoint) {
		for _, a := range addresses {
			endpoints = append(endpoints, endpoint(a, "node-1", true, true, false))
		}
		return endpoints
	}
	in.Services, in.Slices = shop(all("198.18.0.5", "198.18.0.6", "198.18.0.7", "198.18.0.8", "198.18.0.9", "198.18.0.10", "203.0.113.9")...)
	s := Compute(in)
	got := func(vpc uint32) (addresses []string) {
		service, ok := s.Services[datapath.ServiceKey{VPCID: vpc, Address: ip("198.19.0.10"), Port: 53, Protocol: datapath.UDP}]
		require.True(t, ok)
		for _, b := range service.Backends {
			require.EqualValues(t, 1053, b.Port)
			addresses = append(addresses, b.Address.String())
		}
		return addresses
	}
	require.Equal(t, []string{"198.18.0.9", "203.0.113.9"}, got(netv1.DefaultVPCID), "ordinary Pods and the outside")
	require.Equal(t, []string{"10.0.1.5", "10.0.2.6"}, got(1001), "not a Pod of another namespace, nor the outside")
	require.Equal(t, []string{"10.0.1.5"}, got(1002))
	require.Len(t, s.Services, 2*3, "no VPC that has nothing here")

	in.Services, in.Slices = shop()
	s = Compute(in)
	require.Len(t, s.Services, 2*3, "one without backends is known, and refuses")
	require.Empty(t, got(1001))

	in.Services, in.Slices = []corev1.Service{dnsService()}, []discoveryv1.EndpointSlice{dnsSlice(all("198.18.0.5", "198.18.0.9")...)}
	s = Compute(in)
	require.Len(t, s.Services, 2, "a Service of another namespace is nothing to the VPC")
	require.Equal(t, []string{"198.18.0.9"}, got(netv1.DefaultVPCID), "nor does it lead in")
}

func TestInterfacesOfAVPCWithoutServicesLookForNoAnswersOfAny(t *testing.T) {
	front, other := nic("front", "node-1", redFront, "10.0.1.5", "198.18.0.5"), nic("other", "node-1", blue, "10.0.1.5", "198.18.0.7")
	plain := nic("plain", "node-1", defaultSubnet, "198.18.0.9", "198.18.0.9")
	other.Spec.Namespace = "elsewhere"
	in := input([]Attachment{attached(t, front, redFront, 7, 1), attached(t, other, blue, 8, 1), attached(t, plain, defaultSubnet, 9, 1)}, front, other, plain)
	none := func() map[uint32]bool {
		got := map[uint32]bool{}
		for ifindex, nic := range Compute(in).NICs {
			got[ifindex] = nic.NoServices
		}
		return got
	}
	require.Equal(t, map[uint32]bool{7: true, 8: true, 9: false}, none(), "ordinary Pods always look")
	in.Services, in.Slices = shop()
	require.Equal(t, map[uint32]bool{7: false, 8: true, 9: false}, none(), "also for a Service without backends")
}
