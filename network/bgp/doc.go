// Package bgp is mni-bgpd, the BGP speaker of one node: it announces the cloud's external addresses. In come AddressPools, BGPPeers,
// BGPAdvertisements, the node and peers' passwords from the API server; out go a configuration for BIRD, which it runs, and the
// node's own entry in each BGPPeer's status.sessions. BIRD goes on when the speaker stops; the next one takes it over.
//
// Rooms: desired computes what BIRD should be told, bird writes it down, runs BIRD and asks it.
//
// It reads the Secrets of one namespace that has nothing but peers' passwords, and writes nothing but the status of BGPPeers.
//
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups="",namespace=mni-bgp,resources=secrets,verbs=list;watch
// +kubebuilder:rbac:groups=net.mnicloud.jp,resources=addresspools;bgppeers;bgpadvertisements;floatingips,verbs=list;watch
// +kubebuilder:rbac:groups=net.mnicloud.jp,resources=bgppeers/status,verbs=patch
package bgp
