package attachment

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// SetMTU gives the container's end of every attachment's veth pair an MTU, in bytes: the underlay's has changed.
func (m *Manager) SetMTU(mtu int) error {
	var errs []error
	for _, r := range m.Store.List() {
		if !r.Complete {
			continue
		}
		err := setMTU(r.HostLink, hostMTU) // of an attachment of a version that gave it less
		if err == nil {
			err = inNetns(r.Netns, func() error { return setMTU(r.IfName, mtu) })
		}
		if err != nil && !isNotFound(err) && !errors.Is(err, errNetnsGone) {
			errs = append(errs, fmt.Errorf("MTU of container %s: %w", r.ContainerID, err))
		}
	}
	return errors.Join(errs...)
}

func setMTU(name string, mtu int) error {
	link, err := netlink.LinkByName(name)
	if err != nil || link.Attrs().MTU == mtu {
		return err
	}
	return netlink.LinkSetMTU(link, mtu)
}
