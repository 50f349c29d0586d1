package controller

import (
	"net/netip"
	"strings"

	"github.com/mnicloud/mnicloud/kit/conditions"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/claim"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/mnicloud/mnicloud/kit/status"
)

// A Subnet becomes real in two writes, so that two controllers at once (a leader that does not know yet that it is none)
// never admit two Subnets of one VPC that overlap: first it claims (its VNI in the status), then, after reading all Subnets
// of the VPC anew, it confirms (gateway address and MAC). Of two that claim at once at least one sees the other.

// standing is how far a Subnet has come.
type standing int

const (
	newcomer  standing = iota // no VNI
	claimed                   // a VNI, but not yet the rest
	confirmed                 // in use
)

func standingOf(s *netv1.Subnet) standing {
	switch {
	case s.Status.GatewayMAC != "":
		return confirmed
	case s.Status.VNI != 0:
		return claimed
	}
	return newcomer
}

// verdict is what a Subnet may do next.
type verdict int

const (
	admitted  verdict = iota // claim or confirm
	refused                  // the rival has the addresses
	undecided                // the rival is about to confirm or to give way: look again
)

// compete decides whether a Subnet may go on, among all Subnets of its VPC. A confirmed Subnet stays; otherwise the earlier
// one wins (creation time, then UID). The rival is the Subnet that stands in the way.
func compete(self *netv1.Subnet, all []netv1.Subnet) (verdict, *netv1.Subnet) {
	if standingOf(self) == confirmed {
		return admitted, nil
	}
	decision, rival := admitted, (*netv1.Subnet)(nil)
	for i := range all {
		other := &all[i]
		if other.UID == self.UID || other.Spec.VPC != self.Spec.VPC || !meets(self, other) {
			continue
		}
		switch standingOf(other) {
		case confirmed:
			return refused, other
		case claimed:
			if earlier(other, self) {
				return refused, other
			}
			decision, rival = undecided, other
		case newcomer:
			if earlier(other, self) && other.DeletionTimestamp.IsZero() && !meta.IsStatusConditionTrue(other.Status.Conditions, status.ConditionStalled) {
				return refused, other
			}
		}
	}
	return decision, rival
}

// meets tells whether two Subnets cannot be together in one VPC.
func meets(a, b *netv1.Subnet) bool {
	if a.Status.VNI != 0 && a.Status.VNI == b.Status.VNI {
		return true
	}
	x, errX := netip.ParsePrefix(a.Spec.CIDR)
	y, errY := netip.ParsePrefix(b.Spec.CIDR)
	return errX == nil && errY == nil && x.Overlaps(y)
}

// earlier tells whether a was made before b; those of one second are ordered by UID.
func earlier(a, b *netv1.Subnet) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return strings.Compare(string(a.UID), string(b.UID)) < 0
}

// checkSubnet decides what can be decided from the Subnet and the configuration alone. A Subnet in use is not touched by a
// range that was reserved later.
func checkSubnet(s *netv1.Subnet, config Config) (o conditions.Result, ok bool) {
	cidr, valid := claim.ParseCIDR(s.Spec.CIDR)
	if !valid {
		return conditions.Failed(reasonCIDRInvalid, "spec.cidr: "+s.Spec.CIDR+" is not a canonical IPv4 range between /8 and /30; make a new Subnet"), false
	}
	if s.Name == netv1.DefaultSubnet {
		if s.Spec.VPC != netv1.DefaultVPC || cidr != config.InfrastructureCIDR {
			return conditions.Failed(reasonMisconfigured, "spec: the default Subnet is "+s.Spec.CIDR+" in VPC "+s.Spec.VPC+", the configuration says "+
				config.InfrastructureCIDR.String()+" in VPC "+netv1.DefaultVPC+"; put the configuration back, or delete the Subnet (it is made anew)"), false
		}
		return conditions.Result{}, true
	}
	if reserved, meets := config.reservedBy(cidr); meets && standingOf(s) != confirmed {
		return conditions.Failed(reasonCIDRReserved, "spec.cidr: "+s.Spec.CIDR+" meets "+reserved.String()+
			", which the cloud keeps for itself; make a new Subnet with another range, such as 10.0.1.0/24"), false
	}
	return conditions.Result{}, true
}

// checkVPC decides whether the Subnet's VPC is ready for it.
func checkVPC(s *netv1.Subnet, vpc *netv1.VPC, missing bool) (o conditions.Result, ok bool) {
	switch {
	case missing:
		return conditions.Waiting(reasonWaitingForVPC, "spec.vpc: VPC "+s.Spec.VPC+" does not exist yet"), false
	case standingOf(s) == confirmed && vpc.Status.ID != 0:
		return conditions.Result{}, true
	case !vpc.DeletionTimestamp.IsZero():
		return conditions.Waiting(reasonWaitingForVPC, "spec.vpc: VPC "+s.Spec.VPC+" is being deleted; delete this Subnet too"), false
	case vpc.Status.ID == 0:
		return conditions.Waiting(reasonWaitingForVPC, "spec.vpc: VPC "+s.Spec.VPC+" has no ID yet"), false
	}
	return conditions.Result{}, true
}

// overlap tells a Subnet which other one has its addresses.
func overlap(s, rival *netv1.Subnet) conditions.Result {
	return conditions.Failed(reasonCIDROverlap, "spec.cidr: "+s.Spec.CIDR+" overlaps with "+rival.Spec.CIDR+" of Subnet "+rival.Name+
		" in VPC "+s.Spec.VPC+"; make a new Subnet with another range, or delete that one")
}
