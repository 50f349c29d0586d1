package host

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Events are what happens to the namespace's links.
type Events struct {
	// Changed is called when a link that is not a container's may have another MTU or state, or an address has come or gone.
	Changed func()
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
			if update.Header.Type == unix.RTM_DELLINK {
				events.Deleted(update.Attrs().Name)
			} else {
				events.Changed()
			}
		case _, ok := <-addresses:
			if !ok {
				return context.Cause(ctx)
			}
			events.Changed()
		}
	}
}
