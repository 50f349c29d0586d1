package controller

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// world is all that the decisions about a Container are made from.
type world struct {
	container *ctrv1.Container
	// subnet is the Subnet it names; nil when there is none.
	subnet *vpcv1.Subnet
	// groups are the UIDs of the SecurityGroups it names, by name, as far as they exist.
	groups map[string]types.UID
	// nic is its interface; nil when there is none.
	nic *netv1.NetworkInterface
	// pod is the Pod of its name that it controls; nil when there is none.
	pod *corev1.Pod
	// node is how the Pod's node is.
	node answer
	// asked is how the node is that the spec asks for, as long as the Pod has none.
	asked answer
	// leaving: the namespace is being deleted, and the Container with it in a moment.
	leaving bool
	now     time.Time
}

// step is what is done next.
type step int

const (
	hold step = iota
	makeInterface
	removeInterface
	makePod
	removePod
	// forcePod removes the Pod without waiting for its node, which does not answer.
	forcePod
)

// plan is the next step, how the Container is meanwhile, and when to look again if nothing happens (0: never).
type plan struct {
	step   step
	result conditions.Result
	again  time.Duration
}

// overdue is how long after its end a Pod may still be there while its node speaks, but is not Ready.
const overdue = 5 * time.Second

// decide chooses the next step for a Container that is to be. A Pod that runs is never taken away because its Subnet, its
// interface or the network is in trouble.
func decide(w world) plan {
	running := w.pod != nil
	if running && (!w.pod.DeletionTimestamp.IsZero() || finished(w.pod)) {
		return replace(w)
	}
	if running && w.node == removed {
		return plan{step: removePod, result: conditions.Progressing("Replacing", "node "+w.pod.Spec.NodeName+" was removed; another Pod is made elsewhere")}
	}
	if no := checkSubnet(w.container, w.subnet); no != nil {
		if running {
			return plan{step: hold, result: observe(w)}
		}
		return plan{step: hold, result: *no}
	}
	home, projected := w.subnet.Status.Attachment.PodAnnotations[netv1.AnnotationSubnet]
	if projected {
		if p, settled := decideInterface(w, home); settled {
			return p
		}
	}
	if !running && w.leaving {
		return plan{step: hold, result: namespaceDeleting}
	}
	if !running {
		return plan{step: makePod, result: conditions.Progressing("Creating", "the Pod is being made")}
	}
	if projected && addressOf(w.nic) == "" {
		return plan{step: hold, result: observe(w)}
	}
	if hash, err := specHash(w.container, w.subnet, addressOf(w.nic)); err == nil && w.pod.Annotations[annotationSpec] != hash {
		return plan{step: removePod, result: conditions.Progressing("Replacing", "the spec has changed; the old Pod ends and another is made")}
	}
	return plan{step: hold, result: observe(w)}
}

// decideInterface chooses the next step for the interface in the network's Subnet of the name home; settled is false when
// the interface is as it should be.
func decideInterface(w world, home string) (p plan, settled bool) {
	if w.nic == nil && w.leaving {
		return plan{step: hold, result: namespaceDeleting}, true
	}
	if w.nic == nil {
		return plan{step: makeInterface, result: conditions.Progressing("Allocating", "an address of the Subnet is being given")}, true
	}
	if w.nic.Spec.Subnet != home && w.nic.DeletionTimestamp.IsZero() {
		result := conditions.Progressing("Moving", "spec.subnet names another Subnet of that name than before; the Container is made anew in it")
		if w.pod != nil {
			return plan{step: removePod, result: result}, true
		}
		return plan{step: removeInterface, result: result}, true
	}
	if w.pod != nil {
		return plan{}, false
	}
	if !w.nic.DeletionTimestamp.IsZero() {
		return plan{step: hold, result: conditions.Progressing("Allocating", "the former address is being given back; a new one follows")}, true
	}
	if addressOf(w.nic) != "" && conditions.IsReady(w.nic.Status.Conditions, w.nic.Generation) {
		return plan{}, false
	}
	return plan{step: hold, result: addressProblem(w.container, w.nic)}, true
}

// replace waits for a Pod that ends, or ends one that is finished.
func replace(w world) plan {
	on := onNode(w.pod)
	if w.pod.DeletionTimestamp.IsZero() {
		return plan{step: removePod, result: conditions.Progressing("Replacing", "the Pod was lost"+on+why(w.pod.Status.Reason, w.pod.Status.Message)+"; another is made")}
	}
	switch left := w.untilForced(); {
	case left <= 0:
		return plan{step: forcePod, result: conditions.Progressing("Replacing", "node "+w.pod.Spec.NodeName+" does not answer; another Pod is made elsewhere")}
	case w.now.Before(w.pod.DeletionTimestamp.Add(overdue)):
		return plan{step: hold, result: conditions.Progressing("Replacing", "the old Pod is ending"+on+"; another is made then"), again: left}
	default:
		return plan{step: hold, result: conditions.Progressing("Replacing", "the old Pod is slow to end"+on+"; another is made then"), again: left}
	}
}

// untilForced is how long to wait, before looking again, for a Pod that was asked to go; not positive when it is to be
// removed without its node. One whose node is silent would not end in any case. Peers on the network refuse what it still
// sends, so another can run at once.
func (w world) untilForced() time.Duration {
	left := w.pod.DeletionTimestamp.Add(overdue).Sub(w.now)
	if grace := w.pod.DeletionGracePeriodSeconds; grace != nil && left > time.Duration(*grace)*time.Second+2*overdue {
		left = 0 // the clock has been set back since
	}
	switch {
	case w.node == silent:
		return 0
	case left > 0 || w.node != answers || w.pod.Spec.NodeName == "":
		return left
	}
	return 2 * overdue
}

// checkSubnet decides whether the Container's Subnet can take it; nil means yes.
func checkSubnet(c *ctrv1.Container, subnet *vpcv1.Subnet) *conditions.Result {
	named := dependency.Reference{Field: "spec.subnet", Kind: "Subnet", Name: c.Spec.Subnet, By: "Container"}
	if subnet == nil {
		return named.NotFound()
	}
	if no := named.Unready(subnet, subnet.Status.Conditions); no != nil || subnet.Status.Attachment != nil {
		return no
	}
	return named.NotReady(subnet.Status.Conditions)
}

// addressProblem tells why the Container's interface has no address.
func addressProblem(c *ctrv1.Container, nic *netv1.NetworkInterface) conditions.Result {
	ready := meta.FindStatusCondition(nic.Status.Conditions, status.ConditionReady)
	switch {
	case ready == nil:
		return conditions.Progressing("Allocating", "an address of the Subnet is being given")
	case ready.Reason == "AddressesExhausted":
		return conditions.Waiting(ready.Reason, fmt.Sprintf(
			"spec.subnet: all addresses of Subnet %q are in use; it starts when one is free: delete a Container that is in it, or make a new one in another Subnet", c.Spec.Subnet))
	case ready.Reason == "AddressInUse":
		return conditions.Failed(ready.Reason, fmt.Sprintf(
			"spec.address: %s of Subnet %q is in use; delete the Container that has it, or make this one anew with another address", c.Spec.Address, c.Spec.Subnet))
	case ready.Reason == "AddressInvalid":
		return conditions.Failed(ready.Reason, strings.ReplaceAll(ready.Message, nic.Spec.Subnet, c.Spec.Subnet))
	case meta.IsStatusConditionTrue(nic.Status.Conditions, status.ConditionStalled):
		return conditions.Failed(ready.Reason, fmt.Sprintf("spec.subnet: Subnet %q gives no address: %s", c.Spec.Subnet, ready.Message))
	}
	return conditions.Progressing("Allocating", "an address of the Subnet is being given")
}

// addressOf is the interface's address, "" while it has none.
func addressOf(nic *netv1.NetworkInterface) string {
	if nic == nil {
		return ""
	}
	return nic.Status.Address
}

// shownAddress is the address that the Container shows when the step is done next: its interface's, until that may go to
// somebody else. An interface that somebody deleted stays, with its address, as long as a Pod is attached to it.
func shownAddress(w world, next step) string {
	if next == removeInterface || w.pod == nil && w.nic != nil && !w.nic.DeletionTimestamp.IsZero() {
		return ""
	}
	return addressOf(w.nic)
}

// namespaceDeleting tells why nothing is made for the Container any more.
var namespaceDeleting = conditions.Waiting("NamespaceDeleting", "the namespace is being deleted, and this Container with it; nothing new is made in it")

// finished tells whether the Pod's containers have ended for good: evicted, or ended by its node.
func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// why joins a reason and a message, either maybe "", in brackets.
func why(reason, message string) string {
	switch {
	case reason == "" && message == "":
		return ""
	case message == "":
		return " (" + reason + ")"
	case reason == "":
		return " (" + message + ")"
	}
	return " (" + reason + ": " + message + ")"
}
