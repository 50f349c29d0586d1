package instance

import (
	"fmt"
	"net/netip"
)

// MaxSlot is the highest slot: nine instances fit into 198.18.0.0/15 (RFC 2544), which is reserved in every VPC.
const MaxSlot = 8

// MaxNodes is how many nodes an instance may have.
const MaxNodes = 32

// Addresses is the address plan of one instance.
type Addresses struct {
	// Infrastructure is the range of Pods' addresses that Kubernetes sees.
	Infrastructure netip.Prefix
	// Services is the range of Services' cluster addresses.
	Services netip.Prefix
	// Underlay joins the machine and the nodes.
	Underlay netip.Prefix
	// Machine is the machine's own address on the underlay; the control plane listens on it and nowhere else.
	Machine netip.Addr
	// Edge is the edge router's address on the underlay.
	Edge netip.Addr
	// Pool is the range of external addresses unless the owner chooses another: documentation ranges (RFC 5737), which no network
	// of the owner's should have.
	Pool netip.Prefix
	// DNS is the address of the cluster's DNS Service.
	DNS netip.Addr
	// VXLANPort is the UDP port of the overlay.
	VXLANPort int
}

// Addresses computes the instance's plan from its slot alone. A slot that no instance has gives no addresses.
func (i Instance) Addresses() Addresses {
	if i.Slot < 0 || i.Slot > MaxSlot {
		return Addresses{}
	}
	a := Addresses{VXLANPort: 47890 + i.Slot}
	if i.Slot == 0 {
		a.Infrastructure = netip.MustParsePrefix("198.18.0.0/17")
		a.Services = netip.MustParsePrefix("198.19.0.0/18")
		a.Pool = netip.MustParsePrefix("203.0.113.0/24")
	} else {
		third := 128 + 16*(i.Slot-1)
		a.Infrastructure = netip.MustParsePrefix(fmt.Sprintf("198.18.%d.0/20", third))
		a.Services = netip.MustParsePrefix(fmt.Sprintf("198.19.%d.0/20", third))
		a.Pool = netip.MustParsePrefix(fmt.Sprintf("198.51.100.%d/27", 32*(i.Slot-1)))
	}
	a.Underlay = netip.MustParsePrefix(fmt.Sprintf("198.19.%d.0/24", 64+i.Slot))
	a.Machine = nth(a.Underlay, 1)
	a.Edge = nth(a.Underlay, 254)
	a.DNS = nth(a.Services, 10)
	return a
}

// Address is the node's address on the underlay: the Kubernetes Node's InternalIP.
func (n Node) Address() netip.Addr { return nth(n.Instance.Addresses().Underlay, n.Index+1) }

// KubernetesService is the address of the Service that stands for the API server.
func (a Addresses) KubernetesService() netip.Addr { return nth(a.Services, 1) }

// Ranges are all ranges that the plan uses.
func (a Addresses) Ranges() []netip.Prefix {
	return []netip.Prefix{a.Infrastructure, a.Services, a.Underlay}
}

// nth is the address n above the prefix's first.
func nth(p netip.Prefix, n int) netip.Addr {
	a := p.Addr()
	for range n {
		a = a.Next()
	}
	return a
}

// Conflict finds the first of the machine's own prefixes that the plan would overlap. The caller leaves out the
// prefixes of the instance itself.
func (a Addresses) Conflict(machine []netip.Prefix) (ours, theirs netip.Prefix, found bool) {
	return Conflict(a.Ranges(), machine)
}

// Conflict finds the first of the machine's own prefixes that meets one of the ranges. A default route meets none.
func Conflict(ranges, machine []netip.Prefix) (ours, theirs netip.Prefix, found bool) {
	for _, ours := range ranges {
		for _, theirs := range machine {
			if theirs.Bits() > 0 && ours.Overlaps(theirs) {
				return ours, theirs, true
			}
		}
	}
	return netip.Prefix{}, netip.Prefix{}, false
}
