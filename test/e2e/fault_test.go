//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/distro/cloud"
	machine "github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/supervisor"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/consistent"
	"github.com/mnicloud/mnicloud/test/fault"
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
	restart(t, name, unix.SIGKILL)
}

// restart ends a part with a signal and waits until the supervisor has started it again.
func restart(t *testing.T, name string, by unix.Signal) {
	t.Helper()
	before := mustParts(t)[name]
	if err := unix.Kill(before.PID, by); err != nil {
		t.Fatalf("end %s (%d) by %s: %v", name, before.PID, by, err)
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

// keepsRoutes watches that the edge router's next hops to these ranges are there all the time, until the func that it returns is called: that
// says what it had when some were not.
func keepsRoutes(t *testing.T, want map[string]int) (lost func() string) {
	t.Helper()
	router := thisInstance(t).EdgeNetns()
	stop, result := make(chan struct{}), make(chan string, 1)
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			for cidr, hops := range want {
				if have, err := nextHops(router, cidr); err != nil || len(have) != hops {
					result <- fmt.Sprintf("%s by %v, %d wanted: %v", cidr, have, hops, err)
					return
				}
			}
			select {
			case <-t.Context().Done(): // the test failed elsewhere
				return
			case <-stop:
				result <- ""
				return
			case <-tick.C:
			}
		}
	}()
	return func() string {
		close(stop)
		return <-result
	}
}

// Traffic inside, from the machine's shell to external addresses and out by a NATGateway is not disturbed when a part is killed, or restarted as
// it is planned, and the edge router's sessions are not either, although both ends watch each other by BFD.
// https://github.com/cilium/cilium/issues/31346
func TestTrafficDoesNotNoticeThatAPartIsKilledOrRestarted(t *testing.T) {
	namespace := tenant(t, "faults")
	vpcWithSubnets(t, namespace)
	url := startOutside(t)
	client, near, far := shell(namespace, "client", "a", nodes[0]), shell(namespace, "near", "b", nodes[0]), shell(namespace, "far", "b", nodes[1])
	eip := &vpcv1.ExternalIP{ObjectMeta: objectMeta(namespace, "shared")}
	gateway := &vpcv1.NATGateway{ObjectMeta: objectMeta(namespace, "out"), Spec: vpcv1.NATGatewaySpec{VPC: "main", Subnets: []string{"a"}, ExternalIPs: []string{"shared"}}}
	create(t, client, near, far, eip, gateway)
	ready(t, client, near, far)
	var external []string
	for _, server := range []*ctrv1.Container{near, far} {
		echo(t, server)
		address := publish(t, server).Status.ExternalAddress
		external = append(external, address)
		eventually(t, "the edge router leads "+address+" to its node", func(context.Context) error {
			if hops := edgeHops(t, address+"/32"); len(hops) != 1 {
				return fmt.Errorf("next hops %v", hops)
			}
			return nil
		})
	}
	leavesBy(t, client, url, gateway)
	beyond, here, inside := namespaceAt(t, outsideNetns), thisNamespace(t), netns(t, client)
	echoAt(t, beyond)
	eventually(t, "the sessions are established", func(ctx context.Context) error { _, err := edgePeer(ctx); return err })
	before, err := edgePeer(t.Context())
	require.NoError(t, err)
	inst := thisInstance(t)
	routes := map[string]int{external[0] + "/32": 1, external[1] + "/32": 1, inst.Addresses().Pool.String(): len(nodes)}
	watched := func(ctx context.Context) error {
		out, err := askEdge(ctx, inst, "show bfd peers brief")
		if err == nil && strings.Count(out, " up ") != len(nodes) {
			err = errors.New(out)
		}
		return err
	}
	eventually(t, "BFD watches over both nodes", watched)
	// The same connections live through all of it.
	talks := map[string]*talk{"on the same node": talkTo(t, client, near, connections), "on the other node": talkTo(t, client, far, connections)}
	undisturbed := func(t *testing.T, what func()) {
		lost := keepsRoutes(t, routes)
		floods := map[string]func() (int, int){
			"on the same node": flood(t, client, near), "on the other node": flood(t, client, far),
			"to an external address on node-1": floodFrom(t, here, external[0], pause),
			"to an external address on node-2": floodFrom(t, here, external[1], pause),
			"out by the NATGateway":            floodFrom(t, inside, outsideServer, pause),
		}
		started := time.Now()
		what()
		length := time.Since(started)
		var counting sync.WaitGroup // each waits for what is on the way
		for what, count := range floods {
			counting.Go(func() {
				sent, answered := count()
				t.Logf("%s: %d datagrams, %d answered", what, sent, answered)
				if answered != sent {
					t.Errorf("%s: %d of %d datagrams were not answered", what, sent-answered, sent)
				}
				least := 20
				if strings.HasPrefix(what, "on the ") {
					least = int(900 * length.Seconds())
				}
				if sent < least {
					t.Errorf("%s: %d datagrams were sent, fewer than %d in %s: nothing is shown", what, sent, least, length)
				}
			})
		}
		counting.Wait()
		for where, all := range talks {
			if err := all.alive(t); err != nil {
				t.Errorf("connections %s: %v", where, err)
			}
		}
		require.Empty(t, lost(), "the edge router lost routes")
	}
	planned := []string{"node-1/mni-bgpd", "node-2/mni-bgpd", "node-1/mni-netd", "node-2/mni-netd", "mni-cloud"}
	for _, name := range planned {
		t.Run(strings.ReplaceAll(name, "/", " ")+" planned", func(t *testing.T) {
			undisturbed(t, func() { restart(t, name, unix.SIGTERM) })
			require.NoError(t, watched(t.Context()))
		})
	}
	for _, name := range append(planned, "node-1/kubelet", "node-2/kubelet", "node-1/containerd", "node-2/containerd", "controller-manager", "apiserver", "etcd") {
		t.Run(strings.ReplaceAll(name, "/", " "), func(t *testing.T) {
			undisturbed(t, func() { kill(t, name) })
		})
	}
	eventually(t, "the nodes report their sessions", func(ctx context.Context) error { _, err := edgePeer(ctx); return err })
	after, err := edgePeer(t.Context())
	require.NoError(t, err)
	for i, s := range after.Status.Sessions {
		require.Equal(t, before.Status.Sessions[i].Since, s.Since, "%s: the session with the edge router is the same", s.Node)
	}

	// BIRD itself restarts as when its program is replaced: there is another session, and the peer keeps the routes meanwhile (RFC 4724).
	t.Run("BIRD planned", func(t *testing.T) {
		undisturbed(t, func() {
			control := filepath.Join(birdDir(inst.Nodes(1)[0]), "bird", "bird.ctl")
			out, err := exec.CommandContext(t.Context(), "birdc", "-s", control, "graceful", "restart").CombinedOutput()
			require.NoError(t, err, "%s", out)
			eventually(t, "there is another session", func(ctx context.Context) error {
				now, err := edgePeer(ctx)
				if err != nil {
					return err
				}
				for i, s := range now.Status.Sessions {
					if s.Node == nodes[0] && !s.Since.After(after.Status.Sessions[i].Since.Time) {
						return fmt.Errorf("%+v", s)
					}
				}
				return watched(ctx)
			})
		})
	})
	isConsistent(t)
}

// The controller knows nothing of a reboot but by the API, and lets go of a Subnet all the same. What stays on the other node does not notice.
// https://github.com/kubeovn/kube-ovn/issues/6092
func TestANodeThatCrashedRunsItsContainersAgainAndTheyCanBeDeleted(t *testing.T) {
	w := newWitness(t, "crash")
	stays := whoami("crash", "crash-stays", "a", nodes[0])
	create(t, stays)
	ready(t, stays)
	echo(t, stays)
	address, controller := w.server.Status.Address, mustParts(t)["mni-cloud"].PID
	count := flood(t, w.shell, stays)
	if err := fault.Crash(thisInstance(t).Nodes(2)[1]); err != nil {
		t.Fatal(err)
	}
	mustParts(t)
	ready(t, w.server, w.shell)
	w.works(t)
	if sent, answered := count(); sent < 1000 || answered != sent {
		t.Errorf("%d of %d datagrams between Containers of the other node were not answered", sent-answered, sent)
	}
	if w.server.Status.Address != address {
		t.Errorf("the address was %s and is %s", address, w.server.Status.Address)
	}
	isConsistent(t)
	start := time.Now()
	goes(t, w.server, w.shell, stays, &vpcv1.Subnet{ObjectMeta: objectMeta("crash", "a")}, &vpcv1.Subnet{ObjectMeta: objectMeta("crash", "b")},
		&vpcv1.Vpc{ObjectMeta: objectMeta("crash", "main")})
	took := time.Since(start)
	t.Logf("gone after %.1f s", took.Seconds())
	if took > goneWithin {
		t.Errorf("it took %s, more than %s", took, goneWithin)
	}
	if now := mustParts(t)["mni-cloud"].PID; now != controller {
		t.Errorf("mni-cloud was process %d and is %d: nothing is shown", controller, now)
	}
	isConsistent(t)
}
