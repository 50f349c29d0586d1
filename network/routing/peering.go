package routing

import (
	"slices"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// Peers are the VPCs, by name and sorted, that each VPC is peered with: those with which each names the other. One that is being deleted
// counts no more.
func Peers(peerings []netv1.VPCPeering) map[string][]string {
	names := map[[2]string]bool{}
	for i := range peerings {
		if p := &peerings[i]; p.DeletionTimestamp.IsZero() {
			names[[2]string{p.Spec.VPC, p.Spec.Peer}] = true
		}
	}
	peers := map[string][]string{}
	for pair := range names {
		vpc, peer := pair[0], pair[1]
		if vpc != peer && vpc != netv1.DefaultVPC && peer != netv1.DefaultVPC && names[[2]string{peer, vpc}] {
			peers[vpc] = append(peers[vpc], peer)
		}
	}
	for _, list := range peers {
		slices.Sort(list)
	}
	return peers
}
