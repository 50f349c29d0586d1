package claim

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/conditions"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/ipam"
)

// Claimer gives Pods of one node their interfaces and addresses while no network controller does. Its writes are the controller's, in
// the same order, so that whoever comes first has them and the other finds nothing left to do:
//
//  1. the interface, with its finalizer and its Pod (create is the lock), or its change to this Pod (the version is the lock);
//  2. the leases (create is the lock; both try the same addresses in the same order);
//  3. the interface's status, on the version that was read before the leases were made: of two that leased different addresses one
//     publishes its own, and the controller frees the other's.
//
// After a crash at any of them a repeated Claim goes on; what nobody goes on with, the controller removes: the interface of a Pod
// that is gone, leases of an interface that is gone. A Claimer frees nothing.
//
// It leaves to the controller what more than the Pod and its node depends on: interfaces that a Pod names (net.mnicloud.jp/interface) and that do
// not exist yet, those that are on another node, and Pods of the platform.
type Claimer struct {
	// Client reads from and writes to the API server itself.
	Client client.Client
	// Node is the node's name.
	Node string
}

// Claim gives the Pod its interface and its addresses. UID may be empty when it is not known. Has is the name of the interface
// that the Pod has already, as far as the caller knows. The error says why the Pod has none yet; it may be repeated.
func (c *Claimer) Claim(ctx context.Context, key client.ObjectKey, uid types.UID, has string) error {
	var pod corev1.Pod
	if err := c.Client.Get(ctx, key, &pod); err != nil {
		return fmt.Errorf("read Pod %s: %w", key, err)
	}
	switch {
	case uid != "" && pod.UID != uid:
		return fmt.Errorf("another Pod %s is there by now (UID %s, not %s)", key, pod.UID, uid)
	case pod.Spec.NodeName != c.Node:
		return fmt.Errorf("the Pod %s is on node %q, not on this node, %q", key, pod.Spec.NodeName, c.Node)
	case !Networked(&pod), Finished(&pod), !pod.DeletionTimestamp.IsZero():
		return fmt.Errorf("the Pod %s needs no interface any more, or none at all", key)
	case AsksForPlatform(&pod):
		return fmt.Errorf("the Pod %s is the platform's: only the network controller gives those interfaces, and it has not", key)
	}
	nic, err := c.attach(ctx, &pod, has)
	if err != nil {
		return err
	}
	return c.publish(ctx, nic)
}

// attach makes the Pod's interface, or makes one that exists the Pod's.
func (c *Claimer) attach(ctx context.Context, pod *corev1.Pod, has string) (*netv1.NetworkInterface, error) {
	if no := CheckPod(pod); no != nil {
		return nil, no
	}
	name := has
	if name == "" {
		name = InterfaceName(pod)
	}
	var nic netv1.NetworkInterface
	err := c.Client.Get(ctx, client.ObjectKey{Name: name}, &nic)
	if apierrors.IsNotFound(err) {
		return c.make(ctx, pod)
	}
	if err != nil {
		return nil, fmt.Errorf("read NetworkInterface %s: %w", name, err)
	}
	holderAlive := false
	if other := nic.Spec.Pod; other != nil && other.UID != pod.UID && nic.Spec.Namespace == pod.Namespace {
		life, err := PodLife(ctx, c.Client, c.Client, client.ObjectKey{Namespace: other.Namespace, Name: other.Name}, other.UID)
		if err != nil {
			return nil, err
		}
		holderAlive = life == Alive
	}
	step, no := DecideAttachment(pod, &nic, holderAlive)
	switch {
	case no != nil:
		return nil, no
	case step == Nothing:
		return &nic, nil
	case nic.Spec.Node != "" && nic.Spec.Node != c.Node:
		return nil, fmt.Errorf("NetworkInterface %s is on node %s: only the network controller moves it, and it has not", nic.Name, nic.Spec.Node)
	}
	base := nic.DeepCopy()
	if step == Attach {
		if _, no, err := SubnetFor(ctx, c.Client, pod); err != nil || no != nil {
			return nil, errorOf(no, err)
		}
		AttachTo(&nic, pod)
	}
	SetNode(&nic, c.Node)
	if err := c.Client.Patch(ctx, &nic, unchanged(base)); err != nil {
		return nil, fmt.Errorf("attach NetworkInterface %s to Pod %s/%s: %w", nic.Name, pod.Namespace, pod.Name, err)
	}
	return &nic, nil
}

// make makes the interface of a Pod that has none. One that somebody else made meanwhile is for the next try.
func (c *Claimer) make(ctx context.Context, pod *corev1.Pod) (*netv1.NetworkInterface, error) {
	if name := pod.Annotations[netv1.AnnotationInterface]; name != "" {
		return nil, fmt.Errorf("annotation %s: NetworkInterface %s does not exist, and only the network controller makes it", netv1.AnnotationInterface, name)
	}
	subnet, no, err := SubnetFor(ctx, c.Client, pod)
	if err != nil || no != nil {
		return nil, errorOf(no, err)
	}
	nic := NewInterface(pod, subnet)
	if err := c.Client.Create(ctx, nic); err != nil {
		return nil, fmt.Errorf("create NetworkInterface %s for Pod %s/%s: %w", nic.Name, pod.Namespace, pod.Name, err)
	}
	return nic, nil
}

// publish leases addresses for an interface that has none and writes them to its status.
func (c *Claimer) publish(ctx context.Context, nic *netv1.NetworkInterface) error {
	if nic.Status.Address != "" {
		return nil
	}
	if !nic.DeletionTimestamp.IsZero() {
		return fmt.Errorf("NetworkInterface %s is being deleted", nic.Name)
	}
	var subnet netv1.Subnet
	if err := c.Client.Get(ctx, client.ObjectKey{Name: nic.Spec.Subnet}, &subnet); err != nil {
		return fmt.Errorf("read Subnet %s of NetworkInterface %s: %w", nic.Spec.Subnet, nic.Name, err)
	}
	var vpc netv1.VPC
	if err := c.Client.Get(ctx, client.ObjectKey{Name: subnet.Spec.VPC}, &vpc); err != nil {
		return fmt.Errorf("read VPC %s of Subnet %s: %w", subnet.Spec.VPC, subnet.Name, err)
	}
	leases := &leaseReader{Client: c.Client, subnets: []string{subnet.Name, netv1.DefaultSubnet}}
	addresses := Addresses{Client: c.Client, IPAM: &ipam.Allocator{Client: leases, Live: c.Client}}
	base := nic.DeepCopy()
	result, err := addresses.Allocate(ctx, nic, &subnet, &vpc, &nic.Status)
	if err != nil {
		return err
	}
	if !result.IsReady() {
		return fmt.Errorf("NetworkInterface %s: %s: %s", nic.Name, result.Reason, result.Message)
	}
	nic.Status.ReleasedAt = nil
	conditions.Status{Phase: &nic.Status.Phase, ObservedGeneration: &nic.Status.ObservedGeneration, Conditions: &nic.Status.Conditions}.Apply(nic, result)
	if equality.Semantic.DeepEqual(base.Status, nic.Status) {
		return nil
	}
	if err := c.Client.Status().Patch(ctx, nic, unchanged(base)); err != nil {
		return fmt.Errorf("write the status of NetworkInterface %s: %w", nic.Name, err)
	}
	return nil
}

// unchanged is a merge patch against base that fails with a conflict when the object has changed since base was read.
func unchanged(base client.Object) client.Patch {
	return client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
}

// errorOf is a refusal or a failure as an error.
func errorOf(no *Refusal, err error) error {
	if err != nil || no == nil {
		return err
	}
	return no
}
