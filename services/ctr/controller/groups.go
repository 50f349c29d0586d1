package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/conditions"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// groups finds the SecurityGroups that the Container names.
func (r *reconciler) groups(ctx context.Context, c *ctrv1.Container) (map[string]types.UID, error) {
	groups := map[string]types.UID{}
	for _, name := range c.Spec.SecurityGroups {
		err := find(ctx, r.client, client.ObjectKey{Namespace: c.Namespace, Name: name}, &vpcv1.SecurityGroup{}, func(g *vpcv1.SecurityGroup) {
			groups[name] = g.UID
		})
		if err != nil {
			return nil, err
		}
	}
	return groups, nil
}

// join puts the interface, which may be in use, into the Container's groups, and says whether it checks addresses.
func (r *reconciler) join(ctx context.Context, w world) error {
	want, check := interfaceGroups(w), checksAddresses(w.container)
	if w.nic == nil || !w.nic.DeletionTimestamp.IsZero() ||
		slices.Equal(w.nic.Spec.SecurityGroups, want) && ptr.Deref(w.nic.Spec.SourceDestCheck, true) == check {
		return nil
	}
	before := w.nic.DeepCopy()
	w.nic.Spec.SecurityGroups, w.nic.Spec.SourceDestCheck = want, &check
	if err := r.client.Patch(ctx, w.nic, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("put the interface of Container %s into its SecurityGroups: %w", client.ObjectKeyFromObject(w.container), err)
	}
	return nil
}

// interfaceGroups are the network's groups for the Container's interface, in order. One that does not exist stays in the list,
// under a name that no group can have: the network closes an interface that names such a group.
func interfaceGroups(w world) []string {
	var names []string
	for _, name := range w.container.Spec.SecurityGroups {
		if uid, ok := w.groups[name]; ok {
			names = append(names, string(uid))
		} else {
			names = append(names, "missing/"+name)
		}
	}
	slices.Sort(names)
	return names
}

// withGroups tells of groups that do not exist, which nothing else that is well makes up for.
func withGroups(w world, result conditions.Result) conditions.Result {
	missing := slices.DeleteFunc(slices.Clone(w.container.Spec.SecurityGroups), func(name string) bool { return w.groups[name] != "" })
	if len(missing) == 0 || !result.IsReady() {
		return result
	}
	return conditions.Waiting("SecurityGroupNotFound", fmt.Sprintf(
		"spec.securityGroups names SecurityGroups that do not exist in this namespace: %s; nothing reaches the Container until you create them, or name others",
		strings.Join(missing, ", ")))
}
