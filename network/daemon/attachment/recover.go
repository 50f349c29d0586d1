package attachment

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/mnicloud/mnicloud/network/plugin/protocol"
)

// Recover brings links, datapath and records into agreement after a start: attachments that were not complete or whose link
// is gone (with its namespace, after a reboot or while the daemon was down) are removed, links without a record too, and all
// others are given to the datapath anew and set up. An attachment that cannot be recovered does not keep the others from it.
func (m *Manager) Recover(ctx context.Context) error {
	var errs []error
	recorded := map[string]bool{}
	for _, r := range m.Store.List() {
		link, err := netlink.LinkByName(r.HostLink)
		switch {
		case err != nil && !isNotFound(err):
			errs = append(errs, err)
			recorded[r.Key()] = true
		case err != nil || !r.Complete:
			m.Log.Info("remove an attachment that is gone or was never complete", "container", r.ContainerID, "pod", r.Interface.Pod)
			errs = append(errs, m.detach(ctx, r))
		default:
			recorded[r.Key()] = true
			err := m.Datapath.Attach(ctx, r, link)
			if err == nil && link.Attrs().Flags&net.FlagUp == 0 {
				err = netlink.LinkSetUp(link)
			}
			errs = append(errs, err)
		}
	}
	links, err := netlink.LinkList()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, link := range links {
		if key, ours := strings.CutPrefix(link.Attrs().Alias, aliasPrefix); ours && !recorded[key] {
			m.Log.Info("remove a link without a record", "link", link.Attrs().Name)
			errs = append(errs, deleteLink(link.Attrs().Name))
		}
	}
	return errors.Join(errs...)
}

// Vanished tells the manager that a link of the host is gone. When it was an attachment's, nobody may ever send the DEL.
func (m *Manager) Vanished(ctx context.Context, linkName string) error {
	for _, r := range m.Store.List() {
		if r.HostLink == linkName {
			return m.detachVanished(ctx, r)
		}
	}
	return nil
}

// detachVanished detaches what the record is about, if it is still the newest and its link is really gone.
func (m *Manager) detachVanished(ctx context.Context, r Record) error {
	unlock, err := m.locks.lock(ctx, r.Key())
	if err != nil {
		return err
	}
	defer unlock()
	if now, ok := m.Store.Get(r.Key()); !ok || now.Sequence != r.Sequence {
		return nil
	}
	if _, err := netlink.LinkByName(r.HostLink); !isNotFound(err) {
		return err
	}
	m.Log.Info("the container's namespace is gone", "container", r.ContainerID, "pod", r.Interface.Pod)
	return m.detach(ctx, r)
}

// Replay does the detachments that the plugin queued while the daemon was down. An entry stays until it is done; one that
// cannot be read is reported and removed, since nothing can be done with it.
func (m *Manager) Replay(ctx context.Context, dir string) error {
	queued, err := protocol.Queue(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, q := range queued {
		if q.Err != nil {
			errs = append(errs, q.Err)
		} else if err := m.Del(ctx, q.Request.ContainerID, q.Request.IfName); err != nil {
			errs = append(errs, err)
			continue
		} else {
			m.Log.Info("replayed a queued detachment", "container", q.Request.ContainerID)
		}
		if err := os.Remove(q.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
