package names

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// Domains that are the cloud's own: nobody outside is ever asked for names in them.
const (
	// Domain is where VPCs' names are: web.shop.internal.
	Domain = "internal."
	// ClusterDomain is where Services' names are: db.team-a.svc.cluster.local.
	ClusterDomain = "cluster.local."
)

// Directory is everything that a resolver knows. It is also what is kept in a file.
type Directory struct {
	// Sources are the VPCs that infrastructure addresses ask from.
	Sources map[netip.Addr]uint32 `json:"sources"`
	// VPCs by their identity in the datapath. Without the default one, whose Pods ask the cluster's own DNS.
	VPCs map[uint32]*VPC `json:"vpcs"`
}

// VPC is what its interfaces may know. All names are in lower case and end with a dot.
type VPC struct {
	// Zone is its part of the domain: shop.internal.
	Zone string `json:"zone"`
	// Hosts are the addresses of names in the zone.
	Hosts map[string][]netip.Addr `json:"hosts"`
	// Services are the addresses of Services' names. Those of a headless one are its Pods' in this VPC; there may be none.
	Services map[string][]netip.Addr `json:"services"`
	// Ports are where Services' ports with a name are: _http._tcp.db.team-a.svc.cluster.local.
	Ports map[string][]Port `json:"ports"`
	// Aliases are what Services of type ExternalName stand for.
	Aliases map[string]string `json:"aliases"`
	// Subnets are the ranges that the VPC's interfaces are in.
	Subnets []netip.Prefix `json:"subnets"`

	// above are names that have names below them, and byAddress are the names of addresses.
	above     map[string]bool
	byAddress map[netip.Addr][]string
}

// Port is a port at a name.
type Port struct {
	Target string `json:"target"`
	Port   uint16 `json:"port"`
}

// Input is what a Directory is made from.
type Input struct {
	VPCs       []netv1.VPC
	Interfaces []netv1.NetworkInterface
	Services   []corev1.Service
	Slices     []discoveryv1.EndpointSlice
}

// holder is an interface's place in a VPC.
type holder struct {
	vpc       uint32
	address   netip.Addr
	namespace string
}

// Make makes a Directory. The same input, in any order, gives the same.
func Make(in Input) *Directory {
	d := &Directory{Sources: map[netip.Addr]uint32{}, VPCs: map[uint32]*VPC{}}
	namespaces := map[uint32][]string{}
	for i := range in.VPCs {
		vpc := &in.VPCs[i]
		if vpc.Status.ID == 0 || vpc.Status.ID == netv1.DefaultVPCID {
			continue
		}
		name := vpc.Labels[netv1.LabelDNSName]
		if name == "" {
			name = vpc.Name
		}
		d.VPCs[vpc.Status.ID] = &VPC{
			Zone: strings.ToLower(name) + "." + Domain, Hosts: map[string][]netip.Addr{}, Services: map[string][]netip.Addr{},
			Ports: map[string][]Port{}, Aliases: map[string]string{},
		}
		namespaces[vpc.Status.ID] = vpc.Spec.Namespaces
	}
	holders := d.addInterfaces(in.Interfaces, namespaces)
	d.addServices(in.Services, in.Slices, holders, namespaces)
	d.Index()
	return d
}

// addInterfaces adds who may ask, and the interfaces' names. It returns who holds the infrastructure addresses.
func (d *Directory) addInterfaces(interfaces []netv1.NetworkInterface, namespaces map[uint32][]string) map[netip.Addr]holder {
	holders := map[netip.Addr]holder{}
	twice := map[netip.Addr]bool{}
	for i := range interfaces {
		nic := &interfaces[i]
		vpc := d.VPCs[nic.Status.VPCID]
		address, err := netip.ParseAddr(nic.Status.Address)
		infrastructure, noInfrastructure := netip.ParseAddr(nic.Status.InfrastructureAddress)
		if vpc == nil || err != nil || noInfrastructure != nil || !slices.Contains(namespaces[nic.Status.VPCID], nic.Spec.Namespace) {
			continue
		}
		if _, ok := holders[infrastructure]; ok {
			twice[infrastructure] = true // it must not be: neither of them is known by it
		}
		holders[infrastructure] = holder{nic.Status.VPCID, address, nic.Spec.Namespace}
		if subnet, err := address.Prefix(int(nic.Status.PrefixLength)); err == nil && !slices.Contains(vpc.Subnets, subnet) {
			vpc.Subnets = append(vpc.Subnets, subnet)
		}
		if name := nameOf(nic); name != "" && nic.DeletionTimestamp.IsZero() {
			name = strings.ToLower(name) + "." + vpc.Zone
			vpc.Hosts[name] = append(vpc.Hosts[name], address)
		}
	}
	for infrastructure, h := range holders {
		if twice[infrastructure] {
			delete(holders, infrastructure)
			continue
		}
		d.Sources[infrastructure] = h.vpc
	}
	return holders
}

// nameOf is an interface's part of a name: what its maker says, or else its Pod's.
func nameOf(nic *netv1.NetworkInterface) string {
	if name := nic.Labels[netv1.LabelDNSName]; name != "" {
		return name
	}
	if nic.Spec.Pod != nil {
		return nic.Spec.Pod.Name
	}
	return ""
}

// addServices adds, to each VPC, the Services of its namespaces.
func (d *Directory) addServices(services []corev1.Service, all []discoveryv1.EndpointSlice, holders map[netip.Addr]holder, namespaces map[uint32][]string) {
	vpcsOf := map[string][]uint32{}
	for vpc, list := range namespaces {
		for _, namespace := range list {
			vpcsOf[namespace] = append(vpcsOf[namespace], vpc)
		}
	}
	endpoints := map[string][]endpointOf{}
	for i := range all {
		slice := &all[i]
		if len(vpcsOf[slice.Namespace]) > 0 {
			name := slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]
			endpoints[name] = append(endpoints[name], served(slice)...)
		}
	}
	for i := range services {
		service := &services[i]
		name := service.Name + "." + service.Namespace + ".svc." + ClusterDomain
		for _, id := range vpcsOf[service.Namespace] {
			vpc := d.VPCs[id]
			address, err := netip.ParseAddr(service.Spec.ClusterIP)
			switch {
			case service.Spec.Type == corev1.ServiceTypeExternalName:
				if target, ok := aliasOf(service); ok {
					vpc.Aliases[name] = target
				}
			case service.Spec.ClusterIP == corev1.ClusterIPNone:
				vpc.Services[name] = nil
				for _, e := range endpoints[service.Namespace+"/"+service.Name] {
					if h, ok := holders[e.address]; ok && h.vpc == id && h.namespace == service.Namespace {
						vpc.addEndpoint(name, h.address, e)
					}
				}
			case err == nil && address.Is4(): // else it has none yet
				vpc.Services[name] = []netip.Addr{address}
				for _, port := range service.Spec.Ports {
					vpc.addPort(name, port.Name, string(port.Protocol), name, port.Port)
				}
			}
		}
	}
}

// addEndpoint adds a Pod of a headless Service: at the Service's name, and at one of its own below that.
func (v *VPC) addEndpoint(service string, address netip.Addr, e endpointOf) {
	v.Services[service] = append(v.Services[service], address)
	own := e.hostname
	if own == "" {
		own = strings.ReplaceAll(address.String(), ".", "-")
	}
	own += "." + service
	v.Services[own] = append(v.Services[own], address)
	for _, port := range e.ports {
		if port.Name != nil && port.Port != nil {
			protocol := corev1.ProtocolTCP
			if port.Protocol != nil {
				protocol = *port.Protocol
			}
			v.addPort(service, *port.Name, string(protocol), own, *port.Port)
		}
	}
}

// addPort adds where a Service's port is. One without a name cannot be asked for.
func (v *VPC) addPort(service, name, protocol, target string, port int32) {
	if name == "" || port < 1 || port > 65535 {
		return
	}
	if protocol == "" {
		protocol = string(corev1.ProtocolTCP)
	}
	at := strings.ToLower("_" + name + "._" + protocol + "." + service)
	v.Ports[at] = append(v.Ports[at], Port{Target: target, Port: uint16(port)})
}

// aliasOf is the name that a Service of type ExternalName stands for. An address is none.
func aliasOf(service *corev1.Service) (string, bool) {
	target := dns.Fqdn(strings.ToLower(service.Spec.ExternalName))
	if _, err := netip.ParseAddr(service.Spec.ExternalName); err == nil {
		return "", false
	}
	_, ok := dns.IsDomainName(target)
	return target, ok && target != "."
}

// endpointOf is an endpoint of a Service that serves.
type endpointOf struct {
	address  netip.Addr
	hostname string
	ports    []discoveryv1.EndpointPort
}

// served are a slice's endpoints that serve.
func served(slice *discoveryv1.EndpointSlice) []endpointOf {
	var all []endpointOf
	for i := range slice.Endpoints {
		endpoint := &slice.Endpoints[i]
		if endpoint.Conditions.Ready != nil && !*endpoint.Conditions.Ready {
			continue
		}
		hostname := ""
		if endpoint.Hostname != nil {
			hostname = strings.ToLower(*endpoint.Hostname)
		}
		for _, a := range endpoint.Addresses {
			if address, err := netip.ParseAddr(a); err == nil {
				all = append(all, endpointOf{address, hostname, slice.Ports})
			}
		}
	}
	return all
}

// Index brings addresses into order and makes what lookups need beside what is kept. A Directory from a file needs it once.
func (d *Directory) Index() {
	for _, vpc := range d.VPCs {
		if vpc != nil {
			vpc.index()
		}
	}
}

func (v *VPC) index() {
	v.above = map[string]bool{"svc." + ClusterDomain: true}
	slices.SortFunc(v.Subnets, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	v.byAddress = v.namesIn(v.Hosts, v.Zone)
	for name, ports := range v.Ports {
		slices.SortFunc(ports, func(a, b Port) int { return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(a.Port, b.Port)) })
		v.Ports[name] = slices.Compact(ports)
		v.noteAbove(name, ClusterDomain)
	}
	for name := range v.Aliases {
		v.noteAbove(name, ClusterDomain)
	}
	for address, names := range v.namesIn(v.Services, ClusterDomain) {
		if _, ok := v.byAddress[address]; !ok { // a host's own name goes before that of a headless Service
			v.byAddress[address] = names
		}
	}
}

// namesIn are the names of addresses in a table of a zone. It sorts the addresses, and notes the names above.
func (v *VPC) namesIn(table map[string][]netip.Addr, zone string) map[netip.Addr][]string {
	names := map[netip.Addr][]string{}
	for name, addresses := range table {
		slices.SortFunc(addresses, netip.Addr.Compare)
		table[name] = slices.Compact(addresses)
		for _, a := range table[name] {
			names[a] = append(names[a], name)
		}
		v.noteAbove(name, zone)
	}
	for _, list := range names {
		slices.Sort(list)
	}
	return names
}

// noteAbove notes the names that a name of a zone is below.
func (v *VPC) noteAbove(name, zone string) {
	for above := parent(name); above != zone && above != "."; above = parent(above) {
		v.above[above] = true
	}
}

// parent is a name without its first label; the root for a single one.
func parent(name string) string {
	_, rest, _ := strings.Cut(name, ".")
	if rest == "" {
		return "."
	}
	return rest
}
