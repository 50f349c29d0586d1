// Package attachment serves the CNI's commands on one node: it makes, checks and removes the veth pairs of containers, and
// keeps a record of each on disk. In come CNI requests and the NetworkInterface a Pod has; out go links, and calls to the
// datapath. It does not talk to the API server and knows nothing of eBPF maps.
//
// The order of steps makes a crash at any of them converge: the record is written before the link is made and removed after
// the link is gone; a record that is not complete is removed at the next start (the runtime never heard of a success).
package attachment
