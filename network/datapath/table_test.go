package datapath

import (
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// bpffs mounts a bpffs for the test and returns a pin path on it.
func bpffs(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, unix.Mount("bpffs", dir, "bpf", 0, ""), "mount a bpffs (needs root)")
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, 0)) })
	return filepath.Join(dir, "node")
}

func testConfig(pinPath string) Config {
	return Config{
		PinPath:            pinPath,
		DefaultVNI:         1,
		DefaultVPCID:       1,
		InfrastructureCIDR: netip.MustParsePrefix("198.18.0.0/17"),
		ServiceCIDR:        netip.MustParsePrefix("198.19.0.0/17"),
		MTU:                1450,
		HostIfindex:        101,
		HostMAC:            MAC{2, 0, 0, 0, 0, 1},
		HostPeerIfindex:    102,
		VXLANIfindex:       103,
		UplinkIfindex:      104,
		NodeAddress:        netip.MustParseAddr("192.0.2.1"),
		ConntrackEntries:   1024,
		FlowEntries:        4096,
		NATEntries:         8192,
	}
}

func mustLoad(t testing.TB, config Config) *Datapath {
	t.Helper()
	d, err := Load(config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func mac(s string) MAC {
	m, err := ParseMAC(s)
	if err != nil {
		panic(err)
	}
	return m
}

func TestTablesKeepWhatIsSetAcrossARestart(t *testing.T) {
	pins := bpffs(t)
	d := mustLoad(t, testConfig(pins))
	subnet := Subnet{VPCID: 7, Prefix: netip.MustParsePrefix("10.0.1.0/24"), Gateway: addr("10.0.1.1"), GatewayMAC: mac("02:00:00:00:01:01")}
	nic := NIC{
		VNI: 1001, VPCID: 7, Address: addr("10.0.1.5"), PrefixLength: 24, MAC: mac("02:00:00:00:01:05"),
		GatewayMAC: mac("02:00:00:00:01:01"), Infrastructure: addr("198.18.0.9"), NoSourceDestCheck: true, NoServices: true, IngressPolicy: PolicyClosed, EgressPolicy: 7,
	}
	endpoint := Endpoint{VPCID: 7, Kind: EndpointInterface, MAC: nic.MAC, Node: addr("192.0.2.3"), Ifindex: 12}
	route := RouteKey{VNI: 1001, Prefix: netip.MustParsePrefix("10.0.2.0/24")}
	require.NoError(t, d.Subnets.Set(1001, subnet))
	require.NoError(t, d.NICs.Set(12, nic))
	require.NoError(t, d.Endpoints.Set(EndpointKey{1001, nic.Address}, endpoint))
	require.NoError(t, d.Routes.Set(route, Route{VNI: 1002}))
	require.NoError(t, d.Members.Set(addr("192.0.2.3"), Member{}))
	require.NoError(t, d.Forwarders.Set(ForwarderKey{addr("192.0.2.3"), 7}, Forwarder{}))
	externals := map[netip.Prefix]External{
		prefix("203.0.113.0/24"): {},
		prefix("203.0.113.5/32"): {Kind: ExternalFloating, Target: EndpointKey{1001, nic.Address}, VPCID: 7, Node: addr("192.0.2.3")},
	}
	floatings := map[FloatingKey]Floating{{7, nic.Address}: {addr("203.0.113.5")}}
	_, err := d.Externals.Sync(externals)
	require.NoError(t, err)
	_, err = d.Floatings.Sync(floatings)
	require.NoError(t, err)

	restarted := mustLoad(t, testConfig(pins))
	subnets, err := restarted.Subnets.List()
	require.NoError(t, err)
	require.Equal(t, map[uint32]Subnet{1001: subnet}, subnets)
	nics, err := restarted.NICs.List()
	require.NoError(t, err)
	require.Equal(t, map[uint32]NIC{12: nic}, nics)
	got, ok, err := restarted.Endpoints.Get(EndpointKey{1001, nic.Address})
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, endpoint, got)
	routes, err := restarted.Routes.List()
	require.NoError(t, err)
	require.Equal(t, map[RouteKey]Route{route: {VNI: 1002}}, routes)
	members, err := restarted.Members.List()
	require.NoError(t, err)
	require.Equal(t, map[netip.Addr]Member{addr("192.0.2.3"): {}}, members)
	forwarders, err := restarted.Forwarders.List()
	require.NoError(t, err)
	require.Equal(t, map[ForwarderKey]Forwarder{{addr("192.0.2.3"), 7}: {}}, forwarders)
	haveExternals, err := restarted.Externals.List()
	require.NoError(t, err)
	require.Equal(t, externals, haveExternals)
	haveFloatings, err := restarted.Floatings.List()
	require.NoError(t, err)
	require.Equal(t, floatings, haveFloatings)
}

func TestAnOpenedDatapathSeesWhatAnotherProcessWrote(t *testing.T) {
	pins := bpffs(t)
	_, err := Open(pins)
	require.ErrorContains(t, err, "open map")
	d := mustLoad(t, testConfig(pins))
	require.NoError(t, d.Members.Set(addr("192.0.2.3"), Member{}))
	opened, err := Open(pins)
	require.NoError(t, err)
	members, err := opened.Members.List()
	require.NoError(t, err)
	require.Equal(t, map[netip.Addr]Member{addr("192.0.2.3"): {}}, members)
	require.NoError(t, opened.Close())
	_, _, err = d.Members.Get(addr("192.0.2.3"))
	require.NoError(t, err, "the other process' are still open")
}

func TestSyncWritesOnlyWhatDiffers(t *testing.T) {
	d := mustLoad(t, testConfig(bpffs(t)))
	key := func(last byte) EndpointKey { return EndpointKey{1, netip.AddrFrom4([4]byte{198, 18, 0, last})} }
	desired := map[EndpointKey]Endpoint{key(1): {VPCID: 1, Ifindex: 1}, key(2): {VPCID: 1, Ifindex: 2}}
	for _, step := range []struct {
		change  func()
		changes int
	}{
		{func() {}, 2},
		{func() {}, 0},
		{func() { desired[key(2)] = Endpoint{VPCID: 1, Ifindex: 3} }, 1},
		{func() { delete(desired, key(1)); desired[key(3)] = Endpoint{VPCID: 1} }, 2},
	} {
		step.change()
		changes, err := d.Endpoints.Sync(desired)
		require.NoError(t, err)
		require.Equal(t, step.changes, changes)
		have, err := d.Endpoints.List()
		require.NoError(t, err)
		require.Equal(t, desired, have)
	}
}

func TestServicesKeepTheSlotsOfBackendsThatStay(t *testing.T) {
	d := mustLoad(t, testConfig(bpffs(t)))
	key := ServiceKey{VPCID: 1, Address: addr("198.19.0.10"), Port: 53, Protocol: UDP}
	backend := func(last byte) Backend { return Backend{netip.AddrFrom4([4]byte{198, 18, 0, last}), 5353} }
	for _, step := range []struct{ desired, slots []Backend }{
		{[]Backend{backend(1), backend(2), backend(3)}, []Backend{backend(1), backend(2), backend(3)}},
		{[]Backend{backend(3), backend(2)}, []Backend{backend(3), backend(2)}},
		{[]Backend{backend(2), backend(4), backend(5)}, []Backend{backend(4), backend(2), backend(5)}},
		{[]Backend{backend(6), backend(6)}, []Backend{backend(6)}},
		{nil, []Backend{}},
	} {
		changes, err := d.Services.Sync(map[ServiceKey]Service{key: {Backends: step.desired, Affinity: time.Minute}})
		require.NoError(t, err)
		require.Equal(t, 1, changes)
		services, err := d.Services.List()
		require.NoError(t, err)
		require.Equal(t, map[ServiceKey]Service{key: {Backends: step.slots, Affinity: time.Minute}}, services)
		changes, err = d.Services.Sync(map[ServiceKey]Service{key: {Backends: step.desired, Affinity: time.Minute}})
		require.NoError(t, err)
		require.Zero(t, changes)
	}
	changes, err := d.Services.Sync(nil)
	require.NoError(t, err)
	require.Equal(t, 1, changes)
	left, err := d.Services.backends.List()
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestServicesThatWereDamagedOrLeftInPartAreWholeAgain(t *testing.T) {
	d := mustLoad(t, testConfig(bpffs(t)))
	key := ServiceKey{VPCID: 1, Address: addr("198.19.0.10"), Port: 53, Protocol: UDP}
	desired := map[ServiceKey]Service{key: {Backends: []Backend{{addr("198.18.0.1"), 53}, {addr("198.18.0.2"), 53}}}}
	_, err := d.Services.Sync(desired)
	require.NoError(t, err)
	entry, _, err := d.Services.services.Get(key)
	require.NoError(t, err)
	require.NoError(t, d.Services.backends.Delete(backendKey{entry.id, 0}))
	services, err := d.Services.List()
	require.NoError(t, err)
	require.Equal(t, Backend{}, services[key].Backends[0], "an empty slot is told as such")
	changes, err := d.Services.Sync(desired)
	require.NoError(t, err)
	require.Equal(t, 1, changes)
	services, err = d.Services.List()
	require.NoError(t, err)
	require.Equal(t, desired, services)

	// A process that dies while it deletes a Service leaves backends, which the next one takes away.
	require.NoError(t, d.Services.services.Delete(key))
	strays, err := d.Services.Strays()
	require.NoError(t, err)
	require.Equal(t, 2, strays)
	next := newServices(d.Services.services.m, d.Services.backends.m, d.Conntrack)
	_, err = next.Sync(nil)
	require.NoError(t, err)
	left, err := d.Services.backends.List()
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestConfigurationErrorsNameTheField(t *testing.T) {
	for field, spoil := range map[string]func(*Config){
		"PinPath":            func(c *Config) { c.PinPath = "" },
		"DefaultVNI":         func(c *Config) { c.DefaultVNI = 1 << 24 },
		"DefaultVPCID":       func(c *Config) { c.DefaultVPCID = 0 },
		"InfrastructureCIDR": func(c *Config) { c.InfrastructureCIDR = netip.MustParsePrefix("198.18.0.1/17") },
		"ServiceCIDR":        func(c *Config) { c.ServiceCIDR = c.InfrastructureCIDR },
		"HairpinAddress":     func(c *Config) { c.HairpinAddress = netip.IPv6Loopback() },
		"MTU":                func(c *Config) { c.MTU = 500 },
		"HostIfindex":        func(c *Config) { c.HostIfindex = 0 },
		"HostPeerIfindex":    func(c *Config) { c.HostPeerIfindex = 0 },
		"HostMAC":            func(c *Config) { c.HostMAC = MAC{} },
		"VXLANIfindex":       func(c *Config) { c.VXLANIfindex = 0 },
		"UplinkIfindex":      func(c *Config) { c.UplinkIfindex = 0 },
		"NodeAddress":        func(c *Config) { c.NodeAddress = netip.IPv6Loopback() },
		"OutsideVNI":         func(c *Config) { c.OutsideVNI = c.DefaultVNI },
	} {
		config := testConfig("/nowhere")
		spoil(&config)
		_, err := Load(config)
		require.ErrorContains(t, err, field)
	}
}

func TestEveryReasonHasANameAndAMeaning(t *testing.T) {
	seen := map[string]bool{}
	for _, reason := range Reasons() {
		require.NotContains(t, reason.String(), "reason_")
		require.NotEmpty(t, reason.Meaning())
		require.False(t, seen[reason.String()], "two reasons are called %s", reason)
		seen[reason.String()] = true
	}
}
