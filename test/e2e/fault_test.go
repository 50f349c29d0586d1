//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/distro/cgroup"
	"github.com/mnicloud/mnicloud/distro/cloud"
	machine "github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/node"
	"github.com/mnicloud/mnicloud/distro/spawn"
	"github.com/mnicloud/mnicloud/distro/supervisor"
	"github.com/mnicloud/mnicloud/distro/underlay"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/consistent"
)

// thisInstance is the tests' cloud as the machine knows it.
func thisInstance(t *testing.T) machine.Instance {
	t.Helper()
	found, ok, err := cloud.Registry().Find(instance)
	if err != nil || !ok {
		t.Fatalf("instance %s: %v", instance, err)
	}
	return found
}

// isConsistent waits until leases, interfaces, Pods, maps, links, pins and records fit together.
func isConsistent(t *testing.T) {
	t.Helper()
	inst := thisInstance(t)
	eventually(t, "everything fits together", func(ctx context.Context) error { return consistent.Cloud(ctx, kube, inst, len(nodes)) })
}

// kill ends a part with SIGKILL and waits until the supervisor has started it again.
func kill(t *testing.T, name string) {
	t.Helper()
	before := mustParts(t)[name]
	if err := unix.Kill(before.PID, unix.SIGKILL); err != nil {
		t.Fatalf("kill %s (%d): %v", name, before.PID, err)
	}
	eventually(t, name+" runs again", func(ctx context.Context) error {
		now, err := parts(ctx)
		if err != nil {
			return err
		}
		if part := now[name]; part.PID == before.PID || part.State != supervisor.Ready {
			return fmt.Errorf("%+v", part)
		}
		return nil
	})
}

func TestTrafficDoesNotNoticeThatAPartIsKilled(t *testing.T) {
	namespace := tenant(t, "faults")
	vpcWithSubnets(t, namespace)
	client, near, far := shell(namespace, "client", "a", nodes[0]), shell(namespace, "near", "b", nodes[0]), shell(namespace, "far", "b", nodes[1])
	create(t, client, near, far)
	ready(t, client, near, far)
	for _, server := range []*ctrv1.Container{near, far} {
		echo(t, server)
	}
	for _, name := range []string{
		"node-1/mni-netd", "node-2/mni-netd", "mni-cloud", "node-1/kubelet", "node-2/kubelet", "node-1/containerd", "node-2/containerd",
		"controller-manager", "apiserver", "etcd",
	} {
		t.Run(strings.ReplaceAll(name, "/", " "), func(t *testing.T) {
			toNear, toFar := flood(t, client, near), flood(t, client, far)
			kill(t, name)
			for what, count := range map[string]func() (int, int){"on the same node": toNear, "on the other node": toFar} {
				sent, answered := count()
				t.Logf("%s: %d datagrams, %d answered", what, sent, answered)
				if sent < 100 || answered != sent {
					t.Errorf("%s: %d of %d datagrams were not answered", what, sent-answered, sent)
				}
			}
		})
	}
	isConsistent(t)
}

// setPort sets a node's port of the underlay bridge up or down: a cable that is plugged in or pulled.
func setPort(t *testing.T, n machine.Node, up bool) {
	t.Helper()
	err := spawn.Run(spawn.Place{Netns: underlay.NetnsPath(n.Instance.SwitchNetns())}, func() error {
		port, err := netlink.LinkByName(n.Name())
		if err != nil {
			return err
		}
		if up {
			return netlink.LinkSetUp(port)
		}
		return netlink.LinkSetDown(port)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// crash ends everything on a node at once and takes away what a reboot takes away: processes, links of Pods, their namespaces.
func crash(t *testing.T, n machine.Node) {
	t.Helper()
	tree, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	pids, err := tree.Processes(n.PodCgroup())
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range append(processesIn(t, underlay.NetnsPath(n.Netns())), pids...) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	err = node.Run(n, func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			if strings.HasPrefix(l.Attrs().Alias, "mni-netd attachment ") {
				err = errors.Join(err, netlink.LinkDel(l))
			}
		}
		pins, globErr := filepath.Glob("/run/netns/cni-*")
		for _, pin := range pins {
			_ = unix.Unmount(pin, unix.MNT_DETACH)
			err = errors.Join(err, os.Remove(pin))
		}
		return errors.Join(err, globErr)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// processesIn are those in the network namespace that is pinned on the file.
func processesIn(t *testing.T, pin string) []int {
	t.Helper()
	var want unix.Stat_t
	if err := unix.Stat(pin, &want); err != nil {
		t.Fatal(err)
	}
	links, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, link := range links {
		var stat unix.Stat_t
		var pid int
		if unix.Stat(link, &stat) != nil || stat.Ino != want.Ino {
			continue
		}
		if _, err := fmt.Sscanf(link, "/proc/%d/", &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// https://github.com/kubeovn/kube-ovn/issues/6092
func TestANodeThatCrashedRunsItsContainersAgainAndTheyCanBeDeleted(t *testing.T) {
	w := newWitness(t, "crash")
	address := w.server.Status.Address
	crash(t, thisInstance(t).Nodes(2)[1])
	mustParts(t)
	ready(t, w.server, w.shell)
	w.works(t)
	if w.server.Status.Address != address {
		t.Errorf("the address was %s and is %s", address, w.server.Status.Address)
	}
	isConsistent(t)
	goes(t, w.server)
	isConsistent(t)
}
