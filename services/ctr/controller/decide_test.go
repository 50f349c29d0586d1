package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func aContainer() *ctrv1.Container {
	return &ctrv1.Container{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web-0", UID: "c-uid"},
		Spec:       ctrv1.ContainerSpec{Subnet: "web", Image: "whoami:1"},
	}
}

func aSubnet(result conditions.Result) *vpcv1.Subnet {
	s := &vpcv1.Subnet{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", Generation: 1}, Spec: vpcv1.SubnetSpec{VPC: "main"}}
	conditions.Status{Phase: &s.Status.Phase, ObservedGeneration: &s.Status.ObservedGeneration, Conditions: &s.Status.Conditions}.Apply(s, result)
	if result.IsReady() {
		s.Status.Attachment = &vpcv1.Attachment{PodAnnotations: map[string]string{netv1.AnnotationSubnet: "s-uid"}}
	}
	return s
}

func anInterface(address string, result conditions.Result) *netv1.NetworkInterface {
	n := &netv1.NetworkInterface{
		ObjectMeta: metav1.ObjectMeta{Name: "c-uid", Generation: 1},
		Spec:       netv1.NetworkInterfaceSpec{Subnet: "s-uid", Namespace: "a"},
		Status:     netv1.NetworkInterfaceStatus{Address: address},
	}
	conditions.Status{Phase: &n.Status.Phase, ObservedGeneration: &n.Status.ObservedGeneration, Conditions: &n.Status.Conditions}.Apply(n, result)
	return n
}

// aPod is the Pod that the world's Container has now, running on node-1.
func aPod(t *testing.T, w world) *corev1.Pod {
	t.Helper()
	pod, err := render(w.container, w.subnet, addressOf(w.nic))
	require.NoError(t, err)
	pod.UID, pod.Spec.NodeName = "p-uid", "node-1"
	pod.Status = corev1.PodStatus{
		Phase:             corev1.PodRunning,
		Conditions:        []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: containerName, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
	}
	return pod
}

// running is a world in which all is well.
func running(t *testing.T) world {
	t.Helper()
	w := world{container: aContainer(), subnet: aSubnet(conditions.Ready("Ready", "")), nic: anInterface("10.0.1.2", conditions.Ready("Ready", "")), now: now}
	w.pod = aPod(t, w)
	return w
}

func deleted(at time.Time) *metav1.Time { return ptr.To(metav1.NewTime(at)) }

func TestTheNextStepFollowsFromWhatThereIs(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*world)
		step   step
		reason string
		phase  status.Phase
		says   string
		again  time.Duration
	}{
		{"all is well", func(*world) {}, hold, "Ready", status.Ready, "node node-1", 0},

		{"no Subnet", func(w *world) { w.pod, w.nic, w.subnet = nil, nil, nil }, hold, "SubnetNotFound", status.Pending, `spec.subnet names Subnet "web", which does not exist in this namespace`, 0},
		{"a Subnet that waits", func(w *world) {
			w.pod, w.nic, w.subnet = nil, nil, aSubnet(conditions.Waiting("VpcNotFound", "spec.vpc names Vpc main, which does not exist"))
		}, hold, "SubnetNotReady", status.Pending, `Subnet "web", which is not ready yet: spec.vpc names Vpc main`, 0},
		{"a Subnet that goes", func(w *world) { w.pod, w.nic = nil, nil; w.subnet.DeletionTimestamp = deleted(now) }, hold, "SubnetDeleting", status.Pending, "is being deleted", 0},
		{"a Subnet without an attachment", func(w *world) { w.pod, w.nic, w.subnet.Status.Attachment = nil, nil, nil }, hold, "SubnetNotReady", status.Pending, "", 0},

		{"no interface", func(w *world) { w.pod, w.nic = nil, nil }, makeInterface, "Allocating", status.Provisioning, "", 0},
		{"an interface without an address", func(w *world) { w.pod, w.nic = nil, &netv1.NetworkInterface{Spec: w.nic.Spec} }, hold, "Allocating", status.Provisioning, "", 0},
		{"an interface that waits", func(w *world) { w.pod, w.nic = nil, anInterface("", conditions.Waiting("WaitingForSubnet", "")) }, hold, "Allocating", status.Provisioning, "", 0},
		{"a full Subnet", func(w *world) { w.pod, w.nic = nil, anInterface("", conditions.Waiting("AddressesExhausted", "")) }, hold, "AddressesExhausted", status.Pending, `spec.subnet: all addresses of Subnet "web" are in use; it starts when one is free: delete a Container`, 0},
		{"an address in use", func(w *world) {
			w.pod, w.nic, w.container.Spec.Address = nil, anInterface("", conditions.Failed("AddressInUse", "by s-uid")), "10.0.1.7"
		}, hold, "AddressInUse", status.Error, `spec.address: 10.0.1.7 of Subnet "web" is in use; delete the Container that has it`, 0},
		{"an address that cannot be", func(w *world) {
			w.pod, w.nic = nil, anInterface("", conditions.Failed("AddressInvalid", "spec.address: outside Subnet s-uid"))
		}, hold, "AddressInvalid", status.Error, "spec.address: outside Subnet web", 0},
		{"an interface that cannot be", func(w *world) { w.pod, w.nic = nil, anInterface("", conditions.Failed("NamespaceNotAllowed", "why")) }, hold, "NamespaceNotAllowed", status.Error, "why", 0},
		{"an interface that goes", func(w *world) { w.pod, w.nic.DeletionTimestamp = nil, deleted(now) }, hold, "Allocating", status.Provisioning, "given back", 0},
		{"an interface of a former Subnet", func(w *world) { w.pod, w.nic.Spec.Subnet = nil, "other" }, removeInterface, "Moving", status.Provisioning, "", 0},
		{"a Pod in a former Subnet", func(w *world) { w.nic.Spec.Subnet = "other" }, removePod, "Moving", status.Provisioning, "", 0},
		{"a Pod whose interface somebody deleted", func(w *world) { w.nic = nil }, makeInterface, "Allocating", status.Provisioning, "", 0},

		{"a Pod whose interface somebody deleted, in a namespace that goes", func(w *world) { w.nic, w.leaving = nil, true }, hold, "NamespaceDeleting", status.Pending, "nothing new is made", 0},
		{"no interface yet, in a namespace that goes", func(w *world) { w.nic, w.pod, w.leaving = nil, nil, true }, hold, "NamespaceDeleting", status.Pending, "nothing new is made", 0},
		{"no Pod yet, in a namespace that goes", func(w *world) { w.pod, w.leaving = nil, true }, hold, "NamespaceDeleting", status.Pending, "nothing new is made", 0},
		{"a Pod stays when its namespace goes", func(w *world) { w.leaving = true }, hold, "Ready", status.Ready, "", 0},

		{"a Pod whose new interface has no address yet", func(w *world) { w.nic = anInterface("", conditions.Progressing("Allocating", "")) }, hold, "Ready", status.Ready, "", 0},

		{"no Pod", func(w *world) { w.pod = nil }, makePod, "Creating", status.Provisioning, "", 0},
		{"another image", func(w *world) { w.container.Spec.Image = "whoami:2" }, removePod, "Replacing", status.Provisioning, "the spec has changed", 0},
		{"another address", func(w *world) { w.nic.Status.Address = "10.0.1.9" }, removePod, "Replacing", status.Provisioning, "", 0},
		{"an evicted Pod", func(w *world) {
			w.pod.Status.Phase, w.pod.Status.Reason, w.pod.Status.Message = corev1.PodFailed, "Evicted", "low on memory"
		}, removePod, "Replacing", status.Provisioning, "the Pod was lost on node node-1 (Evicted: low on memory)", 0},
		{"a Pod that ended", func(w *world) { w.pod.Status.Phase = corev1.PodSucceeded }, removePod, "Replacing", status.Provisioning, "was lost", 0},
		{"a Pod that is ending", func(w *world) { w.pod.DeletionTimestamp = deleted(now.Add(10 * time.Second)) }, hold, "Replacing", status.Provisioning, "is ending on node node-1", 15 * time.Second},
		{"a Pod that is slow to end", func(w *world) { w.pod.DeletionTimestamp = deleted(now.Add(-time.Minute)) }, hold, "Replacing", status.Provisioning, "slow to end", 10 * time.Second},
		{"a Pod that is ending on a node that is silent", func(w *world) { w.pod.DeletionTimestamp, w.node = deleted(now.Add(10*time.Second)), silent }, forcePod, "Replacing", status.Provisioning, "node node-1 does not answer", 0},
		{"a Pod that is ending on a node that fails", func(w *world) { w.pod.DeletionTimestamp, w.node = deleted(now), failing }, hold, "Replacing", status.Provisioning, "is ending", 5 * time.Second},
		{"a Pod that is slow to end on a node that fails", func(w *world) { w.pod.DeletionTimestamp, w.node = deleted(now.Add(-time.Minute)), failing }, forcePod, "Replacing", status.Provisioning, "does not answer", 0},
		{"a Pod that is ending on a node that was removed", func(w *world) { w.pod.DeletionTimestamp, w.node = deleted(now), removed }, hold, "Replacing", status.Provisioning, "is ending", 5 * time.Second},
		{"a Pod that is slow to end on a node that was removed", func(w *world) { w.pod.DeletionTimestamp, w.node = deleted(now.Add(-time.Minute)), removed }, forcePod, "Replacing", status.Provisioning, "", 0},
		{"a Pod that is ending on a node that was removed, before the clock was set back", func(w *world) {
			w.pod.DeletionTimestamp, w.pod.DeletionGracePeriodSeconds, w.node = deleted(now.Add(time.Hour)), ptr.To[int64](10), removed
		}, forcePod, "Replacing", status.Provisioning, "", 0},
		{"a Pod that is ending, before the clock was set back", func(w *world) {
			w.pod.DeletionTimestamp, w.pod.DeletionGracePeriodSeconds = deleted(now.Add(time.Hour)), ptr.To[int64](10)
		}, hold, "Replacing", status.Provisioning, "is ending", 10 * time.Second},
		{"a Pod on a node that was removed", func(w *world) { w.node = removed }, removePod, "Replacing", status.Provisioning, "node node-1 was removed", 0},
		{"a Pod on a node that is silent, for now", func(w *world) { w.node = silent }, hold, "Ready", status.Ready, "", 0},

		{"a Pod stays when its Subnet is in trouble", func(w *world) { w.subnet = aSubnet(conditions.Failed("X", "x")) }, hold, "Ready", status.Ready, "", 0},
		{"a Pod stays when its Subnet goes", func(w *world) { w.subnet.DeletionTimestamp = deleted(now) }, hold, "Ready", status.Ready, "", 0},
		{"a Pod stays when its Subnet is gone", func(w *world) { w.subnet = nil }, hold, "Ready", status.Ready, "", 0},
		{"a Pod stays when its interface is in trouble", func(w *world) { w.nic = anInterface("10.0.1.2", conditions.Failed("X", "x")) }, hold, "Ready", status.Ready, "", 0},
		{"a Pod stays when its interface is going", func(w *world) { w.nic.DeletionTimestamp = deleted(now) }, hold, "Ready", status.Ready, "", 0},
		{"a network of another kind", func(w *world) {
			w.pod, w.nic, w.subnet.Status.Attachment.PodAnnotations = nil, nil, map[string]string{"example.com/network": "x"}
		}, makePod, "Creating", status.Provisioning, "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t)
			tc.change(&w)
			p := decide(w)
			require.Equal(t, tc.step, p.step)
			require.Equal(t, tc.reason, p.result.Reason)
			require.Contains(t, p.result.Message, tc.says)
			require.Equal(t, tc.again, p.again)
			s := &w.container.Status
			conditions.Status{Phase: &s.Phase, ObservedGeneration: &s.ObservedGeneration, Conditions: &s.Conditions}.Apply(w.container, p.result)
			require.Equal(t, tc.phase, s.Phase)
		})
	}
}

func TestAContainerShowsItsAddressUntilSomebodyElseMayHaveIt(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*world)
		next   step
		shows  string
	}{
		{"all is well", func(*world) {}, hold, "10.0.1.2"},
		{"no Pod yet", func(w *world) { w.pod = nil }, makePod, "10.0.1.2"},
		{"the Pod is ending", func(w *world) { w.container.DeletionTimestamp = deleted(now) }, hold, "10.0.1.2"},
		{"the interface is asked to go", func(w *world) { w.pod = nil }, removeInterface, ""},
		{"the interface is going", func(w *world) { w.pod, w.nic.DeletionTimestamp = nil, deleted(now) }, hold, ""},
		{"somebody deleted the interface of a Pod", func(w *world) { w.nic.DeletionTimestamp = deleted(now) }, hold, "10.0.1.2"},
		{"the interface is gone", func(w *world) { w.nic = nil }, makeInterface, ""},
		{"the interface has no address yet", func(w *world) { w.nic.Status.Address = "" }, hold, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t)
			tc.change(&w)
			require.Equal(t, tc.shows, shownAddress(w, tc.next))
		})
	}
}

func TestAContainerIsAsItsPodIs(t *testing.T) {
	state := func(change func(*corev1.ContainerStatus)) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions[1].Status = corev1.ConditionFalse
			s := &p.Status.ContainerStatuses[0]
			s.Ready, s.State = false, corev1.ContainerState{}
			change(s)
		}
	}
	waits := func(reason, message string) func(*corev1.Pod) {
		return state(func(s *corev1.ContainerStatus) {
			s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
		})
	}
	died := &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error"}
	const pull = `failed to resolve reference "whoami:1": not found`
	for _, tc := range []struct {
		name   string
		pod    func(*corev1.Pod)
		reason string
		phase  status.Phase
		says   string
	}{
		{"not scheduled yet", func(p *corev1.Pod) { p.Spec.NodeName, p.Status = "", corev1.PodStatus{} }, "Scheduling", status.Provisioning, ""},
		{"no room", func(p *corev1.Pod) {
			p.Spec.NodeName = ""
			p.Status.Conditions[0] = corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes are available: 2 Insufficient cpu."}
		}, "Unschedulable", status.Pending, "(0/2 nodes are available: 2 Insufficient cpu); lower spec.resources.requests"},
		{"no status yet", func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }, "Starting", status.Provisioning, "node node-1"},
		{"being made", waits("ContainerCreating", ""), "Starting", status.Provisioning, "node node-1"},
		{"no such image", waits("ErrImagePull", pull), "ImagePullFailed", status.Error, "spec.image whoami:1 cannot be pulled (" + pull + "); correct the image"},
		{"no such image, backing off", waits("ImagePullBackOff", `Back-off pulling image "whoami:1": ErrImagePull: `+pull), "ImagePullFailed", status.Error, "spec.image whoami:1 cannot be pulled (" + pull + "); correct the image"},
		{"no such image, backing off without a cause", waits("ImagePullBackOff", `Back-off pulling image "whoami:1"`), "ImagePullFailed", status.Error, "spec.image whoami:1 cannot be pulled; correct the image"},
		{"an image that needs credentials", waits("ErrImagePull", `pulling from host registry.mni.internal failed with status code [manifests 1]: 401 Unauthorized`), "ImagePullFailed", status.Error, "the registry wants credentials: give the service account default of this namespace an image pull secret"},
		{"no image name", waits("InvalidImageName", "x"), "InvalidImageName", status.Error, "spec.image whoami:1"},
		{"no such command", waits("RunContainerError", `exec: "x": not found`), "StartFailed", status.Error, `(exec: "x": not found); correct spec.command`},
		{"crashes", state(func(s *corev1.ContainerStatus) {
			s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s restarting"}
			s.LastTerminationState.Terminated = died
		}), "CrashLoop", status.Error, "ended with exit code 2 (Error) and is started again; look at its log"},
		{"has just crashed", state(func(s *corev1.ContainerStatus) { s.State.Terminated = died }), "CrashLoop", status.Error, "exit code 2"},
		{"out of memory", state(func(s *corev1.ContainerStatus) {
			s.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
		}), "OutOfMemory", status.Error, "raise the limit"},
		{"startup probe", state(func(s *corev1.ContainerStatus) {
			s.State.Running, s.Started = &corev1.ContainerStateRunning{}, ptr.To(false)
		}), "NotStarted", status.Provisioning, "spec.probes.startup"},
		{"readiness probe", state(func(s *corev1.ContainerStatus) {
			s.State.Running, s.Started = &corev1.ContainerStateRunning{}, ptr.To(true)
		}), "NotReady", status.Provisioning, "spec.probes.readiness"},
		{"a node that does not answer", func(p *corev1.Pod) { p.Status.Conditions[1].Status = corev1.ConditionFalse }, "NodeNotReady", status.Provisioning, "node node-1 does not answer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := running(t)
			tc.pod(w.pod)
			result := observe(w)
			require.Equal(t, tc.reason, result.Reason)
			require.Contains(t, result.Message, tc.says)
			s := &w.container.Status
			conditions.Status{Phase: &s.Phase, ObservedGeneration: &s.ObservedGeneration, Conditions: &s.Conditions}.Apply(w.container, result)
			require.Equal(t, tc.phase, s.Phase)
		})
	}
}

func TestANodeThatWasAskedForIsInTheRemedy(t *testing.T) {
	w := running(t)
	w.container.Spec.Node, w.pod.Spec.NodeName = "node-9", ""
	w.pod.Status.Conditions[0] = corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes are available."}
	require.Contains(t, observe(w).Message, "spec.node asks for node node-9: name another, or none")
}

func TestANodeThatDoesNotExistIsToldAtOnceAndNoOtherIsNamed(t *testing.T) {
	w := running(t)
	w.container.Spec.Node, w.pod.Spec.NodeName, w.asked = "node-9", "", removed
	w.pod.Status = corev1.PodStatus{}
	want := conditions.Waiting("NodeNotFound", `spec.node names node "node-9", which does not exist; name another node, or none`)
	require.Equal(t, want, observe(w), "before the scheduler has looked")
	w.pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes are available: node-1, node-2."}}
	require.Equal(t, want, observe(w), "and after")
}
