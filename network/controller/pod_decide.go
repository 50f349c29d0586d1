package controller

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/ipam"
)

// networked tells whether the Pod has an interface of its own.
func networked(pod *corev1.Pod) bool { return !pod.Spec.HostNetwork }

// finished tells whether the Pod's containers have ended for good.
func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// interfaceName is the name of the Pod's NetworkInterface.
func interfaceName(pod *corev1.Pod) string {
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

// subnetName is the name of the Pod's Subnet.
func subnetName(pod *corev1.Pod) string {
	if name := pod.Annotations[netv1.AnnotationSubnet]; name != "" {
		return name
	}
	return netv1.DefaultSubnet
}

// refusal is why a Pod does not get its interface, or not yet.
type refusal struct {
	reason  string
	message string
}

// checkPod decides what can be decided from the Pod alone.
func checkPod(pod *corev1.Pod) *refusal {
	name := interfaceName(pod)
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return &refusal{reasonInterfaceName, fmt.Sprintf("annotation %s: %q: %s", netv1.AnnotationInterface, name, strings.Join(problems, "; "))}
	}
	return nil
}

// checkAccess decides whether Pods of the namespace may have interfaces in the Subnet.
func checkAccess(namespace string, subnet *netv1.Subnet, vpc *netv1.VPC) *refusal {
	if subnet.Name == netv1.DefaultSubnet || slices.Contains(vpc.Spec.Namespaces, namespace) {
		return nil
	}
	return &refusal{reasonNamespaceRefused, fmt.Sprintf("VPC %s of Subnet %s does not allow Pods of namespace %s; add the namespace to the VPC's spec.namespaces, or use a Subnet of another VPC",
		vpc.Name, subnet.Name, namespace)}
}

// checkAddress decides whether the address the Pod asks for, if any, can be had in the Subnet.
func checkAddress(pod *corev1.Pod, subnet *netv1.Subnet) *refusal {
	address, cidr := pod.Annotations[netv1.AnnotationAddress], subnet.Spec.CIDR
	prefix, ok := parseCIDR(cidr)
	if address == "" || !ok {
		return nil
	}
	if _, err := (ipam.Range{CIDR: prefix}).Check(subnet.Name, address); err != nil {
		return &refusal{reasonAddressInvalid, fmt.Sprintf("annotation %s: %v", netv1.AnnotationAddress, err)}
	}
	return nil
}

// step is what a Pod's existing interface needs.
type step int

const (
	nothing step = iota
	attach       // the interface becomes the Pod's
	move         // the interface is the Pod's; its node is not written yet
	deny         // the refusal says why
)

// decideAttachment decides what to do about an interface that exists and that the Pod names or has. What the Pod's
// annotations say counts when it gets its interface; changed later they change nothing. HolderAlive tells whether the
// Pod that the interface is attached to, if it is another one, still needs it.
func decideAttachment(pod *corev1.Pod, nic *netv1.NetworkInterface, holderAlive bool) (step, *refusal) {
	address := pod.Annotations[netv1.AnnotationAddress]
	has := nic.Spec.Address
	if has == "" {
		has = nic.Status.Address
	}
	switch {
	case attachedTo(nic, pod) && nic.Spec.Node == pod.Spec.NodeName:
		return nothing, nil
	case attachedTo(nic, pod):
		return move, nil
	case nic.Spec.Namespace != pod.Namespace:
		return deny, &refusal{reasonInterfaceForeign, fmt.Sprintf("annotation %s: NetworkInterface %s is not of namespace %s; use another name",
			netv1.AnnotationInterface, nic.Name, pod.Namespace)}
	case nic.Spec.Subnet != subnetName(pod):
		return deny, &refusal{reasonInterfaceSubnet, fmt.Sprintf("annotation %s: NetworkInterface %s is in Subnet %s, the Pod asks for Subnet %s; use another name, or delete the interface",
			netv1.AnnotationInterface, nic.Name, nic.Spec.Subnet, subnetName(pod))}
	case !nic.DeletionTimestamp.IsZero():
		return deny, &refusal{reasonInterfaceDeleting, fmt.Sprintf("NetworkInterface %s is being deleted; the Pod gets a new one of that name then", nic.Name)}
	case holderAlive:
		return deny, &refusal{reasonInterfaceInUse, fmt.Sprintf("NetworkInterface %s is attached to Pod %s; this Pod waits until that one is gone", nic.Name, nic.Spec.Pod.Name)}
	case address != "" && has != "" && address != has:
		return deny, &refusal{reasonAddressInterface, fmt.Sprintf("annotation %s: NetworkInterface %s has address %s, the Pod asks for %s; remove the annotation, or delete the interface",
			netv1.AnnotationAddress, nic.Name, has, address)}
	}
	return attach, nil
}

// attachedTo tells whether the interface is the Pod's.
func attachedTo(nic *netv1.NetworkInterface, pod *corev1.Pod) bool {
	return nic.Spec.Pod != nil && nic.Spec.Pod.UID == pod.UID
}

// newInterface is the interface made for a Pod.
func newInterface(pod *corev1.Pod, subnet *netv1.Subnet) *netv1.NetworkInterface {
	nic := &netv1.NetworkInterface{
		ObjectMeta: metav1.ObjectMeta{
			Name:       interfaceName(pod),
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
	attachTo(nic, pod)
	return nic
}

// attachTo makes the Pod the interface's. What it asks for was checked.
func attachTo(nic *netv1.NetworkInterface, pod *corev1.Pod) {
	nic.Spec.Pod = &netv1.PodReference{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	nic.Spec.Platform = asksForPlatform(pod)
	setNode(nic, pod.Spec.NodeName)
}

// detach takes the interface from its Pod.
func detach(nic *netv1.NetworkInterface) {
	nic.Spec.Pod = nil
	nic.Spec.Platform = false
	setNode(nic, "")
}

func setNode(nic *netv1.NetworkInterface, node string) {
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
