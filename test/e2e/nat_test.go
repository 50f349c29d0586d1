//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/status"
	"github.com/mnicloud/mnicloud/network/inspect"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

func TestAContainerWithoutAnExternalAddressReachesTheOutsideByItsNATGateway(t *testing.T) {
	namespace := tenant(t, "leaving")
	vpcWithSubnets(t, namespace)
	url := startOutside(t)
	echoAt(t, namespaceAt(t, outsideNetns))
	near, far, unserved := shell(namespace, "near", "a", nodes[0]), shell(namespace, "far", "a", nodes[1]), shell(namespace, "unserved", "b", nodes[0])
	eip := &vpcv1.ExternalIP{ObjectMeta: objectMeta(namespace, "shared")}
	gateway := &vpcv1.NATGateway{ObjectMeta: objectMeta(namespace, "out"), Spec: vpcv1.NATGatewaySpec{VPC: "main", Subnets: []string{"a"}, ExternalIPs: []string{"shared"}}}
	create(t, near, far, unserved, eip, gateway)
	ready(t, near, far, unserved)
	translates(t, gateway)
	for _, container := range []*ctrv1.Container{near, far} {
		leavesBy(t, container, url, gateway)
		eventually(t, container.Name+" pings the outside", func(ctx context.Context) error {
			_, err := in(ctx, container, "ping", "-c", "1", "-W", "2", outsideServer)
			return err
		})
	}
	if body, err := wget(t.Context(), unserved, url, 2); err == nil {
		t.Errorf("a Container of a Subnet that the NATGateway does not serve gets out: %s", body)
	}
	for _, container := range []*ctrv1.Container{near, far, unserved} {
		trace := netJSON[inspect.Trace](t, "trace", "--from", namespace+"/"+container.Status.Pod, "--to", outsideServer+":80")
		if container == unserved {
			require.Equal(t, inspect.VerdictDropped, trace.Verdict, steps(trace))
			require.Equal(t, "no_route", trace.Reason)
			continue
		}
		require.Equal(t, inspect.VerdictOutside, trace.Verdict, steps(trace))
		require.Contains(t, steps(trace), "it leaves by a NATGateway, from "+gateway.Status.Addresses[0]+":")
		count := floodFrom(t, netns(t, container), outsideServer, pause)
		var flow inspect.Connection
		eventually(t, "the connection is known", func(context.Context) error {
			known := netJSON[[]inspect.Connection](t, "conntrack", "--namespace", namespace, "--address", container.Status.Address, "--protocol", "udp")
			i := slices.IndexFunc(known, func(c inspect.Connection) bool {
				return c.Kind == inspect.KindNAT && c.Destination == net.JoinHostPort(outsideServer, strconv.Itoa(echoPort)) && c.State == "established"
			})
			if i < 0 {
				return fmt.Errorf("%+v", known)
			}
			flow = known[i]
			return nil
		})
		back := func(port int) inspect.Trace {
			return netJSON[inspect.Trace](t, "trace", "--protocol", "udp", "--from", "outside/"+outsideServer, "--source-port", strconv.Itoa(port), "--to", flow.Translated)
		}
		trace = back(echoPort)
		require.Contains(t, steps(trace), "it answers what "+flow.Source+" sent by a NATGateway")
		require.Equal(t, inspect.VerdictDelivered, trace.Verdict, steps(trace))
		require.Equal(t, container.Spec.Node, trace.Steps[len(trace.Steps)-1].Node)
		stranger := back(echoPort + 1)
		require.Equal(t, "nat_unknown_flow", stranger.Reason, steps(stranger))
		sent, answered := count()
		require.Equal(t, sent, answered, "a trace disturbs nothing")
	}
	isConsistent(t)

	// The table of a Subnet leads to another one.
	second := &vpcv1.ExternalIP{ObjectMeta: objectMeta(namespace, "second")}
	audited := &vpcv1.NATGateway{ObjectMeta: objectMeta(namespace, "audited"), Spec: vpcv1.NATGatewaySpec{VPC: "main", Subnets: []string{"b"}, ExternalIPs: []string{"second"}}}
	table := &vpcv1.RouteTable{ObjectMeta: objectMeta(namespace, "audited"), Spec: vpcv1.RouteTableSpec{
		VPC: "main", Routes: []vpcv1.Route{{Destination: "0.0.0.0/0", NATGateway: &audited.Name}},
	}}
	create(t, table, second, audited)
	tableSays(t, table, status.Ready, "")
	useTable(t, namespace, "a", "audited")
	for _, container := range []*ctrv1.Container{near, far, unserved} {
		leavesBy(t, container, url, audited)
	}
	if err := kube.Delete(t.Context(), table); err != nil {
		t.Fatal(err)
	}
	useTable(t, namespace, "a", "")
	for _, container := range []*ctrv1.Container{near, far} {
		leavesBy(t, container, url, gateway)
	}
	goes(t, audited, second, table)
	goes(t, gateway, eip)
	if body, err := wget(t.Context(), near, url, 2); err == nil {
		t.Errorf("it gets out without the NATGateway: %s", body)
	}
	isConsistent(t)
}

// translates waits until a NATGateway is Ready.
func translates(t *testing.T, gateway *vpcv1.NATGateway) {
	t.Helper()
	eventually(t, "NATGateway "+gateway.Name+" is Ready", func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(gateway), gateway); err != nil {
			return err
		}
		if !conditions.IsReady(gateway.Status.Conditions, gateway.Generation) {
			return fmt.Errorf("%s", conditions.Message(gateway.Status.Conditions))
		}
		return nil
	})
	require.Len(t, gateway.Status.Addresses, 1)
}

// leavesBy waits until the outside sees a Container's connections come from the address of a NATGateway.
func leavesBy(t *testing.T, container *ctrv1.Container, url string, gateway *vpcv1.NATGateway) {
	t.Helper()
	translates(t, gateway)
	want := "you are " + gateway.Status.Addresses[0]
	eventually(t, container.Name+" leaves by "+gateway.Name, func(ctx context.Context) error {
		body, err := wget(ctx, container, url, 5)
		if err == nil && body != want {
			err = fmt.Errorf("the outside says %q, not %q", body, want)
		}
		return err
	})
}
