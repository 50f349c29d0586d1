package controller

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mnicloud/mnicloud/kit/apply"
	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/finalizer"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/vpc/backend"
)

// securityGroupReconciler makes tenants' SecurityGroups, and keeps them while something is in them.
type securityGroupReconciler struct {
	client  client.Client
	live    client.Reader
	backend backend.Backend
}

func (r *securityGroupReconciler) setup(mgr ctrl.Manager, workers int) error {
	b := ctrl.NewControllerManagedBy(mgr).Named("vpc-security-group").
		For(&vpcv1.SecurityGroup{}).
		// One that comes or goes is another for those whose rules name it.
		Watches(&vpcv1.SecurityGroup{}, handler.EnqueueRequestsFromMapFunc(r.requestWhoNames), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() },
		})).
		WithOptions(options(workers))
	r.backend.WatchSecurityGroups(b)
	return b.Complete(r)
}

// requestWhoNames asks for the SecurityGroups whose rules name one.
func (r *securityGroupReconciler) requestWhoNames(ctx context.Context, o client.Object) []reconcile.Request {
	var list vpcv1.SecurityGroupList
	if err := r.client.List(ctx, &list, client.InNamespace(o.GetNamespace())); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the SecurityGroups of a namespace", "namespace", o.GetNamespace())
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if slices.Contains(peersOf(&list.Items[i]), o.GetName()) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// Reconcile brings one SecurityGroup towards its spec.
func (r *securityGroupReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	group := &vpcv1.SecurityGroup{}
	if err := r.client.Get(ctx, req.NamespacedName, group); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("read SecurityGroup %s: %w", req, err)
	}
	made, err := r.backend.SecurityGroupsOf(ctx, req.NamespacedName)
	if err == nil {
		err = collect(ctx, r.live, req.NamespacedName, &vpcv1.SecurityGroup{}, made, group.UID, r.backend.DeleteSecurityGroup)
	}
	switch {
	case err != nil || group.UID == "":
		return reconcile.Result{}, err
	case !group.DeletionTimestamp.IsZero():
		return settle(r.delete(ctx, group))
	}
	return settle(r.ensure(ctx, group))
}

func (r *securityGroupReconciler) ensure(ctx context.Context, group *vpcv1.SecurityGroup) error {
	peers, missing, err := r.peers(ctx, group)
	if err != nil {
		return err
	}
	if err := finalizer.Ensure(ctx, r.client, group, vpcv1.Finalizer); err != nil {
		return fmt.Errorf("add the finalizer to SecurityGroup %s: %w", client.ObjectKeyFromObject(group), err)
	}
	result, err := r.backend.EnsureSecurityGroup(ctx, group, peers)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		result = conditions.Waiting(reasonGroupNotFound, fmt.Sprintf(
			"rules name SecurityGroups that do not exist in this namespace, and allow nothing until they do: %s; the other rules apply", some(missing)))
	}
	return r.tell(ctx, group, result)
}

// peers finds the groups that the rules name.
func (r *securityGroupReconciler) peers(ctx context.Context, group *vpcv1.SecurityGroup) (uids map[string]types.UID, missing []string, err error) {
	uids = map[string]types.UID{}
	for _, name := range peersOf(group) {
		peer := &vpcv1.SecurityGroup{}
		err := r.client.Get(ctx, client.ObjectKey{Namespace: group.Namespace, Name: name}, peer)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return nil, nil, fmt.Errorf("read SecurityGroup %s/%s: %w", group.Namespace, name, err)
		case err != nil:
			missing = append(missing, name)
		default:
			uids[name] = peer.UID
		}
	}
	return uids, missing, nil
}

// peersOf are the groups that a group's rules name.
func peersOf(group *vpcv1.SecurityGroup) []string {
	var names []string
	for _, rules := range [][]vpcv1.SecurityGroupRule{group.Spec.Ingress, group.Spec.Egress} {
		for _, rule := range rules {
			if rule.SecurityGroup != nil {
				names = append(names, *rule.SecurityGroup)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// delete lets the group go once nothing is in it and what was made for it is gone. A group that went while a workload names
// it would close the workload.
func (r *securityGroupReconciler) delete(ctx context.Context, group *vpcv1.SecurityGroup) error {
	if !slices.Contains(group.Finalizers, vpcv1.Finalizer) {
		if len(group.Finalizers) == 0 {
			return nil
		}
		return r.tell(ctx, group, conditions.Held(group.Finalizers))
	}
	users, err := r.backend.UsersOfSecurityGroup(ctx, group.UID)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return r.tell(ctx, group, conditions.Waiting(reasonInUse, "the SecurityGroup goes when nothing names it any more: "+some(users)))
	}
	gone, err := r.backend.DeleteSecurityGroup(ctx, group.UID)
	if err != nil {
		return err
	}
	if !gone {
		return r.tell(ctx, group, conditions.Progressing(reasonDeleting, "the network is removing the SecurityGroup"))
	}
	return finalizer.Remove(ctx, r.client, group, vpcv1.Finalizer)
}

func (r *securityGroupReconciler) tell(ctx context.Context, group *vpcv1.SecurityGroup, result conditions.Result) error {
	before := group.DeepCopy()
	s := &group.Status
	conditions.Status{Phase: &s.Phase, ObservedGeneration: &s.ObservedGeneration, Conditions: &s.Conditions}.Apply(group, result)
	return apply.Status(ctx, r.client, before, group)
}
