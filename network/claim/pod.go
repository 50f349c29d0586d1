package claim

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/ipam"
)

// Networked tells whether the Pod has an interface of its own.
func Networked(pod *corev1.Pod) bool { return !pod.Spec.HostNetwork }

// Finished tells whether the Pod's containers have ended for good.
func Finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// InterfaceName is the name of the Pod's NetworkInterface.
func InterfaceName(pod *corev1.Pod) string {
	if name := pod.Annotations[netv1.AnnotationInterface]; name != "" {
		return name
	}
	if name, ok := replicaName(pod); ok {
		return name
	}
	return string(pod.UID)
}

// replicaName is the name of the interface that all Pods of one replica of a StatefulSet share, one after the other: the
// address and the MAC stay with the replica. The namespace is in it because anybody may claim an owner for a Pod of theirs.
func replicaName(pod *corev1.Pod) (string, bool) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "StatefulSet" || !strings.HasPrefix(owner.APIVersion, "apps/") {
		return "", false
	}
	number, ok := strings.CutPrefix(pod.Name, owner.Name+"-")
	if _, err := strconv.ParseUint(number, 10, 31); !ok || err != nil {
		return "", false
	}
	return pod.Namespace + "." + string(owner.UID) + "-" + number, true
}

// SubnetName is the name of the Pod's Subnet.
func SubnetName(pod *corev1.Pod) string {
	if name := pod.Annotations[netv1.AnnotationSubnet]; name != "" {
		return name
	}
	return netv1.DefaultSubnet
}

// Refusal is why a Pod does not get its interface, or not yet.
type Refusal struct {
	Reason  string
	Message string
}

// Error is the message.
func (r *Refusal) Error() string { return r.Message }

// CheckPod decides what can be decided from the Pod alone.
func CheckPod(pod *corev1.Pod) *Refusal {
	name := InterfaceName(pod)
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return &Refusal{ReasonInterfaceName, fmt.Sprintf("annotation %s: %q: %s", netv1.AnnotationInterface, name, strings.Join(problems, "; "))}
	}
	return nil
}

// CheckAccess decides whether Pods of the namespace may have interfaces in the Subnet.
func CheckAccess(namespace string, subnet *netv1.Subnet, vpc *netv1.VPC) *Refusal {
	if subnet.Name == netv1.DefaultSubnet || slices.Contains(vpc.Spec.Namespaces, namespace) {
		return nil
	}
	return &Refusal{ReasonNamespaceRefused, fmt.Sprintf("VPC %s of Subnet %s does not allow Pods of namespace %s; add the namespace to the VPC's spec.namespaces, or use a Subnet of another VPC",
		vpc.Name, subnet.Name, namespace)}
}

// CheckAddress decides whether the address the Pod asks for, if any, can be had in the Subnet.
func CheckAddress(pod *corev1.Pod, subnet *netv1.Subnet) *Refusal {
	address, cidr := pod.Annotations[netv1.AnnotationAddress], subnet.Spec.CIDR
	prefix, ok := ParseCIDR(cidr)
	if address == "" || !ok {
		return nil
	}
	if _, err := (ipam.Range{CIDR: prefix}).Check(subnet.Name, address); err != nil {
		return &Refusal{ReasonAddressInvalid, fmt.Sprintf("annotation %s: %v", netv1.AnnotationAddress, err)}
	}
	return nil
}

// AsksForPlatform tells whether a Pod wants to open connections to infrastructure addresses.
func AsksForPlatform(pod *corev1.Pod) bool {
	return pod.Labels[netv1.LabelPlatform] == netv1.PlatformTrue
}

// SubnetFor is the Subnet the Pod asks for, when the Pod may be in it.
func SubnetFor(ctx context.Context, from client.Reader, pod *corev1.Pod) (*netv1.Subnet, *Refusal, error) {
	var subnet netv1.Subnet
	err := from.Get(ctx, client.ObjectKey{Name: SubnetName(pod)}, &subnet)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &Refusal{ReasonSubnetNotFound, fmt.Sprintf("annotation %s: Subnet %s does not exist yet", netv1.AnnotationSubnet, SubnetName(pod))}, nil
	case err != nil:
		return nil, nil, fmt.Errorf("read Subnet %s: %w", SubnetName(pod), err)
	case !subnet.DeletionTimestamp.IsZero():
		return nil, &Refusal{ReasonSubnetDeleting, fmt.Sprintf("annotation %s: Subnet %s is being deleted; use another Subnet", netv1.AnnotationSubnet, subnet.Name)}, nil
	}
	var vpc netv1.VPC
	err = from.Get(ctx, client.ObjectKey{Name: subnet.Spec.VPC}, &vpc)
	if client.IgnoreNotFound(err) != nil {
		return nil, nil, fmt.Errorf("read VPC %s: %w", subnet.Spec.VPC, err)
	}
	vpc.Name = subnet.Spec.VPC
	if no := CheckAccess(pod.Namespace, &subnet, &vpc); no != nil {
		return nil, no, nil
	}
	return &subnet, CheckAddress(pod, &subnet), nil
}

// Step is what a Pod's existing interface needs.
type Step int

// What can be done about an interface.
const (
	// Nothing: it is as it should be.
	Nothing Step = iota
	// Attach: it becomes the Pod's.
	Attach
	// Move: it is the Pod's; its node is not written yet.
	Move
	// Deny: the refusal says why.
	Deny
)

// DecideAttachment decides what to do about an interface that exists and that the Pod names or has. What the Pod's
// annotations say counts when it gets its interface; changed later they change nothing. HolderAlive tells whether the
// Pod that the interface is attached to, if it is another one, still needs it.
func DecideAttachment(pod *corev1.Pod, nic *netv1.NetworkInterface, holderAlive bool) (Step, *Refusal) {
	address := pod.Annotations[netv1.AnnotationAddress]
	has := nic.Spec.Address
	if has == "" {
		has = nic.Status.Address
	}
	switch {
	case AttachedTo(nic, pod) && nic.Spec.Node == pod.Spec.NodeName:
		return Nothing, nil
	case AttachedTo(nic, pod):
		return Move, nil
	case nic.Spec.Namespace != pod.Namespace:
		return Deny, &Refusal{ReasonInterfaceForeign, fmt.Sprintf("annotation %s: NetworkInterface %s is not of namespace %s; use another name",
			netv1.AnnotationInterface, nic.Name, pod.Namespace)}
	case nic.Spec.Subnet != SubnetName(pod):
		return Deny, &Refusal{ReasonInterfaceSubnet, fmt.Sprintf("annotation %s: NetworkInterface %s is in Subnet %s, the Pod asks for Subnet %s; use another name, or delete the interface",
			netv1.AnnotationInterface, nic.Name, nic.Spec.Subnet, SubnetName(pod))}
	case !nic.DeletionTimestamp.IsZero():
		return Deny, &Refusal{ReasonInterfaceDeleting, fmt.Sprintf("NetworkInterface %s is being deleted; the Pod gets a new one of that name then", nic.Name)}
	case holderAlive:
		return Deny, &Refusal{ReasonInterfaceInUse, fmt.Sprintf("NetworkInterface %s is attached to Pod %s; this Pod waits until that one is gone", nic.Name, nic.Spec.Pod.Name)}
	case address != "" && has != "" && address != has:
		return Deny, &Refusal{ReasonAddressInterface, fmt.Sprintf("annotation %s: NetworkInterface %s has address %s, the Pod asks for %s; remove the annotation, or delete the interface",
			netv1.AnnotationAddress, nic.Name, has, address)}
	}
	return Attach, nil
}

// AttachedTo tells whether the interface is the Pod's.
func AttachedTo(nic *netv1.NetworkInterface, pod *corev1.Pod) bool {
	return nic.Spec.Pod != nil && nic.Spec.Pod.UID == pod.UID
}

// NewInterface is the interface made for a Pod.
func NewInterface(pod *corev1.Pod, subnet *netv1.Subnet) *netv1.NetworkInterface {
	nic := &netv1.NetworkInterface{
		ObjectMeta: metav1.ObjectMeta{
			Name:       InterfaceName(pod),
			Labels:     ipam.Labels(subnet.Spec.VPC, subnet.Name),
			Finalizers: []string{netv1.Finalizer},
		},
		Spec: netv1.NetworkInterfaceSpec{
			Subnet: subnet.Name, Namespace: pod.Namespace, Address: pod.Annotations[netv1.AnnotationAddress],
		},
	}
	if owner := metav1.GetControllerOf(pod); owner != nil && nic.Name != string(pod.UID) {
		nic.Annotations = map[string]string{netv1.AnnotationHolder: owner.Kind + " " + owner.Name + ", Pod " + pod.Name}
	}
	if nic.Name == string(pod.UID) {
		nic.Annotations = map[string]string{netv1.AnnotationHolderPod: pod.Namespace + "/" + pod.Name}
	}
	AttachTo(nic, pod)
	return nic
}

// AttachTo makes the Pod the interface's. What it asks for was checked.
func AttachTo(nic *netv1.NetworkInterface, pod *corev1.Pod) {
	nic.Spec.Pod = &netv1.PodReference{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	nic.Spec.Platform = AsksForPlatform(pod)
	SetNode(nic, pod.Spec.NodeName)
}

// Detach takes the interface from its Pod.
func Detach(nic *netv1.NetworkInterface) {
	nic.Spec.Pod = nil
	nic.Spec.Platform = false
	SetNode(nic, "")
}

// SetNode writes down the interface's node, where selectors find it, too.
func SetNode(nic *netv1.NetworkInterface, node string) {
	nic.Spec.Node = node
	if node == "" || len(validation.IsValidLabelValue(node)) > 0 {
		delete(nic.Labels, netv1.LabelNode)
		return
	}
	if nic.Labels == nil {
		nic.Labels = map[string]string{}
	}
	nic.Labels[netv1.LabelNode] = node
}
