package netbackend

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// EnsurePeering implements backend.Backend. Nothing of the network's messages is told: they name what is another tenant's.
func (b *Backend) EnsurePeering(ctx context.Context, peering *vpcv1.VpcPeering, own, peer *vpcv1.Vpc) (conditions.Result, error) {
	live := &netv1.VPCPeering{}
	desired := &netv1.VPCPeering{ObjectMeta: metadata(peering), Spec: netv1.VPCPeeringSpec{VPC: string(own.UID), Peer: string(peer.UID)}}
	result, err := b.project(ctx, "VpcPeering", peering, live, desired, func() bool { return live.Spec == desired.Spec })
	if err != nil || result != nil {
		return orNone(result), err
	}
	ready := readyOf(live.Status.Conditions)
	switch {
	case live.ResourceVersion == "" || ready == nil || ready.ObservedGeneration != live.Generation:
		return conditions.Progressing("Provisioning", "the network is making the VpcPeering"), nil
	case meta.IsStatusConditionTrue(live.Status.Conditions, status.ConditionReady):
		return conditions.Ready("Ready", fmt.Sprintf("workloads of Vpc %q and those in %s, Vpc %q of the other side, reach each other as far as SecurityGroups let them",
			own.Name, peer.Spec.CIDR, peer.Name)), nil
	case ready.Reason == netv1.ReasonPeerSilent:
		return conditions.Waiting("PeerNotReady", "both sides agree, and the other side's VpcPeering is not ready yet: it says there why; nothing passes before"), nil
	case ready.Reason == netv1.ReasonPeerOverlap:
		return conditions.Failed(ready.Reason, "Subnets of the two Vpcs overlap; those are not in reach of each other"), nil
	}
	return conditions.Progressing("Provisioning", "the network is making the VpcPeering"), nil
}
