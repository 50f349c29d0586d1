// Package names says, in pure functions, what the resolver of VPCs knows and answers. In come API objects, which become a Directory;
// out come answers for whoever asks from an infrastructure address. What of one VPC is in no other's part of the directory, so no
// name that a tenant chooses can lead to another tenant.
//
// Nothing here reads the API server, a file or the network.
package names
