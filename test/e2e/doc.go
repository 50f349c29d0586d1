// Package e2e proves the cloud on a real one: its tests start a two-node instance of their own with `mni up`, beside
// whatever else runs on the machine, use it as its users do, and take it down again.
//
// Run it with `make e2e`, or with
//
//	go test -tags e2e ./test/e2e
//
// as root, after `make build`. MNI_E2E_KEEP=1 leaves the instance up for a look.
package e2e
