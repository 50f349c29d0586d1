//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/mnicloud/mnicloud/network/inspect"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// netJSON runs `mni net ...` and reads what it printed.
func netJSON[T any](t *testing.T, args ...string) T {
	t.Helper()
	var value T
	out := mustMni(t, append(append([]string{"net"}, args...), "-o", "json")...)
	if err := json.Unmarshal([]byte(out), &value); err != nil {
		t.Fatalf("mni net %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return value
}

func steps(trace inspect.Trace) string {
	var lines []string
	for _, s := range trace.Steps {
		lines = append(lines, s.Node+" "+s.Step+": "+s.Text)
	}
	return strings.Join(lines, "\n")
}

func TestNetTellsWhatTheNetworkDoesAndWhy(t *testing.T) {
	namespace := tenant(t, "looked")
	vpcWithSubnets(t, namespace)
	port := int32(8080)
	create(t, &vpcv1.SecurityGroup{ObjectMeta: objectMeta(namespace, "web-only"), Spec: vpcv1.SecurityGroupSpec{
		Ingress: []vpcv1.SecurityGroupRule{tcpRule(port, "10.0.1.0/24")},
	}})
	client, server := shell(namespace, "client", "a", nodes[0]), whoami(namespace, "server", "b", nodes[1])
	server.Spec.SecurityGroups = []string{"web-only"}
	create(t, client, server)
	ready(t, client, server)
	from, to := namespace+"/"+client.Status.Pod, server.Status.Address

	t.Run("a trace is what happens", func(t *testing.T) {
		for _, c := range []struct {
			to              string
			verdict, reason string
			step            string
		}{
			{to + ":8080", inspect.VerdictDelivered, "", nodes[1] + " ingress-policy: a rule of the ingress policy of " + namespace + "/" + server.Status.Pod + " (SecurityGroups looked/web-only)"},
			{to + ":22", inspect.VerdictDropped, "policy_ingress", nodes[1] + " ingress-policy: no rule of the ingress policy"},
			{"10.9.9.9:8080", inspect.VerdictDropped, "no_route", nodes[0] + " drop: dropped: no_route"},
			{"10.0.2.250:8080", inspect.VerdictDropped, "no_endpoint", nodes[0] + " subnet: a route leads 10.0.2.250 to Subnet looked/b"},
		} {
			trace := netJSON[inspect.Trace](t, "trace", "--from", from, "--to", c.to)
			if trace.Verdict != c.verdict || trace.Reason != c.reason || !strings.Contains(steps(trace), c.step) {
				t.Errorf("trace to %s: %s %s, want %s %s with the step %q:\n%s", c.to, trace.Verdict, trace.Reason, c.verdict, c.reason, c.step, steps(trace))
			}
			host, at, err := net.SplitHostPort(c.to)
			if err != nil {
				t.Fatal(err)
			}
			_, err = in(t.Context(), client, "nc", "-w", "3", host, at, "-e", "/bin/true")
			if delivered := err == nil; delivered != (c.verdict == inspect.VerdictDelivered) {
				t.Errorf("to %s: the trace says %s, the packet: %v", c.to, c.verdict, err)
			}
		}
	})

	t.Run("a trace is no packet", func(t *testing.T) {
		before := netJSON[[]inspect.Drop](t, "drops", "--namespace", namespace, "--all")
		known := len(netJSON[[]inspect.Connection](t, "conntrack", "--namespace", namespace))
		netJSON[inspect.Trace](t, "trace", "--from", from, "--to", "10.9.9.9:8080")
		netJSON[inspect.Trace](t, "trace", "--from", from, "--to", to+":8080")
		count := func(drops []inspect.Drop) (n uint64) {
			for _, d := range drops {
				if d.Reason == "no_route" {
					n += d.Packets
				}
			}
			return n
		}
		if after := netJSON[[]inspect.Drop](t, "drops", "--namespace", namespace, "--all"); count(after) != count(before) {
			t.Errorf("no_route was counted %d times before and %d after two traces", count(before), count(after))
		}
		if now := len(netJSON[[]inspect.Connection](t, "conntrack", "--namespace", namespace)); now > known {
			t.Errorf("%d connections before, %d after two traces", known, now)
		}
	})

	t.Run("drops", func(t *testing.T) {
		for _, want := range []struct{ node, pod, reason string }{
			{nodes[0], client.Status.Pod, "no_route"}, {nodes[1], server.Status.Pod, "policy_ingress"},
		} {
			drops := netJSON[[]inspect.Drop](t, "drops", "--vpc", "looked/main", "--node", want.node)
			if !slices.ContainsFunc(drops, func(d inspect.Drop) bool {
				return d.Pod == want.pod && d.Namespace == namespace && d.Reason == want.reason && d.Packets > 0 && d.Remedy != ""
			}) {
				t.Errorf("no %s of %s on %s in %+v", want.reason, want.pod, want.node, drops)
			}
		}
	})

	t.Run("conntrack", func(t *testing.T) {
		known := netJSON[[]inspect.Connection](t, "conntrack", "--vpc", "looked/main", "--address", client.Status.Address, "--protocol", "tcp")
		if !slices.ContainsFunc(known, func(c inspect.Connection) bool {
			return c.Node == nodes[1] && c.Kind == inspect.KindPolicy && c.Destination == to+":8080" && c.Pod == server.Status.Pod
		}) {
			t.Errorf("the connection to %s:8080 is not in %+v", to, known)
		}
	})

	t.Run("routes", func(t *testing.T) {
		routes := netJSON[[]inspect.Route](t, "routes", "looked/b", "--node", nodes[0])
		for _, want := range []inspect.Route{
			{Node: nodes[0], VPC: "looked/main", Subnet: "looked/b", Prefix: "10.0.2.0/24", Kind: inspect.RouteSubnet, NextHop: "direct"},
			{Node: nodes[0], VPC: "looked/main", Subnet: "looked/b", Prefix: to + "/32", Kind: inspect.RouteEndpoint, NextHop: namespace + "/" + server.Status.Pod, At: nodes[1]},
		} {
			if !slices.Contains(routes, want) {
				t.Errorf("%+v is not in %+v", want, routes)
			}
		}
	})

	t.Run("status", func(t *testing.T) {
		status := netJSON[inspect.Status](t, "status")
		for _, name := range append([]string{"machine"}, nodes...) {
			i := slices.IndexFunc(status.Nodes, func(n inspect.NodeStatus) bool { return n.Node == name })
			if i < 0 {
				t.Fatalf("%s is not in %+v", name, status.Nodes)
			}
			if n := status.Nodes[i]; n.Attached == "" || n.Address == "" || n.Error != "" || len(n.Maps) == 0 || n.Programs != status.Nodes[0].Programs {
				t.Errorf("%+v", n)
			}
		}
		if !slices.ContainsFunc(status.VPCs, func(v inspect.VPCStatus) bool { return v.VPC == "looked/main" && v.Subnets == 2 && v.Interfaces == 2 }) {
			t.Errorf("looked/main with two Subnets and interfaces is not in %+v", status.VPCs)
		}
		if out := mustMni(t, "net", "status"); !strings.Contains(out, nodes[0]) || !strings.Contains(out, "looked/main") {
			t.Error(out)
		}
	})

	t.Run("an unknown name is told with those there are", func(t *testing.T) {
		for args, want := range map[string]string{
			"drops --vpc looked/none":                        "looked/main",
			"routes --node node-9":                           strings.Join(nodes, ", "),
			"trace --from looked/none --to " + to:            from,
			"trace --from 10.0.1.250@looked/main --to " + to: "no node of this machine has the interface",
		} {
			out, err := mni(t.Context(), append([]string{"net"}, strings.Fields(args)...)...)
			if err == nil || !strings.Contains(out, want) {
				t.Errorf("mni net %s: %v, want %q in\n%s", args, err, want, out)
			}
		}
	})
}

func TestMetricsOfANodeAreForHostsAndThePlatform(t *testing.T) {
	t.Parallel()
	namespace := tenant(t, "curious")
	vpcWithSubnets(t, namespace)
	ordinary, prisoner := shellPod(namespace, "ordinary", nodes[0]), shell(namespace, "prisoner", "a", nodes[0])
	create(t, ordinary, prisoner)
	running(t, ordinary)
	ready(t, prisoner)
	for _, node := range nodes {
		url := "http://" + nodeAddress(t, node) + ":9440/"
		eventually(t, "the machine reads the metrics of "+node, func(ctx context.Context) error {
			body, err := get(ctx, url+"metrics")
			if err == nil && !strings.Contains(body, "mni_map_entries") {
				err = fmt.Errorf("%s", body)
			}
			return err
		})
		eventually(t, "an ordinary Pod reaches "+node, func(ctx context.Context) error {
			_, err := inPod(ctx, ordinary, "wget", "-q", "-O", "-", url+"healthz")
			return err
		})
		if out, err := inPod(t.Context(), ordinary, "wget", "-O", "-", url+"metrics"); err == nil || !strings.Contains(out, "403") {
			t.Errorf("an ordinary Pod asked %s for metrics: %v\n%s", node, err, out)
		}
		if out, err := in(t.Context(), prisoner, "timeout", "3", "wget", "-q", "-O", "-", url+"healthz"); err == nil {
			t.Errorf("a tenant's Container reached %s: %s", url, out)
		}
	}
}
