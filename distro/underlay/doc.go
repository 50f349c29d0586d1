// Package underlay makes the network under an instance's nodes: a bridge in a network namespace of its own (so that its
// frames never pass the machine's firewall, even with br_netfilter), a veth to every node's namespace and one to the
// machine, and an nftables table on the machine through which the underlay reaches the world. Everything can be made
// again over what is already there, and is taken away by name.
package underlay
