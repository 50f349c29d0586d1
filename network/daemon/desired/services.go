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

// tenants are the interfaces in tenants' VPCs, for whom a Service balances within the VPC only.
type tenants struct {
	// byInfrastructure finds an interface by the address that EndpointSlices have.
	byInfrastructure map[netip.Addr]tenantAddress
	// vpcs of a namespace are those that its Pods are in.
	vpcs map[string]map[uint32]bool
}

// tenantAddress is where an interface is in its VPC.
type tenantAddress struct {
	vpcID     uint32
	address   netip.Addr
	namespace string
}

// tenantsOf are the interfaces in the VPCs but the default one.
func tenantsOf(interfaces []netv1.NetworkInterface, vpcs map[uint32]bool) tenants {
	t := tenants{byInfrastructure: map[netip.Addr]tenantAddress{}, vpcs: map[string]map[uint32]bool{}}
	for i := range interfaces {
		nic := &interfaces[i]
		address, err := netip.ParseAddr(nic.Status.Address)
		if err != nil || nic.Status.VPCID == netv1.DefaultVPCID {
			continue
		}
		infrastructure, err := netip.ParseAddr(nic.Status.InfrastructureAddress)
		if err != nil {
			continue
		}
		t.byInfrastructure[infrastructure] = tenantAddress{nic.Status.VPCID, address, nic.Spec.Namespace}
		if !vpcs[nic.Status.VPCID] {
			continue
		}
		if t.vpcs[nic.Spec.Namespace] == nil {
			t.vpcs[nic.Spec.Namespace] = map[uint32]bool{}
		}
		t.vpcs[nic.Spec.Namespace][nic.Status.VPCID] = true
	}
	return t
}

// addServices adds the ClusterIPs: for ordinary Pods and hosts those of endpoints that are ordinary Pods, hosts or outside, and
// for each VPC that Pods of a Service's namespace are in those of the Service's Pods there.
func (s *State) addServices(services []corev1.Service, all []discoveryv1.EndpointSlice, t tenants, node string) {
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
			s.addService(service, address, slices, t, node)
		}
	}
}

// noteNoServices tells interfaces whose VPC has no Services.
func (s *State) noteNoServices() {
	served := map[uint32]bool{netv1.DefaultVPCID: true}
	for key := range s.Services {
		served[key.VPCID] = true
	}
	for ifindex, nic := range s.NICs {
		nic.NoServices = !served[nic.VPCID]
		s.NICs[ifindex] = nic
	}
}

func (s *State) addService(service *corev1.Service, address netip.Addr, slices []*discoveryv1.EndpointSlice, t tenants, node string) {
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
		protocol, ok := protocols[port.Protocol]
		if !ok {
			continue
		}
		add := func(vpcID uint32, place func(netip.Addr) (netip.Addr, bool)) {
			key := datapath.ServiceKey{VPCID: vpcID, Address: address, Port: uint16(port.Port), Protocol: protocol}
			s.Services[key] = datapath.Service{Backends: backends(slices, port, node, place), Affinity: affinity}
		}
		add(netv1.DefaultVPCID, func(a netip.Addr) (netip.Addr, bool) {
			_, tenants := t.byInfrastructure[a]
			return a, !tenants
		})
		for vpcID := range t.vpcs[service.Namespace] {
			add(vpcID, func(a netip.Addr) (netip.Addr, bool) {
				at, ok := t.byInfrastructure[a]
				return at.address, ok && at.vpcID == vpcID && at.namespace == service.Namespace
			})
		}
	}
}

// backends are the endpoints of a port that are ready; when there are none, those that still serve while they terminate (as
// kube-proxy does, KEP-1669). A node restricts them to its own, place to those of a VPC, where it also says their addresses. They
// are in order of address, once each.
func backends(all []*discoveryv1.EndpointSlice, port corev1.ServicePort, node string, place func(netip.Addr) (netip.Addr, bool)) []datapath.Backend {
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
			placed, ok := place(address)
			if !ok {
				continue
			}
			backend := datapath.Backend{Address: placed, Port: number}
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
