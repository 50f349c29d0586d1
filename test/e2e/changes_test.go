//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	machine "github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/cloud"
)

// neighbour is what the edge router says of a session of a node's.
type neighbour struct {
	State       string `json:"bgpState"`
	Established int    `json:"connectionsEstablished"`
	Dropped     int    `json:"connectionsDropped"`
}

// askEdge asks the edge router by its own shell.
func askEdge(ctx context.Context, inst machine.Instance, command string) (string, error) {
	out, err := exec.CommandContext(ctx, "vtysh", "--vty_socket", inst.EdgeDir(), "-c", command).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return string(out), err
}

// neighbours are the edge router's sessions, by the nodes' addresses.
func neighbours(t *testing.T) map[string]neighbour {
	t.Helper()
	out, err := askEdge(t.Context(), thisInstance(t), "show bgp neighbors json")
	require.NoError(t, err)
	var all map[string]neighbour
	require.NoError(t, json.Unmarshal([]byte(out), &all), out)
	for at, n := range all {
		if n.State != "Established" {
			delete(all, at)
		}
	}
	require.Len(t, all, len(nodes), out)
	return all
}

// birdDir is the folder of a node's BIRD, on the machine.
func birdDir(n machine.Node) string { return filepath.Join(n.RunDir(), "mni", "bgpd") }

// birdSaid is how often a node's BIRD has said something.
func birdSaid(t *testing.T, n machine.Node, words string) (count int) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(birdDir(n), "bird", "bird.log*"))
	require.NoError(t, err)
	require.NotEmpty(t, logs)
	for _, log := range logs {
		said, err := os.ReadFile(log)
		require.NoError(t, err)
		count += strings.Count(string(said), words)
	}
	return count
}

// noExternalIPs waits until those of other tests are gone.
func noExternalIPs(t *testing.T) {
	t.Helper()
	eventually(t, "no ExternalIP of another test is left", func(ctx context.Context) error {
		var eips netv1.ExternalIPList
		if err := kube.List(ctx, &eips); err != nil || len(eips.Items) > 0 {
			return fmt.Errorf("%d ExternalIPs: %w", len(eips.Items), err)
		}
		return nil
	})
}

// leadsTo moves a FloatingIP to a Container, or makes it, and waits until it leads there.
func leadsTo(ctx context.Context, fip *vpcv1.FloatingIP, to *ctrv1.Container) error {
	var err error
	if fip.ResourceVersion == "" {
		fip.Spec.Target.Name = to.Name
		err = kube.Create(ctx, fip)
	} else {
		base := fip.DeepCopy()
		fip.Spec.Target.Name = to.Name
		err = kube.Patch(ctx, fip, client.MergeFrom(base))
	}
	if err != nil {
		return err
	}
	return cloud.EveryMoment(ctx, patience, "FloatingIP "+fip.Name+" leads to "+to.Name, func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(fip), fip); err != nil {
			return err
		}
		if fip.Status.Phase != status.Ready || fip.Status.ObservedGeneration != fip.Generation || fip.Status.Address != to.Status.Address {
			return fmt.Errorf("%+v", fip.Status)
		}
		return nil
	})
}

// Any change made the daemon reload and sessions flap. https://github.com/metallb/metallb/issues/1944
// https://github.com/metallb/metallb/issues/2049
func TestTwoHundredChangesOfAddressesResetNoSessionAndReloadNothingNeedlessly(t *testing.T) {
	const workers, rounds = 5, 14 // of three changes each
	noExternalIPs(t)
	namespace := tenant(t, "changes")
	vpcWithSubnets(t, namespace)
	members := thisInstance(t).Nodes(len(nodes))
	var targets [workers][]*ctrv1.Container // one on each node
	for i := range targets {
		for at, node := range nodes {
			c := shell(namespace, fmt.Sprintf("target-%d-%d", i, at), "a", node)
			create(t, c)
			targets[i] = append(targets[i], c)
		}
		create(t, &vpcv1.ExternalIP{ObjectMeta: objectMeta(namespace, fmt.Sprint("address-", i))})
	}
	for _, both := range targets {
		ready(t, both...)
	}
	var before *netv1.BGPPeer
	// A session that both sides open at once is dropped once and opened again (RFC 4271, 6.8).
	eventually(t, "the sessions have been established for a while", func(ctx context.Context) (err error) {
		if before, err = edgePeer(ctx); err != nil {
			return err
		}
		for _, s := range before.Status.Sessions {
			if time.Since(s.Since.Time) < 3*time.Second {
				return fmt.Errorf("%+v", s)
			}
		}
		return nil
	})
	edge := neighbours(t)
	pid := func(n machine.Node) string {
		raw, err := os.ReadFile(filepath.Join(birdDir(n), "bird.pid"))
		require.NoError(t, err)
		return string(raw)
	}
	const configured, reloads = "Reconfiguring", "Reloading"
	var pids []string
	had, reloaded := map[string]int{}, map[string]int{}
	for _, n := range members {
		pids = append(pids, pid(n))
		had[n.Name()], reloaded[n.Name()] = birdSaid(t, n, configured), birdSaid(t, n, reloads)
	}

	floating := func(i int) *vpcv1.FloatingIP {
		return &vpcv1.FloatingIP{ObjectMeta: objectMeta(namespace, fmt.Sprint("fip-", i)), Spec: vpcv1.FloatingIPSpec{
			ExternalIP: fmt.Sprint("address-", i), Target: vpcv1.FloatingIPTarget{Type: vpcv1.TargetContainers},
		}}
	}
	group, ctx := errgroup.WithContext(t.Context())
	started := time.Now()
	for i, both := range targets {
		group.Go(func() error {
			for range rounds {
				fip := floating(i)
				for _, to := range both {
					if err := leadsTo(ctx, fip, to); err != nil {
						return err
					}
				}
				if err := kube.Delete(ctx, fip); err != nil {
					return err
				}
				if err := cloud.EveryMoment(ctx, patience, "FloatingIP "+fip.Name+" is gone", func(ctx context.Context) error {
					if err := kube.Get(ctx, client.ObjectKeyFromObject(fip), fip); !apierrors.IsNotFound(err) {
						return fmt.Errorf("it is there: %w", err)
					}
					return nil
				}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	t.Logf("%d changes in %.1f s", 3*workers*rounds, time.Since(started).Seconds())

	// Each node has one address more, or one less, twice in a round; several changes may be one configuration.
	settled := func(why string) map[string]int {
		t.Helper()
		now := map[string]int{}
		eventually(t, "the nodes announce no address any more: "+why, func(ctx context.Context) error {
			out, err := askEdge(ctx, thisInstance(t), "show bgp ipv4 unicast")
			if err == nil && strings.Contains(out, "/32") {
				err = errors.New(out)
			}
			return err
		})
		for _, n := range members {
			now[n.Name()] = birdSaid(t, n, configured)
		}
		return now
	}
	after := settled("all FloatingIPs are gone")
	for _, n := range members {
		times := after[n.Name()] - had[n.Name()]
		t.Logf("%s: BIRD was configured %d times", n.Name(), times)
		require.Positive(t, times)
		require.LessOrEqual(t, times, 2*workers*rounds, "%s: a configuration without a change", n.Name())
	}

	// What changes nothing that is announced configures nothing: by the time of a change that does, there is that one alone.
	idle := floating(0)
	idle.Spec.Target.Name = "nobody"
	create(t, &vpcv1.ExternalIP{ObjectMeta: objectMeta(namespace, "spare")}, idle)
	notReady(t, idle, &idle.Status.Conditions, "spec.target: Container nobody does not exist")
	pool := &netv1.AddressPool{}
	require.NoError(t, kube.Get(t.Context(), client.ObjectKey{Name: netv1.DefaultAddressPool}, pool))
	change(t, pool, func() { pool.Annotations = map[string]string{"example.com/note": "looked at"} })
	fip := floating(1)
	require.NoError(t, leadsTo(t.Context(), fip, targets[1][0]))
	eventually(t, "the edge router leads there", func(context.Context) error {
		if hops := edgeHops(t, fip.Status.ExternalAddress+"/32"); len(hops) != 1 || hops[0] != members[0].Address().String() {
			return fmt.Errorf("next hops %v", hops)
		}
		return nil
	})
	require.Equal(t, after[nodes[0]]+1, birdSaid(t, members[0], configured))
	require.Equal(t, after[nodes[1]], birdSaid(t, members[1], configured))

	for i, n := range members {
		require.Equal(t, pids[i], pid(n), "%s: BIRD was not started again", n.Name())
		require.Equal(t, reloaded[n.Name()], birdSaid(t, n, reloads), "%s: the router was not sent anew what it had", n.Name())
	}
	now, err := edgePeer(t.Context())
	require.NoError(t, err)
	for i, s := range now.Status.Sessions {
		require.Equal(t, before.Status.Sessions[i].Since, s.Since, "%s: the session is the same", s.Node)
	}
	require.Equal(t, edge, neighbours(t), "and the edge router says so, too")
	isConsistent(t)
}
