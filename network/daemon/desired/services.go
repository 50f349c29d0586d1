package desired

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/datapath"
)

// protocols that the datapath balances.
var protocols = map[corev1.Protocol]datapath.Protocol{corev1.ProtocolTCP: datapath.TCP, corev1.ProtocolUDP: datapath.UDP}

// serviceName is the identity of a Service in the cluster.
type serviceName struct{ namespace, name string }

// addServices adds the ClusterIPs of the default network.
func (s *State) addServices(services []corev1.Service, all []discoveryv1.EndpointSlice, node string) {
	byService := map[serviceName][]*discoveryv1.EndpointSlice{}
	for i := range all {
		slice := &all[i]
		if slice.AddressType == discoveryv1.AddressTypeIPv4 {
			name := serviceName{slice.Namespace, slice.Labels[discoveryv1.LabelServiceName]}
			byService[name] = append(byService[name], slice)
		}
	}
	for i := range services {
		service := &services[i]
		if service.Spec.Type == corev1.ServiceTypeExternalName {
			continue
		}
		slices := byService[serviceName{service.Namespace, service.Name}]
		for _, clusterIP := range service.Spec.ClusterIPs {
			address, err := netip.ParseAddr(clusterIP)
			if err != nil || !address.Is4() {
				continue // headless, or of the other family
			}
			s.addService(service, address, slices, node)
		}
	}
}

func (s *State) addService(service *corev1.Service, address netip.Addr, slices []*discoveryv1.EndpointSlice, node string) {
	var affinity time.Duration
	if service.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		affinity = time.Duration(corev1.DefaultClientIPServiceAffinitySeconds) * time.Second
		if c := service.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
			affinity = time.Duration(*c.ClientIP.TimeoutSeconds) * time.Second
		}
	}
	if p := service.Spec.InternalTrafficPolicy; p == nil || *p != corev1.ServiceInternalTrafficPolicyLocal {
		node = ""
	}
	for _, port := range service.Spec.Ports {
		if protocol, ok := protocols[port.Protocol]; ok {
			key := datapath.ServiceKey{VPCID: netv1.DefaultVPCID, Address: address, Port: uint16(port.Port), Protocol: protocol}
			s.Services[key] = datapath.Service{Backends: backends(slices, port, node), Affinity: affinity}
		}
	}
}

// backends are the endpoints of a port that are ready; when there are none, those that still serve while they terminate (as
// kube-proxy does, KEP-1669). A node restricts them to its own. They are in order of address, once each.
func backends(all []*discoveryv1.EndpointSlice, port corev1.ServicePort, node string) []datapath.Backend {
	var ready, terminating []datapath.Backend
	for _, slice := range all {
		number, ok := portOf(slice, port)
		if !ok {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			if node != "" && (endpoint.NodeName == nil || *endpoint.NodeName != node) || len(endpoint.Addresses) == 0 {
				continue
			}
			address, err := netip.ParseAddr(endpoint.Addresses[0])
			if err != nil || !address.Is4() {
				continue
			}
			backend := datapath.Backend{Address: address, Port: number}
			switch c := endpoint.Conditions; {
			case c.Ready == nil || *c.Ready:
				ready = append(ready, backend)
			case isTrue(c.Terminating) && isTrue(c.Serving):
				terminating = append(terminating, backend)
			}
		}
	}
	if len(ready) == 0 {
		ready = terminating
	}
	slices.SortFunc(ready, func(a, b datapath.Backend) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port))
	})
	return slices.Compact(ready)
}

// portOf is the number that a Service's port has in a slice; the two are matched by name.
func portOf(slice *discoveryv1.EndpointSlice, port corev1.ServicePort) (uint16, bool) {
	for _, p := range slice.Ports {
		name, protocol := "", corev1.ProtocolTCP
		if p.Name != nil {
			name = *p.Name
		}
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		if name == port.Name && protocol == port.Protocol && p.Port != nil {
			return uint16(*p.Port), true
		}
	}
	return 0, false
}

func isTrue(b *bool) bool { return b != nil && *b }
