//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
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

// keepDown kills a part again and again, so that it is down most of the time, until the returned function is called, which
// waits until it runs.
func keepDown(t *testing.T, name string) (up func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if now, err := parts(ctx); err == nil || len(now) > 0 {
				if pid := now[name].PID; pid > 0 {
					_ = unix.Kill(pid, unix.SIGKILL)
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() {
		cancel()
		<-done
		mustParts(t)
	}
}

// Public reports of deletions that hung or left something: https://github.com/kubeovn/kube-ovn/issues/5068,
// https://github.com/kubeovn/kube-ovn/issues/1847, https://github.com/kubeovn/kube-ovn/issues/5367,
// https://github.com/kubeovn/kube-ovn/issues/2877.
func TestDeletingEverythingInAnyOrderLeavesNothing(t *testing.T) {
	inst := thisInstance(t)
	for seed, down := range map[uint64]string{1: "", 2: "node-1/mni-netd", 3: "mni-cloud", 4: "node-2/mni-netd"} {
		t.Run(fmt.Sprintf("seed %d %s down", seed, strings.ReplaceAll(down, "/", " ")), func(t *testing.T) {
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

			objects := []client.Object{
				pod, &vpcv1.Vpc{ObjectMeta: objectMeta(namespace, "main")}, &vpcv1.RouteTable{ObjectMeta: objectMeta(namespace, "routes")},
				&vpcv1.Subnet{ObjectMeta: objectMeta(namespace, "a")}, &vpcv1.Subnet{ObjectMeta: objectMeta(namespace, "b")},
				&corev1.Pod{ObjectMeta: objectMeta(namespace, "c1")}, &corev1.Pod{ObjectMeta: objectMeta(namespace, "c4")},
				&corev1.Namespace{ObjectMeta: objectMeta("", namespace)},
			}
			for _, c := range containers {
				objects = append(objects, c)
			}
			random.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
			up := func() {}
			if down != "" {
				up = keepDown(t, down)
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
			start := time.Now()
			eventually(t, "nothing is left", func(ctx context.Context) error {
				return consistent.Error(consistent.Gone(ctx, kube, namespace))
			})
			took := time.Since(start)
			t.Logf("gone %.1f s after everything was asked to go and every part ran", took.Seconds())
			if took > goneWithin {
				t.Errorf("it took %s, more than %s", took, goneWithin)
			}
			eventually(t, "everything fits together", func(ctx context.Context) error { return consistent.Cloud(ctx, kube, inst, len(nodes)) })
		})
	}
}
