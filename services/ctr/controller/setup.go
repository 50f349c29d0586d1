package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// Config is what the owner of the cloud decides about Containers.
type Config struct {
	// Workers is how many Containers are reconciled at once. 0 means 8.
	Workers int
}

// Indexes of the cache.
const (
	containerBySubnet    = "spec.subnet"
	containerByGroup     = "spec.securityGroups"
	interfaceByContainer = "ctr.mnicloud.jp/container"
)

// SetupWithManager adds the reconciler of Containers to the manager, whose scheme must know ctr, vpc and
// net.mnicloud.jp/v1alpha1 and the core kinds. It holds Containers' Pods in a cache of its own.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, config Config) error {
	return setup(ctx, mgr, config, mgr.GetClient(), time.Now)
}

// setup adds the reconciler with the client that it writes with, and its clock.
func setup(ctx context.Context, mgr ctrl.Manager, config Config, c client.Client, now func() time.Time) error {
	pods, err := podCache(ctx, mgr)
	if err != nil {
		return err
	}
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	workers := config.Workers
	if workers <= 0 {
		workers = 8
	}
	r := &reconciler{client: c, live: mgr.GetAPIReader(), pods: pods, events: mgr.GetEventRecorder("ctr.mnicloud.jp"), now: now}
	return ctrl.NewControllerManagedBy(mgr).Named("ctr").
		For(&ctrv1.Container{}).
		Watches(&vpcv1.Subnet{}, handler.EnqueueRequestsFromMapFunc(r.requestContainersOfSubnet)).
		Watches(&vpcv1.SecurityGroup{}, handler.EnqueueRequestsFromMapFunc(r.requestContainersOfGroup), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() },
		})).
		Watches(&netv1.NetworkInterface{}, handler.EnqueueRequestsFromMapFunc(requestContainerOfInterface)).
		WatchesRawSource(source.Kind(pods, &corev1.Pod{},
			handler.TypedEnqueueRequestForOwner[*corev1.Pod](mgr.GetScheme(), mgr.GetRESTMapper(), &ctrv1.Container{}, handler.OnlyControllerOwner()))).
		WatchesRawSource(source.Kind(pods, &corev1.Node{}, r.containersOn(), nodeChanged)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// podCache holds the Pods of Containers, no others, and all nodes.
func podCache(ctx context.Context, mgr ctrl.Manager) (cache.Cache, error) {
	ours, err := labels.NewRequirement(ctrv1.LabelContainer, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("select the Pods of Containers: %w", err)
	}
	pods, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultLabelSelector: labels.NewSelector().Add(*ours),
		DefaultTransform:     cache.TransformStripManagedFields(),
		ByObject:             map[client.Object]cache.ByObject{&corev1.Node{}: {Label: labels.Everything(), Transform: stripNode}},
	})
	if err != nil {
		return nil, fmt.Errorf("make a cache of the Pods of Containers: %w", err)
	}
	err = pods.IndexField(ctx, &corev1.Pod{}, podByNode, func(o client.Object) []string {
		if pod, ok := o.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
			return []string{pod.Spec.NodeName}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("index the Pods of Containers by their node: %w", err)
	}
	if err := mgr.Add(pods); err != nil {
		return nil, fmt.Errorf("add the cache of the Pods of Containers: %w", err)
	}
	return pods, nil
}

func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &ctrv1.Container{}, containerBySubnet, func(o client.Object) []string {
		if c, ok := o.(*ctrv1.Container); ok {
			return []string{c.Spec.Subnet}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index Containers by their Subnet: %w", err)
	}
	err = indexer.IndexField(ctx, &ctrv1.Container{}, containerByGroup, func(o client.Object) []string {
		if c, ok := o.(*ctrv1.Container); ok {
			return c.Spec.SecurityGroups
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index Containers by their SecurityGroups: %w", err)
	}
	err = indexer.IndexField(ctx, &netv1.NetworkInterface{}, interfaceByContainer, func(o client.Object) []string {
		if name, ok := containerOf(o); ok {
			return []string{name.String()}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index NetworkInterfaces by their Container: %w", err)
	}
	return nil
}

// containerOf is the Container that an interface was made for.
func containerOf(o client.Object) (types.NamespacedName, bool) {
	name := types.NamespacedName{Namespace: o.GetLabels()[ctrv1.LabelNamespace], Name: o.GetLabels()[ctrv1.LabelContainer]}
	return name, name.Namespace != "" && name.Name != ""
}

func requestContainerOfInterface(_ context.Context, o client.Object) []reconcile.Request {
	name, ok := containerOf(o)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: name}}
}

func (r *reconciler) requestContainersOfSubnet(ctx context.Context, subnet client.Object) []reconcile.Request {
	return r.requestContainers(ctx, containerBySubnet, subnet)
}

func (r *reconciler) requestContainersOfGroup(ctx context.Context, group client.Object) []reconcile.Request {
	return r.requestContainers(ctx, containerByGroup, group)
}

// requestContainers asks for the Containers that name an object.
func (r *reconciler) requestContainers(ctx context.Context, index string, named client.Object) []reconcile.Request {
	var list ctrv1.ContainerList
	err := r.client.List(ctx, &list, client.InNamespace(named.GetNamespace()), client.MatchingFields{index: named.GetName()})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list Containers", index, named.GetName())
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// settle ends a reconcile. A conflict is no failure: the newer version of the object is on its way and brings it back.
func settle(again time.Duration, err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: again}, err
}
