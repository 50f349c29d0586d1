package controller

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CacheByObject is how the manager's cache should hold Pods: without the parts of their specs that no controller of the
// cloud reads, so that many Pods fit. Put it into the manager's cache.Options.ByObject. Never write a Pod from the cache
// back.
func CacheByObject() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&corev1.Pod{}: {Transform: stripPod}}
}

var _ toolscache.TransformFunc = stripPod

// stripPod keeps a Pod's metadata (but its managed fields), its status, and of its spec the node, the networking, and the
// names and images of containers.
func stripPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("cache of Pods: got a %T", object)
	}
	pod.ManagedFields = nil
	delete(pod.Annotations, corev1.LastAppliedConfigAnnotation)
	spec := corev1.PodSpec{NodeName: pod.Spec.NodeName, HostNetwork: pod.Spec.HostNetwork, RestartPolicy: pod.Spec.RestartPolicy}
	for _, c := range pod.Spec.Containers {
		spec.Containers = append(spec.Containers, corev1.Container{Name: c.Name, Image: c.Image})
	}
	pod.Spec = spec
	return pod, nil
}
