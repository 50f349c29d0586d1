package controller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/finalizer"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// natGatewayReconciler decides which Subnets a NATGateway serves and which addresses it has. Nodes translate by its status.
type natGatewayReconciler struct {
	client client.Client
	live   client.Reader
}

func (r *natGatewayReconciler) setup(mgr ctrl.Manager) error {
	ofVPC := func(ctx context.Context, name string) []reconcile.Request { return r.by(ctx, gatewayByVPC, name) }
	return ctrl.NewControllerManagedBy(mgr).Named("net-nat-gateway").
		For(&netv1.NATGateway{}).
		Watches(&netv1.NATGateway{}, mapped(func(ctx context.Context, nat *netv1.NATGateway) []reconcile.Request { return ofVPC(ctx, nat.Spec.VPC) })).
		Watches(&netv1.VPC{}, mapped(func(ctx context.Context, vpc *netv1.VPC) []reconcile.Request { return ofVPC(ctx, vpc.Name) }), onCreateOrUpdate(vpcChanged)).
		Watches(&netv1.Subnet{}, mapped(func(ctx context.Context, subnet *netv1.Subnet) []reconcile.Request {
			return append(ofVPC(ctx, subnet.Spec.VPC), r.by(ctx, gatewayBySubnet, subnet.Name)...)
		}), onCreateOrUpdate(subnetChanged)).
		Watches(&netv1.RouteTable{}, mapped(func(ctx context.Context, table *netv1.RouteTable) []reconcile.Request {
			return ofVPC(ctx, table.Spec.VPC)
		}), onCreateOrUpdate(func(before, after *netv1.RouteTable) bool {
			return before.UID != after.UID || before.Generation != after.Generation
		})).
		Watches(&netv1.ExternalIP{}, mapped(func(ctx context.Context, eip *netv1.ExternalIP) []reconcile.Request {
			return r.by(ctx, gatewayByExternalIP, eip.Name)
		})).
		Watches(&netv1.PortBlock{}, mapped(func(_ context.Context, block *netv1.PortBlock) []reconcile.Request {
			return requests(block.Spec.NATGateway)
		})).
		Watches(&netv1.NetworkInterface{}, mapped(r.ofInterface), onCreateOrUpdate(placeChanged)).
		Watches(&corev1.Node{}, mapped(func(ctx context.Context, _ *corev1.Node) []reconcile.Request { return r.all(ctx) }), onUpdate(readinessChanged)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}). // two that ask for one Subnet are decided one after the other
		Complete(r)
}

func (r *natGatewayReconciler) by(ctx context.Context, index, value string) []reconcile.Request {
	var list netv1.NATGatewayList
	if err := r.client.List(ctx, &list, client.MatchingFields{index: value}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list NATGateways", index, value)
	}
	out := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, requests(list.Items[i].Name)...)
	}
	return out
}

// Reconcile brings one NATGateway towards its spec.
func (r *natGatewayReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var gateway netv1.NATGateway
	if err := r.client.Get(ctx, req.NamespacedName, &gateway); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !gateway.DeletionTimestamp.IsZero() {
		return settle(reconcile.Result{}, r.finalize(ctx, &gateway))
	}
	return settle(reconcile.Result{}, r.provision(ctx, &gateway))
}

func (r *natGatewayReconciler) provision(ctx context.Context, gateway *netv1.NATGateway) error {
	if err := finalizer.Ensure(ctx, r.client, gateway, netv1.Finalizer); err != nil {
		return fmt.Errorf("add the finalizer to NATGateway %s: %w", gateway.Name, err)
	}
	var vpc netv1.VPC
	err := r.client.Get(ctx, client.ObjectKey{Name: gateway.Spec.VPC}, &vpc)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read VPC %s: %w", gateway.Spec.VPC, err)
	}
	status := gateway.Status.DeepCopy()
	status.VPCID = vpc.Status.ID
	if err != nil || vpc.Status.ID == 0 {
		status.Subnets = nil
		return r.write(ctx, gateway, status, conditions.Waiting(reasonWaitingForVPC, "spec.vpc: VPC "+gateway.Spec.VPC+" does not exist yet, or has no ID yet"))
	}
	waits, progresses, err := r.addresses(ctx, gateway, status)
	if err != nil {
		return err
	}
	shared, err := r.share(ctx, gateway)
	if err != nil {
		return err
	}
	status.Subnets = shared.serves
	result := resultOfGateway(gateway, shared, waits, progresses)
	if result.IsReady() {
		lacking, err := r.lacking(ctx, gateway.Name, shared.serves)
		if err != nil {
			return err
		}
		result = resultOfNodes(lacking)
	}
	return r.write(ctx, gateway, status, result)
}

// addresses fills in the addresses of the ExternalIPs that are the gateway's, in the spec's order, and says what the others wait for.
func (r *natGatewayReconciler) addresses(ctx context.Context, gateway *netv1.NATGateway, status *netv1.NATGatewayStatus) (waits []conditions.Result, progresses bool, err error) {
	status.Addresses = nil
	for i, name := range gateway.Spec.ExternalIPs {
		eip := &netv1.ExternalIP{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: name}, eip); err != nil {
			if eip = nil; client.IgnoreNotFound(err) != nil {
				return nil, false, fmt.Errorf("read ExternalIP %s: %w", name, err)
			}
		}
		wait, ok := checkExternalIP(fmt.Sprintf("spec.externalIPs[%d]", i), netv1.KindNATGateway, gateway.Name, name, eip)
		if eip != nil && eip.Spec.Shared {
			if ok, err = r.takes(ctx, gateway, eip); err != nil {
				return nil, false, err
			}
		}
		if !ok {
			waits = append(waits, wait)
			progresses = progresses || eip != nil && eip.Status.UsedBy == nil && eip.Status.Address != ""
			continue
		}
		status.Addresses = append(status.Addresses, eip.Status.Address)
	}
	return waits, progresses, nil
}

// takes tells whether a gateway has the address of a shared ExternalIP, or may take it: by what the API server says it does not go. One that
// is asked to go from now on finds the gateway, which names it, and waits.
func (r *natGatewayReconciler) takes(ctx context.Context, gateway *netv1.NATGateway, eip *netv1.ExternalIP) (bool, error) {
	if eip.Status.Address == "" || slices.Contains(gateway.Status.Addresses, eip.Status.Address) {
		return eip.Status.Address != "", nil
	}
	var now netv1.ExternalIP
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(eip), &now); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read ExternalIP %s: %w", eip.Name, err)
	}
	return now.DeletionTimestamp.IsZero() && now.UID == eip.UID && now.Status.Address == eip.Status.Address, nil
}

// share decides which Subnets the gateway serves: what the cache says holds while it gets none that it did not serve before; those are
// decided on what the API server says.
func (r *natGatewayReconciler) share(ctx context.Context, gateway *netv1.NATGateway) (share, error) {
	decide := func(from client.Reader) (share, error) {
		var gateways netv1.NATGatewayList
		if err := from.List(ctx, &gateways, client.MatchingFields{gatewayByVPC: gateway.Spec.VPC}); err != nil {
			return share{}, fmt.Errorf("list the NATGateways of VPC %s: %w", gateway.Spec.VPC, err)
		}
		var subnets netv1.SubnetList
		if err := r.client.List(ctx, &subnets, client.MatchingFields{subnetByVPC: gateway.Spec.VPC}); err != nil {
			return share{}, fmt.Errorf("list the Subnets of VPC %s: %w", gateway.Spec.VPC, err)
		}
		for _, name := range gateway.Spec.Subnets {
			var subnet netv1.Subnet
			if err := r.client.Get(ctx, client.ObjectKey{Name: name}, &subnet); err == nil {
				subnets.Items = append(subnets.Items, subnet)
			} else if client.IgnoreNotFound(err) != nil {
				return share{}, fmt.Errorf("read Subnet %s: %w", name, err)
			}
		}
		var tables netv1.RouteTableList
		if err := from.List(ctx, &tables, client.MatchingFields{tableByVPC: gateway.Spec.VPC}); err != nil {
			return share{}, fmt.Errorf("list the RouteTables of VPC %s: %w", gateway.Spec.VPC, err)
		}
		return shareOf(gateway, subnets.Items, gateways.Items, ledSubnets(subnets.Items, tables.Items)), nil
	}
	s, err := decide(r.client)
	if err != nil || !slices.ContainsFunc(s.serves, func(name string) bool { return !slices.Contains(gateway.Status.Subnets, name) }) {
		return s, err
	}
	return decide(r.live)
}

// resultOfGateway sums up what a gateway lacks: first what only a change of it helps, then what others have, and nodes last.
func resultOfGateway(gateway *netv1.NATGateway, s share, waits []conditions.Result, progresses bool) conditions.Result {
	if len(s.foreign) > 0 {
		return conditions.Failed(reasonSubnetForeign, "spec.subnets: not Subnets of VPC "+gateway.Spec.VPC+": "+nameSome(s.foreign)+"; name Subnets of that VPC")
	}
	if len(waits) > 0 {
		var messages []string
		for _, w := range waits {
			messages = append(messages, w.Message)
		}
		message := someOf(messages)
		if progresses {
			return conditions.Progressing(waits[0].Reason, message)
		}
		return conditions.Waiting(waits[0].Reason, message)
	}
	if len(s.missing) > 0 {
		return conditions.Waiting(reasonSubnetNotFound, "spec.subnets: these Subnets do not exist yet: "+nameSome(s.missing)+"; create them, or name others")
	}
	if len(s.taken) > 0 && (len(gateway.Spec.Subnets) > 0 || len(s.serves) == 0) {
		var taken []string
		for _, t := range s.taken {
			taken = append(taken, t.String())
		}
		return conditions.Waiting(reasonSubnetServed, "spec.subnets: a Subnet is served by one NATGateway, and served are "+nameSome(taken)+
			"; this one waits for them: delete the other, take the Subnet out of one of the two, or change its RouteTable")
	}
	return resultOfNodes(nil)
}

// finalize takes everything back, and lets the gateway go once no node has ports of it but those that are released: no node that is heard of
// translates for it then, and nobody else gets its addresses before the last block is gone.
func (r *natGatewayReconciler) finalize(ctx context.Context, gateway *netv1.NATGateway) error {
	if !controllerutil.ContainsFinalizer(gateway, netv1.Finalizer) {
		return nil
	}
	status := gateway.Status.DeepCopy()
	if len(status.Addresses)+len(status.Subnets) > 0 {
		status.Addresses, status.Subnets = nil, nil
		return r.write(ctx, gateway, status, conditions.Progressing(reasonReleasing, "nodes give their PortBlocks back"))
	}
	var blocks netv1.PortBlockList
	if err := r.live.List(ctx, &blocks, client.MatchingFields{blockByGateway: gateway.Name}); err != nil {
		return fmt.Errorf("list the PortBlocks of NATGateway %s: %w", gateway.Name, err)
	}
	var nodes []string
	for i := range blocks.Items {
		if blocks.Items[i].Spec.ReleasedAt == nil {
			nodes = append(nodes, blocks.Items[i].Spec.Node)
		}
	}
	if len(nodes) > 0 {
		slices.Sort(nodes)
		return r.write(ctx, gateway, status, conditions.Progressing(reasonReleasing, "the NATGateway goes when these nodes have given their PortBlocks back: "+nameSome(slices.Compact(nodes))))
	}
	return finalizer.Remove(ctx, r.client, gateway, netv1.Finalizer)
}

func (r *natGatewayReconciler) write(ctx context.Context, gateway *netv1.NATGateway, status *netv1.NATGatewayStatus, result conditions.Result) error {
	base := gateway.DeepCopy()
	gateway.Status = *status
	s := &gateway.Status
	conditions.Status{Phase: &s.Phase, ObservedGeneration: &s.ObservedGeneration, Conditions: &s.Conditions}.Apply(gateway, result)
	if equality.Semantic.DeepEqual(base.Status, gateway.Status) {
		return nil
	}
	if err := r.client.Status().Patch(ctx, gateway, optimistic(base)); err != nil {
		return fmt.Errorf("write the status of NATGateway %s: %w", gateway.Name, err)
	}
	return nil
}

// usersOf is the kind and name of who has an ExternalIP's address, for the index.
func usersOf(eip *netv1.ExternalIP) []string {
	if eip.Status.UsedBy == nil {
		return nil
	}
	return []string{userKey(eip.Status.UsedBy.Kind, eip.Status.UsedBy.Name)}
}
