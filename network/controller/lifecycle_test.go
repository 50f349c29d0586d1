package controller

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func TestAPodOfATenantGetsItsAddresses(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	subnet := w.network(ns, "a", "10.0.1.0/24")
	pod := w.pod(ns, "web", netv1.AnnotationSubnet, "a")
	nic := w.attached(pod)

	require.True(t, prefix("10.0.1.0/24").Contains(netip.MustParseAddr(nic.Status.Address)))
	require.True(t, prefix("198.18.0.0/17").Contains(netip.MustParseAddr(nic.Status.InfrastructureAddress)))
	require.Equal(t, subnet.Status.VNI, nic.Status.VNI)
}
