// Package datapath is the eBPF datapath of one node: the programs (bpf/), their loader, and typed access to their maps.
//
// In: configuration and the desired content of the maps (addresses, VNIs, interfaces), given by network/daemon. Out:
// programs attached to interfaces and maps pinned under one path, so that traffic flows on while no process of ours runs.
// Nothing of Kubernetes may enter: no object, no name, no client. docs/design/network.md explains each program and map.
//
// The order of a start is Load, then Sync of every table, then AttachHost, AttachVXLAN and AttachPod: until it is
// attached again, an interface keeps the program (and the maps) of the process before.
package datapath
