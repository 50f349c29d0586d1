package inspect

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// Objects are what the API says of the network. The zero value knows nothing: numbers then stand for names.
type Objects struct {
	nodes      []corev1.Node
	vpcs       []netv1.VPC
	subnets    []netv1.Subnet
	interfaces []netv1.NetworkInterface
	groups     []netv1.SecurityGroup
	// nameOf is how people know a VPC, a Subnet or a SecurityGroup.
	nameOf func(client.Object) string

	byAddress map[place]*netv1.NetworkInterface
}

// place is an address in a Subnet.
type place struct {
	vni     uint32
	address netip.Addr
}

// Read reads the objects. nameOf says how people know a VPC, a Subnet or a SecurityGroup.
func Read(ctx context.Context, api client.Reader, nameOf func(client.Object) string) (*Objects, error) {
	var nodes corev1.NodeList
	var vpcs netv1.VPCList
	var subnets netv1.SubnetList
	var interfaces netv1.NetworkInterfaceList
	var groups netv1.SecurityGroupList
	for _, list := range []client.ObjectList{&nodes, &vpcs, &subnets, &interfaces, &groups} {
		if err := api.List(ctx, list); err != nil {
			return nil, err
		}
	}
	o := &Objects{nodes: nodes.Items, vpcs: vpcs.Items, subnets: subnets.Items, interfaces: interfaces.Items, groups: groups.Items, nameOf: nameOf}
	o.byAddress = map[place]*netv1.NetworkInterface{}
	for i := range o.interfaces {
		nic := &o.interfaces[i]
		if address, err := netip.ParseAddr(nic.Status.Address); err == nil {
			o.byAddress[place{nic.Status.VNI, address}] = nic
		}
		if address, err := netip.ParseAddr(nic.Status.InfrastructureAddress); err == nil {
			o.byAddress[place{netv1.DefaultVNI, address}] = nic
		}
	}
	return o, nil
}

// at is the interface that has an address of a Subnet, or (in the default one) an infrastructure address; nil if none.
func (o *Objects) at(vni uint32, address netip.Addr) *netv1.NetworkInterface {
	return o.byAddress[place{vni, address}]
}

// vpcName is how people know a VPC.
func (o *Objects) vpcName(id uint32) string {
	for i := range o.vpcs {
		if o.vpcs[i].Status.ID == id {
			return o.nameOf(&o.vpcs[i])
		}
	}
	if id == netv1.DefaultVPCID {
		return netv1.DefaultVPC
	}
	return fmt.Sprintf("#%d", id)
}

// subnetName is how people know a Subnet.
func (o *Objects) subnetName(vni uint32) string {
	for i := range o.subnets {
		if o.subnets[i].Status.VNI == vni {
			return o.nameOf(&o.subnets[i])
		}
	}
	if vni == netv1.DefaultVNI {
		return netv1.DefaultSubnet
	}
	return fmt.Sprintf("#%d", vni)
}

// vpcOfSubnet is how people know the VPC that a Subnet is in.
func (o *Objects) vpcOfSubnet(vni uint32) string {
	for i := range o.subnets {
		if o.subnets[i].Status.VNI == vni {
			return o.vpcName(o.subnets[i].Status.VPCID)
		}
	}
	return "#?"
}

// groupName is how people know a SecurityGroup.
func (o *Objects) groupName(name string) string {
	for i := range o.groups {
		if o.groups[i].Name == name {
			return o.nameOf(&o.groups[i])
		}
	}
	return name + " (which does not exist)"
}

// nodeName is the node that has an address on the underlay, or the address.
func (o *Objects) nodeName(address netip.Addr) string {
	for i := range o.nodes {
		for _, a := range o.nodes[i].Status.Addresses {
			if a.Type == corev1.NodeInternalIP && a.Address == address.String() {
				return o.nodes[i].Name
			}
		}
	}
	return address.String()
}

// VPCNames are the names of all VPCs, as people know them.
func (o *Objects) VPCNames() []string {
	var names []string
	for i := range o.vpcs {
		names = append(names, o.nameOf(&o.vpcs[i]))
	}
	slices.Sort(names)
	return names
}

// SubnetNames are the names of all Subnets, as people know them.
func (o *Objects) SubnetNames() []string {
	var names []string
	for i := range o.subnets {
		names = append(names, o.nameOf(&o.subnets[i]))
	}
	slices.Sort(names)
	return names
}

// PodNames are NAMESPACE/POD of every Pod that has an interface.
func (o *Objects) PodNames() []string {
	var names []string
	for i := range o.interfaces {
		if pod := podOf(&o.interfaces[i]); pod != "" {
			names = append(names, pod)
		}
	}
	slices.Sort(names)
	return names
}

// vpcID finds a VPC by the name that people know, its object's name or its number (#1001).
func (o *Objects) vpcID(name string) (uint32, error) {
	for i := range o.vpcs {
		v := &o.vpcs[i]
		if name == o.nameOf(v) || name == v.Name {
			return v.Status.ID, nil
		}
	}
	if digits, ok := strings.CutPrefix(name, "#"); ok {
		if id, err := strconv.ParseUint(digits, 10, 32); err == nil {
			return uint32(id), nil
		}
	}
	return 0, fmt.Errorf("there is no VPC %q; there are: %s", name, someOf(o.VPCNames()))
}

// subnetVNI finds a Subnet like vpcID a VPC.
func (o *Objects) subnetVNI(name string) (uint32, bool) {
	for i := range o.subnets {
		s := &o.subnets[i]
		if name == o.nameOf(s) || name == s.Name {
			return s.Status.VNI, true
		}
	}
	return 0, false
}

// someOf lists names for an error.
func someOf(names []string) string {
	const most = 20
	if len(names) == 0 {
		return "none"
	}
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// podOf is NAMESPACE/POD of an interface, empty when it has none.
func podOf(nic *netv1.NetworkInterface) string {
	if nic == nil || nic.Spec.Pod == nil {
		return ""
	}
	return nic.Spec.Pod.Namespace + "/" + nic.Spec.Pod.Name
}

// byNames orders rows by the names in them.
func byNames[T any](rows []T, names func(T) []string) {
	slices.SortStableFunc(rows, func(a, b T) int { return slices.Compare(names(a), names(b)) })
}
