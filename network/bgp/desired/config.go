package desired

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/bgp/bird"
)

// Input is what a node's BIRD depends on. Lists are in any order.
type Input struct {
	Node           *corev1.Node
	Pools          []netv1.AddressPool
	Peers          []netv1.BGPPeer
	Advertisements []netv1.BGPAdvertisement
	// Passwords by the names of their Secrets.
	Passwords map[string]string
	// InUse are external addresses whose targets are on this node. Only those of pools are announced.
	InUse []netip.Addr
}

// Refusal is a peer that should be spoken with and cannot be.
type Refusal struct {
	// Peer is the BGPPeer's name.
	Peer string
	// Reason says what is wrong and what helps, for people.
	Reason string
}

// Compute returns what BIRD should be told, and the peers for which it cannot be told anything. It fails while the node has no
// address.
func Compute(in Input) (bird.Config, []Refusal, error) {
	var config bird.Config
	address, ok := InternalIP(in.Node)
	if !ok {
		return config, nil, fmt.Errorf("node %s has no InternalIP (IPv4) in its status", in.Node.Name)
	}
	config.Address = address
	ranges := poolRanges(in.Pools)
	for _, r := range ranges {
		config.Aggregates = append(config.Aggregates, r.cidr)
	}
	for _, a := range in.InUse {
		if slices.ContainsFunc(ranges, func(r poolRange) bool { return r.cidr.Contains(a) }) {
			config.Hosts = append(config.Hosts, a)
		}
	}
	advertisements := slices.Clone(in.Advertisements)
	advertisements = slices.DeleteFunc(advertisements, func(a netv1.BGPAdvertisement) bool {
		return !a.DeletionTimestamp.IsZero() || !Selects(a.Spec.NodeSelector, in.Node.Labels)
	})
	slices.SortFunc(advertisements, func(a, b netv1.BGPAdvertisement) int { return cmp.Compare(a.Name, b.Name) })
	var refusals []Refusal
	holder := map[netip.Addr]string{}
	for _, p := range chosen(in.Peers, in.Node.Labels) {
		peer, reason := peerOf(p, in.Passwords)
		if by, taken := holder[peer.Address]; taken && reason == "" {
			reason = fmt.Sprintf("spec.address: %s is BGPPeer %s's on this node; delete one of the two, or let their spec.nodeSelectors choose different nodes", peer.Address, by)
		}
		if reason != "" {
			refusals = append(refusals, Refusal{Peer: p.Name, Reason: reason})
			continue
		}
		holder[peer.Address] = p.Name
		peer.Exports = exports(p.Name, ranges, advertisements)
		config.Peers = append(config.Peers, peer)
	}
	return config, refusals, nil
}

// InternalIP is a node's address on the underlay.
func InternalIP(node *corev1.Node) (netip.Addr, bool) {
	for _, a := range node.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		if address, err := netip.ParseAddr(a.Address); err == nil && address.Is4() {
			return address, true
		}
	}
	return netip.Addr{}, false
}

// Selects tells whether a selector chooses what has these labels. None chooses everything; an invalid one nothing.
func Selects(selector *metav1.LabelSelector, of map[string]string) bool {
	if selector == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(of))
}

// chosen are the peers of a node, the oldest first.
func chosen(all []netv1.BGPPeer, nodeLabels map[string]string) []*netv1.BGPPeer {
	var peers []*netv1.BGPPeer
	for i := range all {
		if all[i].DeletionTimestamp.IsZero() && Selects(all[i].Spec.NodeSelector, nodeLabels) {
			peers = append(peers, &all[i])
		}
	}
	slices.SortFunc(peers, func(a, b *netv1.BGPPeer) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return peers
}

// peerOf translates all of a BGPPeer but what it is told; reason says why it cannot be. The API server has checked the numbers.
func peerOf(p *netv1.BGPPeer, passwords map[string]string) (peer bird.Peer, reason string) {
	address, err := netip.ParseAddr(p.Spec.Address)
	if err != nil || !address.Is4() {
		return peer, "spec.address: " + p.Spec.Address + " is not an IPv4 address; correct it"
	}
	peer = bird.Peer{
		Name: p.Name, Address: address, Port: uint16(p.Spec.Port), ASN: uint32(p.Spec.ASN), LocalASN: uint32(p.Spec.LocalASN),
		Multihop: uint8(p.Spec.Multihop), HoldTime: time.Duration(p.Spec.HoldTimeSeconds) * time.Second,
		RestartTime: time.Duration(p.Spec.GracefulRestartSeconds) * time.Second,
	}
	if b := p.Spec.BFD; b != nil {
		peer.BFD = &bird.BFD{Interval: time.Duration(b.IntervalMilliseconds) * time.Millisecond, Multiplier: uint8(b.Multiplier)}
	}
	if secret := p.Spec.PasswordSecret; secret != "" {
		password, ok := passwords[secret]
		if !ok {
			return peer, fmt.Sprintf("spec.passwordSecret: there is no Secret %s in namespace %s with the key %q; make it",
				secret, netv1.BGPSecretNamespace, netv1.BGPPasswordKey)
		}
		if err := bird.CheckPassword(password); err != nil {
			return peer, fmt.Sprintf("spec.passwordSecret: the password in Secret %s cannot be used: %v; change it", secret, err)
		}
		peer.Password = password
	}
	return peer, ""
}

// poolRange is a range of a pool.
type poolRange struct {
	pool string
	cidr netip.Prefix
}

// poolRanges are the pools' ranges, sorted.
func poolRanges(pools []netv1.AddressPool) []poolRange {
	var ranges []poolRange
	for i := range pools {
		for _, c := range pools[i].Status.CIDRs {
			if cidr, err := netip.ParsePrefix(c); err == nil && cidr.Addr().Is4() && cidr == cidr.Masked() {
				ranges = append(ranges, poolRange{pools[i].Name, cidr})
			}
		}
	}
	slices.SortFunc(ranges, func(a, b poolRange) int {
		return cmp.Or(a.cidr.Compare(b.cidr), cmp.Compare(a.pool, b.pool))
	})
	return ranges
}
