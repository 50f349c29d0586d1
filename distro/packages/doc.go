// Package packages knows which Debian packages the cloud needs on a machine, and installs the missing ones.
//
// In comes the machine's package database, out go installed packages. No service is started or enabled by it, no package
// is removed, and a package of another origin that brings the same programs (Docker's containerd.io, say) counts.
package packages
