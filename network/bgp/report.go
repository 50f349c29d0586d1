package bgp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/bgp/bird"
	"github.com/mnicloud/mnicloud/network/bgp/desired"
)

// sessionsOf are the node's entries in the peers' statuses, by peer.
func sessionsOf(node string, sessions []bird.Session, refusals []desired.Refusal) map[string]netv1.BGPSession {
	all := map[string]netv1.BGPSession{}
	for _, r := range refusals {
		all[r.Peer] = netv1.BGPSession{Node: node, State: netv1.BGPRefused, LastError: r.Reason}
	}
	for _, s := range sessions {
		since := metav1.NewTime(s.Since)
		entry := netv1.BGPSession{
			Node: node, State: netv1.BGPConnecting, Since: &since,
			RoutesSent: int32(s.Sent), RoutesReceived: int32(s.Received), LastError: s.LastError,
		}
		if s.State == bird.Established {
			entry.State = netv1.BGPEstablished
		}
		all[s.Peer] = entry
	}
	return all
}

// fieldOwner is the field manager of a node's entries: what one node applies leaves the others' alone.
func fieldOwner(node string) string {
	const longest = 128
	owner := "net.mnicloud.jp/bgpd/" + node
	if len(owner) > longest {
		sum := sha256.Sum256([]byte(node))
		owner = "net.mnicloud.jp/bgpd/" + hex.EncodeToString(sum[:])
	}
	return owner
}

// report writes the node's entries into the peers' statuses where they differ.
func (o *objects) report(ctx context.Context, peers []netv1.BGPPeer, sessions map[string]netv1.BGPSession) error {
	var errs []error
	for i := range peers {
		want, wanted := sessions[peers[i].Name]
		have, found := entryOf(o.node, &peers[i])
		if wanted == found && equality.Semantic.DeepEqual(want, have) {
			continue
		}
		var list []any
		if wanted {
			fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&want)
			if err != nil {
				return err
			}
			list = append(list, fields)
		}
		if err := o.apply(ctx, peers[i].Name, list); err != nil {
			errs = append(errs, fmt.Errorf("report the session with BGPPeer %s: %w", peers[i].Name, err))
		}
	}
	return errors.Join(errs...)
}

func entryOf(node string, peer *netv1.BGPPeer) (netv1.BGPSession, bool) {
	for _, s := range peer.Status.Sessions {
		if s.Node == node {
			return s, true
		}
	}
	return netv1.BGPSession{}, false
}

func (o *objects) apply(ctx context.Context, peer string, sessions []any) error {
	status := map[string]any{}
	if len(sessions) > 0 {
		status["sessions"] = sessions
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	u.SetGroupVersionKind(netv1.GroupVersion.WithKind("BGPPeer"))
	u.SetName(peer)
	err := o.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(fieldOwner(o.node)), client.ForceOwnership)
	return client.IgnoreNotFound(err)
}
