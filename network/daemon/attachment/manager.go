package attachment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	cnitypes "github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mnicloud/mnicloud/network/plugin/protocol"
)

// Source finds the NetworkInterface of a Pod.
type Source interface {
	// Wait returns the interface that the Pod holds on this node as soon as it is Ready. When ctx ends first the error says
	// what it waited for.
	Wait(ctx context.Context, pod Pod) (Interface, error)
}

// Datapath carries the packets of attachments.
type Datapath interface {
	// Attach makes an attachment's addresses known and puts the program on its link, which is still down at first. Repeating it
	// changes nothing.
	Attach(ctx context.Context, record Record, link netlink.Link) error
	// Detach forgets an attachment whose link is gone, unless another attachment of its interface has taken over.
	Detach(ctx context.Context, record Record) error
}

// Manager does what the CNI's commands say.
type Manager struct {
	Store    *Store
	Source   Source
	Datapath Datapath
	// MTU is that of containers' links now, in bytes.
	MTU func() int
	// AddDeadline bounds the wait for an interface.
	AddDeadline time.Duration
	Log         *slog.Logger

	locks keyedLocks
}

// Add attaches a container (CNI ADD) and returns its record. An ADD repeated for an attached container changes nothing and
// returns the same addresses (https://github.com/k8snetworkplumbingwg/whereabouts/issues/291).
func (m *Manager) Add(ctx context.Context, req protocol.Request) (Record, error) {
	pod, err := podOf(req.Args)
	if err != nil {
		return Record{}, err
	}
	key := protocol.Key(req.ContainerID, req.IfName)
	unlock, err := m.locks.lock(ctx, key)
	if err != nil {
		return Record{}, err
	}
	defer unlock()

	if old, ok := m.Store.Get(key); ok {
		if old.Complete && old.Netns == req.Netns && old.Interface.Pod.is(pod) && slices.Equal(old.Ports, req.PortMappings) && m.reattach(ctx, old) == nil {
			return old, nil
		}
		if err := m.detach(ctx, old); err != nil {
			return Record{}, err
		}
	}
	waiting, cancel := context.WithTimeout(ctx, m.AddDeadline)
	defer cancel()
	nic, err := m.Source.Wait(waiting, pod)
	if err != nil {
		return Record{}, protocol.TryAgain(fmt.Sprintf("Pod %s has no network interface yet", pod), err)
	}
	if err := checkPorts(req.PortMappings, nic); err != nil {
		return Record{}, err
	}
	record, err := m.Store.reserve(Record{
		ContainerID: req.ContainerID, IfName: req.IfName, Network: req.Network, Netns: req.Netns, Interface: nic, Ports: req.PortMappings,
	})
	if err != nil {
		return Record{}, err
	}
	if err := m.attach(ctx, record); err != nil {
		return Record{}, errors.Join(err, m.detach(context.WithoutCancel(ctx), record))
	}
	return m.Store.complete(record)
}

func (m *Manager) attach(ctx context.Context, r Record) error {
	link, err := createLink(r, m.MTU())
	if err != nil {
		return err
	}
	if err := m.Datapath.Attach(ctx, r, link); err != nil {
		return fmt.Errorf("datapath of %s: %w", r.HostLink, err)
	}
	if err := configureContainer(r); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", r.HostLink, err)
	}
	return nil
}

// reattach makes sure that an existing attachment works, without touching what does.
func (m *Manager) reattach(ctx context.Context, r Record) error {
	if err := r.Inspect(); err != nil {
		return err
	}
	link, err := netlink.LinkByName(r.HostLink)
	if err != nil {
		return err
	}
	return m.Datapath.Attach(ctx, r, link)
}

// Inspect looks whether the link of an attachment is, at both ends, as it was made, and changes nothing. It is for a thread in the node's
// network and mount namespaces.
func (r Record) Inspect() error {
	link, err := netlink.LinkByName(r.HostLink)
	if err != nil {
		return fmt.Errorf("%s, the host's end of the link: %w", r.HostLink, err)
	}
	if link.Attrs().Flags&net.FlagUp == 0 {
		return fmt.Errorf("%s, the host's end of the link, is down", r.HostLink)
	}
	if alias := aliasPrefix + r.Key(); link.Attrs().Alias != alias {
		return fmt.Errorf("%s, the host's end of the link, has the alias %q, not %q", r.HostLink, link.Attrs().Alias, alias)
	}
	return checkContainer(r)
}

// Del detaches a container (CNI DEL). What is not attached is a success: a late or repeated DEL finds no record of its
// container ID and so touches nothing of a newer attachment (https://github.com/cilium/cilium/issues/10065).
func (m *Manager) Del(ctx context.Context, containerID, ifName string) error {
	key := protocol.Key(containerID, ifName)
	unlock, err := m.locks.lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	record, ok := m.Store.Get(key)
	if !ok {
		return nil
	}
	return m.detach(ctx, record)
}

// detach removes the link first, so that nothing is ever sent through a link without its program, and the record last, so
// that an interrupted detach is found again.
func (m *Manager) detach(ctx context.Context, r Record) error {
	if err := deleteLink(r.HostLink); err != nil {
		return err
	}
	if err := m.Datapath.Detach(ctx, r); err != nil {
		return fmt.Errorf("datapath of %s: %w", r.HostLink, err)
	}
	return m.Store.remove(r.Key())
}

// Check verifies an attachment (CNI CHECK): its record, the result that the runtime was given, links, addresses, routes and the
// gateway's neighbour entry. Maps and programs it puts right.
func (m *Manager) Check(ctx context.Context, req protocol.Request) error {
	key := protocol.Key(req.ContainerID, req.IfName)
	unlock, err := m.locks.lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	record, ok := m.Store.Get(key)
	if !ok || !record.Complete {
		return cnitypes.NewError(cnitypes.ErrUnknownContainer, fmt.Sprintf("container %s is not attached as %s", req.ContainerID, req.IfName), "")
	}
	if record.Netns != req.Netns {
		return fmt.Errorf("container %s is attached in %s, not in %s", req.ContainerID, record.Netns, req.Netns)
	}
	if err := checkPrevious(record, req.PrevResult); err != nil {
		return err
	}
	return m.reattach(ctx, record)
}

// GC detaches every container of the network that the runtime does not know (CNI GC). Attachments of other networks are not
// in its list.
func (m *Manager) GC(ctx context.Context, network string, valid []cnitypes.GCAttachment) error {
	known := map[string]bool{}
	for _, a := range valid {
		known[protocol.Key(a.ContainerID, a.IfName)] = true
	}
	var errs []error
	for _, r := range m.Store.List() {
		if !known[r.Key()] && (r.Network == network || r.Network == "") {
			m.Log.Info("detach: the runtime does not know the container", "container", r.ContainerID, "pod", r.Interface.Pod)
			errs = append(errs, m.Del(ctx, r.ContainerID, r.IfName))
		}
	}
	return errors.Join(errs...)
}

// podOf reads CNI_ARGS. Without Kubernetes' arguments there is no Pod, and nothing that says which interface is meant.
func podOf(args string) (Pod, error) {
	values := map[string]string{}
	for pair := range strings.SplitSeq(args, ";") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			values[name] = value
		}
	}
	pod := Pod{Namespace: values["K8S_POD_NAMESPACE"], Name: values["K8S_POD_NAME"], UID: types.UID(values["K8S_POD_UID"])}
	if pod.Namespace == "" || pod.Name == "" {
		return Pod{}, cnitypes.NewError(cnitypes.ErrInvalidEnvironmentVariables,
			"CNI_ARGS must name K8S_POD_NAMESPACE and K8S_POD_NAME: only Pods can be attached", args)
	}
	return pod, nil
}
