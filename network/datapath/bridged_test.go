package datapath

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// https://github.com/projectcalico/calico/issues/10058: frames to a bridged virtual machine were dropped, because they still had
// another destination MAC after the redirect.
func TestABridgedMachineGetsFramesForItsOwnMAC(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		bridged := r.pod(r.nodes[0], "bridged", 7, 1001, "10.0.1.21")
		machine := bridged.Bridge("machine", "10.0.1.1")
		require.NoError(t, r.nodes[0].Do(func() error { return r.nodes[0].AttachPod(bridged.ifindex()) }))
		machine.Serve(8080)
		r.answers(r.a1.Namespace, "10.0.1.21:8080", "machine", "10.0.1.11") // on one node
		r.answers(r.a2.Namespace, "10.0.1.21:8080", "machine", "10.0.1.12") // across nodes
		r.answers(r.a4.Namespace, "10.0.1.21:8080", "machine", "10.0.2.12") // from another Subnet
		r.answers(machine, "10.0.1.12:8080", "a2", "10.0.1.21")
	})
}
