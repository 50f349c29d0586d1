package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mnicloud/mnicloud/kit/conditions"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// bgpPeerReconciler sums up what the nodes report of their sessions with a peer, and forgets nodes that are gone.
type bgpPeerReconciler struct{ client client.Client }

func (r *bgpPeerReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("net-bgp-peer").
		For(&netv1.BGPPeer{}).
		Watches(&corev1.Node{}, mapped(func(ctx context.Context, _ *corev1.Node) []reconcile.Request { return r.all(ctx) }),
			onCreateOrUpdate(func(before, after *corev1.Node) bool {
				return nodeReady(before) != nodeReady(after) || !maps.Equal(before.Labels, after.Labels)
			})).
		Complete(r)
}

func (r *bgpPeerReconciler) all(ctx context.Context) []reconcile.Request {
	var list netv1.BGPPeerList
	if err := r.client.List(ctx, &list); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the BGPPeers")
	}
	out := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, requests(list.Items[i].Name)...)
	}
	return out
}

// Reconcile writes one BGPPeer's conditions.
func (r *bgpPeerReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var peer netv1.BGPPeer
	if err := r.client.Get(ctx, req.NamespacedName, &peer); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var nodes corev1.NodeList
	if err := r.client.List(ctx, &nodes); err != nil {
		return reconcile.Result{}, fmt.Errorf("list the Nodes: %w", err)
	}
	base := peer.DeepCopy()
	s := &peer.Status
	s.Sessions = slices.DeleteFunc(s.Sessions, func(session netv1.BGPSession) bool {
		return !slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == session.Node })
	})
	result := decidePeer(&peer, nodes.Items)
	conditions.Status{Phase: &s.Phase, ObservedGeneration: &s.ObservedGeneration, Conditions: &s.Conditions}.Apply(&peer, result)
	if equality.Semantic.DeepEqual(base.Status, peer.Status) {
		return reconcile.Result{}, nil
	}
	if err := r.client.Status().Patch(ctx, &peer, optimistic(base)); err != nil {
		return settle(reconcile.Result{}, client.IgnoreNotFound(err))
	}
	return reconcile.Result{}, nil
}

// decidePeer says of a peer whether all chosen nodes have their sessions.
func decidePeer(peer *netv1.BGPPeer, nodes []corev1.Node) conditions.Result {
	selector := labels.Everything()
	if peer.Spec.NodeSelector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(peer.Spec.NodeSelector); err != nil {
			return conditions.Failed(reasonSelectorInvalid, "spec.nodeSelector: "+err.Error()+"; correct it")
		}
	}
	chosen, refused := 0, false
	var missing []string
	for i := range nodes {
		n := &nodes[i]
		if !selector.Matches(labels.Set(n.Labels)) {
			continue
		}
		chosen++
		at := slices.IndexFunc(peer.Status.Sessions, func(s netv1.BGPSession) bool { return s.Node == n.Name })
		switch {
		case !nodeReady(n):
			missing = append(missing, n.Name+" (the node is not ready, so what it reported is old)")
		case at < 0:
			missing = append(missing, n.Name+" (no report yet)")
		case peer.Status.Sessions[at].State != netv1.BGPEstablished:
			session := peer.Status.Sessions[at]
			refused = refused || session.State == netv1.BGPRefused
			missing = append(missing, strings.TrimSuffix(n.Name+" ("+string(session.State)+": "+session.LastError, ": ")+")")
		}
	}
	slices.Sort(missing)
	switch {
	case chosen == 0:
		return conditions.Waiting(reasonNoNode, "spec.nodeSelector: it chooses no node; label one, or change the selector")
	case refused:
		return conditions.Failed(reasonSessionRefused, "nodes do not speak with the peer: "+nameSome(missing))
	case len(missing) > 0:
		return conditions.Progressing(reasonConnecting, "nodes without a session: "+nameSome(missing))
	}
	return conditions.Ready(reasonEstablished, "every chosen node has an Established session")
}

func nodeReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// bgpAdvertisementReconciler says of advertisements whether what they name exists. Nodes read them by themselves.
type bgpAdvertisementReconciler struct{ client client.Client }

func (r *bgpAdvertisementReconciler) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("net-bgp-advertisement").
		For(&netv1.BGPAdvertisement{}).
		Watches(&netv1.AddressPool{}, mapped(func(ctx context.Context, _ *netv1.AddressPool) []reconcile.Request { return r.all(ctx) }),
			onCreateOrUpdate(func(_, _ *netv1.AddressPool) bool { return false })).
		Watches(&netv1.BGPPeer{}, mapped(func(ctx context.Context, _ *netv1.BGPPeer) []reconcile.Request { return r.all(ctx) }),
			onCreateOrUpdate(func(_, _ *netv1.BGPPeer) bool { return false })).
		Complete(r)
}

func (r *bgpAdvertisementReconciler) all(ctx context.Context) []reconcile.Request {
	var list netv1.BGPAdvertisementList
	if err := r.client.List(ctx, &list); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the BGPAdvertisements")
	}
	out := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, requests(list.Items[i].Name)...)
	}
	return out
}

// Reconcile writes one BGPAdvertisement's conditions.
func (r *bgpAdvertisementReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var advertisement netv1.BGPAdvertisement
	if err := r.client.Get(ctx, req.NamespacedName, &advertisement); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	base := advertisement.DeepCopy()
	result, err := r.decide(ctx, &advertisement.Spec)
	if err != nil {
		return reconcile.Result{}, err
	}
	s := &advertisement.Status
	conditions.Status{Phase: &s.Phase, ObservedGeneration: &s.ObservedGeneration, Conditions: &s.Conditions}.Apply(&advertisement, result)
	if equality.Semantic.DeepEqual(base.Status, advertisement.Status) {
		return reconcile.Result{}, nil
	}
	if err := r.client.Status().Patch(ctx, &advertisement, optimistic(base)); err != nil {
		return settle(reconcile.Result{}, client.IgnoreNotFound(err))
	}
	return reconcile.Result{}, nil
}

func (r *bgpAdvertisementReconciler) decide(ctx context.Context, spec *netv1.BGPAdvertisementSpec) (conditions.Result, error) {
	if spec.NodeSelector != nil {
		if _, err := metav1.LabelSelectorAsSelector(spec.NodeSelector); err != nil {
			return conditions.Failed(reasonSelectorInvalid, "spec.nodeSelector: "+err.Error()+"; correct it"), nil //nolint:nilerr // a finding, no failure
		}
	}
	for _, named := range []struct {
		field, kind, reason string
		names               []string
		object              client.Object
	}{
		{"spec.pools", "AddressPools", reasonPoolNotFound, spec.Pools, &netv1.AddressPool{}},
		{"spec.peers", "BGPPeers", reasonPeerNotFound, spec.Peers, &netv1.BGPPeer{}},
	} {
		var missing []string
		for _, name := range named.names {
			err := r.client.Get(ctx, client.ObjectKey{Name: name}, named.object)
			if client.IgnoreNotFound(err) != nil {
				return conditions.Result{}, fmt.Errorf("read %s %s: %w", named.kind, name, err)
			}
			if err != nil {
				missing = append(missing, name)
			}
		}
		if len(missing) > 0 {
			return conditions.Waiting(named.reason, named.field+": these "+named.kind+" do not exist yet: "+nameSome(missing)), nil
		}
	}
	return conditions.Ready(reasonReady, "nodes announce what is named"), nil
}
