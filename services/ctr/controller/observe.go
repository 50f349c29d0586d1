package controller

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mnicloud/mnicloud/kit/conditions"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
)

// observe tells how a Container is by its Pod.
func observe(w world) conditions.Result {
	c, pod := w.container, w.pod
	if scheduled := podCondition(pod, corev1.PodScheduled); pod.Spec.NodeName == "" {
		if w.asked == removed {
			// Which nodes there are is not a tenant's to know.
			return conditions.Waiting("NodeNotFound", fmt.Sprintf("spec.node names node %q, which does not exist; name another node, or none", c.Spec.Node))
		}
		if scheduled != nil && scheduled.Status == corev1.ConditionFalse {
			return unschedulable(c, scheduled)
		}
		return conditions.Progressing("Scheduling", "a node is being chosen")
	}
	container := containerStatus(pod)
	if container == nil {
		return conditions.Progressing("Starting", "the container is being started on node "+pod.Spec.NodeName)
	}
	ready := podCondition(pod, corev1.PodReady)
	switch {
	case container.State.Waiting != nil:
		return waiting(c, pod, container)
	case container.State.Terminated != nil:
		return crashed(c, container.State.Terminated)
	case ready != nil && ready.Status == corev1.ConditionTrue:
		return conditions.Ready("Ready", "the container runs on node "+pod.Spec.NodeName)
	case container.Ready:
		return conditions.Progressing("NodeNotReady", "node "+pod.Spec.NodeName+" does not answer; another Pod is made elsewhere if it does not come back")
	case container.Started != nil && !*container.Started:
		return conditions.Progressing("NotStarted", "spec.probes.startup has not succeeded yet")
	}
	return conditions.Progressing("NotReady", "spec.probes.readiness does not succeed")
}

// waiting tells why a container does not run, in the kubelet's own words where they help.
func waiting(c *ctrv1.Container, pod *corev1.Pod, container *corev1.ContainerStatus) conditions.Result {
	state := container.State.Waiting
	switch state.Reason {
	case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError", "SignatureValidationFailed":
		return conditions.Failed("ImagePullFailed", fmt.Sprintf(
			"spec.image %s cannot be pulled%s; %s: pulling is tried again", c.Spec.Image, why("", pullProblem(state.Message)), pullRemedy(state.Message)))
	case "InvalidImageName":
		return conditions.Failed("InvalidImageName", fmt.Sprintf("spec.image %s is not an image reference; write [registry/]repository[:tag]", c.Spec.Image))
	case "CrashLoopBackOff":
		return crashed(c, container.LastTerminationState.Terminated)
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError", "PostStartHookError":
		return conditions.Failed("StartFailed", fmt.Sprintf("the container cannot be started%s; correct spec.command, spec.args or spec.image", why("", state.Message)))
	}
	return conditions.Progressing("Starting", "the container is being started on node "+pod.Spec.NodeName)
}

// pullProblem is what the kubelet says about a pull. It alternates between the failure and the failure with a back-off in
// front; both become the same.
func pullProblem(message string) string {
	for _, cause := range []string{"ErrImagePull: ", "ImagePullBackOff: "} {
		if _, after, found := strings.Cut(message, cause); found {
			message = after
		}
	}
	if strings.HasPrefix(message, "Back-off pulling image") {
		return ""
	}
	return message
}

// pullRemedy says what to do about a pull that failed, by what containerd says the registry answered.
func pullRemedy(message string) string {
	for _, refused := range []string{"401 Unauthorized", "403 Forbidden", "authorization failed", "authentication required", "insufficient_scope"} {
		if strings.Contains(message, refused) {
			return "the registry wants credentials: give the service account default of this namespace an image pull secret, or correct the image"
		}
	}
	return "correct the image, or push it to its registry"
}

// crashed tells of a container that ended although it should run. It is started again with growing pauses.
func crashed(c *ctrv1.Container, last *corev1.ContainerStateTerminated) conditions.Result {
	how := "ends soon after it starts"
	if last != nil {
		how = fmt.Sprintf("ended with exit code %d%s", last.ExitCode, why(last.Reason, strings.TrimSpace(last.Message)))
	}
	if last != nil && last.Reason == "OOMKilled" {
		return conditions.Failed("OutOfMemory", fmt.Sprintf("the container used more memory than it may (spec.resources.limits.memory%s) and was ended; raise the limit. It is started again",
			limit(c)))
	}
	return conditions.Failed("CrashLoop", fmt.Sprintf("the container %s and is started again; look at its log, and correct spec.command, spec.args, spec.env or the image", how))
}

func limit(c *ctrv1.Container) string {
	if limits := c.Spec.Resources.Limits; limits != nil && limits.Memory != nil {
		return " is " + limits.Memory.String()
	}
	return ""
}

func unschedulable(c *ctrv1.Container, scheduled *corev1.PodCondition) conditions.Result {
	remedy := "lower spec.resources.requests, or wait for room"
	if c.Spec.Node != "" {
		remedy = fmt.Sprintf("spec.node asks for node %s: name another, or none", c.Spec.Node)
	}
	return conditions.Waiting("Unschedulable", fmt.Sprintf("no node can take the Container%s; %s", why("", strings.TrimSuffix(scheduled.Message, ".")), remedy))
}

func containerStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == containerName {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}
