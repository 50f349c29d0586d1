package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mnicloud/mnicloud/kit/conditions"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// securityGroupReconciler says of SecurityGroups whether the groups that their rules name exist. Nodes read the groups by
// themselves; nothing is made for one, so that none waits for this.
type securityGroupReconciler struct {
	client client.Client
	config Config
}

func (r *securityGroupReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("net-security-group").
		For(&netv1.SecurityGroup{}).
		Watches(&netv1.SecurityGroup{}, mapped(r.whoNames), onCreateOrUpdate(func(before, after *netv1.SecurityGroup) bool { return before.UID != after.UID })).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.config.Workers}).
		Complete(r)
}

// whoNames are the groups whose rules name a group.
func (r *securityGroupReconciler) whoNames(ctx context.Context, group *netv1.SecurityGroup) []reconcile.Request {
	var list netv1.SecurityGroupList
	if err := r.client.List(ctx, &list, client.MatchingFields{groupByPeer: group.Name}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the SecurityGroups that name another", "group", group.Name)
	}
	out := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, requests(list.Items[i].Name)...)
	}
	return out
}

// Reconcile writes one SecurityGroup's status.
func (r *securityGroupReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var group netv1.SecurityGroup
	if err := r.client.Get(ctx, req.NamespacedName, &group); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	missing, err := unknownGroups(ctx, r.client, group.Spec.Namespace, peersOf(&group))
	if err != nil {
		return reconcile.Result{}, err
	}
	result := conditions.Ready(reasonReady, "the rules are applied")
	if len(missing) > 0 {
		result = conditions.Waiting(reasonGroupNotFound, fmt.Sprintf("rules name SecurityGroups that do not exist in namespace %s, and allow nothing until they do: %s",
			group.Spec.Namespace, nameSome(missing)))
	}
	base := group.DeepCopy()
	s := &group.Status
	conditions.Status{Phase: &s.Phase, ObservedGeneration: &s.ObservedGeneration, Conditions: &s.Conditions}.Apply(&group, result)
	if equality.Semantic.DeepEqual(base.Status, group.Status) {
		return reconcile.Result{}, nil
	}
	if err := r.client.Status().Patch(ctx, &group, optimistic(base)); err != nil {
		return settle(reconcile.Result{}, fmt.Errorf("write the status of SecurityGroup %s: %w", group.Name, err))
	}
	return reconcile.Result{}, nil
}

// peersOf are the groups that a group's rules name.
func peersOf(group *netv1.SecurityGroup) []string {
	var names []string
	for _, rules := range [][]netv1.SecurityGroupRule{group.Spec.Ingress, group.Spec.Egress} {
		for _, rule := range rules {
			if rule.SecurityGroup != nil {
				names = append(names, *rule.SecurityGroup)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// unknownGroups are those of the names that no group of the namespace has.
func unknownGroups(ctx context.Context, c client.Reader, namespace string, names []string) ([]string, error) {
	var missing []string
	for _, name := range names {
		var group netv1.SecurityGroup
		err := c.Get(ctx, client.ObjectKey{Name: name}, &group)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read SecurityGroup %s: %w", name, err)
		}
		if err != nil || group.Spec.Namespace != namespace {
			missing = append(missing, name)
		}
	}
	return missing, nil
}

// groups sets an interface's condition about the groups that it names. One of another namespace is as good as none: nobody
// learns of it here.
func (r *interfaceReconciler) groups(ctx context.Context, nic *netv1.NetworkInterface, s *netv1.NetworkInterfaceStatus) error {
	if len(nic.Spec.SecurityGroups) == 0 {
		meta.RemoveStatusCondition(&s.Conditions, netv1.ConditionSecurityGroupsKnown)
		return nil
	}
	missing, err := unknownGroups(ctx, r.client, nic.Spec.Namespace, nic.Spec.SecurityGroups)
	if err != nil {
		return err
	}
	if len(missing) == 0 {
		conditions.Set(nic, &s.Conditions, netv1.ConditionSecurityGroupsKnown, metav1.ConditionTrue, reasonReady, "every group exists")
		return nil
	}
	conditions.Set(nic, &s.Conditions, netv1.ConditionSecurityGroupsKnown, metav1.ConditionFalse, reasonGroupNotFound, fmt.Sprintf(
		"spec.securityGroups names SecurityGroups that do not exist in namespace %s, so the interface is closed: %s; make them, or name others",
		nic.Spec.Namespace, strings.Join(missing, ", ")))
	return nil
}
