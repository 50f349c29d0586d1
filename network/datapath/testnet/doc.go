// Package testnet makes real networks for tests: nodes and Pods as network namespaces, joined by veth and a bridge, and
// the traffic to try them with. Servers answer with their own identity, so that an answer from the wrong place is seen.
//
// In: a testing.TB; everything made is removed when its test ends. Out: namespaces, links, traffic. It needs root. Nothing
// of the product may be imported here: what a test wants of it, the test attaches itself.
package testnet
