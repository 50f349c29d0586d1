package host

import (
	"context"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Events are what happens to the namespace's links.
type Events struct {
	// Changed is called when a link of these names may have another MTU or state or be gone, or an address has come or gone.
	Changed func()
	// AddressGone is called when the namespace has lost an address: connections from it are dead.
	AddressGone func()
	// Names of the links that Changed is about.
	Names []string
	// Deleted is called with the name of a link that is gone.
	Deleted func(name string)
}

// Watch reports events until ctx ends. Lost notifications (a full socket buffer) end it with an error: the caller starts again
// with everything changed.
func Watch(ctx context.Context, events Events) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	links := make(chan netlink.LinkUpdate, 64)
	fail := func(err error) { cancel(fmt.Errorf("watch of the links: %w", err)) }
	if err := netlink.LinkSubscribeWithOptions(links, ctx.Done(), netlink.LinkSubscribeOptions{ErrorCallback: fail}); err != nil {
		return fmt.Errorf("watch of the links: %w", err)
	}
	addresses := make(chan netlink.AddrUpdate, 64)
	if err := netlink.AddrSubscribeWithOptions(addresses, ctx.Done(), netlink.AddrSubscribeOptions{ErrorCallback: fail}); err != nil {
		return fmt.Errorf("watch of the addresses: %w", err)
	}
	events.Changed()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case update, ok := <-links:
			if !ok {
				return context.Cause(ctx)
			}
			name := update.Attrs().Name
			if slices.Contains(events.Names, name) {
				events.Changed()
			} else if update.Header.Type == unix.RTM_DELLINK {
				events.Deleted(name)
			}
		case update, ok := <-addresses:
			if !ok {
				return context.Cause(ctx)
			}
			if !update.NewAddr {
				events.AddressGone()
			}
			events.Changed()
		}
	}
}
