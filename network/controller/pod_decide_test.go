package controller

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

func TestAPodsAnnotationsNameItsInterfaceAndSubnet(t *testing.T) {
	plain := newPod("team", "web")
	plain.UID = "3f"
	require.Equal(t, "3f", interfaceName(plain))
	require.Equal(t, netv1.DefaultSubnet, subnetName(plain))
	tenant := newPod("team", "web", netv1.AnnotationInterface, "web-0", netv1.AnnotationSubnet, "front")
	require.Equal(t, "web-0", interfaceName(tenant))
	require.Equal(t, "front", subnetName(tenant))
}

func TestAnInterfaceNameMustBeAnObjectsName(t *testing.T) {
	for name, fine := range map[string]bool{"web-0": true, "a.b": true, "Web": false, "../x": false, "a/b": false, "web_0": false} {
		require.Equal(t, fine, checkPod(newPod("team", "p", netv1.AnnotationInterface, name)) == nil, name)
	}
}

func TestOnlyNamespacesThatTheVPCListsMayUseItsSubnets(t *testing.T) {
	vpc, subnet := newVPC("shop", "team-a"), newSubnet("front", "shop", "10.0.1.0/24")
	require.Nil(t, checkAccess("team-a", subnet, vpc))
	no := checkAccess("team-b", subnet, vpc)
	require.Equal(t, reasonNamespaceRefused, no.reason)
	require.Contains(t, no.message, "VPC shop of Subnet front does not allow Pods of namespace team-b")
	require.NotNil(t, checkAccess("", subnet, newVPC("shop")))
	require.Nil(t, checkAccess("team-b", newSubnet(netv1.DefaultSubnet, netv1.DefaultVPC, "198.18.0.0/17"), newVPC(netv1.DefaultVPC)))
}

func TestAnAddressOutsideTheSubnetIsRefusedBeforeAnInterfaceIsMade(t *testing.T) {
	subnet := newSubnet("front", "shop", "10.0.1.0/24")
	require.Nil(t, checkAddress(newPod("team", "web"), subnet))
	require.Nil(t, checkAddress(newPod("team", "web", netv1.AnnotationAddress, "10.0.1.7"), subnet))
	no := checkAddress(newPod("team", "web", netv1.AnnotationAddress, "10.0.2.7"), subnet)
	require.Equal(t, reasonAddressInvalid, no.reason)
	require.Contains(t, no.message, "annotation net.mnicloud.jp/address")
}

func TestWhatAPodMayDoWithAnInterfaceThatExists(t *testing.T) {
	pod := newPod("team", "web", netv1.AnnotationInterface, "web-0", netv1.AnnotationSubnet, "front")
	pod.UID, pod.Spec.NodeName = "new", "node-1"
	nic := func(change func(*netv1.NetworkInterface)) *netv1.NetworkInterface {
		n := newInterface(pod, newSubnet("front", "shop", "10.0.1.0/24"))
		n.Status.Address = "10.0.1.7"
		change(n)
		return n
	}
	other := func(n *netv1.NetworkInterface) { n.Spec.Pod.UID, n.Spec.Pod.Name = "old", "web-old" }
	for _, tc := range []struct {
		name        string
		nic         *netv1.NetworkInterface
		address     string
		holderAlive bool
		want        step
		reason      string
	}{
		{"it is the Pod's", nic(func(*netv1.NetworkInterface) {}), "", false, nothing, ""},
		{"it is the Pod's, which was scheduled", nic(func(n *netv1.NetworkInterface) { n.Spec.Node = "" }), "", false, move, ""},
		{"it is the Pod's, whose annotation was changed", nic(func(n *netv1.NetworkInterface) { n.Spec.Subnet = "back"; n.Spec.Node = "" }), "", false, move, ""},
		{"it is free", nic(detach), "", false, attach, ""},
		{"its Pod is gone", nic(other), "", false, attach, ""},
		{"its Pod lives", nic(other), "", true, deny, reasonInterfaceInUse},
		{"it is another namespace's", nic(func(n *netv1.NetworkInterface) { detach(n); n.Spec.Namespace = "enemy" }), "", false, deny, reasonInterfaceForeign},
		{"it is another namespace's and in use", nic(func(n *netv1.NetworkInterface) { other(n); n.Spec.Namespace = "enemy" }), "", true, deny, reasonInterfaceForeign},
		{"it is in another Subnet", nic(func(n *netv1.NetworkInterface) { detach(n); n.Spec.Subnet = "back" }), "", false, deny, reasonInterfaceSubnet},
		{"it is to go", nic(func(n *netv1.NetworkInterface) { detach(n); n.DeletionTimestamp = ptr(metav1.Now()) }), "", false, deny, reasonInterfaceDeleting},
		{"it is the Pod's and to go", nic(func(n *netv1.NetworkInterface) { n.DeletionTimestamp = ptr(metav1.Now()) }), "", false, nothing, ""},
		{"it has the address asked for", nic(detach), "10.0.1.7", false, attach, ""},
		{"it has another address", nic(detach), "10.0.1.8", false, deny, reasonAddressInterface},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asking := pod.DeepCopy()
			if tc.address != "" {
				asking.Annotations[netv1.AnnotationAddress] = tc.address
			}
			got, no := decideAttachment(asking, tc.nic, tc.holderAlive)
			require.Equal(t, tc.want, got)
			if tc.reason == "" {
				require.Nil(t, no)
				return
			}
			require.Equal(t, tc.reason, no.reason)
			if tc.reason == reasonInterfaceForeign {
				require.NotContains(t, no.message, "enemy", "nothing about others is told")
			}
		})
	}
}

func TestANewInterfaceSaysWhoseItIs(t *testing.T) {
	pod := newPod("team", "web", netv1.AnnotationAddress, "10.0.1.7")
	pod.UID, pod.Spec.NodeName = "3f", "node-1"
	nic := newInterface(pod, newSubnet("front", "shop", "10.0.1.0/24"))
	require.Equal(t, "3f", nic.Name)
	require.Equal(t, []string{netv1.Finalizer}, nic.Finalizers)
	require.Equal(t, map[string]string{netv1.LabelVPC: "shop", netv1.LabelSubnet: "front", netv1.LabelNode: "node-1"}, nic.Labels)
	require.Equal(t, "team/web", nic.Annotations[netv1.AnnotationHolderPod])
	require.Equal(t, netv1.NetworkInterfaceSpec{
		Subnet: "front", Namespace: "team", Address: "10.0.1.7", Node: "node-1",
		Pod: &netv1.PodReference{Namespace: "team", Name: "web", UID: "3f"},
	}, nic.Spec)

	pod.Annotations[netv1.AnnotationInterface] = "web-0"
	require.Empty(t, newInterface(pod, newSubnet("front", "shop", "10.0.1.0/24")).Annotations)
}

func TestTheCacheKeepsOfAPodWhatControllersRead(t *testing.T) {
	pod := newPod("team", "web", corev1.LastAppliedConfigAnnotation, "{}", netv1.AnnotationSubnet, "front")
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	pod.Spec.NodeName, pod.Spec.HostNetwork = "node-1", true
	pod.Spec.Volumes = []corev1.Volume{{Name: "v"}}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "SECRET", Value: "x"}}
	pod.Status.PodIP = "198.18.0.7"
	got, err := stripPod(pod)
	require.NoError(t, err)
	want := newPod("team", "web", netv1.AnnotationSubnet, "front")
	want.Spec.NodeName, want.Spec.HostNetwork, want.Status.PodIP = "node-1", true, "198.18.0.7"
	require.Equal(t, want, got)
	_, err = stripPod("x")
	require.Error(t, err)
}
