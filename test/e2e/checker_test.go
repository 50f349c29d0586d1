//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/kit/status"
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
	{"policy_rules", "policies"},
	{"nics", "nics"},
	{"endpoints", "endpoints"},
	{"routes", "routes"},
	{"subnets", "subnets"},
	{"hops", "next hops"},
	{"forwarders", "forwarders"},
	{"members", "members"},
	{"backends", "Services"},
	{"services", "Services"},
	{"externals", "external addresses"},
	{"floatings", "FloatingIPs"},
	{"nat_blocks", "ports of Subnets"},
	{"nats", "ports of Subnets"},
	{"port_blocks", "PortBlocks"},
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

// A checker that says nothing would let every other test pass. Each table and pin is damaged here on a node whose daemon stands still, so that
// nothing is mended before it is looked for; the daemon that starts then mends it.
func TestTheCheckerTellsWhatIsLostOfEachTableAndPin(t *testing.T) {
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

	restarted = freeze(t, netd)
	pins, err := filepath.Glob(filepath.Join(n.PinDir(), "links", "*"))
	require.NoError(t, err)
	if len(pins) > 0 { // with clsact there are none
		for _, pin := range pins {
			damage("the lost pin "+pin, []string{"pin " + filepath.Base(pin), "missing"}, func() { require.NoError(t, os.Remove(pin)) })
		}
	}
	mended(restarted)
}
