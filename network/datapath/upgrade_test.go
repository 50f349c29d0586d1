package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/network/datapath/otherlayout"
	"github.com/mnicloud/mnicloud/network/datapath/testnet"
)

// traffic is 1,000 numbered datagrams a second and 200 TCP connections, through everything that programs remember flows for:
// policies, Services, infrastructure addresses, NATGateways.
type traffic struct {
	r     *reality
	count map[string]func() (int, []int)
	stop  map[string]func() (int, error)
}

func (r *reality) traffic() *traffic {
	const echo = 7
	first, second := r.nodes[0], r.nodes[1]
	for _, p := range []*realPod{r.a1, r.a2, r.web2, r.neighbor} {
		p.ServeEcho(p.nic.Address.String(), echo)
	}
	r.net.Outside.ServeEcho(testnet.OutsideAddress, echo)
	r.nat(map[uint32]string{1001: "198.51.100.20"})
	r.outside(second, testnet.OutsideAddress, 1001) // answers come in by the other node
	allowed := policy(Rule{from("10.0.1.11/32"), []Ports{port(TCP, echo), port(UDP, echo)}})
	r.setPolicies(second, r.a2, allowed, policy())
	r.setPolicies(first, r.neighbor, policy(Rule{from("198.18.0.11/32"), []Ports{port(TCP, echo), port(UDP, echo)}}), nil)
	for i, backend := range []string{"198.18.0.12", "198.18.0.13"} {
		for _, protocol := range []Protocol{TCP, UDP} {
			service := Service{Backends: []Backend{{addr(backend), echo}}, Affinity: time.Hour}
			require.NoError(r.t, first.Services.Set(ServiceKey{1, addr(fmt.Sprintf("198.19.0.%d", 10+i)), 80, protocol}, service))
		}
	}
	ways := []struct {
		name, address     string
		client            *testnet.Namespace
		rate, connections int
	}{
		{"policy", "10.0.1.12:7", r.a1.Namespace, 300, 60},
		{"Service across nodes", "198.19.0.10:80", r.web1.Namespace, 300, 60},
		{"Service and policy on one node", "198.19.0.11:80", r.web1.Namespace, 200, 40},
		{"infrastructure address", "198.18.0.53:7", first.Namespace, 200, 40},
		{"NATGateway", testnet.OutsideAddress + ":7", r.a1.Namespace, 200, 40},
	}
	tr := &traffic{r: r, count: map[string]func() (int, []int){}, stop: map[string]func() (int, error){}}
	for _, way := range ways {
		tr.count[way.name] = way.client.Flood(way.address, way.rate)
		tr.stop[way.name] = way.client.Connections(way.address, way.connections)
	}
	return tr
}

// isWhole ends the traffic and asserts that nothing of it was lost or reset.
func (tr *traffic) isWhole() {
	t := tr.r.t
	for name, count := range tr.count {
		sent, lost := count()
		require.Empty(t, lost, "%s: datagrams lost of %d", name, sent)
		require.Greater(t, sent, 100, name)
		t.Logf("%s: %d datagrams, all answered", name, sent)
	}
	for name, stop := range tr.stop {
		answers, err := stop()
		require.NoError(t, err, name)
		t.Logf("%s: %d answers in connections that were never reset", name, answers)
	}
}

// layouts are the folders of tables that a node has.
func (r *reality) layouts(n *realNode) []string {
	dirs, err := layoutDirs(n.config.PinPath)
	require.NoError(r.t, err)
	return dirs
}

// isSettled asserts that only the tables of the version that runs are left, and programs with them.
func (r *reality) isSettled(n *realNode) {
	spec, err := r.object()
	require.NoError(r.t, err)
	require.NoError(r.t, n.config.apply(spec))
	require.Equal(r.t, []string{filepath.Join(mapsDir(n.config.PinPath), layoutOf(spec))}, r.layouts(n))
}

// becomes starts another version, which takes over.
func (r *reality) becomes(object func() (*ebpf.CollectionSpec, error)) {
	r.object = object
	r.load()
	r.attach()
	for _, n := range r.nodes {
		r.isSettled(n)
	}
}

// https://github.com/cilium/cilium/issues/13015: an upgrade renamed the maps too early and cut traffic.
func TestAnUpgradeToOtherTablesAndBackLosesNothing(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		traffic := r.traffic()
		r.becomes(otherlayout.LoadBpf)
		for i := range r.config { // tables of another size are another layout too
			r.config[i].ConntrackEntries, r.config[i].FlowEntries = 4096, 4096
		}
		r.becomes(loadBpf)
		require.EqualValues(t, 4096, r.nodes[0].Conntrack.m.MaxEntries())
		traffic.isWhole()
	})
}

var errKilled = errors.New("killed")

// dies starts a version on the first node that is killed after so many steps of its taking over; whole says that it did them all.
func (r *reality) dies(object func() (*ebpf.CollectionSpec, error), after int) (whole bool) {
	r.object = object
	n := r.nodes[0]
	r.loadNode(0)
	step := 0
	err := n.Replace(func() error {
		for _, attach := range append(r.attachments(n), func() error { return nil }) {
			if step++; step > after {
				return errKilled
			}
			if err := n.Do(attach); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		require.ErrorIs(r.t, err, errKilled)
	}
	require.NoError(r.t, n.Close())
	n.Datapath = nil
	return err == nil
}

// killedAt says after which steps a taking over is killed: all of them in `make soak`.
func killedAt() []int {
	if os.Getenv("SOAK") != "" {
		return []int{0, 1, 2, 3, 4, 5, 6, 7}
	}
	return []int{0, 3, 7}
}

func TestAnUpgradeThatIsKilledAtAnyStepIsFinishedByTheNextStart(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		traffic := r.traffic()
		versions := []func() (*ebpf.CollectionSpec, error){loadBpf, otherlayout.LoadBpf}
		runs := 0
		for i, after := range killedAt() {
			t.Logf("killed after %d steps", after)
			require.False(t, r.dies(versions[1-runs], after))
			runs = (runs + i) % 2 // the upgrade goes on, or is given up
			r.object = versions[runs]
			r.loadNode(0)
			r.attachNode(r.nodes[0])
			r.isSettled(r.nodes[0])
		}
		traffic.isWhole()
	})
}

func TestFoldersOfTablesThatWereMadeOrRemovedInPartAreNoObstacle(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		traffic, n := r.traffic(), r.nodes[0]
		removeHalf := func(dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, completeName)))
			pins, err := os.ReadDir(dir)
			require.NoError(t, err)
			for _, pin := range pins[:len(pins)/2] {
				require.NoError(t, os.Remove(filepath.Join(dir, pin.Name())))
			}
		}
		own := r.layouts(n)[0]
		r.object = otherlayout.LoadBpf
		r.loadNode(0) // it is killed while it makes its tables
		made := slices.DeleteFunc(r.layouts(n), func(dir string) bool { return dir == own })
		require.Len(t, made, 1)
		removeHalf(made[0])
		r.loadNode(0)
		require.NoError(t, n.carry(flows)) // and while it removes the former ones: all programs are its own
		require.NoError(t, n.whileMirroring(func() error {
			for _, attach := range r.attachments(n) {
				require.NoError(t, n.Do(attach))
			}
			return nil
		}))
		awaitPrograms()
		require.NoError(t, n.carry(flows))
		removeHalf(own)
		r.loadNode(0)
		r.attachNode(n)
		r.isSettled(n)
		traffic.isWhole()
	})
}

func TestTheFirstVersionsTablesAreTakenOver(t *testing.T) {
	config := testConfig(bpffs(t))
	first := mustLoad(t, config)
	require.NoError(t, first.Members.Set(addr("192.0.2.1"), Member{}))
	dirs, err := layoutDirs(config.PinPath)
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(dirs[0], completeName)))
	pins, err := os.ReadDir(dirs[0])
	require.NoError(t, err)
	for _, pin := range pins { // where the first versions had them
		require.NoError(t, os.Rename(filepath.Join(dirs[0], pin.Name()), filepath.Join(mapsDir(config.PinPath), pin.Name())))
	}
	require.NoError(t, os.Remove(dirs[0]))
	_, err = Open(config.PinPath)
	require.NoError(t, err)

	second := mustLoad(t, config)
	_, kept, err := second.Members.Get(addr("192.0.2.1"))
	require.NoError(t, err)
	require.True(t, kept)
	require.NoError(t, second.Replace(func() error { return nil }))
	left, err := layoutDirs(config.PinPath)
	require.NoError(t, err)
	require.Equal(t, dirs, left)
}

func TestEntriesAreBroughtOverFieldByField(t *testing.T) {
	config := testConfig(bpffs(t))
	first := mustLoad(t, config)
	key := bpfConntrackKey{VpcId: 7, Protocol: 6, SourcePort: 1, DestinationPort: 2, Source: toAddress(addr("10.0.0.1")), Destination: toAddress(addr("10.0.0.2"))}
	value := bpfConntrack{ServicePort: 3, BackendPort: 4, LastSeen: 5, ServiceId: 6, Flags: 7, Backend: toAddress(addr("10.0.0.3"))}
	require.NoError(t, first.Conntrack.m.Put(bytesOf(&key), bytesOf(&value)))
	require.NoError(t, first.Policies.numbers.Put(uint32(0), uint32(41)))
	require.NoError(t, first.Services.Set(ServiceKey{1, addr("198.19.0.10"), 80, TCP}, Service{Backends: []Backend{{addr("198.18.0.12"), 7}}}))
	drop := bpfDropKey{Ifindex: 9, Reason: 1}
	counts := make([]bpfCount, ebpf.MustPossibleCPU())
	counts[0] = bpfCount{Packets: 8, Bytes: 800}
	require.NoError(t, first.Drops.m.Put(bytesOf(&drop), counts))

	other, err := LoadObject(config, otherlayout.LoadBpf)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	there := otherlayout.BpfConntrack{}
	otherKey := otherlayout.BpfConntrackKey{VpcId: 7, Protocol: 6, SourcePort: 1, DestinationPort: 2}
	otherKey.Source.W, otherKey.Destination.W = key.Source.W, key.Destination.W
	require.NoError(t, other.Conntrack.m.Lookup(bytesOf(&otherKey), bytesOf(&there)))
	require.Equal(t, value.Backend.W, there.Backend.W)
	require.Equal(t, []any{value.ServicePort, value.BackendPort, value.LastSeen, value.ServiceId, value.Flags, uint64(0)},
		[]any{there.ServicePort, there.BackendPort, there.LastSeen, there.ServiceId, bpfConntrackFlags(there.Flags), there.Later})
	services, err := other.Services.List()
	require.NoError(t, err)
	require.Len(t, services, 1)
	drops, err := other.Drops.List()
	require.NoError(t, err)
	require.Equal(t, Count{Packets: 8, Bytes: 800}, drops[DropKey{9, 1}])
	number := uint32(0)
	require.NoError(t, other.Policies.numbers.Lookup(uint32(0), &number))
	require.EqualValues(t, 41, number, "no number is given again")

	there.LastSeen, otherKey.SourcePort = 50, 10 // a flow that only the other version saw
	require.NoError(t, other.Conntrack.m.Put(bytesOf(&otherKey), bytesOf(&there)))
	require.NoError(t, other.Replace(func() error { return nil }))
	again := mustLoad(t, config)
	key.SourcePort = 10
	require.NoError(t, again.Conntrack.m.Lookup(bytesOf(&key), bytesOf(&value)))
	require.EqualValues(t, 50, value.LastSeen)
}

func TestWhatWasRemovedWhileTheFormerTablesWereThereDoesNotComeBack(t *testing.T) {
	config := testConfig(bpffs(t))
	first := mustLoad(t, config)
	kept, removed := ServiceKey{1, addr("198.19.0.10"), 53, UDP}, ServiceKey{1, addr("198.19.0.11"), 53, UDP}
	one, two := Backend{addr("198.18.0.12"), 7}, Backend{addr("198.18.0.13"), 7}
	for _, service := range []ServiceKey{kept, removed} {
		require.NoError(t, first.Services.Set(service, Service{Backends: []Backend{one, two}}))
		for port, backend := range map[uint16]Backend{1: one, 2: two} {
			flow := bpfConntrackKey{VpcId: 1, Protocol: uint8(UDP), Destination: toAddress(service.Address), SourcePort: networkPort(port), DestinationPort: networkPort(53)}
			entry := bpfConntrack{
				Service: toAddress(service.Address), ServicePort: networkPort(53), Backend: toAddress(backend.Address), BackendPort: networkPort(backend.Port),
			}
			require.NoError(t, first.Conntrack.m.Put(bytesOf(&flow), bytesOf(&entry)))
		}
	}
	config.ConntrackEntries = 4096
	second := mustLoad(t, config)
	require.NoError(t, second.Services.Set(kept, Service{Backends: []Backend{two}}))
	require.NoError(t, second.Services.Delete(removed))

	third := mustLoad(t, config) // after a crash
	services, err := third.Services.List()
	require.NoError(t, err)
	require.Equal(t, map[ServiceKey]Service{kept: {Backends: []Backend{two}}}, services)
	require.NoError(t, third.Replace(func() error { return nil }))
	flows, err := third.Conntrack.List()
	require.NoError(t, err)
	require.Len(t, flows, 1)
	require.Equal(t, two.Address, flows[0].Backend.Addr())
}

func TestProgramsThatOnlyAnotherVersionHasAreRemoved(t *testing.T) {
	r := newReality(t, false) // with clsact a filter is replaced by whatever another version has at its place
	n := r.nodes[0]
	ifindex := n.Link(testnet.UplinkName).Attrs().Index
	require.NoError(t, n.Do(func() error { return n.Datapath.attach(bpfProgVxlanIngress, "later", ifindex) }))
	removed, err := n.CollectLinks()
	require.NoError(t, err)
	require.Equal(t, 1, removed)
	require.NoFileExists(t, n.linkPath("later"))
}
