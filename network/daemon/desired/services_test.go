package desired

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

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
	s.addServices([]corev1.Service{service}, slices, "node-1")
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
	s.addServices([]corev1.Service{headless, external}, nil, "node-1")
	require.Empty(t, s.Services)
}

func TestAffinityIsTheServicesTimeout(t *testing.T) {
	service := dnsService()
	service.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	key := datapath.ServiceKey{VPCID: 1, Address: ip("198.19.0.10"), Port: 53, Protocol: datapath.TCP}
	s := newState()
	s.addServices([]corev1.Service{service}, nil, "node-1")
	require.Equal(t, 3*time.Hour, s.Services[key].Affinity)
	service.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](30)}}
	s.addServices([]corev1.Service{service}, nil, "node-1")
	require.Equal(t, 30*time.Second, s.Services[key].Affinity)
}
