package attachment

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mnicloud/mnicloud/network/plugin/protocol"
	"github.com/mnicloud/mnicloud/test/isolate"
)

func TestMain(m *testing.M) { os.Exit(isolate.Main(m)) }

// fakeSource knows interfaces by Pod name.
type fakeSource map[string]Interface

func (s fakeSource) Wait(ctx context.Context, pod Pod) (Interface, error) {
	if nic, ok := s[pod.Name]; ok {
		return nic, nil
	}
	<-ctx.Done()
	return Interface{}, fmt.Errorf("NetworkInterface %s is not Ready: AddressesExhausted", pod.Name)
}

// fakeDatapath remembers what it was told, as the real one would: the newest attachment of an interface has the traffic.
type fakeDatapath struct {
	mu     sync.Mutex
	store  *Store
	upAt   []string // links that were up when they were attached
	owner  map[types.UID]string
	failed error
}

func (d *fakeDatapath) Attach(_ context.Context, r Record, link netlink.Link) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed != nil {
		return d.failed
	}
	if link.Attrs().OperState == netlink.OperUp {
		d.upAt = append(d.upAt, r.HostLink)
	}
	d.owner[r.Interface.UID] = r.Key()
	return nil
}

func (d *fakeDatapath) Detach(_ context.Context, r Record) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.owner[r.Interface.UID] == r.Key() {
		delete(d.owner, r.Interface.UID)
	}
	return nil
}

type fixture struct {
	*Manager
	dir      string
	datapath *fakeDatapath
	source   fakeSource
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{dir: t.TempDir(), source: fakeSource{"web": tenantInterface("web", 5)}}
	f.open(t)
	t.Cleanup(func() { require.NoError(t, f.GC(context.Background(), "", nil)) })
	return f
}

// open starts the manager anew from what is on disk, as a restarted daemon does.
func (f *fixture) open(t *testing.T) {
	store, err := OpenStore(f.dir, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	f.datapath = &fakeDatapath{store: store, owner: map[types.UID]string{}}
	f.Manager = &Manager{
		Store: store, Source: f.source, Datapath: f.datapath, MTU: func() int { return 1450 },
		AddDeadline: 50 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
	}
}

func tenantInterface(name string, last byte) Interface {
	return Interface{
		Name: name, UID: types.UID("nic-" + name), Pod: Pod{"shop", name, types.UID("uid-" + name)}, VPCID: 1001, VNI: 1001,
		Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, last}), 24), MAC: fmt.Sprintf("02:00:00:00:00:%02x", last),
		Gateway: netip.MustParseAddr("10.0.0.1"), GatewayMAC: "02:00:00:00:ff:01",
		Infrastructure: netip.AddrFrom4([4]byte{198, 18, 0, last}), SourceDestCheck: true,
	}
}

func addRequest(id string, netns ns.NetNS, pod string) protocol.Request {
	return protocol.Request{
		ContainerID: id, IfName: "eth0", Netns: netns.Path(),
		Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + pod + ";K8S_POD_UID=uid-" + pod,
	}
}

// ourLinks are the host's ends of veth pairs.
func ourLinks(t *testing.T) []string {
	links, err := netlink.LinkList()
	require.NoError(t, err)
	var names []string
	for _, l := range links {
		if l.Type() == "veth" {
			names = append(names, l.Attrs().Name)
		}
	}
	slices.Sort(names)
	return names
}

func inside(t *testing.T, netns ns.NetNS, f func()) {
	require.NoError(t, netns.Do(func(ns.NetNS) error { f(); return nil }))
}

func mustJSON(t *testing.T, v any) string {
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return string(data)
}
