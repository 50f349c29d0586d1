//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/status"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// tableVia is a RouteTable of Vpc "main" that leads to a range through a Container.
func tableVia(namespace, name, destination, container string) *vpcv1.RouteTable {
	return &vpcv1.RouteTable{ObjectMeta: objectMeta(namespace, name), Spec: vpcv1.RouteTableSpec{
		VPC: "main", Routes: []vpcv1.Route{{Destination: destination, Container: &container}},
	}}
}

// firewall is a shell that sends on what it gets.
func firewall(namespace, name, subnet, node string) *ctrv1.Container {
	c := shell(namespace, name, subnet, node)
	c.Spec.SourceDestCheck = new(bool)
	return c
}

// useTable makes a Subnet name a RouteTable.
func useTable(t *testing.T, namespace, subnet, table string) {
	t.Helper()
	s := &vpcv1.Subnet{ObjectMeta: objectMeta(namespace, subnet)}
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
		t.Fatal(err)
	}
	change(t, s, func() { s.Spec.RouteTable = table })
}

// tableSays waits until a RouteTable's phase and message are so.
func tableSays(t *testing.T, table *vpcv1.RouteTable, phase status.Phase, says string) {
	t.Helper()
	eventually(t, fmt.Sprintf("RouteTable %s is %s", table.Name, phase), func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(table), table); err != nil {
			return err
		}
		ready := meta.FindStatusCondition(table.Status.Conditions, status.ConditionReady)
		if table.Status.Phase != phase || ready == nil || !strings.Contains(ready.Message, says) {
			return fmt.Errorf("phase %s, Ready %+v", table.Status.Phase, ready)
		}
		return nil
	})
}

// sentOn is how many packets a Container's kernel has sent on.
func sentOn(t *testing.T, c *ctrv1.Container) int {
	t.Helper()
	out, err := in(t.Context(), c, "cat", "/proc/net/snmp")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var names []string
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "Ip:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i, name := range names {
			if name == "ForwDatagrams" && i < len(fields) {
				count, err := strconv.Atoi(fields[i])
				if err != nil {
					t.Fatal(err)
				}
				return count
			}
		}
	}
	t.Fatalf("no ForwDatagrams in\n%s", out)
	return 0
}

func TestARouteTableLeadsThroughAFirewallOnEitherNode(t *testing.T) {
	namespace := tenant(t, "routes")
	vpcWithSubnets(t, namespace)
	create(t, &vpcv1.Subnet{ObjectMeta: objectMeta(namespace, "c"), Spec: vpcv1.SubnetSpec{VPC: "main", CIDR: "10.0.3.0/24"}})
	client1, near, far := shell(namespace, "client", "a", nodes[0]), whoami(namespace, "near", "b", nodes[0]), whoami(namespace, "far", "b", nodes[1])
	create(t, client1, near, far)
	ready(t, client1, near, far)
	servers := []*ctrv1.Container{near, far}
	answer := func(say string) {
		t.Helper()
		for _, server := range servers {
			eventually(t, say, func(ctx context.Context) error { return checkIdentity(ctx, client1, server) })
		}
	}
	silent := func() {
		t.Helper()
		for _, server := range servers {
			eventually(t, server.Name+" is out of reach", func(ctx context.Context) error {
				if body, err := wget(ctx, client1, "http://"+server.Status.Address+":8080/", 2); err == nil {
					return fmt.Errorf("it answers: %s", body)
				}
				return nil
			})
		}
	}
	answer("the servers answer without a table")

	there, back := tableVia(namespace, "there", "10.0.2.0/24", "firewall"), tableVia(namespace, "back", "10.0.1.0/24", "firewall")
	create(t, there, back)
	useTable(t, namespace, "a", "there")
	useTable(t, namespace, "b", "back")
	tableSays(t, there, status.Pending, "Container firewall does not exist; create it, or name another")
	silent() // a route whose target is not there drops: nothing finds a way past the firewall

	for _, node := range nodes {
		fw := firewall(namespace, "firewall", "c", node)
		create(t, fw)
		ready(t, fw)
		tableSays(t, there, status.Ready, "")
		tableSays(t, back, status.Ready, "")
		answer("the servers answer through the firewall on " + node)
		// Each way of each connection is at least three packets.
		if count := sentOn(t, fw); count < 12 {
			t.Errorf("the firewall on %s sent on %d packets", node, count)
		}
		goes(t, fw)
		tableSays(t, there, status.Pending, "Container firewall does not exist")
		silent()
	}

	// One that checks addresses sends nothing on, and the table says what to do.
	closed := shell(namespace, "firewall", "c", nodes[0])
	create(t, closed)
	ready(t, closed)
	tableSays(t, there, status.Pending, "Container firewall sends nothing on; set its spec.sourceDestCheck to false")
	silent()
	change(t, closed, func() { closed.Spec.SourceDestCheck = new(bool) })
	answer("the servers answer once it sends on")

	// A table in use stays until no Subnet names it.
	if err := kube.Delete(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	tableSays(t, there, status.Deleting, "the RouteTable goes when no Subnet names it")
	answer("its routes count until then")
	useTable(t, namespace, "a", "")
	goes(t, there)
	useTable(t, namespace, "b", "")
	goes(t, closed)
	answer("the servers answer directly")
	isConsistent(t)
}
