// Package node makes the file system that the processes of a node share: one mount namespace, pinned on a file so that
// no process needs to hold it, in which the node has its own /run and /var, its own /sys (of its network namespace) with
// the machine's control groups and BPF file system, the programs under /run/mni/bin, and a resolver it can reach.
// Mounts made inside are shared there and never seen by the machine.
package node
