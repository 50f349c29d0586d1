//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	machine "github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/node"
	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/datapath"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/consistent"
)

// freeze keeps a part from mending anything until it is killed, which restarted does: it waits until the supervisor has started it again.
func freeze(t *testing.T, part string) (restarted func()) {
	t.Helper()
	pid := mustParts(t)[part].PID
	require.NoError(t, unix.Kill(pid, unix.SIGSTOP))
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGCONT) }) // one that has ended meanwhile is what is wanted
	eventually(t, part+" is stopped", func(context.Context) error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err == nil && !strings.Contains(string(stat), ") T ") {
			err = fmt.Errorf("%s", stat)
		}
		return err
	})
	return func() {
		t.Helper()
		require.NoError(t, unix.Kill(pid, unix.SIGKILL))
		eventually(t, part+" runs again", func(ctx context.Context) error {
			now, err := parts(ctx)
			if err == nil && now[part].PID == pid {
				err = fmt.Errorf("%+v", now[part])
			}
			return err
		})
	}
}

// The tables of desired state, and what the checker calls them; policy_peers comes by itself, as the checker says one thing of a policy.
var checkedTables = []struct{ name, word string }{
	{"policy_rules", "policies"}, {"nics", "nics"}, {"endpoints", "endpoints"}, {"routes", "routes"}, {"subnets", "subnets"},
	{"hops", "next hops"}, {"forwarders", "forwarders"}, {"members", "members"}, {"backends", "Services"}, {"services", "Services"},
	{"externals", "external addresses"}, {"floatings", "FloatingIPs"}, {"nat_blocks", "ports of Subnets"}, {"nats", "ports of Subnets"}, {"port_blocks", "PortBlocks"},
}

// loseEntry deletes one entry of a table that is pinned in a folder.
func loseEntry(t *testing.T, dir, table string) {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, table), nil)
	require.NoError(t, err)
	defer m.Close()
	key, err := m.NextKeyBytes(nil)
	require.NoError(t, err)
	require.NotNil(t, key, "table %s is empty: nothing would be shown", table)
	require.NoError(t, m.Delete(key))
}

// A checker that says nothing would let every other test pass. What it must find is done here to a node whose daemon stands still, so that
// nothing is mended before it is looked for; the daemon that starts then mends it, but for a Pod's own link, without which the Pod is made anew.
func TestTheCheckerTellsEachKindOfDamage(t *testing.T) {
	namespace := tenant(t, "damage")
	vpcWithSubnets(t, namespace)
	create(t, &vpcv1.Subnet{ObjectMeta: objectMeta(namespace, "c"), Spec: vpcv1.SubnetSpec{VPC: "main", CIDR: "10.0.3.0/24"}})
	url := startOutside(t)
	client, server, far := shell(namespace, "client", "a", nodes[0]), whoami(namespace, "server", "b", nodes[0]), whoami(namespace, "far", "b", nodes[1])
	server.Spec.SecurityGroups = []string{"web"}
	group := &vpcv1.SecurityGroup{ObjectMeta: objectMeta(namespace, "web"), Spec: vpcv1.SecurityGroupSpec{
		Ingress: []vpcv1.SecurityGroupRule{tcpRule(8080, "10.0.0.0/16")},
	}}
	eip := &vpcv1.ExternalIP{ObjectMeta: objectMeta(namespace, "shared")}
	gateway := &vpcv1.NATGateway{ObjectMeta: objectMeta(namespace, "out"), Spec: vpcv1.NATGatewaySpec{VPC: "main", Subnets: []string{"a"}, ExternalIPs: []string{"shared"}}}
	via, other := firewall(namespace, "firewall", "c", nodes[0]), firewall(namespace, "other", "c", nodes[1])
	table := tableVia(namespace, "via", "10.0.2.0/24", "firewall")
	create(t, group, client, server, far, via, other, eip, gateway, table)
	ready(t, client, server, far, via, other)
	useTable(t, namespace, "a", "via")
	tableSays(t, table, status.Ready, "")
	publish(t, far)
	leavesBy(t, client, url, gateway)
	works := func() {
		t.Helper()
		for _, to := range []*ctrv1.Container{server, far} {
			eventually(t, to.Name+" answers", func(ctx context.Context) error { return checkIdentity(ctx, client, to) })
		}
	}
	works()
	isConsistent(t)

	inst := thisInstance(t)
	n := inst.Nodes(1)[0]
	netd := n.Name() + "/mni-netd"
	seen := func() []string {
		t.Helper()
		objects, err := consistent.Objects(t.Context(), kube)
		require.NoError(t, err)
		onNode, err := consistent.Node(t.Context(), kube, n)
		require.NoError(t, err)
		return append(objects, onNode...)
	}
	// damage does one thing, of which the checker must say something new with these words.
	damage := func(what string, words []string, do func()) {
		t.Helper()
		before := seen()
		do()
		eventually(t, "the checker tells of "+what, func(context.Context) error {
			now := seen()
			told := slices.ContainsFunc(now, func(line string) bool {
				return !slices.Contains(before, line) && !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) })
			})
			if !told {
				return fmt.Errorf("nothing of %q in %q", words, now)
			}
			return nil
		})
	}
	mended := func(restarted func()) {
		t.Helper()
		restarted()
		isConsistent(t)
		works()
	}

	layouts, err := filepath.Glob(filepath.Join(n.PinDir(), "maps", "*"))
	require.NoError(t, err)
	require.Len(t, layouts, 1)
	restarted := freeze(t, netd)
	for _, table := range checkedTables {
		damage("a lost entry of "+table.name, []string{n.Name(), table.word}, func() { loseEntry(t, layouts[0], table.name) })
	}
	mended(restarted)

	restarted = freeze(t, netd)
	damage("a lost entry of policy_peers", []string{n.Name(), "policies"}, func() { loseEntry(t, layouts[0], "policy_peers") })
	tables, err := datapath.Open(n.PinDir())
	require.NoError(t, err)
	endpoints, err := tables.Endpoints.List()
	require.NoError(t, err)
	for key, endpoint := range endpoints {
		damage("an entry too much", []string{"endpoints", "left over"}, func() {
			require.NoError(t, tables.Endpoints.Set(datapath.EndpointKey{VNI: 1 << 23, Address: key.Address}, endpoint))
		})
		damage("an entry that says something else", []string{"endpoints", key.Address.String(), "not"}, func() {
			endpoint.MAC[5]++
			require.NoError(t, tables.Endpoints.Set(key, endpoint))
		})
		break
	}
	services, err := tables.Services.List()
	require.NoError(t, err)
	for key, service := range services {
		if len(service.Backends) > 0 {
			damage("a Service with another's backend", []string{"Services", key.Address.String()}, func() {
				service.Backends[0].Port++
				require.NoError(t, tables.Services.Set(key, service))
			})
			break
		}
	}
	damage("a policy that nobody has", []string{"policies", "left over"}, func() {
		_, err := tables.Policies.Number(datapath.Policy{Rules: []datapath.Rule{{Ports: []datapath.Ports{{Protocol: datapath.TCP, First: 1, Last: 1}}}}})
		require.NoError(t, err)
	})
	require.NoError(t, tables.Close())
	mended(restarted)

	records, err := filepath.Glob(filepath.Join(n.StateDir(), "var/lib/mni-netd/attachments/*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, records)
	restarted = freeze(t, netd)
	pins, err := filepath.Glob(filepath.Join(n.PinDir(), "links", "*"))
	require.NoError(t, err)
	if len(pins) > 0 { // with clsact there are none
		for _, pin := range pins {
			damage("the lost pin "+pin, []string{"pin " + filepath.Base(pin), "missing"}, func() { require.NoError(t, os.Remove(pin)) })
		}
	}
	damage("a link that nobody has", []string{"stray:eth0", "no record"}, func() {
		require.NoError(t, node.Run(n, func() error {
			name := netlink.LinkAttrs{Name: "stray"}
			return errors.Join(netlink.LinkAdd(&netlink.Dummy{LinkAttrs: name}), netlink.LinkSetAlias(&netlink.Dummy{LinkAttrs: name}, "mni-netd attachment stray:eth0"))
		}))
	})
	key := strings.TrimSuffix(filepath.Base(records[0]), ".json")
	damage("a link that is down", []string{"the link of " + key, "down"}, func() {
		require.NoError(t, node.Run(n, func() error {
			links, err := netlink.LinkList()
			for _, l := range links {
				if l.Attrs().Alias == "mni-netd attachment "+key {
					err = errors.Join(err, netlink.LinkSetDown(l))
				}
			}
			return err
		}))
	})
	mended(restarted)

	// A Pod's own end is its own.
	inside := netns(t, client)
	damage("a Pod without its route", []string{"the link of", "client", "default route"}, func() { require.NoError(t, inside.Do(loseDefaultRoute)) })
	newPod(t, client)
	isConsistent(t)
	inside = netns(t, client)
	restarted = freeze(t, netd)
	damage("a Pod whose link is gone", []string{"record of", "client", "has no link"}, func() {
		require.NoError(t, inside.Do(func(ns.NetNS) error {
			link, err := netlink.LinkByName("eth0")
			return errors.Join(err, netlink.LinkDel(link))
		}))
	})
	restarted()
	unattached(t, n, client)
	newPod(t, client)
	isConsistent(t)
	restarted = freeze(t, netd)
	damage("an attachment without its record", []string{"the link of", "has no record"}, func() {
		require.NoError(t, os.Remove(recordOf(t, n, client)))
	})
	restarted()
	unattached(t, n, client)
	newPod(t, client)
	isConsistent(t)
	works()

	var leases netv1.IPLeaseList
	require.NoError(t, kube.List(t.Context(), &leases))
	restarted = freeze(t, "mni-cloud")
	for i := range leases.Items {
		if lease := &leases.Items[i]; lease.Spec.Interface == string(client.UID) {
			damage("the lost lease "+lease.Name, []string{"address " + lease.Name, "no lease"}, func() { require.NoError(t, kube.Delete(t.Context(), lease)) })
			extra := lease.DeepCopy()
			extra.ObjectMeta = objectMeta("", strings.TrimSuffix(lease.Name, lease.Spec.Address)+"10.0.1.200")
			extra.Spec.Address, extra.Spec.InterfaceUID = "10.0.1.200", types.UID("stranger")
			if strings.HasPrefix(lease.Spec.Address, "10.0.1.") {
				damage("a lease that nobody publishes", []string{"IPLease " + extra.Name}, func() { require.NoError(t, kube.Create(t.Context(), extra)) })
			}
		}
	}
	restarted()
	isConsistent(t)
	works()
}

// unattached waits until the checker says that a Container's Pod runs without a network.
func unattached(t *testing.T, n machine.Node, container *ctrv1.Container) {
	t.Helper()
	want := fmt.Sprintf("%s: Pod %s/%s runs and is not attached", n.Name(), container.Namespace, container.Status.Pod)
	eventually(t, "the checker tells of a Pod without a network", func(ctx context.Context) error {
		told, err := consistent.Node(ctx, kube, n)
		if err == nil && !slices.Contains(told, want) {
			err = fmt.Errorf("not %q in %q", want, told)
		}
		return err
	})
}

// recordOf is the file of the record of a Container's attachment.
func recordOf(t *testing.T, n machine.Node, container *ctrv1.Container) string {
	t.Helper()
	uid := podUID(t, container)
	records, err := filepath.Glob(filepath.Join(n.StateDir(), "var/lib/mni-netd/attachments/*.json"))
	require.NoError(t, err)
	for _, path := range records {
		if content, err := os.ReadFile(path); err == nil && strings.Contains(string(content), uid) {
			return path
		}
	}
	t.Fatalf("no record of Pod %s in %v", uid, records)
	return ""
}

// newPod deletes a Container's Pod and waits until it runs in another.
func newPod(t *testing.T, container *ctrv1.Container) {
	t.Helper()
	before := podUID(t, container)
	if out, err := kubectl(t.Context(), "delete", "pod", "-n", container.Namespace, container.Status.Pod, "--wait=false"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	eventually(t, container.Name+" runs in another Pod", func(ctx context.Context) error {
		if err := kube.Get(ctx, types.NamespacedName{Namespace: container.Namespace, Name: container.Name}, container); err != nil {
			return err
		}
		uid, err := kubectl(ctx, "get", "pod", container.Status.Pod, "-n", container.Namespace, "-o", "jsonpath={.metadata.uid}")
		if err != nil || uid == before || container.Status.Phase != status.Ready {
			return fmt.Errorf("phase %s, Pod %s: %w", container.Status.Phase, uid, err)
		}
		return nil
	})
}

func loseDefaultRoute(ns.NetNS) error {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	for i := range routes {
		if routes[i].Gw != nil {
			err = errors.Join(err, netlink.RouteDel(&routes[i]))
		}
	}
	return err
}
