package daemon

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/daemon/attachment"
	"github.com/mnicloud/mnicloud/network/daemon/desired"
)

// source finds Pods' interfaces on one node in the watched objects.
type source struct {
	objects *objects
	node    string
}

// Wait implements attachment.Source.
func (s source) Wait(ctx context.Context, pod attachment.Pod) (attachment.Interface, error) {
	for {
		changed := s.objects.next()
		nic, reason := s.find(ctx, pod)
		if reason == nil {
			return nic, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nic, reason
		}
	}
}

// find returns the Pod's interface, or why it cannot be attached now.
func (s source) find(ctx context.Context, pod attachment.Pod) (attachment.Interface, error) {
	var none attachment.Interface
	key := string(pod.UID)
	if key == "" {
		key = pod.String()
	}
	var list netv1.NetworkInterfaceList
	if err := s.objects.cache.List(ctx, &list, client.MatchingFields{podIndex: key}); err != nil {
		return none, err
	}
	if len(list.Items) == 0 {
		return none, fmt.Errorf("no NetworkInterface is held by the Pod (UID %q): the network controller has not made it yet; its log and the Pod's events say why", pod.UID)
	}
	nic := &list.Items[0]
	if nic.DeletionTimestamp != nil {
		return none, fmt.Errorf("NetworkInterface %s is being deleted", nic.Name)
	}
	if nic.Spec.Node != s.node {
		return none, fmt.Errorf("NetworkInterface %s is on node %q, not on this node, %q", nic.Name, nic.Spec.Node, s.node)
	}
	if ready, why := readyCondition(nic.Status.Conditions, status.ConditionReady); !ready {
		return none, fmt.Errorf("NetworkInterface %s is not Ready: %s", nic.Name, why)
	}
	var subnet netv1.Subnet
	if err := s.objects.cache.Get(ctx, client.ObjectKey{Name: nic.Spec.Subnet}, &subnet); err != nil {
		return none, fmt.Errorf("NetworkInterface %s: Subnet: %w", nic.Name, err)
	}
	return desired.InterfaceOf(nic, &subnet)
}
