package controller

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

func TestTheAPIServerRefusesVpcsThatCannotBe(t *testing.T) {
	w := newTenant(t)
	for _, tc := range []struct{ name, cidr, says string }{
		{"no range", "10.0.0.0", "cidr must be an address range such as 10.0.0.0/16"},
		{"no address", "a.b.c.d/16", "cidr must be an address range"},
		{"empty", "", "cidr must be an address range"},
		{"not canonical", "10.0.0.5/16", "cidr must be canonical: no bits set beyond the prefix length (10.0.0.0/16, not 10.0.0.5/16)"},
		{"leading zeros", "010.0.0.0/16", "cidr must be an address range"},
		{"IPv6", "fd00::/64", "cidr must be IPv4; IPv6 is not supported yet"},
		{"IPv4 in IPv6", "::ffff:10.0.0.0/112", "cidr must be"},
		{"too small /30", "10.0.0.0/30", "cidr must be between /8 and /29: smaller ones have no room for Subnets"},
		{"too small /32", "10.0.0.0/32", "cidr must be between /8 and /29"},
		{"too large", "10.0.0.0/7", "cidr must be"},
		{"larger than /8", "64.0.0.0/7", "cidr must be between /8 and /29: this one is larger than /8; choose a part of it"},
		{"everything", "0.0.0.0/0", "cidr must be between /8 and /29: this one is larger than /8"},
		{"infrastructure", "198.18.0.0/16", "cidr meets a reserved range"},
		{"in Services", "198.19.4.0/24", "cidr meets a reserved range"},
		{"contains infrastructure", "198.0.0.0/8", "cidr meets a reserved range"},
		{"aliases", "169.254.0.0/16", "cidr meets a reserved range"},
		{"contains aliases", "169.0.0.0/8", "cidr meets a reserved range"},
		{"underlay", "192.0.2.128/25", "cidr meets a reserved range"},
		{"contains underlay", "192.0.0.0/8", "cidr meets a reserved range"},
		{"this network", "0.0.0.0/8", "cidr meets a reserved range"},
		{"loopback", "127.1.0.0/16", "cidr meets a reserved range"},
		{"multicast", "239.1.0.0/16", "cidr meets a reserved range"},
		{"class E", "240.0.0.0/8", "cidr meets a reserved range"},
		{"shared address space", "100.64.0.0/16", "cidr meets a reserved range"},
		{"contains shared address space", "100.0.0.0/8", "cidr meets a reserved range"},
		{"too long", strings.Repeat("1", 44), "may not be more than 43"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := w.Create(t.Context(), &vpcv1.Vpc{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "v-"}, Spec: vpcv1.VpcSpec{CIDR: tc.cidr}})
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, tc.says)
			require.ErrorContains(t, err, "spec.cidr")
			require.Equal(t, strings.Contains(tc.name, "too small"), strings.Contains(err.Error(), "smaller ones"), "%v", err)
		})
	}
	for _, cidr := range []string{"10.0.0.0/8", "10.0.0.0/16", "172.16.0.0/12", "192.168.0.0/29", "8.0.0.0/8", "198.17.0.0/16", "198.20.0.0/16"} {
		t.Run(cidr+" is allowed", func(t *testing.T) {
			require.NoError(t, w.Create(t.Context(), &vpcv1.Vpc{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "v-"}, Spec: vpcv1.VpcSpec{CIDR: cidr}}))
		})
	}
}

func TestTheAPIServerRefusesSubnetsThatCannotBe(t *testing.T) {
	w := newTenant(t)
	for _, tc := range []struct{ name, vpc, cidr, says string }{
		{"no range", "main", "10.0.1.0", "cidr must be an address range such as 10.0.1.0/24"},
		{"not canonical", "main", "10.0.1.5/24", "cidr must be canonical: no bits set beyond the prefix length (10.0.1.0/24, not 10.0.1.5/24)"},
		{"IPv6", "main", "fd00::/64", "cidr must be IPv4; IPv6 is not supported yet"},
		{"/31", "main", "10.0.1.0/31", "cidr must be between /8 and /30: smaller ones have no room for a gateway and a workload"},
		{"/32", "main", "10.0.1.0/32", "cidr must be between /8 and /30"},
		{"/7", "main", "64.0.0.0/7", "cidr must be between /8 and /30: this one is larger than /8; choose a part of it"},
		{"no Vpc", "", "10.0.1.0/24", "spec.vpc"},
		{"a Vpc with a slash", "red/main", "10.0.1.0/24", "vpc must be the name of a Vpc of the same tenant"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := w.Create(t.Context(), &vpcv1.Subnet{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "s-"}, Spec: vpcv1.SubnetSpec{VPC: tc.vpc, CIDR: tc.cidr}})
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, tc.says)
		})
	}
}

func TestTheAPIServerRefusesNamesThatLabelsCannotCarry(t *testing.T) {
	w := newTenant(t)
	for _, name := range []string{strings.Repeat("a", 64), "a.b"} {
		err := w.Create(t.Context(), &vpcv1.Vpc{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: vpcv1.VpcSpec{CIDR: "10.0.0.0/16"}})
		require.ErrorContains(t, err, "metadata.name must be at most 63")
		err = w.Create(t.Context(), &vpcv1.Subnet{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: vpcv1.SubnetSpec{VPC: "main", CIDR: "10.0.0.0/16"}})
		require.ErrorContains(t, err, "metadata.name must be at most 63")
	}
}

func TestARangeAndAVpcCannotBeChangedAfterCreation(t *testing.T) {
	w := newTenant(t)
	vpc := w.vpc("main", "10.0.0.0/16")
	vpc.Spec.CIDR = "10.1.0.0/16"
	require.ErrorContains(t, w.Update(t.Context(), vpc), "cidr cannot be changed; make a new Vpc")

	subnet := w.subnet("web", "main", "10.0.1.0/24")
	subnet.Spec.CIDR = "10.0.2.0/24"
	require.ErrorContains(t, w.Update(t.Context(), subnet), "cidr cannot be changed; make a new Subnet")
	subnet.Spec.CIDR, subnet.Spec.VPC = "10.0.1.0/24", "other"
	require.ErrorContains(t, w.Update(t.Context(), subnet), "vpc cannot be changed; make a new Subnet")
}
