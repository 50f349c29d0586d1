// Package claim is how a Pod comes by its NetworkInterface, and an interface by its addresses: which interface a Pod has, who may have
// one where, and the writes that make it so. In come Pods, Subnets and VPCs; out go NetworkInterfaces, their statuses, and
// IPLeases (made by network/ipam). The network controller does it for all nodes; a node's daemon does it, by a Claimer, for Pods of
// its own node while there is no controller. Both make the same writes, each of which only one of them can win.
package claim
