//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/status"
	"github.com/mnicloud/mnicloud/network/inspect"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// document is an object of a group as a user writes it.
func document(group, kind, name, spec string) string {
	return fmt.Sprintf("apiVersion: %s/v1alpha1\nkind: %s\nmetadata: {name: %s}\nspec: %s\n", group, kind, name, spec)
}

func TestWhatCannotBeOutsideIsRefusedOrToldNamingTheField(t *testing.T) {
	namespace := tenant(t, "bad-outside")
	other := tenant(t, "bad-outside-other")
	vpcWithSubnets(t, namespace)
	vpcWithSubnets(t, other)
	web, theirs := whoami(namespace, "bad-web", "a", nodes[0]), whoami(other, "theirs", "a", nodes[1])
	create(t, web, theirs)
	ready(t, web, theirs)
	fip := publish(t, web)
	pool := thisInstance(t).Addresses().Pool

	for _, c := range []struct{ name, document, want string }{
		{"an address that is none", document("vpc.mnicloud.jp", "ExternalIP", "x", "{address: 203.0.113}"), "spec.address"},
		{"a class that no pool can have", document("vpc.mnicloud.jp", "ExternalIP", "x", "{className: Gold!}"), "spec.className"},
		{"a target of another kind", document("vpc.mnicloud.jp", "FloatingIP", "x", "{externalIP: e, target: {type: pods, name: web}}"), "spec.target.type"},
		{"a target in another namespace", document("vpc.mnicloud.jp", "FloatingIP", "x", "{externalIP: e, target: {type: containers, name: "+other+"/theirs}}"), "spec.target.name"},
		{"a NATGateway without addresses", document("vpc.mnicloud.jp", "NATGateway", "x", "{vpc: main, externalIPs: []}"), "spec.externalIPs"},
		{"a route without a target", document("vpc.mnicloud.jp", "RouteTable", "x", "{vpc: main, routes: [{destination: 10.9.0.0/16}]}"), "spec.routes[0]"},
		{"a peering with itself", document("vpc.mnicloud.jp", "VpcPeering", "x", "{vpc: main, peer: {vpc: main}}"), "peer.vpc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := mniInput(t.Context(), c.document, "apply", "-n", namespace, "-f", "-")
			require.Error(t, err, out)
			require.Contains(t, out, c.want)
		})
	}
	for _, c := range []struct{ name, document, want string }{
		{"a pool that overlaps", document("net.mnicloud.jp", "AddressPool", "x", fmt.Sprintf("{cidrs: [%s]}", pool)), "spec.cidrs: some of the addresses are those of AddressPool default"},
		{"a pool of a reserved range", document("net.mnicloud.jp", "AddressPool", "x", "{cidrs: [127.0.0.0/8]}"), "spec.cidrs"},
		{"an impossible ASN", document("net.mnicloud.jp", "BGPPeer", "x", "{asn: 4294967296, address: 192.168.1.1}"), "spec.asn"},
		{"the ASN of translation", document("net.mnicloud.jp", "BGPPeer", "x", "{asn: 23456, address: 192.168.1.1}"), "reserved"},
		{"a peer that no router can be", document("net.mnicloud.jp", "BGPPeer", "x", "{asn: 65000, address: 224.0.0.5}"), "spec.address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := command(t.Context(), c.document, binaries+"/mni-kube", "kubectl", "--kubeconfig", kubeconfigPath(), "create", "--dry-run=server", "-f", "-")
			require.Error(t, err, out)
			require.Contains(t, out, c.want)
		})
	}
	for _, args := range [][]string{
		{"delete", "addresspools.net.mnicloud.jp", "default", "--wait=false", "--dry-run=server"},
		{"patch", "addresspools.net.mnicloud.jp", "default", "--type=merge", "--dry-run=server", "-p", `{"spec":{"cidrs":["192.168.77.0/28"]}}`},
	} {
		out, err := kubectl(t.Context(), args...)
		require.Error(t, err, "a pool in use: %s", out)
		require.Contains(t, out, "spec.cidrs: AddressPool default must keep ")
		require.Contains(t, out, "delete that one first")
	}

	// What only the cloud can see.
	target := func(name string) vpcv1.FloatingIPTarget {
		return vpcv1.FloatingIPTarget{Type: vpcv1.TargetContainers, Name: name}
	}
	create(t,
		&vpcv1.ExternalIP{ObjectMeta: objectMeta(namespace, "outside"), Spec: vpcv1.ExternalIPSpec{Address: "192.168.77.7"}},
		&vpcv1.ExternalIP{ObjectMeta: objectMeta(namespace, "taken"), Spec: vpcv1.ExternalIPSpec{Address: fip.Status.ExternalAddress}},
		&vpcv1.ExternalIP{ObjectMeta: objectMeta(namespace, "spare")},
		&vpcv1.ExternalIP{ObjectMeta: objectMeta(namespace, "foreign")},
		&vpcv1.FloatingIP{ObjectMeta: objectMeta(namespace, "same-address"), Spec: vpcv1.FloatingIPSpec{ExternalIP: fip.Spec.ExternalIP, Target: target("other")}},
		&vpcv1.FloatingIP{ObjectMeta: objectMeta(namespace, "same-target"), Spec: vpcv1.FloatingIPSpec{ExternalIP: "spare", Target: target(web.Name)}},
		&vpcv1.FloatingIP{ObjectMeta: objectMeta(namespace, "others-workload"), Spec: vpcv1.FloatingIPSpec{ExternalIP: "foreign", Target: target(theirs.Name)}},
	)
	for name, words := range map[string][]string{
		"outside": {"spec.address", "is not in pool default"}, "taken": {"spec.address", "is another ExternalIP's"},
	} {
		eip := &vpcv1.ExternalIP{ObjectMeta: objectMeta(namespace, name)}
		notReady(t, eip, &eip.Status.Conditions, words...)
	}
	for name, words := range map[string][]string{
		"same-address": {"spec.externalIP", "is FloatingIP " + fip.Name + "'s"}, "same-target": {"spec.target", "is FloatingIP " + fip.Name + "'s"},
		"others-workload": {"spec.target: Container theirs does not exist"},
	} {
		f := &vpcv1.FloatingIP{ObjectMeta: objectMeta(namespace, name)}
		notReady(t, f, &f.Status.Conditions, words...)
	}
	answersOutside(t, fip.Status.ExternalAddress, web.Name)

	var gateways []*vpcv1.NATGateway
	for _, name := range []string{"nat-1", "nat-2"} {
		g := &vpcv1.NATGateway{ObjectMeta: objectMeta(namespace, name), Spec: vpcv1.NATGatewaySpec{VPC: "main", Subnets: []string{"a"}, ExternalIPs: []string{name}}}
		create(t, &vpcv1.ExternalIP{ObjectMeta: objectMeta(namespace, name)}, g)
		if gateways = append(gateways, g); len(gateways) == 1 {
			translates(t, g)
		}
	}
	notReady(t, gateways[1], &gateways[1].Status.Conditions, "spec.subnets", "served are Subnet a by NATGateway nat-1")
	require.Empty(t, gateways[1].Status.Subnets)

	// A route brings a workload what it sends on itself, by the table of its own Subnet.
	hop := firewall(namespace, "hop", "a", nodes[0])
	table := tableVia(namespace, "circle", "172.16.0.0/12", hop.Name)
	create(t, hop, table)
	ready(t, hop)
	tableSays(t, table, status.Ready, "")
	loops := func() *metav1.Condition {
		return meta.FindStatusCondition(table.Status.Conditions, vpcv1.ConditionRoutesLoop)
	}
	require.Nil(t, loops(), "no Subnet names it yet")
	useTable(t, namespace, "a", table.Name)
	eventually(t, "the table tells of the circle", func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(table), table); err != nil {
			return err
		}
		if c := loops(); c == nil || c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, "spec.routes[0]: what Container hop sends on to 172.16.0.0/12 comes back to it") {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	trace := netJSON[inspect.Trace](t, "trace", "--from", namespace+"/"+hop.Status.Pod, "--to", "172.16.0.1:80")
	require.Equal(t, "route_loop", trace.Reason, steps(trace))
	useTable(t, namespace, "a", "")
	eventually(t, "the circle is told of no more", func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(table), table); err != nil || loops() != nil {
			return fmt.Errorf("%+v: %w", loops(), err)
		}
		return nil
	})

	var all vpcv1.FloatingIPList
	require.NoError(t, kube.List(t.Context(), &all, client.InNamespace(namespace)))
	for i := range all.Items {
		if f := &all.Items[i]; f.Name != fip.Name {
			require.Empty(t, f.Status.Address, "%s leads to something", f.Name)
		}
	}
	isConsistent(t)
}
