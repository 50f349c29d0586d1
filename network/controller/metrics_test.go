package controller

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/documented"
)

func TestEveryMetricIsDocumentedAndEveryDocumentedMetricExists(t *testing.T) {
	documented.Metrics(t, "mni-cloud", collector{})
}

func TestMetricsTellOfVPCsSubnetsAndLeases(t *testing.T) {
	released := metav1.NowMicro()
	lease := func(name, subnet string, at *metav1.MicroTime) *netv1.IPLease {
		return &netv1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.IPLeaseSpec{Subnet: subnet, ReleasedAt: at}}
	}
	objects := []client.Object{
		&netv1.VPC{ObjectMeta: metav1.ObjectMeta{Name: "red"}, Status: netv1.VPCStatus{ID: 1001, Phase: status.Ready}},
		&netv1.VPC{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Status: netv1.VPCStatus{Phase: status.Pending}},
		&netv1.Subnet{
			ObjectMeta: metav1.ObjectMeta{Name: "front"}, Spec: netv1.SubnetSpec{VPC: "red", CIDR: "10.0.1.0/28"},
			Status: netv1.SubnetStatus{VNI: 1002, VPCID: 1001, Phase: status.Ready},
		},
		&netv1.NetworkInterface{ObjectMeta: metav1.ObjectMeta{Name: "nic"}, Status: netv1.NetworkInterfaceStatus{Phase: status.Ready}},
		lease("1002.10.0.1.2", "front", nil), lease("1002.10.0.1.3", "front", nil), lease("1002.10.0.1.4", "front", &released),
	}
	c := collector{fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(objects...).Build()}
	require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(`
# HELP mni_network_objects Objects of net.mnicloud.jp by kind and phase.
# TYPE mni_network_objects gauge
mni_network_objects{kind="NetworkInterface",phase="Ready"} 1
mni_network_objects{kind="Subnet",phase="Ready"} 1
mni_network_objects{kind="VPC",phase="Pending"} 1
mni_network_objects{kind="VPC",phase="Ready"} 1
# HELP mni_subnet_addresses How many interfaces a Subnet has room for.
# TYPE mni_subnet_addresses gauge
mni_subnet_addresses{subnet="1002",vpc="1001"} 13
# HELP mni_subnet_info 1, with the name and the range of the Subnet whose VNI is the label subnet.
# TYPE mni_subnet_info gauge
mni_subnet_info{cidr="10.0.1.0/28",name="front",subnet="1002",vpc="1001"} 1
# HELP mni_subnet_leases IPLeases of a Subnet: held by an interface, or released (nobody gets the address yet).
# TYPE mni_subnet_leases gauge
mni_subnet_leases{state="held",subnet="1002",vpc="1001"} 2
mni_subnet_leases{state="released",subnet="1002",vpc="1001"} 1
# HELP mni_vpc_info 1, with the name of the VPC whose numeric identity is the label vpc.
# TYPE mni_vpc_info gauge
mni_vpc_info{name="red",vpc="1001"} 1
`)))
}
