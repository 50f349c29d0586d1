package controller

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/dependency"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/vpc/backend"
)

// setupFloatingIPs leads the addresses of tenants' ExternalIPs to their workloads.
func setupFloatingIPs(mgr ctrl.Manager, base base, workers int) error {
	p := &projection[*vpcv1.FloatingIP]{
		client: base.client, live: base.live, backend: base.backend, kind: backend.FloatingIP, empty: func() *vpcv1.FloatingIP { return &vpcv1.FloatingIP{} },
		status: func(o *vpcv1.FloatingIP) conditions.Status {
			return conditions.Status{Phase: &o.Status.Phase, ObservedGeneration: &o.Status.ObservedGeneration, Conditions: &o.Status.Conditions}
		},
		make: base.makeFloatingIP,
	}
	return p.setup(mgr, "vpc-floating-ip", workers, func(b *ctrl.Builder) {
		b.Watches(&vpcv1.ExternalIP{}, handler.EnqueueRequestsFromMapFunc(base.requestFloatingIPsOf), builder.WithPredicates(otherObject))
	})
}

// makeFloatingIP leads the address on. While there is no ExternalIP of the name, what was made for one that had it leads nowhere.
func (b base) makeFloatingIP(ctx context.Context, fip *vpcv1.FloatingIP) (conditions.Result, error) {
	uid, err := b.externalIP(ctx, fip.Namespace, fip.Spec.ExternalIP)
	if err != nil {
		return conditions.Result{}, err
	}
	if uid == "" {
		fip.Status.ExternalAddress, fip.Status.Address = "", ""
		return *dependency.Reference{Field: "spec.externalIP", Kind: "ExternalIP", Name: fip.Spec.ExternalIP, By: "FloatingIP"}.NotFound(), nil
	}
	return b.backend.EnsureFloatingIP(ctx, fip, uid)
}

func (b base) requestFloatingIPsOf(ctx context.Context, eip client.Object) []reconcile.Request {
	var list vpcv1.FloatingIPList
	if err := b.client.List(ctx, &list, client.InNamespace(eip.GetNamespace()), client.MatchingFields{floatingByExternalIP: eip.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the FloatingIPs of an ExternalIP", "externalIP", eip.GetName())
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}
