//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/distro/supervisor"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/cloud"
)

func TestNewPodsRunWhileTheControllersAreDown(t *testing.T) {
	namespace := tenant(t, "alone")
	vpcWithSubnets(t, namespace)
	asker := shell(namespace, "asker", "a", nodes[0])
	create(t, asker)
	ready(t, asker)
	interfaceOf := func(uid types.UID) *netv1.NetworkInterface {
		t.Helper()
		var nic netv1.NetworkInterface
		if err := kube.Get(t.Context(), client.ObjectKey{Name: string(uid)}, &nic); err != nil {
			t.Fatal(err)
		}
		return &nic
	}
	subnet := interfaceOf(asker.UID).Spec.Subnet
	tenants := func(name, node string) *corev1.Pod {
		pod := serverPod(namespace, name, node)
		pod.Annotations = map[string]string{netv1.AnnotationSubnet: subnet}
		return pod
	}
	leaving := tenants("leaving", nodes[0])
	create(t, leaving)
	running(t, leaving)
	left := interfaceOf(leaving.UID)

	up := cloud.Cloud{Instance: instance}.KeepDown(t.Context(), "mni-cloud")
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			up()
		}
	}
	defer stop()
	// The first kills meet one that works.
	eventually(t, "the supervisor waits ever longer", func(ctx context.Context) error {
		parts, err := cloud.Cloud{Instance: instance}.Parts(ctx)
		if err != nil {
			return err
		}
		for _, part := range parts {
			if part.Name == "mni-cloud" && (part.State != string(supervisor.BackOff) || part.Restarts < 3) {
				return fmt.Errorf("%+v", part)
			}
		}
		return nil
	})
	goes(t, leaving)
	pods := []*corev1.Pod{tenants("near", nodes[0]), tenants("far", nodes[1]), serverPod(namespace, "ordinary", nodes[1])}
	for _, pod := range pods {
		create(t, pod)
	}
	running(t, pods...)
	before := map[string]string{}
	for _, pod := range pods {
		nic := interfaceOf(pod.UID)
		before[nic.Name] = nic.ResourceVersion
		for _, field := range nic.ManagedFields {
			if field.Manager != "mni-netd" {
				t.Errorf("%s of Pod %s was written by %s", nic.Name, pod.Name, field.Manager)
			}
		}
		if nic.Status.Address == left.Status.Address || nic.Status.InfrastructureAddress == left.Status.InfrastructureAddress {
			t.Errorf("Pod %s has an address of a Pod that went, which nobody has given back", pod.Name)
		}
		if pod.Name == "ordinary" {
			continue
		}
		eventually(t, pod.Name+" answers in its VPC", func(ctx context.Context) error {
			return answers(pod.Name)(in(ctx, asker, "timeout", "2", "wget", "-q", "-O", "-", "http://"+nic.Status.Address+":8080/"))
		})
	}
	if out, err := get(t.Context(), "http://"+pods[2].Status.PodIP+":8080"); err != nil || !strings.Contains(out, "ordinary") {
		t.Errorf("the ordinary Pod answers %q, %v", out, err)
	}

	stop()
	mustParts(t)
	eventually(t, "the interface of the Pod that went is gone", func(ctx context.Context) error {
		err := kube.Get(ctx, client.ObjectKey{Name: left.Name}, &netv1.NetworkInterface{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
	isConsistent(t)
	for name, version := range before {
		if now := interfaceOf(types.UID(name)).ResourceVersion; now != version {
			t.Errorf("the controller changed NetworkInterface %s, version %s to %s", name, version, now)
		}
	}
}
