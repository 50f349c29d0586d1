//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/conditions"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/inspect"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

const (
	// allBlocks are those of one external address, allPorts their ports.
	allBlocks = (1<<16 - int(netv1.FirstNATPort)) / int(netv1.PortBlockSize)
	allPorts  = allBlocks * int(netv1.PortBlockSize)
)

// Two Containers of every VPC, one on each node, have the addresses that those of every other VPC have, and all send from one port to one server by one
// external address, which the cloud's owner lets them share.
func TestManyVPCsLeaveByOneExternalAddressFromTheSamePortsAndNoneIsConfused(t *testing.T) {
	const vpcs, rounds, port = 8, 25, 4000
	startOutside(t)
	l := openLedger(t)
	eip := &netv1.ExternalIP{ObjectMeta: objectMeta("", "crowd"), Spec: netv1.ExternalIPSpec{Shared: true}}
	create(t, eip)
	var gateways []client.Object
	t.Cleanup(func() { // of a test that failed
		for _, o := range append(gateways, eip) {
			_ = kube.Delete(context.WithoutCancel(t.Context()), o)
		}
	})
	var containers []*ctrv1.Container
	for i := range vpcs {
		namespace := tenant(t, fmt.Sprint("crowd-", i))
		vpcWithSubnets(t, namespace)
		for at, node := range nodes {
			c := shell(namespace, fmt.Sprint("on-", at), "a", node)
			c.Spec.Address = fmt.Sprint("10.0.1.", 10+at)
			create(t, c)
			containers = append(containers, c)
		}
		vpc := &vpcv1.Vpc{ObjectMeta: objectMeta(namespace, "main")}
		require.NoError(t, kube.Get(t.Context(), client.ObjectKeyFromObject(vpc), vpc))
		gateway := &netv1.NATGateway{ObjectMeta: objectMeta("", namespace), Spec: netv1.NATGatewaySpec{VPC: string(vpc.UID), ExternalIPs: []string{eip.Name}}}
		create(t, gateway)
		gateways = append(gateways, gateway)
	}
	ready(t, containers...)
	var all []*ports
	for i, c := range containers {
		all = append(all, openPorts(t, c, uint16(i)))
	}
	for _, o := range gateways {
		gateway := o.(*netv1.NATGateway)
		eventually(t, "the VPC's NATGateway translates", func(ctx context.Context) error {
			if err := kube.Get(ctx, client.ObjectKeyFromObject(gateway), gateway); err != nil {
				return err
			}
			if !conditions.IsReady(gateway.Status.Conditions, gateway.Generation) || len(gateway.Status.Addresses) != 1 {
				return errors.New(conditions.Message(gateway.Status.Conditions))
			}
			return nil
		})
	}
	require.NoError(t, kube.Get(t.Context(), client.ObjectKeyFromObject(eip), eip))
	for round := range uint32(rounds) {
		eventually(t, fmt.Sprintf("each is answered in round %d", round), func(context.Context) error {
			for _, p := range all { // at once
				if err := p.send(port, l.at, round+1); err != nil {
					return err
				}
			}
			for i, p := range all {
				if !within(time.Second, func() bool { return p.has(port, round+1) }) {
					return fmt.Errorf("%s of %s on %s is not", containers[i].Name, containers[i].Namespace, containers[i].Spec.Node)
				}
			}
			return nil
		})
	}
	for _, p := range all {
		require.Empty(t, p.confusions())
	}
	places, addresses, wrong := l.seen()
	require.Empty(t, wrong)
	require.Equal(t, len(all), places, "each has a place of its own")
	require.Equal(t, map[string]bool{eip.Status.Address: true}, addresses)
	isConsistent(t)

	// The address is theirs until the last of them is gone.
	require.NoError(t, kube.Delete(t.Context(), eip))
	goes(t, gateways[1:]...)
	require.NoError(t, all[0].send(port, l.at, rounds+1))
	require.True(t, within(patience, func() bool { return all[0].has(port, rounds+1) }), "who still has it is not disturbed")
	require.NoError(t, kube.Get(t.Context(), client.ObjectKeyFromObject(eip), eip))
	goes(t, gateways[0], eip)
}

// exhausted is how many packets of a tenant's Containers were dropped because there was no port.
func exhausted(t *testing.T, namespace string) (n int) {
	t.Helper()
	for _, d := range netJSON[[]inspect.Drop](t, "drops", "--namespace", namespace) {
		if d.Reason == "nat_exhausted" {
			n += int(d.Packets)
		}
	}
	return n
}

// The nodes claim all blocks of an address, one after the other, as they come into use; each of its ports has a connection to one and the same server. The
// others drop, counted with the reason. https://github.com/cilium/cilium/issues/33074 https://github.com/cilium/cilium/issues/18956
func TestOfAHundredThousandConnectionsToOneServerAsManyLiveAsAnAddressHasPorts(t *testing.T) {
	const connections, first, step, batch = 100_000, 10_000, 4000, 250
	namespace := tenant(t, "exhausting")
	vpcWithSubnets(t, namespace)
	startOutside(t)
	l := openLedger(t)
	var containers []*ctrv1.Container
	for i := range 2 * len(nodes) {
		c := shell(namespace, fmt.Sprint("opener-", i), "a", nodes[i%len(nodes)])
		create(t, c)
		containers = append(containers, c)
	}
	eip := &vpcv1.ExternalIP{ObjectMeta: objectMeta(namespace, "only")}
	gateway := &vpcv1.NATGateway{ObjectMeta: objectMeta(namespace, "out"), Spec: vpcv1.NATGatewaySpec{VPC: "main", ExternalIPs: []string{"only"}}}
	create(t, eip, gateway)
	ready(t, containers...)
	translates(t, gateway)
	var all []*ports
	for i, c := range containers {
		all = append(all, openPorts(t, c, uint16(i)))
	}
	last := first + connections/len(all)
	// each does the same with all Containers at once.
	each := func(do func(*ports) error) error {
		var group errgroup.Group
		for _, p := range all {
			group.Go(func() error { return do(p) })
		}
		return group.Wait()
	}
	live := func(before int, round uint32) (n int) {
		for _, p := range all {
			n += p.count(first, before, round)
		}
		return n
	}
	// again sends from the ports that have not been answered yet.
	again := func(before int) error {
		return each(func(p *ports) error {
			for port := first; port < before; port++ {
				if p.has(port, 1) {
					continue
				}
				if err := p.send(uint16(port), l.at, 1); err != nil {
					return err
				}
			}
			return nil
		})
	}
	blocks := func(ctx context.Context) (n int, err error) {
		var list netv1.PortBlockList
		err = kube.List(ctx, &list)
		for i := range list.Items {
			if list.Items[i].Spec.Address == gateway.Status.Addresses[0] {
				n++
			}
		}
		return n, err
	}

	// The nodes begin as many each, so that neither claims more than it can use.
	started := time.Now()
	for before, have := first+step, 0; have < allBlocks; before = min(before+step, last) {
		eventually(t, fmt.Sprintf("all that began up to port %d live, or there are no more ports", before), func(ctx context.Context) (err error) {
			if have, err = blocks(ctx); err != nil || have == allBlocks {
				return err
			}
			if err := again(before); err != nil {
				return err
			}
			if want := len(all) * (before - first); !within(300*time.Millisecond, func() bool { return live(before, 1) == want }) {
				return fmt.Errorf("%d of %d live by %d blocks", live(before, 1), want, have)
			}
			return nil
		})
	}
	t.Logf("the nodes have all %d blocks after %.1f s, %d live", allBlocks, time.Since(started).Seconds(), live(last, 1))
	eventually(t, "every port has a connection", func(context.Context) error {
		if err := again(last); err != nil {
			return err
		}
		if !within(time.Second, func() bool { return live(last, 1) == allPorts }) {
			return fmt.Errorf("%d of %d", live(last, 1), allPorts)
		}
		return nil
	})
	t.Logf("all %d ports have a connection after %.1f s", allPorts, time.Since(started).Seconds())

	// All send once more: those that live are answered, and each of the others is counted. What is under way is little, so that no queue drops it.
	round := uint32(1)
	eventually(t, "what is answered and what is counted is all", func(context.Context) error {
		round++
		before := exhausted(t, namespace)
		if err := each(func(p *ports) error {
			for from := first; from < last; from += batch {
				want := p.count(from, from+batch, 1)
				for port := from; port < from+batch; port++ {
					if err := p.send(uint16(port), l.at, round); err != nil {
						return err
					}
				}
				within(time.Second, func() bool { return p.count(from, from+batch, round) == want })
			}
			return nil
		}); err != nil {
			return err
		}
		answered, dropped := live(last, round), exhausted(t, namespace)-before
		t.Logf("of %d datagrams %d were answered and %d counted as dropped, %.1f s after the beginning", connections, answered, dropped, time.Since(started).Seconds())
		if answered != allPorts || dropped != connections-allPorts {
			return fmt.Errorf("%d were answered and %d dropped, of %d", answered, dropped, connections)
		}
		return nil
	})
	for _, p := range all {
		require.Empty(t, p.confusions())
	}
	places, addresses, wrong := l.seen()
	require.Empty(t, wrong)
	require.Equal(t, allPorts, places, "each has a port of its own")
	require.Equal(t, map[string]bool{gateway.Status.Addresses[0]: true}, addresses)
	goes(t, gateway, eip)
	isConsistent(t)
}

// stormRange is where a storm is sent to: the machine drops it, after the node has translated it.
const stormRange = "203.0.113.128/25"

// The node's table of flows is filled twice over by flows that nobody goes on with: those that are in use lose neither half, and keep their port.
// https://github.com/cilium/cilium/issues/34833 https://github.com/cilium/cilium/issues/29305
func TestAStormOfFlowsAtTwiceTheTablesSizeBreaksNoneThatStillSends(t *testing.T) {
	const keepers, first, often = 48, 4000, 2000
	namespace := tenant(t, "storm")
	vpcWithSubnets(t, namespace)
	startOutside(t)
	l := openLedger(t)
	out, err := exec.CommandContext(t.Context(), "ip", "route", "replace", "blackhole", stormRange).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Cleanup(func() { _ = exec.Command("ip", "route", "del", "blackhole", stormRange).Run() })
	keeper, stormer := shell(namespace, "keeper", "a", nodes[0]), shell(namespace, "stormer", "a", nodes[0])
	eip := &vpcv1.ExternalIP{ObjectMeta: objectMeta(namespace, "only")}
	gateway := &vpcv1.NATGateway{ObjectMeta: objectMeta(namespace, "out"), Spec: vpcv1.NATGatewaySpec{VPC: "main", ExternalIPs: []string{"only"}}}
	create(t, keeper, stormer, eip, gateway)
	ready(t, keeper, stormer)
	translates(t, gateway)
	keep, storm := openPorts(t, keeper, 0), openPorts(t, stormer, 1)
	table := func() inspect.MapStatus {
		status := netJSON[inspect.Status](t, "status")
		node := slices.IndexFunc(status.Nodes, func(n inspect.NodeStatus) bool { return n.Node == nodes[0] })
		require.GreaterOrEqual(t, node, 0)
		at := slices.IndexFunc(status.Nodes[node].Maps, func(m inspect.MapStatus) bool { return m.Map == "nat_flows" })
		require.GreaterOrEqual(t, at, 0)
		return status.Nodes[node].Maps[at]
	}
	size := table().Max
	round := uint32(0)
	goOn := func() {
		round++
		for port := range uint16(keepers) {
			require.NoError(t, keep.send(first+port, l.at, round))
		}
	}
	answered := func(what string) {
		t.Helper()
		eventually(t, what, func(context.Context) error {
			goOn()
			if !within(time.Second, func() bool { return keep.count(first, first+keepers, round) == keepers }) {
				return fmt.Errorf("%d of %d are answered", keep.count(first, first+keepers, round), keepers)
			}
			return nil
		})
	}
	keepersDrops := func() (n uint64) {
		for _, d := range netJSON[[]inspect.Drop](t, "drops", "--namespace", namespace) {
			if d.Pod == keeper.Status.Pod && !d.Expected {
				n += d.Packets
			}
		}
		return n
	}
	answered("every conversation begins")
	before := keepersDrops()

	remote := netip.MustParsePrefix(stormRange).Addr().As4()
	sent, began := 0, 0
	for started := time.Now(); began < 2*size; began = sent - exhausted(t, namespace) {
		require.Less(t, time.Since(started), patience, "%d of %d flows began", began, 2*size)
		for ; sent < began+2*size/4; sent++ {
			if sent%often == 0 {
				goOn()
			}
			remote[3] = 128 | byte(sent)&0x7f
			to := netip.AddrPortFrom(netip.AddrFrom4(remote), uint16(1+sent/40_000))
			require.NoError(t, storm.send(uint16(20_000+sent%40_000), to, 0))
		}
	}
	full := table()
	t.Logf("%d flows began in a table of %d entries, which has %d", began, size, full.Entries)
	require.Greater(t, full.Entries, size*9/10, "the table was full")
	answered("every conversation goes on")
	require.Empty(t, keep.confusions())
	places, _, wrong := l.seen()
	require.Empty(t, wrong, "each keeps its port")
	require.Equal(t, keepers, places)
	require.Equal(t, before, keepersDrops(), "nothing of theirs was dropped")
	goes(t, gateway, eip)
	isConsistent(t)
}
