// Package ipam gives addresses of Subnets to NetworkInterfaces. What comes in is a Subnet and an interface; what goes out
// is an IPLease whose name is the Subnet's VNI and the address, so that the API server's create is the lock. Nothing here
// remembers who has what: leases in the API server are the only truth, and caches only tell where not to try.
package ipam
