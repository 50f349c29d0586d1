package controller

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/claim"
	"github.com/mnicloud/mnicloud/network/ipam"
)

// SetupWithManager adds the network's reconcilers to the manager. The manager's scheme must know net.mnicloud.jp/v1alpha1
// and the core kinds, its cache should be made with CacheByObject, and its REST client must not be throttled to
// controller-runtime's default of 20 requests a second (set rest.Config.QPS to -1: the API server has priority and
// fairness).
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, cfg Config) error {
	return setup(ctx, mgr, cfg, client.WithFieldOwner(mgr.GetClient(), netv1.FieldOwner))
}

// setup adds the reconcilers with the client they write with.
func setup(ctx context.Context, mgr ctrl.Manager, cfg Config, c client.Client) error {
	cfg, err := cfg.complete()
	if err != nil {
		return err
	}
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	live := mgr.GetAPIReader()
	allocator := &ipam.Allocator{Client: c, Live: live, Quarantine: cfg.Quarantine}
	recorder := mgr.GetEventRecorder("net.mnicloud.jp")
	for _, r := range []interface{ setup(ctrl.Manager) error }{
		&bootstrapReconciler{client: c, config: cfg},
		&vpcReconciler{client: c, live: live, ids: &sequence{client: c, live: live, annotation: netv1.AnnotationLastVPCID, used: vpcIDs}},
		&subnetReconciler{
			client: c, live: live, config: cfg, ipam: allocator,
			vnis: &sequence{client: c, live: live, annotation: netv1.AnnotationLastVNI, used: subnetVNIs},
		},
		&podReconciler{client: c, live: live, config: cfg, events: recorder},
		&interfaceReconciler{client: c, live: live, config: cfg, ipam: allocator, addresses: &claim.Addresses{Client: c, IPAM: allocator}, events: recorder},
		&securityGroupReconciler{client: c, config: cfg},
		&routeTableReconciler{client: c, config: cfg},
		&vpcPeeringReconciler{client: c, config: cfg},
		&leaseReconciler{client: c, live: live, ipam: allocator, quarantines: newQuarantines(time.Now)},
		&serviceReconciler{client: c},
		&addressPoolReconciler{client: c, live: live, config: cfg},
		&externalIPReconciler{client: c, live: live, config: cfg, ipam: allocator},
		&floatingIPReconciler{client: c, live: live},
		&natGatewayReconciler{client: c, live: live},
		&portBlockReconciler{client: c, live: live, config: cfg, quarantines: newQuarantines(time.Now)},
		&bgpPeerReconciler{client: c},
		&bgpAdvertisementReconciler{client: c},
	} {
		if err := r.setup(mgr); err != nil {
			return err
		}
	}
	return addMetrics(mgr)
}
