package controller

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// serviceReconciler keeps kube-proxy off the Services of tenants' namespaces: it would translate their addresses for hosts,
// and for whoever can route to one, to infrastructure addresses.
type serviceReconciler struct {
	client client.Client
}

func (r *serviceReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("net-service").
		For(&corev1.Service{}, builder.OnlyMetadata).
		Watches(&netv1.VPC{}, mapped(r.ofVPC), onCreateOrUpdate(vpcChanged)).
		Complete(r)
}

// ofVPC are the Services of the namespaces that a VPC lists, or listed before the update.
func (r *serviceReconciler) ofVPC(ctx context.Context, vpc *netv1.VPC) []reconcile.Request {
	var out []reconcile.Request
	for _, namespace := range vpc.Spec.Namespaces {
		list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceList"}}
		if err := r.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "list the Services of a namespace", "namespace", namespace)
		}
		for i := range list.Items {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return out
}

// Reconcile labels one Service, or takes the label away.
func (r *serviceReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	service := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}}
	if err := r.client.Get(ctx, req.NamespacedName, &service); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var vpcs netv1.VPCList
	if err := r.client.List(ctx, &vpcs, client.MatchingFields{vpcByNamespace: req.Namespace}); err != nil {
		return reconcile.Result{}, fmt.Errorf("list the VPCs of namespace %s: %w", req.Namespace, err)
	}
	value, change := proxyOf(service.Labels[netv1.LabelServiceProxy], vpcs.Items)
	if !change {
		return reconcile.Result{}, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{netv1.LabelServiceProxy: value}}})
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.client.Patch(ctx, &service, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(fmt.Errorf("label Service %s: %w", req, err))
	}
	return reconcile.Result{}, nil
}

// proxyOf decides what a Service's label is to be (nil: none), when it is to be changed. Somebody else's proxy is left alone.
func proxyOf(now string, vpcs []netv1.VPC) (value *string, change bool) {
	tenant := false
	for i := range vpcs {
		tenant = tenant || vpcs[i].Name != netv1.DefaultVPC
	}
	switch {
	case tenant && now == "":
		ours := netv1.ServiceProxy
		return &ours, true
	case !tenant && now == netv1.ServiceProxy:
		return nil, true
	}
	return nil, false
}
