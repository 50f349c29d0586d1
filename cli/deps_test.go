package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/dependency"
	vpc "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// shop is a Vpc "net" with Subnet "front", which names RouteTable "via", and Container "web"; RouteTable "via" leads to "web"; Vpc
// "spare" depends on "web".
func (c *cloud) shop(t *testing.T) (namespace string) {
	t.Helper()
	ns := c.namespace(t)
	front := newSubnet(ns, "front", "net")
	front.Spec.RouteTable = "via"
	web, spare := "web", newVpc(ns, "spare")
	spare.Spec.DependsOn = []dependency.Dependency{{Kind: "Container", Name: "web"}}
	via := &vpc.RouteTable{Spec: vpc.RouteTableSpec{VPC: "net", Routes: []vpc.Route{{Destination: "10.9.0.0/16", Container: &web}}}}
	via.Namespace, via.Name = ns, "via"
	for _, o := range []client.Object{newVpc(ns, "net"), front, via, newContainer(ns, "web"), spare} {
		require.NoError(t, c.client.Create(t.Context(), o))
	}
	return ns
}

func (c *cloud) testDeps(t *testing.T) {
	ns := c.shop(t)
	t.Run("everything in the namespace", func(t *testing.T) {
		require.Equal(t, strings.Join([]string{
			"RESOURCE         DOES    OTHER            FIELD                      EXISTS",
			"container/web    needs   subnet/front     spec.subnet                yes",
			"routetable/via   names   container/web    spec.routes[0].container   yes",
			"routetable/via   needs   vpc/net          spec.vpc                   yes",
			"subnet/front     keeps   routetable/via   spec.routeTable            yes",
			"subnet/front     needs   vpc/net          spec.vpc                   yes",
			"vpc/spare        needs   container/web    spec.dependsOn[0]          yes",
		}, "\n")+"\n", c.must(t, "deps", "-n", ns))
		require.Contains(t, c.must(t, "deps", "-n", ns, "-o", "json"), `"from": "vpc/spare"`)
		require.Equal(t, output{stderr: "nothing is missing\n"}, c.mni(t, "deps", "-n", ns, "--orphans"))
	})
	t.Run("a single one, with what would go with it", func(t *testing.T) {
		require.Equal(t, `vpc/net
  needs it: routetable/via (spec.vpc)
    keeps it: subnet/front (spec.routeTable)
      needs it: container/web (spec.subnet)
        names it: routetable/via (spec.routes[0].container)
        needs it: vpc/spare (spec.dependsOn[0])
  needs it: subnet/front (spec.vpc)
deleting it with --cascade deletes, in this order: vpc/spare, container/web, subnet/front, routetable/via, vpc/net
`, c.must(t, "deps", "vpc/net", "-n", ns))
		require.Contains(t, c.must(t, "deps", "routetable", "via", "-n", ns), "routetable/via goes when subnet/front does not name it any more (spec.routeTable)\n")
	})
	t.Run("what is missing", func(t *testing.T) {
		ns := c.namespace(t)
		require.NoError(t, c.client.Create(t.Context(), newContainer(ns, "web")))
		require.Contains(t, c.must(t, "deps", "-n", ns, "--orphans"), "container/web")
		require.Contains(t, c.must(t, "deps", "container/web", "-n", ns), "  needs subnet/front (spec.subnet), which does not exist\n")
	})
	t.Run("command lines that make no sense", func(t *testing.T) {
		require.Equal(t, ExitUsage, c.mni(t, "deps", "-o", "xml").code)
		require.Equal(t, ExitUsage, c.mni(t, "deps", "vpc/net", "--orphans").code)
		require.Contains(t, c.mni(t, "deps", "vpc/none", "-n", ns).stderr, "vpc/none not found")
		require.Contains(t, c.mni(t, "deps", "namespace/"+ns).stderr, "is no resource of a tenant")
	})
}

func (c *cloud) testCascade(t *testing.T) {
	t.Run("what hangs on it is shown, and stays", func(t *testing.T) {
		ns := c.shop(t)
		o := c.mni(t, "delete", "subnet/front", "-n", ns, "--wait=false")
		require.Equal(t, output{
			stdout: "subnet/front is asked to go\n",
			stderr: "subnet/front is needed by container/web\ncontainer/web is needed by vpc/spare\nthey go when that is deleted; --cascade deletes it too\n",
		}, o)
		require.NoError(t, c.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "web"}, newContainer(ns, "web")))
	})
	t.Run("a dry run shows all of it and deletes nothing", func(t *testing.T) {
		ns := c.shop(t)
		require.Equal(t, "vpc/spare deleted (dry run)\ncontainer/web deleted (dry run)\nsubnet/front deleted (dry run)\nroutetable/via deleted (dry run)\nvpc/net deleted (dry run)\n",
			c.must(t, "delete", "vpc", "net", "-n", ns, "--cascade", "--dry-run"))
		require.NoError(t, c.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "net"}, newVpc(ns, "net")))
	})
	t.Run("all of it goes, what was shown and nothing else", func(t *testing.T) {
		ns := c.shop(t)
		require.NoError(t, c.client.Create(t.Context(), newVpc(ns, "other")))
		require.Equal(t, 5, strings.Count(c.must(t, "delete", "vpc", "net", "-n", ns, "--cascade"), " deleted\n"))
		require.True(t, apierrors.IsNotFound(c.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "spare"}, newVpc(ns, "spare"))))
		require.Equal(t, "vpc.vpc.mnicloud.jp/other\n", c.must(t, "get", "-n", ns, "-o", "name"))
	})
	t.Run("somebody at the terminal is asked", func(t *testing.T) {
		ns := c.shop(t)
		const question = "Delete vpc/spare, container/web too? [y/N] "
		for _, no := range []string{"n\n", "\n", "yeah\n"} {
			o := c.mniOnTerminal(t, no, "delete", "subnet/front", "-n", ns)
			require.Equal(t, ExitFailure, o.code)
			require.Contains(t, o.stderr, question)
			require.Contains(t, o.stderr, "nothing was deleted")
			require.NoError(t, c.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "front"}, newSubnet(ns, "front", "net")))
		}
		o := c.mniOnTerminal(t, "Yes\n", "delete", "subnet/front", "-n", ns)
		require.Zero(t, o.code, o.stderr)
		require.Contains(t, o.stderr, question)
		require.Equal(t, 3, strings.Count(o.stdout, " deleted\n"), o.stdout)
		require.True(t, apierrors.IsNotFound(c.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "web"}, newContainer(ns, "web"))))
	})
	t.Run("what only names it is told", func(t *testing.T) {
		ns := c.shop(t)
		o := c.mni(t, "delete", "routetable", "via", "-n", ns, "--wait=false")
		require.Equal(t, "routetable/via goes when subnet/front does not name it any more (spec.routeTable)\n", o.stderr)
	})
}
