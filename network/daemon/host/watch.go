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
	// Names of the links that Changed is about.
	Names []string
	// Changed is called when a link of these names may have another MTU or state or be gone, or an address has come or gone.
	Changed func()
	// AddressGone is called when the namespace has lost an address: connections from it are dead.
	AddressGone func()
	// Deleted is called with the name of any other link that is gone.
	Deleted func(name string)
}

// Watch reports events until ctx ends. Lost notifications (a full socket buffer) end it with an error: the caller starts again.
func Watch(ctx context.Context, events Events) error {
	w, err := newWatch(ctx)
	if err != nil {
		return err
	}
	return w.run(events)
}

// watch is subscriptions to the namespace of the thread that made them.
type watch struct {
	ctx       context.Context
	cancel    context.CancelCauseFunc
	links     chan netlink.LinkUpdate
	addresses chan netlink.AddrUpdate
}

func newWatch(ctx context.Context) (*watch, error) {
	w := &watch{links: make(chan netlink.LinkUpdate, 64), addresses: make(chan netlink.AddrUpdate, 64)}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	fail := func(err error) { w.cancel(fmt.Errorf("watch of links and addresses: %w", err)) }
	err := netlink.LinkSubscribeWithOptions(w.links, w.ctx.Done(), netlink.LinkSubscribeOptions{ErrorCallback: fail})
	if err == nil {
		err = netlink.AddrSubscribeWithOptions(w.addresses, w.ctx.Done(), netlink.AddrSubscribeOptions{ErrorCallback: fail})
	}
	if err != nil {
		w.cancel(nil)
		return nil, fmt.Errorf("watch of links and addresses: %w", err)
	}
	return w, nil
}

// run begins with a change: what happened before the subscription is not known.
func (w *watch) run(events Events) error {
	defer w.cancel(nil)
	events.Changed()
	for {
		select {
		case <-w.ctx.Done():
			return context.Cause(w.ctx)
		case update, ok := <-w.links:
			if !ok {
				return w.closed()
			}
			name := update.Attrs().Name
			if slices.Contains(events.Names, name) {
				events.Changed()
			} else if update.Header.Type == unix.RTM_DELLINK {
				events.Deleted(name)
			}
		case update, ok := <-w.addresses:
			if !ok {
				return w.closed()
			}
			if !update.NewAddr {
				events.AddressGone()
			}
			events.Changed()
		}
	}
}

// closed waits for the reason a subscription ended, which is told beside it.
func (w *watch) closed() error {
	<-w.ctx.Done()
	return context.Cause(w.ctx)
}
