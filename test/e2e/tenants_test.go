//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/status"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// nodes are the nodes of the cloud.
var nodes = []string{"node-1", "node-2"}

// tenant is a namespace of a tenant, deleted with all in it when the test ends.
func tenant(t *testing.T, name string) string {
	t.Helper()
	namespace := &corev1.Namespace{}
	eventually(t, "namespace "+name+" is made, and none of an earlier run is in the way", func(ctx context.Context) error {
		*namespace = corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		return kube.Create(ctx, namespace)
	})
	t.Cleanup(func() {
		if err := kube.Delete(context.Background(), namespace); err != nil {
			t.Errorf("delete namespace %s: %v", name, err)
		}
	})
	return name
}

// vpcWithSubnets makes Vpc "main" 10.0.0.0/16 with Subnets "a" 10.0.1.0/24 and "b" 10.0.2.0/24.
func vpcWithSubnets(t *testing.T, namespace string) {
	t.Helper()
	create(t,
		&vpcv1.Vpc{ObjectMeta: objectMeta(namespace, "main"), Spec: vpcv1.VpcSpec{CIDR: "10.0.0.0/16"}},
		&vpcv1.Subnet{ObjectMeta: objectMeta(namespace, "a"), Spec: vpcv1.SubnetSpec{VPC: "main", CIDR: "10.0.1.0/24"}},
		&vpcv1.Subnet{ObjectMeta: objectMeta(namespace, "b"), Spec: vpcv1.SubnetSpec{VPC: "main", CIDR: "10.0.2.0/24"}},
	)
}

// whoami is a Container that answers HTTP on port 8080 with its own identity.
func whoami(namespace, name, subnet, node string) *ctrv1.Container {
	return &ctrv1.Container{
		ObjectMeta: objectMeta(namespace, name),
		Spec: ctrv1.ContainerSpec{
			Subnet: subnet, Node: node, Image: registryName + "/mni/whoami:latest",
			Ports: []ctrv1.Port{{Port: 8080, Protocol: corev1.ProtocolTCP}},
		},
	}
}

// shell is a Container with a shell, wget, nc and ping.
func shell(namespace, name, subnet, node string) *ctrv1.Container {
	return &ctrv1.Container{
		ObjectMeta: objectMeta(namespace, name),
		Spec: ctrv1.ContainerSpec{
			Subnet: subnet, Node: node, Image: registryName + "/mni/busybox:latest",
			Command: []string{"sleep", "1000000"},
		},
	}
}

func objectMeta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := kube.Create(t.Context(), object); err != nil {
			t.Fatalf("create %s: %v", object.GetName(), err)
		}
	}
}

// ready waits until the Containers are Ready and returns them as they are then, in the same order.
func ready(t *testing.T, containers ...*ctrv1.Container) []*ctrv1.Container {
	t.Helper()
	for _, container := range containers {
		eventually(t, "Container "+container.Name+" is Ready", func(ctx context.Context) error {
			if err := kube.Get(ctx, client.ObjectKeyFromObject(container), container); err != nil {
				return err
			}
			if container.Status.Phase != status.Ready || container.Status.Address == "" {
				return fmt.Errorf("phase %q, address %q, conditions %v", container.Status.Phase, container.Status.Address, container.Status.Conditions)
			}
			return nil
		})
	}
	return containers
}

// in runs a command in a Container and returns what it printed.
func in(ctx context.Context, container *ctrv1.Container, command ...string) (string, error) {
	return mni(ctx, append([]string{"exec", container.Name, "-n", container.Namespace, "--"}, command...)...)
}

// wget asks (busybox' own -T crashes together with -q, so timeout bounds it) an address for its identity from within a Container, waiting seconds at most.
func wget(ctx context.Context, from *ctrv1.Container, url string, seconds int) (string, error) {
	out, err := in(ctx, from, "timeout", fmt.Sprint(seconds), "wget", "-q", "-O", "-", url)
	return strings.TrimSpace(out), err
}
