// Package preflight looks at a machine before a cloud is started on it and says what is in the way, each with a remedy.
//
// In come the addresses, ports and folders the cloud is going to use, out go problems. Nothing on the machine changes:
// what is tried for real is tried in a network or mount namespace that ends with the attempt.
package preflight
