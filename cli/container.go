package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/mnicloud/mnicloud/kit/status"
	ctr "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
)

// labelContainer on a Pod names the Container that it runs.
const labelContainer = "ctr.mnicloud.jp/container"

var containerResource = schema.GroupResource{Group: ctr.GroupVersion.Group, Resource: "containers"}

// podFinder finds the Pod behind the name of a Container.
type podFinder struct {
	dynamic    dynamic.Interface
	kubernetes kubernetes.Interface
	namespace  string
}

func (c *connection) podFinder() (*podFinder, error) {
	f := c.factory()
	namespace, _, err := f.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, err
	}
	config, err := f.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	kubernetesClient, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &podFinder{dynamic: dynamicClient, kubernetes: kubernetesClient, namespace: namespace}, nil
}

// find returns the Pod that runs what is named: NAME or container/NAME, or pod/NAME for a Pod of Kubernetes' own.
func (f *podFinder) find(ctx context.Context, name string) (*corev1.Pod, error) {
	kind, rest, typed := strings.Cut(name, "/")
	if !typed {
		return f.ofContainer(ctx, name)
	}
	switch strings.ToLower(kind) {
	case "container", "containers", "ctr", containerResource.String():
		return f.ofContainer(ctx, rest)
	case "pod", "pods", "po":
		return f.kubernetes.CoreV1().Pods(f.namespace).Get(ctx, rest, metav1.GetOptions{})
	}
	return nil, usagef("%q is neither a Container nor a Pod: give the name of a Container, or pod/NAME", name)
}

// ofContainer follows the Container's status, or its label on the Pods when that is behind.
func (f *podFinder) ofContainer(ctx context.Context, name string) (*corev1.Pod, error) {
	container, err := f.dynamic.Resource(containerResource.WithVersion(ctr.GroupVersion.Version)).Namespace(f.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pods := f.kubernetes.CoreV1().Pods(f.namespace)
	if podName, _, _ := unstructured.NestedString(container.Object, "status", "pod"); podName != "" {
		pod, err := pods.Get(ctx, podName, metav1.GetOptions{})
		if err == nil || !apierrors.IsNotFound(err) {
			return pod, err
		}
	}
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: labelContainer + "=" + name})
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, notRunning(container)
	}
	newest := slices.MaxFunc(list.Items, func(a, b corev1.Pod) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	return &newest, nil
}

// notRunning says that a Container does not run and why.
func notRunning(container *unstructured.Unstructured) error {
	message := fmt.Sprintf("container/%s does not run yet", container.GetName())
	if c := findCondition(conditions(container), status.ConditionReady); c != nil && c.Status != metav1.ConditionTrue {
		message += ": " + why(c)
	}
	return errors.New(message)
}
