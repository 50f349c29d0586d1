// Package conformance runs what Kubernetes itself demands of a cluster network, its sig-network Conformance tests, against a
// cloud of two nodes. The tests are upstream's own, built into bin/conformance.test by distro/kube/conformance; their images
// are made from Debian packages and from upstream's agnhost. `make conformance` runs all of them.
package conformance
