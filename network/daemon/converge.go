package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/mnicloud/mnicloud/network/daemon/desired"
	"github.com/mnicloud/mnicloud/network/daemon/host"
)

// step brings the host, the maps and the programs to the desired state once. Before the API server has told everything only
// the host is set up: what an earlier daemon programmed works on.
func (d *daemon) step(ctx context.Context) error {
	complete := d.synced.Load()
	in := desired.Input{}
	address := d.options.NodeAddress
	if complete {
		var err error
		if in, err = d.input(ctx); err != nil {
			return err
		}
		address = in.Address
	}
	reloaded := false
	if d.hostChanged.Swap(false) || address != d.configured {
		var err error
		if reloaded, err = d.ensureHost(address); err != nil {
			d.hostChanged.Store(true)
			return err
		}
		d.ports = "" // they set a switch of a link
	}
	if !complete {
		return nil
	}
	if reloaded || !d.committed {
		d.committed = false
		if err := d.programmer.commit(ctx); err != nil {
			return err
		}
		d.committed = true
	} else if err := d.programmer.sync(ctx); err != nil {
		return err
	}
	if !d.options.HostOnly {
		if err := d.ensureMasquerade(in); err != nil {
			return err
		}
		if err := d.ensurePorts(in); err != nil {
			return err
		}
	}
	return d.becomeReady()
}

// ensureHost sets the namespace up, and loads the datapath when something compiled into it has changed.
func (d *daemon) ensureHost(address netip.Addr) (reloaded bool, err error) {
	links, err := host.Ensure(d.options.host(address))
	if err != nil {
		return false, err
	}
	d.configured = address
	if int(d.mtu.Swap(int64(links.MTU))) != links.MTU && d.attachments != nil {
		if err := d.attachments.SetMTU(links.MTU); err != nil {
			return false, err
		}
	}
	config := d.datapathConfig(links)
	if d.datapath != nil && d.config == config {
		return false, nil
	}
	loaded, err := d.load(config)
	if err != nil {
		return false, err
	}
	d.log.Info("datapath loaded", "mode", loaded.Mode(), "mtu", links.MTU, "address", address)
	d.config, d.datapath = config, loaded
	d.programmer.prepare(loaded, map[int]string{config.HostPeerIfindex: "host", config.VXLANIfindex: "vxlan", config.UplinkIfindex: "uplink"})
	return true, nil
}

// ensureMasquerade keeps members out of the masquerade. It asks nftables only when the members have changed.
func (d *daemon) ensureMasquerade(in desired.Input) error {
	members := memberAddresses(in)
	key := fmt.Sprint(members)
	if key == d.masqueraded {
		return nil
	}
	if err := d.options.masquerade().Ensure(members); err != nil {
		return err
	}
	d.masqueraded = key
	return nil
}

// ensurePorts leads host ports to Pods. It asks nftables only when something has changed.
func (d *daemon) ensurePorts(in desired.Input) error {
	in.Attachments = d.programmer.attachments()
	mappings := desired.Ports(in)
	members := memberAddresses(in)
	key := fmt.Sprint(in.Address, mappings, members)
	if key == d.ports {
		return nil
	}
	if err := d.options.ports(in.Address).Ensure(mappings, members); err != nil {
		return err
	}
	d.ports = key
	return nil
}

func memberAddresses(in desired.Input) []netip.Addr {
	var members []netip.Addr
	for _, m := range desired.Members(in.Nodes, in.ExtraHosts) {
		members = append(members, m.Address)
	}
	return members
}

// becomeReady tells the runtime and the supervisor, once.
func (d *daemon) becomeReady() error {
	if d.notReady.Load() == nil {
		return nil
	}
	if d.options.CNIConf != "" && !d.options.HostOnly {
		if err := writeConflist(d.options.CNIConf, d.options.Socket, d.options.QueueDir); err != nil {
			return fmt.Errorf("--cni-conf: %w", err)
		}
	}
	d.notReady.Store(nil)
	d.log.Info("ready")
	return nil
}

// watchHost follows the host's links and addresses (https://github.com/cilium/cilium/issues/31528), and collects attachments
// whose namespace went without a DEL.
func (d *daemon) watchHost(ctx context.Context) error {
	var collecting sync.WaitGroup
	defer collecting.Wait()
	events := host.Events{
		Names: d.options.host(d.options.NodeAddress).Names(),
		Changed: func() {
			d.hostChanged.Store(true)
			d.kick()
		},
		// Otherwise the watches of the API server would notice only after most of a minute.
		AddressGone: d.connections.CloseAll,
		Deleted: func(name string) {
			if d.attachments == nil {
				return
			}
			// It may have to wait for a command about the same attachment.
			collecting.Go(func() {
				if err := d.attachments.Vanished(ctx, name); err != nil && ctx.Err() == nil {
					d.log.Error("collect an attachment whose link is gone", "link", name, "error", err)
				}
			})
		},
	}
	for {
		err := host.Watch(ctx, events)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		d.log.Warn("watching the host's links anew", "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryInterval):
		}
	}
}
