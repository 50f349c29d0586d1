package datapath

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
)

// DefaultVXLANPort is the UDP port IANA gave to VXLAN (RFC 7348).
const DefaultVXLANPort = 4789

// DefaultOutsideVNI is no Subnet's.
const DefaultOutsideVNI = 2

// DefaultHairpinAddress stands for the client when a Service sends a Pod's traffic back to the same Pod: a Pod would not
// take a packet from its own address. It is link-local and means the same on every node.
var DefaultHairpinAddress = netip.AddrFrom4([4]byte{169, 254, 0, 1})

// DefaultAliasCIDR is the range of the addresses that stand for those who open connections to infrastructure addresses: an
// interface in a tenant's VPC sees them instead of addresses that have no meaning there. They are link-local; each is the
// range with the lowest bits of what it stands for.
var DefaultAliasCIDR = netip.PrefixFrom(netip.AddrFrom4([4]byte{169, 254, 64, 0}), 18)

// DefaultResolverAddress is where the resolver of every VPC listens, on each node; link-local too, and the same everywhere.
var DefaultResolverAddress = netip.AddrFrom4([4]byte{169, 254, 0, 53})

// Config is what the programs need to know of the node; it is compiled into them as constants when they are loaded.
type Config struct {
	// PinPath is a folder on a bpffs for this node's maps and links. It is made if it does not exist.
	PinPath string
	// DefaultVNI and DefaultVPCID identify the Subnet and the VPC of ordinary Pods and of hosts.
	DefaultVNI, DefaultVPCID uint32
	// InfrastructureCIDR is the range of ordinary Pods' addresses and of tenants' infrastructure addresses.
	InfrastructureCIDR netip.Prefix
	// ServiceCIDR is the range of Services' cluster addresses.
	ServiceCIDR netip.Prefix
	// HairpinAddress defaults to DefaultHairpinAddress.
	HairpinAddress netip.Addr
	// ResolverAddress defaults to DefaultResolverAddress. On nodes with Pods it must be an address of the host.
	ResolverAddress netip.Addr
	// AliasCIDR defaults to DefaultAliasCIDR.
	AliasCIDR netip.Prefix
	// MTU of Pods' interfaces in bytes: the underlay's less 50 (VXLAN over IPv4).
	MTU int
	// VXLANPort is the UDP port of the vxlan device; default DefaultVXLANPort.
	VXLANPort uint16
	// HostIfindex and HostMAC are of the host's veth (h0), on which the host's stack receives and sends.
	HostIfindex int
	HostMAC     MAC
	// HostPeerIfindex is the far end of the host's veth (h1): host_egress is at its ingress.
	HostPeerIfindex int
	// VXLANIfindex is of the flow-based ("external") vxlan device: vxlan_ingress is at its ingress.
	VXLANIfindex int
	// UplinkIfindex is of the link to the underlay: uplink_ingress is at its ingress, and what leaves the cloud leaves there.
	UplinkIfindex int
	// NodeAddress is this node's on the underlay.
	NodeAddress netip.Addr
	// OutsideVNI is the VNI of what members send to each other that is for external addresses; default DefaultOutsideVNI.
	OutsideVNI uint32
	// ForceClsact attaches with clsact filters even where tcx is available.
	ForceClsact bool
	// ConntrackEntries is the size of the table of flows through Services (two entries a flow); default 131072.
	ConntrackEntries uint32
	// FlowEntries is the size of the table of flows that policies let through, as each interface sees them; default 131072. The table of who
	// began connections of interfaces without policies has half of it.
	FlowEntries uint32
	// NATEntries is the size of the table of flows through NATGateways (two entries a flow, and two for each port that interfaces
	// send from); default 262144.
	NATEntries uint32
}

func (c *Config) setDefaults() {
	if c.VXLANPort == 0 {
		c.VXLANPort = DefaultVXLANPort
	}
	if c.OutsideVNI == 0 {
		c.OutsideVNI = DefaultOutsideVNI
	}
	if !c.HairpinAddress.IsValid() {
		c.HairpinAddress = DefaultHairpinAddress
	}
	if !c.ResolverAddress.IsValid() {
		c.ResolverAddress = DefaultResolverAddress
	}
	if !c.AliasCIDR.IsValid() {
		c.AliasCIDR = DefaultAliasCIDR
	}
}

func (c *Config) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.PinPath != "", "PinPath is empty: give a folder on a bpffs")
	check(c.DefaultVNI != 0 && c.DefaultVNI < 1<<24, "DefaultVNI %d is not a VNI (1 to 16777215)", c.DefaultVNI)
	check(c.DefaultVPCID != 0, "DefaultVPCID is 0: VPC identities start at 1")
	for name, prefix := range map[string]netip.Prefix{
		"InfrastructureCIDR": c.InfrastructureCIDR, "ServiceCIDR": c.ServiceCIDR, "AliasCIDR": c.AliasCIDR,
	} {
		check(prefix.IsValid() && prefix.Addr().Is4() && prefix == prefix.Masked(),
			"%s %v is not an IPv4 range in canonical form such as 198.18.0.0/17", name, prefix)
	}
	check(!c.InfrastructureCIDR.Overlaps(c.ServiceCIDR), "InfrastructureCIDR %v and ServiceCIDR %v overlap", c.InfrastructureCIDR, c.ServiceCIDR)
	check(c.HairpinAddress.Is4(), "HairpinAddress %v is not an IPv4 address", c.HairpinAddress)
	check(c.ResolverAddress.Is4() && !c.AliasCIDR.Contains(c.ResolverAddress), "ResolverAddress %v is not an IPv4 address outside AliasCIDR", c.ResolverAddress)
	check(c.MTU >= 576 && c.MTU <= 65535, "MTU %d is not between 576 and 65535", c.MTU)
	check(c.HostIfindex > 0, "HostIfindex is %d: make the host's veth first", c.HostIfindex)
	check(c.HostPeerIfindex > 0, "HostPeerIfindex is %d: make the host's veth first", c.HostPeerIfindex)
	check(c.HostMAC != MAC{}, "HostMAC is empty: give the MAC address of the host's veth")
	check(c.VXLANIfindex > 0, "VXLANIfindex is %d: make the vxlan device first", c.VXLANIfindex)
	check(c.UplinkIfindex > 0, "UplinkIfindex is %d: give the link to the underlay", c.UplinkIfindex)
	check(c.NodeAddress.Is4(), "NodeAddress %v is not an IPv4 address", c.NodeAddress)
	check(c.OutsideVNI < 1<<24 && c.OutsideVNI != c.DefaultVNI, "OutsideVNI %d is not a VNI (1 to 16777215) other than DefaultVNI", c.OutsideVNI)
	return errors.Join(errs...)
}

// apply writes the configuration into the programs' constants.
func (c *Config) apply(spec *ebpf.CollectionSpec) error {
	constants := map[string]any{
		bpfVarDefaultVni:           c.DefaultVNI,
		bpfVarDefaultVpcId:         c.DefaultVPCID,
		bpfVarInfrastructurePrefix: c.InfrastructureCIDR.Addr().As4(),
		bpfVarInfrastructureMask:   mask4(c.InfrastructureCIDR.Bits()),
		bpfVarServicePrefix:        c.ServiceCIDR.Addr().As4(),
		bpfVarServiceMask:          mask4(c.ServiceCIDR.Bits()),
		bpfVarHairpinAddress:       c.HairpinAddress.As4(),
		bpfVarResolverAddress:      c.ResolverAddress.As4(),
		bpfVarAliasPrefix:          c.AliasCIDR.Addr().As4(),
		bpfVarAliasMask:            mask4(c.AliasCIDR.Bits()),
		bpfVarMtu:                  uint32(c.MTU),
		bpfVarVxlanPort:            networkPort(c.VXLANPort),
		bpfVarHostIfindex:          uint32(c.HostIfindex),
		bpfVarVxlanIfindex:         uint32(c.VXLANIfindex),
		bpfVarHostMac:              c.HostMAC,
		bpfVarOutsideVni:           c.OutsideVNI,
		bpfVarUplinkIfindex:        uint32(c.UplinkIfindex),
		bpfVarNodeAddress:          c.NodeAddress.As4(),
	}
	for name, value := range constants {
		variable, ok := spec.Variables[name]
		if !ok {
			return fmt.Errorf("constant %s is not in the object file", name)
		}
		if err := variable.Set(value); err != nil {
			return fmt.Errorf("constant %s: %w", name, err)
		}
	}
	if c.ConntrackEntries != 0 {
		spec.Maps[bpfMapConntracks].MaxEntries = c.ConntrackEntries
	}
	if c.FlowEntries != 0 {
		spec.Maps[bpfMapFlows].MaxEntries, spec.Maps[bpfMapOpenings].MaxEntries = c.FlowEntries, (c.FlowEntries+1)/2
	}
	if c.NATEntries != 0 {
		spec.Maps[bpfMapNatFlows].MaxEntries = c.NATEntries
	}
	return nil
}

// mask4 is the network mask of an IPv4 prefix length.
func mask4(bits int) [4]byte {
	prefix, _ := netip.AddrFrom4([4]byte{255, 255, 255, 255}).Prefix(bits)
	return prefix.Addr().As4()
}
