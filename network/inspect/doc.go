// Package inspect tells what the network of this machine does and why: how nodes are, what was dropped, which connections are
// known, which way a packet would go.
//
// In: the members of the network that are on this machine (pinned maps and network namespaces) and the API's objects, for names.
// Out: plain structures for people and programs; nothing is changed. It prints nothing and knows no command line.
package inspect
