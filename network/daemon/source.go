package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/claim"
	"github.com/mnicloud/mnicloud/network/daemon/attachment"
	"github.com/mnicloud/mnicloud/network/daemon/desired"
)

// source finds Pods' interfaces on one node in the watched objects. Those that the network controller does not give in time it
// claims itself.
type source struct {
	objects *objects
	node    string
	claimer *claim.Claimer
	// after is how long the controller has.
	after time.Duration
	// slots has room for the claims that may be under way at once.
	slots chan struct{}
}

const (
	// claimInterval is the pause after a claim that failed.
	claimInterval = 3 * time.Second
	// claimsAtOnce bounds the load on an API server that is busy, which may be why the controller is late.
	claimsAtOnce = 4
)

// Wait implements attachment.Source.
func (s source) Wait(ctx context.Context, pod attachment.Pod) (attachment.Interface, error) {
	late := time.NewTimer(s.after)
	defer late.Stop()
	var claimed error
	for {
		changed := s.objects.next()
		nic, reason := s.find(ctx, pod)
		if reason == nil {
			return nic, nil
		}
		select {
		case <-changed:
		case <-late.C:
			claimed = s.claim(ctx, pod)
			late.Reset(claimInterval)
		case <-ctx.Done():
			return nic, errors.Join(reason, claimed)
		}
	}
}

// claim gives the Pod its interface in the controller's place. The watch tells of it.
func (s source) claim(ctx context.Context, pod attachment.Pod) error {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return nil
	}
	has := ""
	if nic, err := s.held(ctx, pod); err == nil && nic != nil {
		has = nic.Name
	}
	if err := s.claimer.Claim(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: pod.Name}, pod.UID, has); err != nil && ctx.Err() == nil {
		return fmt.Errorf("nor could the node: %w", err)
	}
	return nil
}

// held is the interface that the Pod has, whatever its state; nil when it has none.
func (s source) held(ctx context.Context, pod attachment.Pod) (*netv1.NetworkInterface, error) {
	key := string(pod.UID)
	if key == "" {
		key = pod.String()
	}
	var list netv1.NetworkInterfaceList
	if err := s.objects.cache.List(ctx, &list, client.MatchingFields{podIndex: key}); err != nil || len(list.Items) == 0 {
		return nil, err
	}
	return &list.Items[0], nil
}

// find returns the Pod's interface, or why it cannot be attached now.
func (s source) find(ctx context.Context, pod attachment.Pod) (attachment.Interface, error) {
	var none attachment.Interface
	nic, err := s.held(ctx, pod)
	if err != nil {
		return none, err
	}
	if nic == nil {
		return none, fmt.Errorf("no NetworkInterface is held by the Pod (UID %q): the network controller has not made it yet; its log and the Pod's events say why", pod.UID)
	}
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
