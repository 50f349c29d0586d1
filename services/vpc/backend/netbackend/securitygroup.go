package netbackend

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mnicloud/mnicloud/kit/apply"
	"github.com/mnicloud/mnicloud/kit/conditions"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// EnsureSecurityGroup implements backend.Backend.
func (b *Backend) EnsureSecurityGroup(ctx context.Context, group *vpcv1.SecurityGroup, peers map[string]types.UID) (conditions.Result, error) {
	live := &netv1.SecurityGroup{}
	if err := b.client.Get(ctx, client.ObjectKey{Name: string(group.UID)}, live); client.IgnoreNotFound(err) != nil {
		return conditions.Result{}, fmt.Errorf("read the network's SecurityGroup: %w", err)
	}
	if !live.DeletionTimestamp.IsZero() {
		return remaking("SecurityGroup", group.Name), nil
	}
	desired := &netv1.SecurityGroup{ObjectMeta: metadata(group), Spec: netv1.SecurityGroupSpec{
		Namespace: group.Namespace, Ingress: rules(group.Spec.Ingress, peers), Egress: rules(group.Spec.Egress, peers),
	}}
	if err := apply.Object(ctx, b.client, FieldOwner, live, desired); err != nil {
		return refused(err)
	}
	names := []string{string(group.UID), group.Name}
	for name, uid := range peers {
		names = append(names, string(uid), name)
	}
	return resultOf("the SecurityGroup", live, live.Status.Conditions, strings.NewReplacer(names...)), nil
}

// noGroup is where a rule's peers are that are none: a name that no object can have. The rule stays, as a direction that has
// rules is another than one that has none.
const noGroup = "-"

func rules(of []vpcv1.SecurityGroupRule, peers map[string]types.UID) []netv1.SecurityGroupRule {
	var out []netv1.SecurityGroupRule
	for _, r := range of {
		rule := netv1.SecurityGroupRule{
			Protocol: netv1.RuleProtocol(r.Protocol), Port: r.Port, EndPort: r.EndPort, ICMPType: r.ICMPType, ICMPCode: r.ICMPCode, CIDR: r.CIDR,
		}
		if r.SecurityGroup != nil {
			name := noGroup
			if uid, ok := peers[*r.SecurityGroup]; ok {
				name = string(uid)
			}
			rule.SecurityGroup = &name
		}
		out = append(out, rule)
	}
	return out
}

// UsersOfSecurityGroup implements backend.Backend.
func (b *Backend) UsersOfSecurityGroup(ctx context.Context, uid types.UID) ([]string, error) {
	return b.users(ctx, interfaceByGroup, uid)
}

// requestGroupsOfInterface asks for the tenant's SecurityGroups that an interface was in: they may wait for it to leave.
func (b *Backend) requestGroupsOfInterface(ctx context.Context, o client.Object) []reconcile.Request {
	nic, ok := o.(*netv1.NetworkInterface)
	if !ok {
		return nil
	}
	var requests []reconcile.Request
	for _, name := range nic.Spec.SecurityGroups {
		var group netv1.SecurityGroup
		if err := b.client.Get(ctx, client.ObjectKey{Name: name}, &group); err != nil {
			if client.IgnoreNotFound(err) != nil {
				ctrl.LoggerFrom(ctx).Error(err, "read the SecurityGroup of an interface", "interface", nic.Name)
			}
			continue
		}
		requests = append(requests, requestOwner(ctx, &group)...)
	}
	return requests
}

// groupsLeft lets through that an interface is gone, or is in other groups than before.
var groupsLeft = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, was := e.ObjectOld.(*netv1.NetworkInterface)
		after, is := e.ObjectNew.(*netv1.NetworkInterface)
		return was && is && !slices.Equal(before.Spec.SecurityGroups, after.Spec.SecurityGroups)
	},
}
