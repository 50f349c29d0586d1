package bird

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/network/datapath/testnet"
)

// patience bounds each wait for a condition.
const patience = time.Minute

const routerAddress = "192.0.2.254"

// router is FRR's configuration as an operator would write it for two nodes.
const router = `frr defaults traditional
hostname router
router bgp 64513
 bgp router-id 192.0.2.254
 bgp graceful-restart
 no bgp default ipv4-unicast
 no bgp ebgp-requires-policy
 neighbor nodes peer-group
 neighbor nodes remote-as 4200000001
 neighbor nodes password s3cret,really
 neighbor nodes bfd 3 300 300
 neighbor nodes timers connect 2
 neighbor 192.0.2.1 peer-group nodes
 neighbor 192.0.2.2 peer-group nodes
 address-family ipv4 unicast
  network 198.51.100.0/24
  neighbor nodes activate
  maximum-paths 8
 exit-address-family
 !
 no bgp network import-check
`

// node is a node's namespace with a BIRD.
type node struct {
	t testing.TB
	*testnet.Node
	Daemon
	config Config
}

func newNode(t testing.TB, ns *testnet.Node) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "bird") //nolint:usetesting // t.TempDir's parents are not for other users
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	n := &node{t: t, Node: ns, Daemon: Daemon{Program: program(t), Dir: filepath.Join(dir, "run"), Log: slog.New(slog.DiscardHandler)}}
	require.NoError(t, n.Prepare())
	p := peer("router", routerAddress)
	p.LocalASN, p.ASN, p.Password = 4200000001, 64513, "s3cret,really"
	p.BFD = &BFD{Interval: 300 * time.Millisecond, Multiplier: 3}
	med := uint32(7)
	pool := netip.MustParsePrefix("203.0.113.0/24")
	p.Exports = []Export{
		{Match: pool, Communities: [][2]uint16{{64512, 100}}, LargeCommunities: [][3]uint32{{4200000001, 1, 2}}, MED: &med},
		{Match: pool, Hosts: true},
	}
	n.config = Config{Address: ns.Address, LogFile: n.LogFile(), Aggregates: []netip.Prefix{pool}, Peers: []Peer{p}}
	t.Cleanup(func() {
		if said, err := os.ReadFile(n.LogFile()); err == nil && t.Failed() {
			t.Logf("BIRD: %s", said)
		}
		require.NoError(t, n.Stop())
		require.NoError(t, os.RemoveAll(dir))
	})
	return n
}

// ensure is Ensure in the node's namespace.
func (n *node) ensure() {
	n.t.Helper()
	require.NoError(n.t, n.Do(func() error { return n.Ensure(n.t.Context(), n.config) }))
}

// session is the session with the router.
func (n *node) session() Session {
	n.t.Helper()
	all, err := n.Control().Sessions(n.t.Context())
	require.NoError(n.t, err)
	require.Len(n.t, all, 1)
	return all[0]
}

func (n *node) established() {
	n.t.Helper()
	require.Eventually(n.t, func() bool { return n.session().State == Established }, patience, 50*time.Millisecond, "%+v", n.session())
}

// has waits for the router's routes.
func has(t testing.TB, r *testnet.Router, want ...string) {
	t.Helper()
	slices.Sort(want)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		have := r.Routes()
		slices.Sort(have)
		assert.Equal(c, want, have)
	}, patience, 50*time.Millisecond)
}

// Traffic to an address that had moved went on to the old place. https://github.com/kubeovn/kube-ovn/issues/4690
func TestTwoNodesAnnounceTheirPoolAndEachItsOwnAddresses(t *testing.T) {
	network := testnet.New(t, 2)
	r := testnet.StartRouter(t, network.Outside, router)
	first, second := newNode(t, network.Nodes[0]), newNode(t, network.Nodes[1])
	first.config.Hosts = []netip.Addr{netip.MustParseAddr("203.0.113.7")}
	first.ensure()
	second.ensure()
	first.established()
	second.established()
	has(t, r, "203.0.113.0/24 via 192.0.2.1 192.0.2.2", "203.0.113.7/32 via 192.0.2.1")

	route := r.Ask("show bgp ipv4 unicast 203.0.113.0/24")
	for _, want := range []string{"4200000001", "metric 7", "Community: 64512:100", "Large Community: 4200000001:1:2"} {
		require.Contains(t, route, want)
	}
	require.Eventually(t, func() bool { return strings.Count(r.Ask("show bfd peers brief"), " up ") == 2 }, patience, 50*time.Millisecond)
	require.Eventually(t, func() bool { s := first.session(); return s.Sent == 2 && s.Received == 1 }, patience, 50*time.Millisecond,
		"what is announced and heard is counted: %+v", first.session())
	require.WithinDuration(t, time.Now(), first.session().Since, 5*time.Minute)
	require.NotContains(t, fmt.Sprint(routesOf(t, first)), "198.51.100", "what the router announces is not used")
	require.Contains(t, fmt.Sprint(routesOf(t, first)), "203.0.113.0/24", "what nobody has goes nowhere")

	t.Log("an address moves to the other node")
	second.config.Hosts, first.config.Hosts = first.config.Hosts, nil
	second.ensure()
	first.ensure()
	has(t, r, "203.0.113.0/24 via 192.0.2.1 192.0.2.2", "203.0.113.7/32 via 192.0.2.2")
}

// A router of the same AS hears the local preference, which others do not; it chooses the node with the higher one.
func TestARouterOfTheSameASChoosesByTheLocalPreference(t *testing.T) {
	network := testnet.New(t, 2)
	r := testnet.StartRouter(t, network.Outside, strings.NewReplacer("router bgp 64513", "router bgp 64512", "remote-as 4200000001", "remote-as 64512").Replace(router))
	first, second := newNode(t, network.Nodes[0]), newNode(t, network.Nodes[1])
	for i, n := range []*node{first, second} {
		preference := uint32(300 - 100*i)
		p := &n.config.Peers[0]
		p.LocalASN, p.ASN = 64512, 64512
		for e := range p.Exports {
			p.Exports[e].LocalPreference = &preference
		}
		n.ensure()
		n.established()
	}
	has(t, r, "203.0.113.0/24 via 192.0.2.1")
	require.Contains(t, r.Ask("show bgp ipv4 unicast 203.0.113.0/24"), "localpref 300")
	require.Contains(t, r.Ask("show bgp ipv4 unicast 203.0.113.0/24"), "localpref 200")
	second.config.Peers[0].Exports, first.config.Peers[0].Exports = first.config.Peers[0].Exports, second.config.Peers[0].Exports
	second.ensure()
	first.ensure()
	has(t, r, "203.0.113.0/24 via 192.0.2.2")
}

func routesOf(t testing.TB, n *node) []string {
	t.Helper()
	list, err := n.Links().RouteList(nil, 2)
	require.NoError(t, err)
	var all []string
	for _, r := range list {
		all = append(all, r.String())
	}
	return all
}

// Any change made the daemon reload and sessions flap. https://github.com/metallb/metallb/issues/1944
// https://github.com/metallb/metallb/issues/2049
func TestTwoHundredChangesOfAddressesResetNoSessionAndReloadNothingNeedlessly(t *testing.T) {
	network := testnet.New(t, 1)
	r := testnet.StartRouter(t, network.Outside, router)
	n := newNode(t, network.Nodes[0])
	n.ensure()
	// A session that both sides open at once is dropped once and opened again (RFC 4271, 6.8).
	require.Eventually(t, func() bool { s := n.session(); return s.State == Established && time.Since(s.Since) > 3*time.Second }, patience, 100*time.Millisecond)
	since, pid := n.session().Since, n.running.pid
	connections := func() string { // the first may meet one from the other side (RFC 4271, 6.8), and be dropped for it
		for line := range strings.Lines(r.Ask("show bgp neighbors 192.0.2.1")) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "Connections established") {
				return line
			}
		}
		return ""
	}
	connected := connections()
	require.NotEmpty(t, connected)
	configured := func() int {
		log, err := os.ReadFile(n.LogFile())
		require.NoError(t, err)
		return strings.Count(string(log), "Reconfiguring")
	}
	before := configured()
	var want []string
	for i := 20; i < 220; i++ { // the lower ones are the test network's too
		n.config.Hosts = append(n.config.Hosts, netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}))
		want = append(want, fmt.Sprintf("203.0.113.%d/32 via 192.0.2.1", i))
		n.ensure()
		slices.Reverse(n.config.Hosts) // the same, said otherwise
		n.ensure()
	}
	has(t, r, append(want, "203.0.113.0/24 via 192.0.2.1")...)
	require.Equal(t, before+200, configured(), "one for each change, none for the others")
	require.Equal(t, pid, n.running.pid)
	require.Equal(t, since, n.session().Since, "the session was not reset")
	require.Equal(t, connected, connections())
	log, err := os.ReadFile(n.LogFile())
	require.NoError(t, err)
	require.NotContains(t, string(log), "peer-router: Reloading", "nor was it sent anew what it had")
}

// A Cease on shutdown defeated graceful restart. https://github.com/cilium/cilium/issues/31346
func TestThePeerKeepsItsRoutesAndNothingIsLostWhileBIRDRestarts(t *testing.T) {
	network := testnet.New(t, 1)
	r := testnet.StartRouter(t, network.Outside, router)
	n := newNode(t, network.Nodes[0])
	n.config.Hosts = []netip.Addr{netip.MustParseAddr("203.0.113.7")}
	n.AddAddress("lo", "203.0.113.7/32")
	n.ServeEcho("203.0.113.7", echo)
	n.ensure()
	n.established()
	want := []string{"203.0.113.0/24 via 192.0.2.1", "203.0.113.7/32 via 192.0.2.1"}
	has(t, r, want...)
	require.Eventually(t, func() bool { return strings.Contains(r.Ask("show bfd peers brief"), " up ") }, patience, 50*time.Millisecond)

	for name, end := range map[string]func() error{
		"planned":     func() error { return n.Restart(t.Context()) },
		"by a crash":  func() error { return n.running.kill() },
		"as it hangs": n.Kill,
	} {
		t.Run(name, func(t *testing.T) {
			lost := make(chan []string, 1)
			stop := make(chan struct{})
			go func() {
				defer close(lost)
				for {
					if have := r.Routes(); len(have) != len(want) {
						lost <- have
						return
					}
					select {
					case <-stop:
						return
					case <-time.After(10 * time.Millisecond):
					}
				}
			}()
			count := network.Outside.Flood(fmt.Sprintf("203.0.113.7:%d", echo), floodRate)
			exited := n.Exited()
			require.NoError(t, end())
			select {
			case <-exited:
			case <-time.After(patience):
				t.Fatal("BIRD does not end")
			}
			// BFD has noticed by then that the node's BIRD is gone.
			require.Eventually(t, func() bool { return !strings.Contains(r.Ask("show bfd peers brief"), " up ") }, patience, 50*time.Millisecond)
			n.ensure()
			n.established()
			require.Eventually(t, func() bool { return strings.Contains(r.Ask("show bgp summary"), "00:00:0") }, patience, 50*time.Millisecond)
			close(stop)
			require.Empty(t, <-lost, "routes that the router had in between")
			sent, dropped := count()
			require.Empty(t, dropped, "datagrams lost of %d", sent)
			t.Logf("%d datagrams, all answered", sent)
		})
	}
}

func TestASpeakerThatRestartsTakesTheRunningBIRDOver(t *testing.T) {
	network := testnet.New(t, 1)
	testnet.StartRouter(t, network.Outside, router)
	n := newNode(t, network.Nodes[0])
	n.ensure()
	// A session that both sides open at once is dropped once and opened again (RFC 4271, 6.8).
	require.Eventually(t, func() bool { s := n.session(); return s.State == Established && time.Since(s.Since) > 3*time.Second }, patience, 100*time.Millisecond)
	since, pid := n.session().Since, n.running.pid

	next := &node{t: t, Node: n.Node, Daemon: Daemon{Program: n.Program, Dir: n.Dir, Log: n.Log}, config: n.config}
	next.ensure()
	require.Equal(t, pid, next.running.pid)
	next.config.Hosts = []netip.Addr{netip.MustParseAddr("203.0.113.9")}
	next.ensure()
	require.Eventually(t, func() bool { return next.session().Sent == 2 }, patience, 50*time.Millisecond)
	require.Equal(t, since, next.session().Since)

	t.Log("a configuration that BIRD has not got yet, because the speaker was killed in between, is given to it")
	require.NoError(t, os.WriteFile(next.path(configName), []byte("anything"), 0o600))
	require.NoError(t, os.WriteFile(next.path(appliedName), []byte("cut off"), 0o600))
	last := &node{t: t, Node: n.Node, Daemon: Daemon{Program: n.Program, Dir: n.Dir, Log: n.Log}, config: n.config}
	last.ensure()
	require.Equal(t, pid, last.running.pid)
	require.Eventually(t, func() bool { return last.session().Sent == 1 }, patience, 50*time.Millisecond)
	require.Equal(t, since, last.session().Since)

	t.Log("another process that got its number is left alone")
	require.NoError(t, last.Stop())
	require.NoError(t, os.WriteFile(last.path(pidName), []byte(fmt.Sprint(os.Getpid())), 0o600))
	found, err := last.find()
	require.NoError(t, err)
	require.Nil(t, found)
	require.NoError(t, last.Stop())
}

func TestABadConfigurationIsRefusedAndTheOldOneStaysInForce(t *testing.T) {
	network := testnet.New(t, 1)
	testnet.StartRouter(t, network.Outside, router)
	n := newNode(t, network.Nodes[0])
	n.ensure()
	n.established()
	since := n.session().Since
	good := n.config
	bad := good
	bad.Peers = slices.Clone(good.Peers)
	bad.Peers[0].Name = "it's"
	err := n.Do(func() error { return n.Ensure(t.Context(), bad) })
	require.ErrorIs(t, err, ErrRefused)
	require.Equal(t, since, n.session().Since)
	n.ensure()
	require.Equal(t, since, n.session().Since)
}

func TestWithAWrongPasswordThereIsNoSession(t *testing.T) {
	network := testnet.New(t, 1)
	testnet.StartRouter(t, network.Outside, router)
	n := newNode(t, network.Nodes[0])
	right := n.config.Peers[0].Password
	n.config.Peers[0].Password = "wrong"
	n.ensure()
	require.Eventually(t, func() bool { return n.session().State == "Connect" || n.session().State == "Active" }, patience, 50*time.Millisecond)
	require.Never(t, func() bool { return n.session().State == Established }, 3*time.Second, 100*time.Millisecond)
	n.config.Peers[0].Password = right
	n.ensure()
	n.established()
}
