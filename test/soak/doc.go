// Package soak runs a cloud of its own for long under change and failure: tenants come and go, Pods are lost, parts and
// nodes' daemons are killed, nodes are cut off and crash. After each step every container must answer with its own name, inside and at
// its external address, and leases, interfaces, Pods, maps, links, pins and records must fit together. `make soak` runs it for SOAK
// (30m); a failure prints the seed that repeats its steps.
package soak
