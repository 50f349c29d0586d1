package claim

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/utils/ptr"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

func newVPC(name string, namespaces ...string) *netv1.VPC {
	return &netv1.VPC{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.VPCSpec{Namespaces: namespaces}}
}

func newSubnet(name, vpc, cidr string) *netv1.Subnet {
	return &netv1.Subnet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.SubnetSpec{VPC: vpc, CIDR: cidr}}
}

// inUse is a Subnet that has its numbers.
func inUse(name string) *netv1.Subnet {
	s := newSubnet(name, "shop", "10.0.1.0/24")
	s.Status = netv1.SubnetStatus{VNI: 1001, VPCID: 1001, GatewayAddress: "10.0.1.1", GatewayMAC: "02:00:00:00:00:01"}
	return s
}

// newPod makes a Pod; annotations are pairs of key and value.
func newPod(namespace, name string, annotations ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	for i := 0; i+1 < len(annotations); i += 2 {
		pod.Annotations[annotations[i]] = annotations[i+1]
	}
	return pod
}

func TestAPodsAnnotationsNameItsInterfaceAndSubnet(t *testing.T) {
	plain := newPod("team", "web")
	plain.UID = "3f"
	require.Equal(t, "3f", InterfaceName(plain))
	require.Equal(t, netv1.DefaultSubnet, SubnetName(plain))
	tenant := newPod("team", "web", netv1.AnnotationInterface, "web-0", netv1.AnnotationSubnet, "front")
	require.Equal(t, "web-0", InterfaceName(tenant))
	require.Equal(t, "front", SubnetName(tenant))
}

func TestAnInterfaceNameMustBeAnObjectsName(t *testing.T) {
	for name, fine := range map[string]bool{"web-0": true, "a.b": true, "Web": false, "../x": false, "a/b": false, "web_0": false} {
		require.Equal(t, fine, CheckPod(newPod("team", "p", netv1.AnnotationInterface, name)) == nil, name)
	}
}

func TestOnlyNamespacesThatTheVPCListsMayUseItsSubnets(t *testing.T) {
	vpc, subnet := newVPC("shop", "team-a"), newSubnet("front", "shop", "10.0.1.0/24")
	require.Nil(t, CheckAccess("team-a", subnet, vpc))
	no := CheckAccess("team-b", subnet, vpc)
	require.Equal(t, ReasonNamespaceRefused, no.Reason)
	require.Contains(t, no.Message, "VPC shop of Subnet front does not allow Pods of namespace team-b")
	require.NotNil(t, CheckAccess("", subnet, newVPC("shop")))
	require.Nil(t, CheckAccess("team-b", newSubnet(netv1.DefaultSubnet, netv1.DefaultVPC, "198.18.0.0/17"), newVPC(netv1.DefaultVPC)))
}

func TestAnAddressOutsideTheSubnetIsRefusedBeforeAnInterfaceIsMade(t *testing.T) {
	subnet := newSubnet("front", "shop", "10.0.1.0/24")
	require.Nil(t, CheckAddress(newPod("team", "web"), subnet))
	require.Nil(t, CheckAddress(newPod("team", "web", netv1.AnnotationAddress, "10.0.1.7"), subnet))
	no := CheckAddress(newPod("team", "web", netv1.AnnotationAddress, "10.0.2.7"), subnet)
	require.Equal(t, ReasonAddressInvalid, no.Reason)
	require.Contains(t, no.Message, "annotation net.mnicloud.jp/address")
}

func TestWhatAPodMayDoWithAnInterfaceThatExists(t *testing.T) {
	pod := newPod("team", "web", netv1.AnnotationInterface, "web-0", netv1.AnnotationSubnet, "front")
	pod.UID, pod.Spec.NodeName = "new", "node-1"
	nic := func(change func(*netv1.NetworkInterface)) *netv1.NetworkInterface {
		n := NewInterface(pod, newSubnet("front", "shop", "10.0.1.0/24"))
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
		want        Step
		reason      string
	}{
		{"it is the Pod's", nic(func(*netv1.NetworkInterface) {}), "", false, Nothing, ""},
		{"it is the Pod's, which was scheduled", nic(func(n *netv1.NetworkInterface) { n.Spec.Node = "" }), "", false, Move, ""},
		{"it is the Pod's, whose annotation was changed", nic(func(n *netv1.NetworkInterface) { n.Spec.Subnet = "back"; n.Spec.Node = "" }), "", false, Move, ""},
		{"it is free", nic(Detach), "", false, Attach, ""},
		{"its Pod is gone", nic(other), "", false, Attach, ""},
		{"its Pod lives", nic(other), "", true, Deny, ReasonInterfaceInUse},
		{"it is another namespace's", nic(func(n *netv1.NetworkInterface) { Detach(n); n.Spec.Namespace = "enemy" }), "", false, Deny, ReasonInterfaceForeign},
		{"it is another namespace's and in use", nic(func(n *netv1.NetworkInterface) { other(n); n.Spec.Namespace = "enemy" }), "", true, Deny, ReasonInterfaceForeign},
		{"it is in another Subnet", nic(func(n *netv1.NetworkInterface) { Detach(n); n.Spec.Subnet = "back" }), "", false, Deny, ReasonInterfaceSubnet},
		{"it is to go", nic(func(n *netv1.NetworkInterface) { Detach(n); n.DeletionTimestamp = ptr.To(metav1.Now()) }), "", false, Deny, ReasonInterfaceDeleting},
		{"it is the Pod's and to go", nic(func(n *netv1.NetworkInterface) { n.DeletionTimestamp = ptr.To(metav1.Now()) }), "", false, Nothing, ""},
		{"it has the address asked for", nic(Detach), "10.0.1.7", false, Attach, ""},
		{"it has another address", nic(Detach), "10.0.1.8", false, Deny, ReasonAddressInterface},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asking := pod.DeepCopy()
			if tc.address != "" {
				asking.Annotations[netv1.AnnotationAddress] = tc.address
			}
			got, no := DecideAttachment(asking, tc.nic, tc.holderAlive)
			require.Equal(t, tc.want, got)
			if tc.reason == "" {
				require.Nil(t, no)
				return
			}
			require.Equal(t, tc.reason, no.Reason)
			if tc.reason == ReasonInterfaceForeign {
				require.NotContains(t, no.Message, "enemy", "nothing about others is told")
			}
		})
	}
}

func TestANewInterfaceSaysWhoseItIs(t *testing.T) {
	pod := newPod("team", "web", netv1.AnnotationAddress, "10.0.1.7")
	pod.UID, pod.Spec.NodeName = "3f", "node-1"
	nic := NewInterface(pod, newSubnet("front", "shop", "10.0.1.0/24"))
	require.Equal(t, "3f", nic.Name)
	require.Equal(t, []string{netv1.Finalizer}, nic.Finalizers)
	require.Equal(t, map[string]string{netv1.LabelVPC: "shop", netv1.LabelSubnet: "front", netv1.LabelNode: "node-1"}, nic.Labels)
	require.Equal(t, "team/web", nic.Annotations[netv1.AnnotationHolderPod])
	require.Equal(t, netv1.NetworkInterfaceSpec{
		Subnet: "front", Namespace: "team", Address: "10.0.1.7", Node: "node-1",
		Pod: &netv1.PodReference{Namespace: "team", Name: "web", UID: "3f"},
	}, nic.Spec)

	pod.Annotations[netv1.AnnotationInterface] = "web-0"
	require.Empty(t, NewInterface(pod, newSubnet("front", "shop", "10.0.1.0/24")).Annotations)
}
