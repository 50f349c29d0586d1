package controller

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mnicloud/mnicloud/kit/conditions"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/claim"
	"github.com/mnicloud/mnicloud/network/ipam"
)

// subnetReconciler gives Subnets their VNIs and gateways, and keeps them while Pods use them.
type subnetReconciler struct {
	client client.Client
	live   client.Reader
	config Config
	vnis   *sequence
	ipam   *ipam.Allocator
}

func (r *subnetReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("net-subnet").
		For(&netv1.Subnet{}).
		Watches(&netv1.VPC{}, mapped(r.ofVPC)).
		Watches(&netv1.Subnet{}, mapped(r.siblings)).
		Watches(&netv1.RouteTable{}, mapped(r.ofTable), onCreateOrUpdate(func(before, after *netv1.RouteTable) bool { return before.UID != after.UID })).
		Watches(&netv1.NetworkInterface{}, mapped(func(ctx context.Context, nic *netv1.NetworkInterface) []reconcile.Request {
			return r.deleting(ctx, nic.Spec.Subnet, netv1.DefaultSubnet)
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8}).
		Complete(r)
}

// ofVPC are the Subnets of a VPC.
func (r *subnetReconciler) ofVPC(ctx context.Context, vpc *netv1.VPC) []reconcile.Request {
	return r.inVPC(ctx, vpc.Name, func(*netv1.Subnet) bool { return true })
}

// siblings are the other Subnets of a Subnet's VPC that are not in use: what they were refused for may be gone.
func (r *subnetReconciler) siblings(ctx context.Context, subnet *netv1.Subnet) []reconcile.Request {
	return r.inVPC(ctx, subnet.Spec.VPC, func(s *netv1.Subnet) bool {
		return s.Name != subnet.Name && standingOf(s) != confirmed
	})
}

func (r *subnetReconciler) inVPC(ctx context.Context, vpc string, matters func(*netv1.Subnet) bool) []reconcile.Request {
	var list netv1.SubnetList
	if err := r.client.List(ctx, &list, client.MatchingFields{subnetByVPC: vpc}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the Subnets of a VPC", "vpc", vpc)
	}
	var out []reconcile.Request
	for i := range list.Items {
		if matters(&list.Items[i]) {
			out = append(out, requests(list.Items[i].Name)...)
		}
	}
	return out
}

// deleting are those of the Subnets that are being deleted: they wait for interfaces.
func (r *subnetReconciler) deleting(ctx context.Context, names ...string) []reconcile.Request {
	var out []reconcile.Request
	for _, name := range names {
		var s netv1.Subnet
		if err := r.client.Get(ctx, client.ObjectKey{Name: name}, &s); err == nil && !s.DeletionTimestamp.IsZero() {
			out = append(out, requests(name)...)
		}
	}
	return out
}

// Reconcile brings one Subnet towards its spec.
func (r *subnetReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var subnet netv1.Subnet
	if err := r.client.Get(ctx, req.NamespacedName, &subnet); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !subnet.DeletionTimestamp.IsZero() {
		return settle(reconcile.Result{}, r.finalize(ctx, &subnet))
	}
	return settle(r.provision(ctx, &subnet))
}

func (r *subnetReconciler) provision(ctx context.Context, subnet *netv1.Subnet) (reconcile.Result, error) {
	if err := r.adopt(ctx, subnet); err != nil {
		return reconcile.Result{}, err
	}
	status := subnet.Status.DeepCopy()
	o, again, err := r.decide(ctx, subnet, status)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.routeTable(ctx, subnet, status); err != nil {
		return reconcile.Result{}, err
	}
	if err := r.write(ctx, subnet, status, o); err != nil {
		return reconcile.Result{}, err
	}
	if again {
		return reconcile.Result{RequeueAfter: retryDelay}, nil
	}
	return reconcile.Result{}, nil
}

// adopt puts the finalizer and the label on the Subnet.
func (r *subnetReconciler) adopt(ctx context.Context, subnet *netv1.Subnet) error {
	base := subnet.DeepCopy()
	labels := ipam.Labels(subnet.Spec.VPC, "")
	delete(labels, netv1.LabelSubnet)
	if subnet.Labels == nil {
		subnet.Labels = map[string]string{}
	}
	maps.Copy(subnet.Labels, labels)
	if !controllerutil.AddFinalizer(subnet, netv1.Finalizer) && equality.Semantic.DeepEqual(base.Labels, subnet.Labels) {
		return nil
	}
	if err := r.client.Patch(ctx, subnet, optimistic(base)); err != nil {
		return fmt.Errorf("add the finalizer to Subnet %s: %w", subnet.Name, err)
	}
	return nil
}

// decide fills in the status, one step at a time: claim, then confirm. Again asks for another look soon.
func (r *subnetReconciler) decide(ctx context.Context, subnet *netv1.Subnet, status *netv1.SubnetStatus) (o conditions.Result, again bool, err error) {
	if o, ok := checkSubnet(subnet, r.config); !ok {
		return o, false, nil
	}
	var vpc netv1.VPC
	err = r.client.Get(ctx, client.ObjectKey{Name: subnet.Spec.VPC}, &vpc)
	if client.IgnoreNotFound(err) != nil {
		return o, false, fmt.Errorf("read VPC %s: %w", subnet.Spec.VPC, err)
	}
	if o, ok := checkVPC(subnet, &vpc, apierrors.IsNotFound(err)); !ok {
		return o, false, nil
	}
	status.VPCID = vpc.Status.ID
	if standingOf(subnet) == confirmed {
		return conditions.Ready(reasonReady, "the Subnet has its VNI and gateway"), false, nil
	}
	var all netv1.SubnetList
	if err := r.live.List(ctx, &all, client.MatchingFields{subnetByVPC: subnet.Spec.VPC}); err != nil {
		return o, false, fmt.Errorf("list the Subnets of VPC %s: %w", subnet.Spec.VPC, err)
	}
	decision, rival := compete(subnet, all.Items)
	switch {
	case decision == refused:
		status.VNI = 0
		return overlap(subnet, rival), false, nil
	case decision == undecided:
		return conditions.Progressing(reasonAllocating, "waiting for Subnet "+rival.Name+", which asks for overlapping addresses"), true, nil
	case standingOf(subnet) == newcomer:
		if status.VNI, err = r.vni(ctx, subnet); err != nil {
			return o, false, fmt.Errorf("give Subnet %s a VNI: %w", subnet.Name, err)
		}
		return conditions.Progressing(reasonAllocating, "the Subnet has a VNI, and gets its gateway next"), false, nil
	}
	cidr, _ := claim.ParseCIDR(subnet.Spec.CIDR)
	status.GatewayAddress = ipam.Range{CIDR: cidr}.Gateway().String()
	if status.GatewayMAC, err = claim.NewMAC(); err != nil {
		return o, false, err
	}
	return conditions.Ready(reasonReady, "the Subnet has its VNI and gateway"), false, nil
}

func (r *subnetReconciler) vni(ctx context.Context, subnet *netv1.Subnet) (uint32, error) {
	if subnet.Name == netv1.DefaultSubnet {
		return netv1.DefaultVNI, nil
	}
	return r.vnis.next(ctx)
}

func (r *subnetReconciler) write(ctx context.Context, subnet *netv1.Subnet, status *netv1.SubnetStatus, o conditions.Result) error {
	base := subnet.DeepCopy()
	subnet.Status = *status
	conditions.Status{Phase: &subnet.Status.Phase, ObservedGeneration: &subnet.Status.ObservedGeneration, Conditions: &subnet.Status.Conditions}.Apply(subnet, o)
	if equality.Semantic.DeepEqual(base.Status, subnet.Status) {
		return nil
	}
	if err := r.client.Status().Patch(ctx, subnet, optimistic(base)); err != nil {
		return fmt.Errorf("write the status of Subnet %s: %w", subnet.Name, err)
	}
	return nil
}
