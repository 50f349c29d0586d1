package controller

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func TestTheDefaultNetworkIsMadeAndMadeAnew(t *testing.T) {
	w := newWorld(t)
	w.eventually("the default VPC is ready", func() bool { return w.isReady(w.vpc(netv1.DefaultVPC)) })
	vpc, subnet := w.vpc(netv1.DefaultVPC), w.subnet(netv1.DefaultSubnet)
	require.Equal(t, netv1.DefaultVPCID, vpc.Status.ID)
	require.Equal(t, netv1.DefaultVNI, subnet.Status.VNI)
	require.Equal(t, netv1.DefaultVPCID, subnet.Status.VPCID)
	require.Equal(t, "198.18.0.0/17", subnet.Spec.CIDR)
	require.Equal(t, "198.18.0.1", subnet.Status.GatewayAddress)
	require.Equal(t, status.Ready, subnet.Status.Phase)

	w.remove(subnet)
	w.gone(subnet)
	w.eventually("the default Subnet is made anew", func() bool { return w.isReady(w.subnet(netv1.DefaultSubnet)) })
	require.Equal(t, netv1.DefaultVNI, w.subnet(netv1.DefaultSubnet).Status.VNI)
}

func TestVPCsAndSubnetsGetNumbersOfTheirOwnThatRise(t *testing.T) {
	w := newWorld(t)
	ids, vnis := map[uint32]bool{}, map[uint32]bool{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		w.make(newVPC(name), newSubnet(name, name, "10.0.0.0/24"))
	}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		w.eventually("Subnet "+name+" is ready", func() bool { return w.isReady(w.subnet(name)) })
		s, v := w.subnet(name), w.vpc(name)
		require.GreaterOrEqual(t, v.Status.ID, netv1.FirstTenantVNI)
		require.GreaterOrEqual(t, s.Status.VNI, netv1.FirstTenantVNI)
		require.Equal(t, v.Status.ID, s.Status.VPCID)
		require.Equal(t, "10.0.0.1", s.Status.GatewayAddress)
		require.Equal(t, name, s.Labels[netv1.LabelVPC])
		ids[v.Status.ID], vnis[s.Status.VNI] = true, true
	}
	require.Len(t, ids, 5)
	require.Len(t, vnis, 5)

	old := w.subnet("e")
	w.remove(old)
	w.gone(old)
	w.make(newSubnet("e", "e", "10.0.0.0/24"))
	w.eventually("the new Subnet is ready", func() bool { return w.isReady(w.subnet("e")) })
	require.Greater(t, w.subnet("e").Status.VNI, old.Status.VNI, "a VNI is not given again soon")
	require.NotEqual(t, old.Status.GatewayMAC, w.subnet("e").Status.GatewayMAC)
}

func TestASubnetSaysThatItWaitsForItsVPC(t *testing.T) {
	w := newWorld(t)
	w.make(newSubnet("early", "later", "10.0.0.0/24"))
	w.eventually("the Subnet waits", func() bool { return w.why(w.subnet("early")) == reasonWaitingForVPC })
	require.Equal(t, status.Pending, w.subnet("early").Status.Phase)
	require.Zero(t, w.subnet("early").Status.VNI)
	w.make(newVPC("later"))
	w.eventually("the Subnet is ready", func() bool { return w.isReady(w.subnet("early")) })
}

func TestASubnetThatOverlapsNamesTheOtherAndTakesItsPlaceWhenItIsGone(t *testing.T) {
	w := newWorld(t)
	w.make(newVPC("a"), newVPC("b"), newSubnet("first", "a", "10.0.0.0/16"))
	w.eventually("the first is ready", func() bool { return w.isReady(w.subnet("first")) })
	w.make(newSubnet("second", "a", "10.0.3.0/24"), newSubnet("elsewhere", "b", "10.0.3.0/24"))
	w.eventually("the second is refused", func() bool { return w.why(w.subnet("second")) == reasonCIDROverlap })
	second := w.subnet("second")
	require.Equal(t, status.Error, second.Status.Phase)
	require.Equal(t, "spec.cidr: 10.0.3.0/24 overlaps with 10.0.0.0/16 of Subnet first in VPC a; make a new Subnet with another range, or delete that one",
		readyOf(second).Message)
	w.eventually("the one in another VPC is ready", func() bool { return w.isReady(w.subnet("elsewhere")) })

	w.remove(w.subnet("first"))
	w.eventually("the second takes its place", func() bool { return w.isReady(w.subnet("second")) })
}

func TestOfManySubnetsThatOverlapExactlyOneIsReady(t *testing.T) {
	w := newWorld(t)
	w.make(newVPC("a"))
	names := []string{"s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"}
	for _, name := range names {
		w.make(newSubnet(name, "a", "10.0.0.0/24"))
	}
	w.eventually("one is ready and the others are refused", func() bool {
		ready, refused := 0, 0
		for _, name := range names {
			switch s := w.subnet(name); {
			case w.isReady(s):
				ready++
			case w.why(s) == reasonCIDROverlap && s.Status.VNI == 0:
				refused++
			}
		}
		require.LessOrEqual(t, ready, 1)
		return ready == 1 && refused == len(names)-1
	})
}

func TestASubnetInAReservedRangeIsRefused(t *testing.T) {
	w := newWorld(t)
	w.make(newVPC("a"), newSubnet("s", "a", "100.64.8.0/24"))
	w.eventually("it is refused", func() bool { return w.why(w.subnet("s")) == reasonCIDRReserved })
	require.Contains(t, readyOf(w.subnet("s")).Message, "100.64.0.0/10")
	require.Zero(t, w.subnet("s").Status.VNI)
}

// https://github.com/kubeovn/kube-ovn/issues/5068
func TestAVPCStaysUntilItsSubnetsAreGoneAndNamesThem(t *testing.T) {
	w := newWorld(t)
	w.make(newVPC("a"), newSubnet("s1", "a", "10.0.1.0/24"), newSubnet("s2", "a", "10.0.2.0/24"))
	w.eventually("both are ready", func() bool { return w.isReady(w.subnet("s1")) && w.isReady(w.subnet("s2")) })
	vpc := w.vpc("a")
	w.remove(vpc)
	w.eventually("the VPC waits", func() bool { return w.why(w.vpc("a")) == reasonWaitingForSubnets })
	require.Equal(t, "the VPC goes when its Subnets are deleted: s1, s2", readyOf(w.vpc("a")).Message)
	require.Equal(t, status.Deleting, w.vpc("a").Status.Phase)
	require.NotZero(t, w.vpc("a").Status.ID)

	w.make(newSubnet("s3", "a", "10.0.3.0/24"))
	w.eventually("no Subnet comes to a VPC that goes", func() bool { return w.why(w.subnet("s3")) == reasonWaitingForVPC })
	for _, name := range []string{"s1", "s2", "s3"} {
		w.remove(w.subnet(name))
	}
	w.gone(vpc)
}

func TestASubnetStaysWhilePodsUseItAndNamesThem(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	subnet := w.network(ns, "a", "10.0.1.0/24")
	pod := w.pod(ns, "web", netv1.AnnotationSubnet, "a", netv1.AnnotationInterface, "web-0")
	nic := w.attached(pod)
	w.remove(subnet)
	w.eventually("the Subnet waits", func() bool { return w.why(w.subnet("a")) == reasonWaitingForNICs })
	require.Equal(t, "the Subnet goes when the Pods with these NetworkInterfaces are deleted: web-0 (Pod "+ns+"/web)", readyOf(w.subnet("a")).Message)
	require.True(t, w.isReady(w.nic("web-0")), "the Pod keeps its address")

	late := w.pod(ns, "late", netv1.AnnotationSubnet, "a")
	w.told(late, reasonSubnetDeleting)
	w.deletePod(pod)
	w.gone(subnet)
	w.gone(nic)
	require.Empty(t, w.leases())
}

// https://github.com/kubeovn/kube-ovn/issues/2877
func TestASubnetMadeAnewIsAnotherOne(t *testing.T) {
	w := newWorld(t)
	ns := w.namespace()
	old := w.network(ns, "a", "10.0.1.0/24")
	w.attached(w.pod(ns, "web", netv1.AnnotationSubnet, "a"))

	// Somebody takes the finalizer by hand, deletes the Subnet under its Pod, and makes it again at once.
	w.stop()
	base := old.DeepCopy()
	old.Finalizers = nil
	require.NoError(t, w.Patch(w.ctx, old, client.MergeFrom(base)))
	w.remove(old)
	w.make(newSubnet("a", "a", "10.0.1.0/24"))
	w.start()
	w.eventually("the new Subnet is ready with another VNI", func() bool {
		s := w.subnet("a")
		return w.isReady(s) && s.Status.VNI > old.Status.VNI
	})
	pod := w.pod(ns, "db", netv1.AnnotationSubnet, "a")
	nic := w.attached(pod)
	require.Equal(t, w.subnet("a").Status.VNI, nic.Status.VNI)
	w.eventually("the leases of the old Subnet are freed, those of the new one stay", func() bool {
		leases := w.leases()
		for _, names := range leases {
			if len(names) != 2 {
				return false
			}
		}
		return len(leases) == 2
	})
	require.True(t, w.isReady(w.nic(nic.Name)))
}

func TestAnotherConfigurationIsToldOnTheDefaultSubnet(t *testing.T) {
	w := newWorld(t)
	w.stop()
	w.config.InfrastructureCIDR = prefix("198.19.0.0/17")
	w.start()
	w.eventually("it is told", func() bool { return w.why(w.subnet(netv1.DefaultSubnet)) == reasonMisconfigured })
	require.Contains(t, readyOf(w.subnet(netv1.DefaultSubnet)).Message, "the configuration says 198.19.0.0/17")
	w.remove(w.subnet(netv1.DefaultSubnet))
	w.eventually("it is made anew", func() bool {
		s := w.subnet(netv1.DefaultSubnet)
		return w.isReady(s) && s.Spec.CIDR == "198.19.0.0/17"
	})
	w.stop()
	w.config = testConfig()
	w.start()
}
