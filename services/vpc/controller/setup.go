package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/vpc/backend"
)

// Config is what the owner of the cloud decides about tenants' VPCs.
type Config struct {
	// Backend makes the VPCs.
	Backend backend.Backend
	// ReservedCIDRs are ranges that no Vpc may meet, beside those that the API itself refuses.
	ReservedCIDRs []netip.Prefix
	// Workers is how many objects of each kind are reconciled at once. 0 means 4.
	Workers int
}

// Indexes of the cache.
const (
	subnetByVPC   = "spec.vpc"
	subnetByTable = "spec.routeTable"
	tableByVPC    = "spec.vpc"
	// tableByGateway: RouteTables by the NATGateways that their routes lead to.
	tableByGateway = "spec.routes.natGateway"

	floatingByExternalIP = "spec.externalIP"

	// peeringByVPC, peeringByPeer and peeringByTenant: VpcPeerings by the tenant's own Vpc, by the other one (peerKey), and by whose it is.
	peeringByVPC    = "spec.vpc"
	peeringByPeer   = "spec.peer"
	peeringByTenant = "spec.peer.tenant"
)

// SetupWithManager adds the reconcilers of all kinds of vpc.mnicloud.jp to the manager, whose scheme must know vpc.mnicloud.jp/v1alpha1.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, config Config) error {
	return setup(ctx, mgr, config, mgr.GetClient())
}

// setup adds the reconcilers with the client that they write with.
func setup(ctx context.Context, mgr ctrl.Manager, config Config, c client.Client) error {
	if config.Backend == nil {
		return errors.New("vpc controller: a network backend is needed")
	}
	workers := config.Workers
	if workers <= 0 {
		workers = 4
	}
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	acceptance := &sync.Mutex{}
	vpcs := &vpcReconciler{client: c, live: mgr.GetAPIReader(), backend: config.Backend, reserved: config.ReservedCIDRs, acceptance: acceptance}
	subnets := &subnetReconciler{client: c, live: mgr.GetAPIReader(), backend: config.Backend, acceptance: acceptance}
	b := base{client: c, live: mgr.GetAPIReader(), backend: config.Backend, acceptance: acceptance}
	return errors.Join(vpcs.setup(mgr, workers), subnets.setup(mgr, workers), setupRouteTables(mgr, b, workers), setupSecurityGroups(mgr, b, workers),
		setupExternalIPs(mgr, b, workers), setupFloatingIPs(mgr, b, workers), setupNATGateways(mgr, b, workers), setupPeerings(mgr, b))
}

// base is what every projection stands on.
type base struct {
	client     client.Client
	live       client.Reader
	backend    backend.Backend
	acceptance *sync.Mutex
}

func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	ofSubnet := func(field func(*vpcv1.Subnet) string) client.IndexerFunc {
		return func(o client.Object) []string {
			if subnet, ok := o.(*vpcv1.Subnet); ok {
				return []string{field(subnet)}
			}
			return nil
		}
	}
	ofPeering := func(field func(*vpcv1.VpcPeeringSpec) string) client.IndexerFunc {
		return func(o client.Object) []string {
			if peering, ok := o.(*vpcv1.VpcPeering); ok {
				return []string{field(&peering.Spec)}
			}
			return nil
		}
	}
	return errors.Join(
		indexer.IndexField(ctx, &vpcv1.Subnet{}, subnetByVPC, ofSubnet(func(s *vpcv1.Subnet) string { return s.Spec.VPC })),
		indexer.IndexField(ctx, &vpcv1.Subnet{}, subnetByTable, ofSubnet(func(s *vpcv1.Subnet) string { return s.Spec.RouteTable })),
		indexer.IndexField(ctx, &vpcv1.RouteTable{}, tableByVPC, func(o client.Object) []string {
			if table, ok := o.(*vpcv1.RouteTable); ok {
				return []string{table.Spec.VPC}
			}
			return nil
		}),
		indexer.IndexField(ctx, &vpcv1.RouteTable{}, tableByGateway, func(o client.Object) []string {
			if table, ok := o.(*vpcv1.RouteTable); ok {
				return gatewaysNamed(table)
			}
			return nil
		}),
		indexer.IndexField(ctx, &vpcv1.VpcPeering{}, peeringByVPC, ofPeering(func(s *vpcv1.VpcPeeringSpec) string { return s.VPC })),
		indexer.IndexField(ctx, &vpcv1.VpcPeering{}, peeringByPeer, ofPeering(func(s *vpcv1.VpcPeeringSpec) string { return peerKey(s.Peer.Tenant, s.Peer.VPC) })),
		indexer.IndexField(ctx, &vpcv1.VpcPeering{}, peeringByTenant, ofPeering(func(s *vpcv1.VpcPeeringSpec) string { return s.Peer.Tenant })),
		indexer.IndexField(ctx, &vpcv1.FloatingIP{}, floatingByExternalIP, func(o client.Object) []string {
			if fip, ok := o.(*vpcv1.FloatingIP); ok {
				return []string{fip.Spec.ExternalIP}
			}
			return nil
		}),
	)
}

func options(workers int) controller.Options {
	return controller.Options{MaxConcurrentReconciles: workers}
}

// onDelete lets only deletions through.
var onDelete = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(event.UpdateEvent) bool { return false },
}

// otherObject lets through what comes or goes, also under a name that something had before.
var otherObject = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() },
}

// requestVPCOf asks for the Vpc that a Subnet or a RouteTable names.
func requestVPCOf(_ context.Context, o client.Object) []reconcile.Request {
	name := types.NamespacedName{Namespace: o.GetNamespace()}
	switch o := o.(type) {
	case *vpcv1.Subnet:
		name.Name = o.Spec.VPC
	case *vpcv1.RouteTable:
		name.Name = o.Spec.VPC
	default:
		return nil
	}
	return []reconcile.Request{{NamespacedName: name}}
}

func (r *subnetReconciler) requestSubnetsOfVPC(ctx context.Context, vpc client.Object) []reconcile.Request {
	return r.requestSubnets(ctx, vpc.GetNamespace(), vpc.GetName())
}

func (r *subnetReconciler) requestSiblings(ctx context.Context, o client.Object) []reconcile.Request {
	subnet, ok := o.(*vpcv1.Subnet)
	if !ok {
		return nil
	}
	return r.requestSubnets(ctx, subnet.Namespace, subnet.Spec.VPC)
}

func (r *subnetReconciler) requestSubnets(ctx context.Context, namespace, vpc string) []reconcile.Request {
	return r.requestSubnetsBy(ctx, namespace, subnetByVPC, vpc)
}

func (r *subnetReconciler) requestSubnetsBy(ctx context.Context, namespace, index, value string) []reconcile.Request {
	var list vpcv1.SubnetList
	if err := r.client.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{index: value}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list Subnets", index, value)
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// readVPC reads a Vpc from a cache or from the API server; nil when it does not exist.
func readVPC(ctx context.Context, from client.Reader, namespace, name string) (*vpcv1.Vpc, error) {
	vpc := &vpcv1.Vpc{}
	err := from.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, vpc)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Vpc %s/%s: %w", namespace, name, err)
	}
	return vpc, nil
}

// collect deletes what was made under a name for other objects than the one that has the name now. It asks the API server
// before it does: the cache may not know the newest object yet.
func collect(ctx context.Context, live client.Reader, name types.NamespacedName, obj client.Object, made []types.UID, current types.UID,
	remove func(context.Context, types.UID) (bool, error),
) error {
	var strays []types.UID
	for _, uid := range made {
		if uid != current {
			strays = append(strays, uid)
		}
	}
	if len(strays) == 0 {
		return nil
	}
	if err := live.Get(ctx, name, obj); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	for _, uid := range strays {
		if uid == obj.GetUID() {
			continue
		}
		if _, err := remove(ctx, uid); err != nil {
			return err
		}
	}
	return nil
}

// settle ends a reconcile. A conflict is no failure: the newer version of the object is on its way and brings it back.
func settle(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, err
}
