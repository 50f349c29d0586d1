package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/daemon/host"
	"github.com/mnicloud/mnicloud/network/datapath"
	"github.com/mnicloud/mnicloud/network/routing"
)

// Options configure a daemon.
type Options struct {
	// Kubeconfig is the path of the API server's client configuration.
	Kubeconfig string
	// NodeName is the node's name in Kubernetes.
	NodeName string
	// NodeAddress is the node's address on the underlay until its Node object says another.
	NodeAddress netip.Addr
	// Uplink is the name of the link to the underlay.
	Uplink string
	// VXLANPort is the UDP port of the tunnels, the same on all members.
	VXLANPort uint16
	// ServiceCIDR is the range of Services' addresses, InfrastructureCIDR that of Pods'.
	ServiceCIDR, InfrastructureCIDR netip.Prefix
	// ReservedCIDRs are ranges that no route in a VPC leads to, beside the well-known ones and these two. The underlay belongs here.
	ReservedCIDRs []netip.Prefix
	// PinPath is a folder on a BPF file system for this node's maps and links.
	PinPath string
	// Socket is where the plugin finds the daemon, QueueDir where it leaves what it could not say.
	Socket, QueueDir string
	// StateDir keeps the records of attachments. Default: "attachments" beside QueueDir.
	StateDir string
	// CNIConf is the network configuration list to write once Pods can be attached; none when empty.
	CNIConf string
	// ExtraHosts are members that are not nodes.
	ExtraHosts []netip.Addr
	// HostOnly is for such a member: no Pods, no plugin, and Services are reached through the datapath.
	HostOnly bool
	// LinkPrefix begins the names of the host's links.
	LinkPrefix string
	// MetricsAddress is where /metrics, /healthz and /readyz are served; nowhere when empty.
	MetricsAddress string
	// AddDeadline bounds an ADD's wait for its interface. The default is shorter than what the plugin and kubelet wait, so that
	// the reason reaches the Pod's events.
	AddDeadline time.Duration
	// ClaimAfter is how long the network controller has to give a Pod its interface before the node claims it itself.
	ClaimAfter time.Duration
	// ForceClsact attaches with clsact filters even where the kernel has tcx.
	ForceClsact bool
	// Flows is how many entries the tables of flows have, those of NATGateways' flows twice as many, and on a host with Pods enough for all ports of
	// an external address; see datapath.Config. They take about 700 bytes of the kernel's memory each from the start; default 131072, about 90 MiB.
	Flows uint32
}

// resolver is where the resolver of VPCs listens.
var resolver = netip.MustParseAddr(netv1.ResolverAddress)

// addDeadline is the default of Options.AddDeadline.
const addDeadline = 20 * time.Second

// Bounds and default of Options.Flows.
const (
	defaultFlows = 131072
	minFlows     = 1024
	maxFlows     = 1 << 24
)

// leastNATEntries are enough for a flow on each of the 64,512 ports of an external address, of four entries each: the ports may all be one node's.
const leastNATEntries = 1 << 18

// natEntries is the size of the table of NATGateways' flows.
func (o *Options) natEntries() uint32 {
	if o.HostOnly { // nothing leaves from there
		return 2 * o.Flows
	}
	return max(2*o.Flows, leastNATEntries)
}

// claimAfter is the default of Options.ClaimAfter: a controller that works takes a tenth of it.
const claimAfter = 2 * time.Second

// maxLinkPrefix leaves room for the roles' names, within IFNAMSIZ.
const maxLinkPrefix = 13

// complete fills defaults in and says what is missing or wrong.
func (o *Options) complete() error {
	if o.StateDir == "" && o.QueueDir != "" {
		o.StateDir = filepath.Join(filepath.Dir(filepath.Clean(o.QueueDir)), "attachments")
	}
	if o.AddDeadline == 0 {
		o.AddDeadline = addDeadline
	}
	if o.ClaimAfter == 0 {
		o.ClaimAfter = claimAfter
	}
	if o.LinkPrefix == "" {
		o.LinkPrefix = "mni"
	}
	if o.Flows == 0 {
		o.Flows = defaultFlows
	}
	var errs []error
	require := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	require(o.Kubeconfig != "", "--kubeconfig is missing")
	require(o.Uplink != "", "--uplink is missing: name the link to the underlay")
	require(o.PinPath != "", "--pin-path is missing: name a folder on a BPF file system")
	require(o.NodeAddress.Is4(), "--node-address must be the IPv4 address of this host on the underlay")
	require(o.VXLANPort != 0, "--vxlan-port must not be 0")
	require(o.ServiceCIDR.IsValid() && o.ServiceCIDR.Addr().Is4(), "--service-cidr must be an IPv4 range")
	require(o.InfrastructureCIDR.IsValid() && o.InfrastructureCIDR.Addr().Is4(), "--infrastructure-cidr must be an IPv4 range")
	for _, r := range o.ReservedCIDRs {
		require(r.IsValid() && r.Addr().Is4() && r == r.Masked(), "--reserved-cidr %s must be a canonical IPv4 range", r)
	}
	require(o.Flows >= minFlows && o.Flows <= maxFlows, "--flows must be between %d and %d", minFlows, maxFlows)
	require(len(o.LinkPrefix) <= maxLinkPrefix, "--link-prefix %q is longer than %d characters", o.LinkPrefix, maxLinkPrefix)
	if !o.HostOnly {
		require(o.NodeName != "", "--node-name is missing (or say --host-only)")
		require(o.Socket != "", "--socket is missing (or say --host-only)")
		require(o.QueueDir != "", "--queue-dir is missing (or say --host-only)")
	}
	return errors.Join(errs...)
}

// host is what the namespace should have when the node has this address.
func (o *Options) host(address netip.Addr) host.Config {
	c := host.Config{
		LinkPrefix: o.LinkPrefix, Uplink: o.Uplink, Address: address,
		Infrastructure: o.InfrastructureCIDR, VXLANPort: o.VXLANPort, Forward: !o.HostOnly,
	}
	if o.HostOnly {
		c.Services, c.Hairpin = o.ServiceCIDR, o.hairpin()
	} else {
		c.Resolver = resolver
	}
	return c
}

// hairpin is the address that stands for a client which is its own Service's backend. It means the same on every node; a host
// that is in several clouds routes it, so there it is made of the one number that differs between them, the VXLAN port.
func (o *Options) hairpin() netip.Addr {
	if !o.HostOnly {
		return datapath.DefaultHairpinAddress
	}
	return netip.AddrFrom4([4]byte{169, 254, byte(o.VXLANPort >> 8), byte(o.VXLANPort)})
}

// reserved are the ranges that the cloud keeps for itself.
func (o *Options) reserved() []netip.Prefix {
	return append(append(routing.Reserved(), o.InfrastructureCIDR, o.ServiceCIDR), o.ReservedCIDRs...)
}

// masquerade is the node's nftables table.
func (o *Options) masquerade() host.Masquerade {
	return host.Masquerade{Table: Table(o.LinkPrefix), Uplink: o.Uplink, Infrastructure: o.InfrastructureCIDR}
}

// ports is the nftables table of host ports of a node of this address.
func (o *Options) ports(address netip.Addr) host.Ports {
	return host.Ports{
		Table: PortsTable(o.LinkPrefix), Near: o.LinkPrefix + "h0", Address: address, Infrastructure: o.InfrastructureCIDR, Resolver: resolver,
	}
}

// Table is the name of the nftables table of the daemon with this link prefix.
func Table(linkPrefix string) string { return linkPrefix + "-netd" }

// PortsTable is the name of the nftables table of host ports.
func PortsTable(linkPrefix string) string { return Table(linkPrefix) + "-ports" }
