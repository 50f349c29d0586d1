package controller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/claim"
)

// platform decides whether a Pod may be one of the platform's, as it asks.
func (r *podReconciler) platform(ctx context.Context, pod *corev1.Pod) (*claim.Refusal, error) {
	if !claim.AsksForPlatform(pod) {
		return nil, nil
	}
	namespace := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
	if err := r.client.Get(ctx, client.ObjectKey{Name: pod.Namespace}, &namespace); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read Namespace %s: %w", pod.Namespace, err)
	}
	var vpcs netv1.VPCList
	if err := r.client.List(ctx, &vpcs); err != nil {
		return nil, fmt.Errorf("list VPCs: %w", err)
	}
	return checkPlatform(pod, namespace.Labels, vpcs.Items), nil
}

// checkPlatform decides it: the namespace's label, which only the cloud's owner can set, allows it, and the namespace is no
// tenant's. Such a Pod is an ordinary one: a tenant's VPC is no place for it.
func checkPlatform(pod *corev1.Pod, namespace map[string]string, vpcs []netv1.VPC) *claim.Refusal {
	if namespace[netv1.LabelPlatform] != netv1.PlatformTrue {
		return &claim.Refusal{Reason: reasonPlatformRefused, Message: fmt.Sprintf("label %s=%s: namespace %s may have no Pods of the platform; the cloud's owner can label the namespace the same, or remove the label from the Pod",
			netv1.LabelPlatform, netv1.PlatformTrue, pod.Namespace)}
	}
	for i := range vpcs {
		if vpcs[i].Name != netv1.DefaultVPC && slices.Contains(vpcs[i].Spec.Namespaces, pod.Namespace) {
			return &claim.Refusal{Reason: reasonPlatformRefused, Message: fmt.Sprintf("label %s=%s: VPC %s is namespace %s's, so its Pods are a tenant's and not the platform's; use another namespace, or remove the label",
				netv1.LabelPlatform, netv1.PlatformTrue, vpcs[i].Name, pod.Namespace)}
		}
	}
	if name := claim.SubnetName(pod); name != netv1.DefaultSubnet {
		return &claim.Refusal{Reason: reasonPlatformRefused, Message: fmt.Sprintf("label %s=%s: Pods of the platform are in the default Subnet, this one asks for %s; remove the label or annotation %s",
			netv1.LabelPlatform, netv1.PlatformTrue, name, netv1.AnnotationSubnet)}
	}
	return nil
}
