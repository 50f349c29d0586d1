// Package consistent compares everything that a cloud on this machine knows about the network with everything that is there:
// leases with interfaces, interfaces with Pods, and on each node maps, links, pins and records with what the API server says. In
// come a client of the API server and the instance; out go differences, in words. While things change there may be some; when all
// is quiet there are none.
package consistent
