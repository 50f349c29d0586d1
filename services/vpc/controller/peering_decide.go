package controller

import (
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mnicloud/mnicloud/kit/conditions"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// Reasons of a VpcPeering's Ready condition.
const (
	reasonPeerSilent   = "WaitingForPeer"
	reasonPeerItself   = "PeeringWithItself"
	reasonPeerReplaced = "PeerTenantReplaced"
	reasonPeeredTwice  = "AlreadyPeered"
)

// peeringSides is what decides about a VpcPeering: what its tenant has, and what the other side, once that has agreed.
type peeringSides struct {
	// own is the tenant's Vpc; nil when it does not exist.
	own *vpcv1.Vpc
	// itself tells that the peer is the Vpc itself.
	itself bool
	// agreed is the other side's Vpc, when that side names this one in a VpcPeering of its own and its Vpc is usable; nil otherwise,
	// whatever the reason.
	agreed *vpcv1.Vpc
	// tenant is the identity of the tenant that has agreed; "" for the same tenant.
	tenant types.UID
	// rivals are the other VpcPeerings of the tenant's Vpc that have been agreed to.
	rivals []rivalPeering
}

// rivalPeering is another VpcPeering of the same Vpc, with the other Vpc's range.
type rivalPeering struct {
	*vpcv1.VpcPeering
	cidr string
}

// checkPeering decides whether the two Vpcs may be joined. As long as the other side has not agreed there is one answer, so that nobody
// learns what another tenant has.
func checkPeering(peering *vpcv1.VpcPeering, sides peeringSides) refusal {
	if no := checkVPCOf("VpcPeering", peering.Spec.VPC, sides.own); no != nil && !usable(peering, sides.own) {
		return no
	}
	switch {
	case sides.itself:
		return refuse(conditions.Failed(reasonPeerItself, "spec.peer names the Vpc itself; make a new VpcPeering that names another"))
	case sides.agreed == nil:
		return refuse(conditions.Waiting(reasonPeerSilent, fmt.Sprintf(
			"waits until %s agrees with a VpcPeering of its own, of its Vpc %q with this Vpc %q; nothing passes before", whoIs(peering), peering.Spec.Peer.VPC, peering.Spec.VPC)))
	case peering.Status.AgreedWith != "" && peering.Status.AgreedWith != sides.tenant:
		return refuse(conditions.Failed(reasonPeerReplaced, fmt.Sprintf(
			"spec.peer.tenant: tenant %s is another one than that with which this was agreed, which is gone; make a new VpcPeering to agree with this one", peering.Spec.Peer.Tenant)))
	}
	if overlap(sides.own.Spec.CIDR, sides.agreed.Spec.CIDR) {
		return refuse(conditions.Failed(reasonCIDROverlap, fmt.Sprintf(
			"spec.peer: the range %s of Vpc %q overlaps %s, that of Vpc %q; peered Vpcs need ranges that do not: make one of the two anew with another",
			sides.agreed.Spec.CIDR, peering.Spec.Peer.VPC, sides.own.Spec.CIDR, peering.Spec.VPC)))
	}
	rivals := slices.SortedFunc(slices.Values(sides.rivals), func(a, b rivalPeering) int {
		if peeringPrecedes(a.VpcPeering, b.VpcPeering) {
			return -1
		}
		return 1
	})
	for _, rival := range rivals {
		switch {
		case !peeringPrecedes(rival.VpcPeering, peering) || !overlap(rival.cidr, sides.agreed.Spec.CIDR):
		case overlap(rival.cidr, sides.own.Spec.CIDR): // it joins nothing itself
		case rival.Spec.Peer == peering.Spec.Peer:
			return refuse(conditions.Failed(reasonPeeredTwice, fmt.Sprintf("spec.peer: VpcPeering %q joins the same Vpcs; delete one of the two", rival.Name)))
		default:
			return refuse(conditions.Failed(reasonCIDROverlap, fmt.Sprintf(
				"spec.peer: the range %s of Vpc %q overlaps %s, which VpcPeering %q leads to; delete that one, or peer with a Vpc of another range",
				sides.agreed.Spec.CIDR, peering.Spec.Peer.VPC, rival.cidr, rival.Name)))
		}
	}
	return nil
}

// whoIs names the other side for people.
func whoIs(peering *vpcv1.VpcPeering) string {
	if peering.Spec.Peer.Tenant == "" {
		return "this tenant"
	}
	return "tenant " + peering.Spec.Peer.Tenant
}

// overlap tells whether two ranges have addresses in common.
func overlap(a, b string) bool {
	x, errX := netip.ParsePrefix(a)
	y, errY := netip.ParsePrefix(b)
	return errX == nil && errY == nil && x.Overlaps(y)
}

// peeringPrecedes tells whether a has the better right to a range than b: who joins already, then who is older.
func peeringPrecedes(a, b *vpcv1.VpcPeering) bool {
	switch joinsA, joinsB := a.Status.PeerCIDR != "", b.Status.PeerCIDR != ""; {
	case joinsA != joinsB:
		return joinsA
	case !a.CreationTimestamp.Equal(&b.CreationTimestamp):
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.UID < b.UID
}

// namesBack tells whether a VpcPeering of the other side names this one's Vpc. The sides' tenants are their names; "" has none.
func namesBack(peering, other *vpcv1.VpcPeering, tenant string) bool {
	if other.UID == peering.UID || other.DeletionTimestamp != nil || other.Spec.VPC != peering.Spec.Peer.VPC || other.Spec.Peer.VPC != peering.Spec.VPC {
		return false
	}
	named := other.Spec.Peer.Tenant
	if other.Namespace == peering.Namespace {
		return named == "" || named == tenant
	}
	return named != "" && named == tenant
}

// usable tells whether a VpcPeering can join a Vpc. What is joined stays so while the Vpc is there, however its conditions are.
func usable(peering *vpcv1.VpcPeering, vpc *vpcv1.Vpc) bool {
	return vpc != nil && vpc.DeletionTimestamp == nil && (peering.Status.PeerCIDR != "" || conditions.IsReady(vpc.Status.Conditions, vpc.Generation))
}
