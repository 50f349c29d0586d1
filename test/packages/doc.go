// Package packages proves the package step and the preflight in a bare Debian: a root file system made by debootstrap that
// holds none of the cloud's packages. `make test-packages` runs it, as root.
//
// The bare root is kept under build/ and unpacked anew for each test. The package mirror is the machine's own.
package packages
