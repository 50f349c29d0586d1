// Package bird speaks with BIRD 2 (https://bird.network.cz), the BGP implementation of a node: it writes its configuration, runs
// it, and asks it over its control socket how its sessions are. In comes a Config; out come text that is byte-identical for the
// same Config, a running process, and Sessions. It knows nothing of Kubernetes.
package bird
