package controller

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mnicloud/mnicloud/kit/conditions"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/vpc/backend"
)

// securityGroups makes tenants' SecurityGroups, and keeps them while something is in them.
type securityGroups struct {
	*projection[*vpcv1.SecurityGroup]
}

func setupSecurityGroups(mgr ctrl.Manager, base base, workers int) error {
	r := &securityGroups{}
	r.projection = &projection[*vpcv1.SecurityGroup]{
		client: base.client, live: base.live, backend: base.backend, kind: backend.SecurityGroup, empty: func() *vpcv1.SecurityGroup { return &vpcv1.SecurityGroup{} },
		status: func(o *vpcv1.SecurityGroup) conditions.Status {
			return conditions.Status{Phase: &o.Status.Phase, ObservedGeneration: &o.Status.ObservedGeneration, Conditions: &o.Status.Conditions}
		},
		make: r.makeGroup, users: r.usersOfGroup,
	}
	return r.setup(mgr, "vpc-security-group", workers, func(b *ctrl.Builder) {
		// One that comes or goes is another for those whose rules name it.
		b.Watches(&vpcv1.SecurityGroup{}, handler.EnqueueRequestsFromMapFunc(r.requestWhoNames), builder.WithPredicates(otherObject))
	})
}

// requestWhoNames asks for the SecurityGroups whose rules name one.
func (r *securityGroups) requestWhoNames(ctx context.Context, o client.Object) []reconcile.Request {
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

func (r *securityGroups) makeGroup(ctx context.Context, group *vpcv1.SecurityGroup) (conditions.Result, error) {
	peers, missing, err := r.peers(ctx, group)
	if err != nil {
		return conditions.Result{}, err
	}
	result, err := r.backend.EnsureSecurityGroup(ctx, group, peers)
	if err == nil && len(missing) > 0 {
		result = conditions.Waiting(reasonGroupNotFound, fmt.Sprintf(
			"rules name SecurityGroups that do not exist in this namespace, and allow nothing until they do: %s; the other rules apply", some(missing)))
	}
	return result, err
}

// peers finds the groups that the rules name.
func (r *securityGroups) peers(ctx context.Context, group *vpcv1.SecurityGroup) (uids map[string]types.UID, missing []string, err error) {
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

// usersOfGroup names what keeps a group: one that went while a workload names it would close the workload.
func (r *securityGroups) usersOfGroup(ctx context.Context, group *vpcv1.SecurityGroup) (refusal, error) {
	users, err := r.backend.UsersOfSecurityGroup(ctx, group.UID)
	if err != nil || len(users) == 0 {
		return nil, err
	}
	return refuse(conditions.Waiting(reasonInUse, "the SecurityGroup goes when nothing names it any more: "+some(users))), nil
}
