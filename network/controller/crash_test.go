package controller

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/claim"
)

// counting counts the writes of a client, and can fail them.
type counting struct {
	n atomic.Int64
	// crash, when set, decides by the number of the write (from 1) whether it fails, and whether the API server carries it
	// out all the same.
	crash func(n int64) crash
	mu    sync.Mutex
	what  string
}

// crash is what becomes of a write.
type crash int

const (
	lives  crash = iota
	before       // it never reaches the API server
	after        // the API server carries it out, the writer never learns it
)

var errCrash = errors.New("crash")

func (w *counting) count() int64 { return w.n.Load() }

func (w *counting) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.what
}

func (w *counting) do(what string, o client.Object, write func() error) error {
	n := w.n.Add(1)
	w.mu.Lock()
	w.what = fmt.Sprintf("%s %T %s", what, o, o.GetName())
	w.mu.Unlock()
	how := lives
	if w.crash != nil {
		how = w.crash(n)
	}
	if how == before {
		return errCrash
	}
	if err := write(); err != nil || how == lives {
		return err
	}
	return errCrash
}

func (w *counting) around(c client.Client) client.Client { return countingClient{c, w} }

type countingClient struct {
	client.Client
	w *counting
}

func (c countingClient) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return c.w.do("create", o, func() error { return c.Client.Create(ctx, o, opts...) })
}

func (c countingClient) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return c.w.do("delete", o, func() error { return c.Client.Delete(ctx, o, opts...) })
}

func (c countingClient) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return c.w.do("patch", o, func() error { return c.Client.Patch(ctx, o, p, opts...) })
}

func (c countingClient) Status() client.SubResourceWriter {
	return countingStatus{c.Client.Status(), c.w}
}

type countingStatus struct {
	client.SubResourceWriter
	w *counting
}

func (c countingStatus) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	return c.w.do("patch the status of", o, func() error { return c.SubResourceWriter.Patch(ctx, o, p, opts...) })
}

// TestControllersThatDieAtAnyWriteLeaveNothingBehind lets them die before and after each write of a whole life: a VPC, a Subnet, a
// tenant's Pod and a replica of a StatefulSet are made and deleted; new controllers do the rest.
func TestControllersThatDieAtAnyWriteLeaveNothingBehind(t *testing.T) {
	w := idleWorld(t)
	w.config.Quarantine = 10 * time.Millisecond
	w.start()
	w.eventually("the default network is ready", func() bool { return w.isReady(w.subnet(netv1.DefaultSubnet)) })
	w.stop()
	for n := int64(1); ; n++ {
		for _, how := range []crash{before, after} {
			name := fmt.Sprintf("write %d, %s", n, map[crash]string{before: "before", after: "after"}[how])
			if !w.livesThroughCrash(name, n, how) {
				require.Greater(t, n, int64(15), "a whole life is more writes than this")
				t.Logf("a whole life is %d writes", n-1)
				return
			}
		}
	}
}

// livesThroughCrash runs one life with a crash at the n-th write, and tells whether there was such a write. There are no
// controllers before and after it.
func (w *world) livesThroughCrash(name string, n int64, how crash) (crashed bool) {
	w.t.Helper()
	writes := &counting{}
	writes.crash = func(i int64) crash {
		switch {
		case i < n:
			return lives
		case i == n:
			return how
		}
		return before // the dead write nothing
	}
	w.wrap = writes.around
	w.start()
	defer func() { w.stop() }()
	eventually := func(what string, holds func() bool) {
		w.t.Helper()
		w.eventually(name+": "+what, func() bool {
			if !crashed && writes.count() >= n {
				crashed = true
				name += " (" + writes.last() + ")"
				w.stop()
				w.wrap = nil
				w.start()
			}
			return holds()
		})
	}

	ns := w.namespace()
	vpc, subnet := newVPC("life", ns), newSubnet("life", "life", "10.0.1.0/29")
	pod := newPod(ns, "pod", netv1.AnnotationSubnet, "life")
	web := replica(ns, "set-"+types.UID(ns), "web-0", netv1.AnnotationSubnet, "life")
	w.make(vpc, subnet, pod, web)
	w.schedule(pod, "node-1")
	eventually("both have their addresses, and leases for just these", func() bool {
		a, b := w.nic(claim.InterfaceName(pod)), w.nic(claim.InterfaceName(web))
		if !w.isReady(w.vpc("life")) || !w.isReady(w.subnet("life")) || !w.isReady(a) || !w.isReady(b) || a.Spec.Node != "node-1" {
			return false
		}
		require.NotEqual(w.t, a.Status.Address, b.Status.Address, name)
		require.NotEqual(w.t, a.Status.InfrastructureAddress, b.Status.InfrastructureAddress, name)
		want := map[string][]string{}
		for _, nic := range []*netv1.NetworkInterface{a, b} {
			want[string(nic.UID)] = []string{"1." + nic.Status.InfrastructureAddress, fmt.Sprintf("%d.%s", nic.Status.VNI, nic.Status.Address)}
			slices.Sort(want[string(nic.UID)])
		}
		got := w.leases()
		for _, names := range got {
			slices.Sort(names)
		}
		return reflect.DeepEqual(want, got)
	})
	w.deletePod(pod)
	w.deletePod(web)
	w.remove(vpc)
	w.remove(subnet)
	eventually("nothing is left", func() bool {
		var nics netv1.NetworkInterfaceList
		var leases netv1.IPLeaseList
		require.NoError(w.t, w.List(w.ctx, &nics))
		require.NoError(w.t, w.List(w.ctx, &leases))
		return len(nics.Items)+len(leases.Items) == 0 && w.subnet("life").UID == "" && w.vpc("life").UID == ""
	})
	return crashed
}
