//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/cloud"
	"github.com/mnicloud/mnicloud/test/consistent"
)

// goneWithin is how long deletion may take once everything is asked to go and every part runs.
const goneWithin = 30 * time.Second

// goes deletes objects, in the order given, and waits until they are gone.
func goes(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := kube.Delete(t.Context(), o); client.IgnoreNotFound(err) != nil {
			t.Fatalf("delete %s: %v", o.GetName(), err)
		}
	}
	for _, o := range objects {
		eventually(t, fmt.Sprintf("%T %s is gone", o, o.GetName()), func(ctx context.Context) error {
			err := kube.Get(ctx, client.ObjectKeyFromObject(o), o.DeepCopyObject().(client.Object))
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("it is there: %w", err)
		})
	}
}

// Public reports of deletions that hung or left something: https://github.com/kubeovn/kube-ovn/issues/5068,
// https://github.com/kubeovn/kube-ovn/issues/1847, https://github.com/kubeovn/kube-ovn/issues/5367,
// https://github.com/kubeovn/kube-ovn/issues/2877.
func TestDeletingEverythingInAnyOrderLeavesNothing(t *testing.T) {
	inst := thisInstance(t)
	for _, tc := range []struct {
		seed uint64
		// down is a part that is down while everything is deleted.
		down string
		// removed is a node that is deleted with the rest.
		removed string
	}{{1, "", ""}, {2, "node-1/mni-netd", ""}, {3, "mni-cloud", ""}, {4, "node-2/mni-netd", nodes[1]}, {5, "", nodes[1]}} {
		seed, down := tc.seed, tc.down
		t.Run(fmt.Sprintf("seed %d down %s removed %s", seed, strings.ReplaceAll(down, "/", " "), tc.removed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			namespace := fmt.Sprintf("delete-%d", seed)
			if err := kube.Create(t.Context(), &corev1.Namespace{ObjectMeta: objectMeta("", namespace)}); err != nil {
				t.Fatal(err)
			}
			vpcWithSubnets(t, namespace)
			containers := []*ctrv1.Container{
				whoami(namespace, "c1", "a", nodes[0]), whoami(namespace, "c2", "a", nodes[1]),
				whoami(namespace, "c3", "b", nodes[0]), whoami(namespace, "c4", "b", nodes[1]),
			}
			pod := serverPod(namespace, "ordinary", nodes[1])
			containers[0].Spec.SourceDestCheck = new(bool)
			create(t, tableVia(namespace, "routes", "172.16.0.0/12", "c1"))
			useTable(t, namespace, "b", "routes")
			for _, c := range containers {
				create(t, c)
			}
			create(t, pod)
			ready(t, containers...)
			running(t, pod)
			fip := publish(t, containers[1])
			gateway := &vpcv1.NATGateway{ObjectMeta: objectMeta(namespace, "out"), Spec: vpcv1.NATGatewaySpec{VPC: "main", Subnets: []string{"b"}, ExternalIPs: []string{"nat"}}}
			create(t, &vpcv1.ExternalIP{ObjectMeta: objectMeta(namespace, "nat")}, gateway)
			translates(t, gateway)
			addresses := append([]string{fip.Status.ExternalAddress}, gateway.Status.Addresses...)

			objects := []client.Object{
				fip, gateway, &vpcv1.ExternalIP{ObjectMeta: objectMeta(namespace, fip.Spec.ExternalIP)}, &vpcv1.ExternalIP{ObjectMeta: objectMeta(namespace, "nat")},
				pod, &vpcv1.Vpc{ObjectMeta: objectMeta(namespace, "main")}, &vpcv1.RouteTable{ObjectMeta: objectMeta(namespace, "routes")},
				&vpcv1.Subnet{ObjectMeta: objectMeta(namespace, "a")}, &vpcv1.Subnet{ObjectMeta: objectMeta(namespace, "b")},
				&corev1.Pod{ObjectMeta: objectMeta(namespace, "c1")}, &corev1.Pod{ObjectMeta: objectMeta(namespace, "c4")},
				&corev1.Namespace{ObjectMeta: objectMeta("", namespace)},
			}
			for _, c := range containers {
				objects = append(objects, c)
			}
			if tc.removed != "" {
				objects = append(objects, &corev1.Node{ObjectMeta: objectMeta("", tc.removed)})
			}
			random.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
			up := func() {}
			if down != "" {
				up = cloud.Cloud{Instance: instance}.KeepDown(t.Context(), down)
			}
			for _, o := range objects {
				if err := kube.Delete(t.Context(), o); client.IgnoreNotFound(err) != nil {
					t.Fatalf("delete %T %s: %v", o, o.GetName(), err)
				}
			}
			if down != "" {
				// Long enough for the runtime to ask for detachments.
				select {
				case <-t.Context().Done():
				case <-time.After(10 * time.Second):
				}
			}
			up()
			mustParts(t)
			start := time.Now()
			eventually(t, "nothing is left", func(ctx context.Context) error {
				return consistent.Error(consistent.Gone(ctx, kube, namespace))
			})
			took := time.Since(start)
			t.Logf("gone %.1f s after everything was asked to go and every part ran", took.Seconds())
			if took > goneWithin {
				t.Errorf("it took %s, more than %s", took, goneWithin)
			}
			if tc.removed != "" {
				kill(t, tc.removed+"/kubelet") // a kubelet registers its node when it starts
				nodeIsReady(t, tc.removed)
			}
			eventually(t, "everything fits together", func(ctx context.Context) error { return consistent.Cloud(ctx, kube, inst, len(nodes)) })
			eventually(t, "no node holds ports, or announces an address", func(ctx context.Context) error {
				var blocks netv1.PortBlockList
				if err := kube.List(ctx, &blocks); err != nil || len(blocks.Items) > 0 {
					return fmt.Errorf("PortBlocks %v: %w", blocks.Items, err)
				}
				for _, address := range addresses {
					if hops := edgeHops(t, address+"/32"); len(hops) > 0 {
						return fmt.Errorf("%s leads to %v", address, hops)
					}
				}
				return nil
			})
		})
	}
}
