package cli

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	net "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// tenant makes a namespace with a Vpc, a Subnet and a Container.
func (c *cloud) tenant(t *testing.T) string {
	t.Helper()
	ns := c.namespace(t)
	for _, o := range []client.Object{newVpc(ns, "net"), newSubnet(ns, "front", "net"), newContainer(ns, "web")} {
		require.NoError(t, c.client.Create(t.Context(), o))
	}
	return ns
}

// setReady plays the controller: it sets the Ready condition (and only that) of a Vpc, Subnet or Container.
func (c *cloud) setReady(t *testing.T, kind, ns, name string, status metav1.ConditionStatus, reason, message string) {
	t.Helper()
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q,"reason":%q,"message":%q,"lastTransitionTime":%q,"observedGeneration":1}]}}`,
		status, reason, message, time.Now().UTC().Format(time.RFC3339))
	require.NoError(t, c.client.Status().Patch(t.Context(), c.object(kind, ns, name), client.RawPatch("application/merge-patch+json", []byte(patch))))
}

func (c *cloud) object(kind, ns, name string) client.Object {
	switch kind {
	case "vpc":
		return newVpc(ns, name)
	case "subnet":
		return newSubnet(ns, name, "")
	}
	return newContainer(ns, name)
}

func (c *cloud) testGet(t *testing.T) {
	ns := c.tenant(t)
	t.Run("no arguments and all list what tenants have, in server-side tables", func(t *testing.T) {
		for _, args := range [][]string{{"get", "-n", ns}, {"get", "all", "-n", ns}, {"-n", ns, "get"}} {
			out := c.must(t, args...)
			require.Regexp(t, `NAME +CIDR +PHASE +AGE\nvpc/net +10.0.0.0/16 +`, out)
			require.Regexp(t, `NAME +VPC +CIDR +GATEWAY +PHASE +AGE\nsubnet/front +net +10.0.1.0/24 +`, out)
			require.Regexp(t, `NAME +IMAGE +SUBNET +ADDRESS +NODE +PHASE +AGE\ncontainer/web +web:1 +front +`, out)
			require.NotContains(t, out, "kube-root-ca")
		}
	})
	t.Run("subnet means the tenants', not the network's", func(t *testing.T) {
		require.NoError(t, c.client.Create(t.Context(), &net.Subnet{ObjectMeta: metav1.ObjectMeta{Name: "inner"}, Spec: net.SubnetSpec{VPC: "x", CIDR: "10.9.0.0/24"}}))
		for _, word := range []string{"subnet", "subnets", "Subnet", "subnets.vpc.mnicloud.jp"} {
			out := c.must(t, "get", word, "-n", ns)
			require.Contains(t, out, "front")
			require.NotContains(t, out, "inner")
		}
		require.Contains(t, c.must(t, "get", "vpc", "-n", ns), "net ")
		for _, word := range []string{"subnets.net.mnicloud.jp", "nsubnet"} {
			require.Contains(t, c.must(t, "get", word), "inner")
		}
	})
	t.Run("output forms", func(t *testing.T) {
		require.Equal(t, "vpc.vpc.mnicloud.jp/net\n", c.must(t, "get", "vpc", "-n", ns, "-o", "name"))
		require.Equal(t, "10.0.1.0/24", c.must(t, "get", "subnet", "front", "-n", ns, "-o", "jsonpath={.spec.cidr}"))
		require.Contains(t, c.must(t, "get", "vpc/net", "-n", ns, "-o", "json"), `"kind": "Vpc"`)
		out := c.must(t, "get", "vpc/net", "subnet/front", "-n", ns, "-o", "yaml")
		require.Contains(t, out, "kind: Subnet")
		require.NotContains(t, out, "managedFields")
		c.setReady(t, "vpc", ns, "net", metav1.ConditionFalse, "Waiting", "waits for the network")
		require.Contains(t, c.must(t, "get", "vpc", "-n", ns, "-o", "wide"), "waits for the network")
		require.NotContains(t, c.must(t, "get", "vpc", "-n", ns), "waits for the network")
	})
	t.Run("selectors and all namespaces", func(t *testing.T) {
		other := c.namespace(t)
		labelled := newContainer(other, "db")
		labelled.Labels = map[string]string{"app": ns}
		require.NoError(t, c.client.Create(t.Context(), labelled))
		out := c.must(t, "get", "containers", "-A", "-l", "app="+ns)
		require.Regexp(t, `NAMESPACE +NAME .*\n`+other+` +db `, out)
		require.NotContains(t, out, " web ")
	})
	t.Run("watch", func(t *testing.T) {
		ns := c.tenant(t)
		ctx, cancel := context.WithCancel(t.Context())
		stdout, _, code := c.start(ctx, "get", "-n", ns, "-w")
		for _, row := range []string{"vpc/net ", "subnet/front ", "container/web "} {
			stdout.eventually(t, row)
		}
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Pending"}}`))
		require.NoError(t, c.client.Status().Patch(t.Context(), newContainer(ns, "web"), patch))
		stdout.eventually(t, "Pending")
		require.NoError(t, c.client.Create(t.Context(), newVpc(ns, "second")))
		stdout.eventually(t, "vpc/second   10.0.0.0/16   ")
		require.Equal(t, 3, strings.Count(stdout.String(), " AGE\n"), "headers stand once: %s", stdout)
		cancel()
		require.Equal(t, ExitInterrupted, <-code)
	})
	t.Run("watch one object by name, only changes", func(t *testing.T) {
		ns := c.tenant(t)
		ctx, cancel := context.WithCancel(t.Context())
		stdout, _, code := c.start(ctx, "get", "vpc", "net", "-n", ns, "-w", "-o", "jsonpath={.metadata.name}:{.status.phase};")
		stdout.eventually(t, "net:;")
		for _, name := range []string{"other", "net"} {
			o := newVpc(ns, name)
			require.NoError(t, client.IgnoreAlreadyExists(c.client.Create(t.Context(), o)))
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Ready"}}`))
			require.NoError(t, c.client.Status().Patch(t.Context(), newVpc(ns, name), patch))
		}
		stdout.eventually(t, "net:Ready;")
		require.Equal(t, "net:;net:Ready;", stdout.String())
		cancel()
		require.Equal(t, ExitInterrupted, <-code)
	})
	t.Run("what is not there", func(t *testing.T) {
		o := c.mni(t, "get", "container", "nope", "-n", ns)
		require.Equal(t, ExitFailure, o.code)
		require.Equal(t, "error: container/nope not found in namespace \""+ns+"\": `mni get` lists what there is, -n chooses another namespace\n", o.stderr)
		o = c.mni(t, "get", "gizmo", "-n", ns)
		require.Equal(t, output{code: ExitFailure, stderr: "error: this cloud has no kind \"gizmo\": `mni api-resources` lists the kinds there are\n"}, o)
		o = c.mni(t, "get", "-n", c.namespace(t))
		require.Zero(t, o.code)
		require.Contains(t, o.stderr, "No resources found in tenant-")
		o = c.mni(t, "get", "container", "nope", "web", "-n", ns)
		require.Equal(t, ExitFailure, o.code)
		require.Contains(t, o.stdout, "web")
		require.Contains(t, o.stderr, "container/nope not found")
	})
	t.Run("command lines that are not understood", func(t *testing.T) {
		for _, args := range [][]string{{"get", "--nonsense"}, {"get", "vpc", "-o", "nonsense"}} {
			o := c.mni(t, args...)
			require.Equal(t, ExitUsage, o.code, "%v: %s", args, o.stderr)
		}
	})
}

func (c *cloud) testDescribe(t *testing.T) {
	ns := c.tenant(t)
	c.setReady(t, "container", ns, "web", metav1.ConditionFalse, "SubnetNotReady", "waits for Subnet front")
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Pending","pod":"web-abc","address":"10.0.1.2"}}`))
	web := newContainer(ns, "web")
	require.NoError(t, c.client.Status().Patch(t.Context(), web, patch))
	event := func(name, kind, about string, uid types.UID, message string) {
		require.NoError(t, c.client.Create(t.Context(), &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: ns, Name: name},
			InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: ns, Name: about, UID: uid},
			Type:           "Normal", Reason: "Seen", Message: message, LastTimestamp: metav1.Now(), Count: 3,
		}))
	}
	event("a", "Container", "web", web.UID, "about the Container")
	event("b", "Pod", "web-abc", "", "about its Pod")
	event("c", "Pod", "other", "", "about something else")
	out := c.must(t, "describe", "container", "web", "-n", ns)
	for _, part := range []string{
		"Name:        web\n", "Namespace:   " + ns, "Kind:        Container (ctr.mnicloud.jp/v1alpha1)", "Phase:       Pending\n",
		"Spec:\n  image: web:1\n", "\n  subnet: front\n", "Status:\n  address: 10.0.1.2\n  pod: web-abc\n", "about the Container", "about its Pod", "(x3)",
	} {
		require.Contains(t, out, part)
	}
	require.Regexp(t, `Conditions:\n  TYPE +STATUS +SINCE +REASON +MESSAGE\n  Ready +False +\S+ +SubnetNotReady +waits for Subnet front\n`, out)
	require.NotContains(t, out, "about something else")
	require.NotContains(t, out, "managedFields")
	require.Contains(t, c.must(t, "describe", "vpcs", "-n", ns), "none yet: nothing has taken it up")
	require.NotContains(t, c.must(t, "describe", "container/web", "-n", ns, "--events=false"), "Events")
	require.Contains(t, c.must(t, "describe", "namespace", ns), "Status:")
	require.Contains(t, c.must(t, "describe", "container", "we", "-n", ns), "Name:        web\n", "the beginning of a name")
	require.Equal(t, ExitUsage, c.mni(t, "describe").code)
	require.Equal(t, ExitFailure, c.mni(t, "describe", "container", "nope", "-n", ns).code)
}

func (c *cloud) testKinds(t *testing.T) {
	out := c.must(t, "api-resources")
	require.Equal(t, []string{"containers", "externalips", "floatingips", "natgateways", "routetables", "securitygroups", "subnets", "vpcpeerings", "vpcs"}, firstWords(out))
	require.Contains(t, c.must(t, "api-resources", "--all"), "networkinterfaces")
	require.Contains(t, c.must(t, "api-resources", "-o", "name"), "subnets.vpc.mnicloud.jp\n")
	out = c.must(t, "explain", "subnet.spec.cidr")
	require.Contains(t, out, "vpc.mnicloud.jp")
	require.Contains(t, out, "canonical form")
	require.Contains(t, c.must(t, "explain", "container", "--recursive"), "failureThreshold")
	require.Equal(t, ExitUsage, c.mni(t, "explain").code)
	require.Equal(t, ExitUsage, c.mni(t, "api-resources", "x").code)
	require.Contains(t, c.mni(t, "explain", "gizmo").stderr, `this cloud has no kind "gizmo"`)
}

// firstWords of the lines after the first.
func firstWords(table string) []string {
	var words []string
	for _, line := range strings.Split(strings.TrimSpace(table), "\n")[1:] {
		words = append(words, strings.Fields(line)[0])
	}
	return words
}
