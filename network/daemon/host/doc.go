// Package host sets up the network namespace a daemon runs in: the veth pair between the host's own stack and the datapath
// (h0, h1), the VXLAN device, routes to Pods and Services, sysctls, and the nftables table that masquerades ordinary Pods'
// traffic to the outside. Everything is "ensure": repeating it changes nothing, so that a restart disturbs nothing. It knows
// nothing of Kubernetes or eBPF.
package host
