// Package bench measures a cloud of its own: how long it takes to start, what it costs when idle, how soon a container
// answers. `make bench` runs it and the datapath's own benchmarks. It prints each number beside its target and judges
// nothing: other load on the machine moves them.
package bench
