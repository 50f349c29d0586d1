package controller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mnicloud/mnicloud/kit/conditions"
	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/vpc/backend"
)

// setupPeerings joins Vpcs whose tenants have both agreed.
func setupPeerings(mgr ctrl.Manager, base base) error {
	p := &projection[*vpcv1.VpcPeering]{
		client: base.client, live: base.live, backend: base.backend, kind: backend.VpcPeering, empty: func() *vpcv1.VpcPeering { return &vpcv1.VpcPeering{} },
		status: func(o *vpcv1.VpcPeering) conditions.Status {
			return conditions.Status{Phase: &o.Status.Phase, ObservedGeneration: &o.Status.ObservedGeneration, Conditions: &o.Status.Conditions}
		},
		make: base.makePeering,
	}
	// One worker: of two that want overlapping ranges each is decided on what the other has become.
	return p.setup(mgr, "vpc-peering", 1, func(b *ctrl.Builder) {
		b.Watches(&vpcv1.VpcPeering{}, handler.EnqueueRequestsFromMapFunc(base.requestOtherPeerings)).
			Watches(&vpcv1.Vpc{}, handler.EnqueueRequestsFromMapFunc(base.requestPeeringsOfVPC)).
			Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(base.requestPeeringsOfTenant), builder.WithPredicates(otherObject))
	})
}

// makePeering joins the Vpcs while both sides agree. What was made goes as soon as they do not.
func (b base) makePeering(ctx context.Context, peering *vpcv1.VpcPeering) (conditions.Result, error) {
	sides, err := b.sidesOf(ctx, peering)
	if err != nil {
		return conditions.Result{}, err
	}
	if no := checkPeering(peering, sides); no != nil {
		peering.Status.PeerCIDR = ""
		return *no, b.withdraw(ctx, peering)
	}
	peering.Status.PeerCIDR, peering.Status.AgreedWith = sides.agreed.Spec.CIDR, sides.tenant
	return b.backend.EnsurePeering(ctx, peering, sides.own, sides.agreed)
}

// withdraw takes away what was made for a VpcPeering, if anything was.
func (b base) withdraw(ctx context.Context, peering *vpcv1.VpcPeering) error {
	made, err := b.backend.MadeFor(ctx, backend.VpcPeering, client.ObjectKeyFromObject(peering))
	if err != nil || !slices.Contains(made, peering.UID) {
		return err
	}
	_, err = b.backend.Delete(ctx, backend.VpcPeering, peering.UID)
	return err
}

// sidesOf reads what decides about a VpcPeering.
func (b base) sidesOf(ctx context.Context, peering *vpcv1.VpcPeering) (s peeringSides, err error) {
	if s.own, err = readVPC(ctx, b.client, peering.Namespace, peering.Spec.VPC); err != nil {
		return s, err
	}
	tenant, err := b.tenantOf(ctx, peering.Namespace)
	if err != nil {
		return s, err
	}
	s.itself = peering.Spec.Peer.VPC == peering.Spec.VPC && (peering.Spec.Peer.Tenant == "" || peering.Spec.Peer.Tenant == tenant)
	if s.agreed, s.tenant, err = b.agreement(ctx, peering, tenant); err != nil || s.agreed == nil {
		return s, err
	}
	var siblings vpcv1.VpcPeeringList
	if err := b.client.List(ctx, &siblings, client.InNamespace(peering.Namespace), client.MatchingFields{peeringByVPC: peering.Spec.VPC}); err != nil {
		return s, fmt.Errorf("list the VpcPeerings of Vpc %s/%s: %w", peering.Namespace, peering.Spec.VPC, err)
	}
	for i := range siblings.Items {
		other := &siblings.Items[i]
		if other.UID == peering.UID || other.DeletionTimestamp != nil {
			continue
		}
		theirs, _, err := b.agreement(ctx, other, tenant)
		if err != nil {
			return s, err
		}
		if theirs != nil {
			s.rivals = append(s.rivals, rivalPeering{other, theirs.Spec.CIDR})
		}
	}
	return s, nil
}

// agreement finds the other side's Vpc, if that side has agreed to be joined with the Vpc of the tenant, and who that side is. A tenant
// of the name that is there, a Vpc of the name, and a VpcPeering that names this one back: without one of them there is none.
func (b base) agreement(ctx context.Context, peering *vpcv1.VpcPeering, tenant string) (*vpcv1.Vpc, types.UID, error) {
	namespace, identity := peering.Namespace, types.UID("")
	if name := peering.Spec.Peer.Tenant; name != "" && name != tenant {
		found, err := b.namespaceOf(ctx, name)
		if err != nil || found == nil {
			return nil, "", err
		}
		namespace, identity = found.Name, found.UID
	}
	var others vpcv1.VpcPeeringList
	if err := b.client.List(ctx, &others, client.InNamespace(namespace), client.MatchingFields{peeringByVPC: peering.Spec.Peer.VPC}); err != nil {
		return nil, "", fmt.Errorf("list the VpcPeerings of namespace %s: %w", namespace, err)
	}
	if !slices.ContainsFunc(others.Items, func(o vpcv1.VpcPeering) bool { return namesBack(peering, &o, tenant) }) {
		return nil, "", nil
	}
	vpc, err := readVPC(ctx, b.client, namespace, peering.Spec.Peer.VPC)
	if err != nil || !usable(peering, vpc) {
		return nil, "", err
	}
	return vpc, identity, nil
}

// tenantOf is the name by which a namespace's tenant is found; "" when it is found by none.
func (b base) tenantOf(ctx context.Context, namespace string) (string, error) {
	var ns corev1.Namespace
	if err := b.client.Get(ctx, client.ObjectKey{Name: namespace}, &ns); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	name := tenantName(&ns)
	if found, err := b.namespaceOf(ctx, name); err != nil || found == nil || found.UID != ns.UID {
		return "", err
	}
	return name, nil
}

// tenantName is the name of the Tenant that a namespace is of, or, when it was made by hand, its own.
func tenantName(namespace client.Object) string {
	if name, ok := namespace.GetLabels()[authv1.LabelTenant]; ok {
		return name
	}
	return namespace.GetName()
}

// namespaceOf is the namespace of the Tenant of a name, else the one of the name that was made by hand; nil when there is none. One that
// is going counts no more.
func (b base) namespaceOf(ctx context.Context, tenant string) (*corev1.Namespace, error) {
	var list corev1.NamespaceList
	if err := b.client.List(ctx, &list, client.MatchingLabels{authv1.LabelTenant: tenant}); err != nil {
		return nil, fmt.Errorf("find the namespace of tenant %s: %w", tenant, err)
	}
	var found *corev1.Namespace
	for i := range list.Items {
		if ns := &list.Items[i]; ns.DeletionTimestamp == nil && (found == nil || found.CreationTimestamp.Before(&ns.CreationTimestamp)) {
			found = ns
		}
	}
	if found != nil {
		return found, nil
	}
	found = &corev1.Namespace{}
	err := b.client.Get(ctx, client.ObjectKey{Name: tenant}, found)
	if err != nil || found.DeletionTimestamp != nil || tenantName(found) != tenant {
		return nil, client.IgnoreNotFound(err)
	}
	return found, nil
}

// requestOtherPeerings asks for the VpcPeerings that one matters to: those the other way round, and those of the same Vpc.
func (b base) requestOtherPeerings(ctx context.Context, o client.Object) []reconcile.Request {
	peering, ok := o.(*vpcv1.VpcPeering)
	if !ok {
		return nil
	}
	return b.requestPeeringsOf(ctx, peering.Namespace, peering.Spec.VPC)
}

// requestPeeringsOfVPC asks for the VpcPeerings of a Vpc, and with it.
func (b base) requestPeeringsOfVPC(ctx context.Context, vpc client.Object) []reconcile.Request {
	return b.requestPeeringsOf(ctx, vpc.GetNamespace(), vpc.GetName())
}

func (b base) requestPeeringsOf(ctx context.Context, namespace, vpc string) []reconcile.Request {
	requests := b.requestPeerings(ctx, client.InNamespace(namespace), client.MatchingFields{peeringByVPC: vpc})
	requests = append(requests, b.requestPeerings(ctx, client.InNamespace(namespace), client.MatchingFields{peeringByPeer: peerKey("", vpc)})...)
	tenant, err := b.tenantOf(ctx, namespace)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "find the VpcPeerings with a Vpc", "vpc", vpc)
	}
	if tenant == "" {
		return requests
	}
	return append(requests, b.requestPeerings(ctx, client.MatchingFields{peeringByPeer: peerKey(tenant, vpc)})...)
}

// requestPeeringsOfTenant asks for the VpcPeerings with the Vpcs of a tenant, whose namespace has come or is gone, and for its own.
func (b base) requestPeeringsOfTenant(ctx context.Context, namespace client.Object) []reconcile.Request {
	return append(b.requestPeerings(ctx, client.MatchingFields{peeringByTenant: tenantName(namespace)}), b.requestPeerings(ctx, client.InNamespace(namespace.GetName()))...)
}

func (b base) requestPeerings(ctx context.Context, options ...client.ListOption) []reconcile.Request {
	var list vpcv1.VpcPeeringList
	if err := b.client.List(ctx, &list, options...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list VpcPeerings")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// peerKey is a Vpc as VpcPeerings name it.
func peerKey(tenant, vpc string) string { return tenant + "/" + vpc }
