package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/conditions"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/vpc/backend"
)

// setupExternalIPs gets tenants' ExternalIPs their addresses, and keeps those while something has them.
func setupExternalIPs(mgr ctrl.Manager, base base, workers int) error {
	p := &projection[*vpcv1.ExternalIP]{
		client: base.client, live: base.live, backend: base.backend, kind: backend.ExternalIP, empty: func() *vpcv1.ExternalIP { return &vpcv1.ExternalIP{} },
		status: func(o *vpcv1.ExternalIP) conditions.Status {
			return conditions.Status{Phase: &o.Status.Phase, ObservedGeneration: &o.Status.ObservedGeneration, Conditions: &o.Status.Conditions}
		},
		make: base.backend.EnsureExternalIP,
		users: func(ctx context.Context, eip *vpcv1.ExternalIP) (refusal, error) {
			user, err := base.backend.UserOfExternalIP(ctx, eip.UID)
			if err != nil || user == "" {
				return nil, err
			}
			return refuse(conditions.Waiting(reasonInUse, "the ExternalIP goes when "+user+", which has its address, is deleted or gives it back")), nil
		},
	}
	return p.setup(mgr, "vpc-external-ip", workers, func(*ctrl.Builder) {})
}

// externalIP finds the UID of a tenant's ExternalIP; "" when there is none of the name.
func (b base) externalIP(ctx context.Context, namespace, name string) (types.UID, error) {
	var eip vpcv1.ExternalIP
	err := b.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &eip)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("read ExternalIP %s/%s: %w", namespace, name, err)
	}
	return eip.UID, nil
}
