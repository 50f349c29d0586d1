package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"

	"github.com/mnicloud/mnicloud/kit/agent"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/claim"
	"github.com/mnicloud/mnicloud/network/daemon/attachment"
	"github.com/mnicloud/mnicloud/network/daemon/desired"
	"github.com/mnicloud/mnicloud/network/daemon/host"
	"github.com/mnicloud/mnicloud/network/datapath"
)

// syncInterval is the least time between two syncs of the maps; the first after a pause is at once.
const syncInterval = 50 * time.Millisecond

// retryInterval is the pause after a failed sync.
const retryInterval = time.Second

// daemon is one running mni-netd.
type daemon struct {
	options     Options
	log         *slog.Logger
	load        func(datapath.Config) (*datapath.Datapath, error)
	rest        *rest.Config
	connections *connrotation.ConnectionTracker // to the API server
	objects     *objects
	programmer  *programmer
	attachments *attachment.Manager // nil on a member without Pods
	portBlocks  *portBlocks         // as well
	metrics     *metrics

	// kicked has a token when a sync is due.
	kicked chan struct{}
	// hostChanged is set when the host's links must be looked at.
	hostChanged atomic.Bool
	mtu         atomic.Int64
	// notReady says why Pods cannot be attached; nil when they can.
	notReady atomic.Pointer[string]

	// synced is set once the API server has told everything.
	synced atomic.Bool

	// Of the converging goroutine alone: what it has done.
	config      datapath.Config
	datapath    *datapath.Datapath
	configured  netip.Addr // the address the host is set up with
	masqueraded string     // the members the nftables table has
	ports       string     // the host ports the other table has
	committed   bool       // the datapath is complete and attached
}

// Run is mni-netd. It returns when ctx ends, or with an error that a restart may mend; what is programmed stays either way.
func Run(ctx context.Context, options Options, log *slog.Logger) error {
	return run(ctx, options, log, datapath.Load)
}

// run is Run of a version whose datapath load makes.
func run(ctx context.Context, options Options, log *slog.Logger, load func(datapath.Config) (*datapath.Datapath, error)) error {
	if err := options.complete(); err != nil {
		return err
	}
	d := &daemon{options: options, log: log, load: load, kicked: make(chan struct{}, 1), connections: connrotation.NewConnectionTracker()}
	d.setNotReady("the daemon is starting")
	config, err := clientcmd.BuildConfigFromFlags("", options.Kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	config.UserAgent = "mni-netd"
	config.Dial = connrotation.NewDialerWithTracker(agent.Dial, d.connections).DialContext
	d.rest = config
	d.metrics = newMetrics(options.NodeName)
	if d.objects, err = newObjects(config, d.kick, d.metrics.watchError); err != nil {
		return err
	}
	d.programmer = &programmer{input: d.input, kick: d.kick, log: log, pods: !options.HostOnly, attached: map[string]desired.Attachment{}}
	d.metrics.observe(d.programmer, health{ready: d.ready, synced: d.synced.Load})
	var socket *net.UnixListener
	if !options.HostOnly {
		if socket, err = d.openAttachments(ctx); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	if socket != nil {
		s := &server{attachments: d.attachments, ready: d.ready, mtu: d.innerMTU, observe: d.metrics.command, log: log}
		group.Go(func() error { return s.serve(ctx, socket) })
		group.Go(func() error { return d.watchQueue(ctx) })
		group.Go(func() error { return d.portBlocks.run(ctx) })
	}
	if options.MetricsAddress != "" {
		group.Go(func() error {
			return agent.Serve(ctx, options.MetricsAddress, metricsHandler(d.metrics, d.mayScrape), d.ready, log)
		})
	}
	group.Go(func() error { return d.watchHost(ctx) })
	group.Go(func() error { return d.watchAPI(ctx) })
	group.Go(func() error { return d.converge(ctx) })
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// openAttachments recovers what an earlier daemon attached and does the detachments that were queued since. The plugin can
// connect from the beginning and is answered when this is done, so that nothing new overtakes it.
func (d *daemon) openAttachments(ctx context.Context) (*net.UnixListener, error) {
	socket, err := listen(d.options.Socket)
	if err != nil {
		return nil, err
	}
	store, err := attachment.OpenStore(d.options.StateDir, d.log)
	if err != nil {
		return nil, err
	}
	direct, err := d.objects.direct(d.rest)
	if err != nil {
		return nil, err
	}
	d.portBlocks = newPortBlocks(direct, d.objects.cache, d.objects.next, d.input, d.programmer, d.kick, d.metrics.claim, d.log)
	d.attachments = &attachment.Manager{
		Store: store, Datapath: d.programmer,
		Source: source{
			objects: d.objects, node: d.options.NodeName, claimer: &claim.Claimer{Client: direct, Node: d.options.NodeName},
			after: d.options.ClaimAfter, slots: make(chan struct{}, claimsAtOnce),
		},
		MTU: d.innerMTU, AddDeadline: d.options.AddDeadline, Log: d.log,
	}
	if err := d.attachments.Recover(ctx); err != nil {
		d.log.Error("recover attachments", "error", err)
	}
	if err := d.attachments.Replay(ctx, d.options.QueueDir); err != nil {
		d.log.Error("replay queued detachments", "error", err)
	}
	return socket, nil
}

// watchAPI waits for the API server to have told everything; then the maps may be brought to the desired state.
func (d *daemon) watchAPI(ctx context.Context) error {
	d.setNotReady("the API server does not serve the network's objects yet")
	if err := agent.Await(ctx, d.rest, d.objects.watched...); err != nil {
		return err
	}
	d.setNotReady("the API server has not told everything yet")
	if err := d.objects.start(ctx); err != nil {
		return err
	}
	d.setNotReady("the maps are not complete yet")
	d.synced.Store(true)
	d.kick()
	return nil
}

// converge brings host, maps and programs to the desired state whenever something has changed.
func (d *daemon) converge(ctx context.Context) error {
	d.hostChanged.Store(true)
	d.kick()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.kicked:
		}
		pause := syncInterval
		err := d.step(ctx)
		d.metrics.sync(err)
		if err != nil && ctx.Err() == nil {
			d.log.Error("not all of the network could be programmed; trying again", "error", err)
			d.kick()
			pause = retryInterval
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// input is what the maps depend on beside the attachments.
func (d *daemon) input(ctx context.Context) (desired.Input, error) {
	in, err := d.objects.input(ctx)
	in.Node, in.ExtraHosts, in.Address = d.options.NodeName, d.options.ExtraHosts, d.address(in)
	in.Reserved = d.options.reserved()
	in.GivenBack, in.Draining = d.portBlocks.leaving()
	return in, err
}

// address is this node's on the underlay: what its Node object says, and until then what the options say.
func (d *daemon) address(in desired.Input) netip.Addr {
	for i := range in.Nodes {
		if in.Nodes[i].Name == d.options.NodeName {
			if address, ok := desired.InternalIP(&in.Nodes[i]); ok {
				return address
			}
		}
	}
	return d.options.NodeAddress
}

// kick makes a sync due.
func (d *daemon) kick() {
	select {
	case d.kicked <- struct{}{}:
	default:
	}
}

func (d *daemon) innerMTU() int { return int(d.mtu.Load()) }

func (d *daemon) setNotReady(why string) { d.notReady.Store(&why) }

// ready is nil while Pods can be attached.
func (d *daemon) ready() error {
	if why := d.notReady.Load(); why != nil {
		return errors.New(*why)
	}
	return nil
}

// datapathConfig is what the programs need to know of a host that is set up.
func (d *daemon) datapathConfig(links *host.Links) datapath.Config {
	return datapath.Config{
		PinPath: d.options.PinPath, DefaultVNI: netv1.DefaultVNI, DefaultVPCID: netv1.DefaultVPCID,
		InfrastructureCIDR: d.options.InfrastructureCIDR, ServiceCIDR: d.options.ServiceCIDR,
		MTU: links.MTU, VXLANPort: d.options.VXLANPort, HairpinAddress: d.options.hairpin(), ResolverAddress: resolver,
		HostIfindex: links.Near.Attrs().Index, HostMAC: datapath.MAC(links.Near.Attrs().HardwareAddr),
		HostPeerIfindex: links.Far.Attrs().Index, VXLANIfindex: links.VXLAN.Attrs().Index,
		UplinkIfindex: links.Uplink.Attrs().Index, NodeAddress: d.configured, OutsideVNI: netv1.OutsideVNI, ForceClsact: d.options.ForceClsact,
		ConntrackEntries: d.options.Flows, FlowEntries: d.options.Flows, NATEntries: d.options.natEntries(),
	}
}
