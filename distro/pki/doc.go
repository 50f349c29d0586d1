// Package pki makes and renews the instance's keys and certificates.
//
// In comes a list of what each component needs; out go files, written once and kept until they are old or the list
// asks for something else. Three authorities keep three worlds apart: the cluster's (servers and clients of the API
// server), etcd's (whoever holds one of its client certificates reads everything) and the front proxy's (whoever holds
// its certificate may speak for any user). Nothing here knows what the components are.
package pki
