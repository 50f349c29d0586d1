package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vpc "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

func (c *cloud) testDiff(t *testing.T) {
	ns := c.namespace(t)
	file := write(t, t.TempDir(), "net.yaml", networkYAML)
	t.Run("of what is not there, all is new, and nothing is made", func(t *testing.T) {
		o := c.mni(t, "diff", "-n", ns, "-f", file)
		require.Equal(t, exitDiffers, o.code)
		require.Empty(t, o.stderr)
		require.Contains(t, o.stdout, "--- vpc/net\n+++ "+file+":2 (document 1)\n@@ -0,0 +1,")
		require.Contains(t, o.stdout, "\n+  cidr: 10.0.1.0/24\n")
		var list vpc.VpcList
		require.NoError(t, c.client.List(t.Context(), &list, client.InNamespace(ns)))
		require.Empty(t, list.Items)
	})
	t.Run("of what is there as declared, nothing", func(t *testing.T) {
		c.must(t, "apply", "-n", ns, "-f", file)
		require.Equal(t, output{}, c.mni(t, "diff", "-n", ns, "-f", file))
	})
	t.Run("what would change", func(t *testing.T) {
		text := strings.Replace(networkYAML, "  name: net\n", "  name: net\n  labels: {tier: a}\n", 1)
		o := c.mniWithInput(t, text, "diff", "-n", ns, "-f", "-")
		require.Equal(t, exitDiffers, o.code)
		require.Contains(t, o.stdout, "--- vpc/net\n+++ standard input:2 (document 1)\n@@ ")
		require.Contains(t, o.stdout, "\n+  labels:\n+    tier: a\n")
		require.NotContains(t, o.stdout, "subnet/front")
	})
	t.Run("what would be refused cannot be told, and the others are", func(t *testing.T) {
		text := strings.Replace(networkYAML, "cidr: 10.0.1.0/24", "cidr: 10.0.1.5/24", 1)
		text = strings.Replace(text, "  name: net\n", "  name: net\n  labels: {tier: a}\n", 1)
		o := c.mniWithInput(t, text, "diff", "-n", ns, "-f", "-")
		require.Equal(t, exitCannotTell, o.code)
		require.Contains(t, o.stderr, "error: standard input:")
		require.Contains(t, o.stderr, "cidr must be canonical")
		require.Contains(t, o.stdout, "+    tier: a\n")
	})
	t.Run("secrets are not shown", func(t *testing.T) {
		secret := &corev1.Secret{StringData: map[string]string{"password": "old secret"}}
		secret.Namespace, secret.Name = ns, "key"
		require.NoError(t, c.client.Create(t.Context(), secret))
		o := c.mniWithInput(t, "{apiVersion: v1, kind: Secret, metadata: {name: key}, data: {password: bmV3}}", "diff", "-n", ns, "-f", "-", "--force-conflicts")
		require.Equal(t, exitDiffers, o.code)
		require.Contains(t, o.stdout, "-data: (hidden)\n+data: (hidden, another one)\n")
	})
	t.Run("no file", func(t *testing.T) {
		require.Equal(t, ExitUsage, c.mni(t, "diff", "-n", ns).code)
	})
}

func (c *cloud) testEdit(t *testing.T) {
	ns := c.namespace(t)
	require.NoError(t, c.client.Create(t.Context(), newVpc(ns, "net")))
	t.Run("what is saved is applied", func(t *testing.T) {
		t.Setenv("KUBE_EDITOR", `sed -i "s/^  name: net$/  name: net\n  labels: {tier: a}/"`)
		require.Contains(t, c.must(t, "edit", "-n", ns, "vpc", "net"), "edited")
		var net vpc.Vpc
		require.NoError(t, c.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "net"}, &net))
		require.Equal(t, "a", net.Labels["tier"])
	})
	t.Run("nothing saved changes nothing", func(t *testing.T) {
		t.Setenv("KUBE_EDITOR", "true")
		o := c.mni(t, "edit", "-n", ns, "vpc/net")
		require.Zero(t, o.code, o.stderr)
		require.Contains(t, o.stderr, "no changes made")
	})
	t.Run("what is refused is told, and nothing changes", func(t *testing.T) {
		t.Setenv("KUBE_EDITOR", `sed -i "s/cidr: .*/cidr: 10.0.0.1/"`)
		o := c.mni(t, "edit", "-n", ns, "vpc/net")
		require.Equal(t, ExitFailure, o.code)
		require.Contains(t, o.stderr, "is invalid")
		kept := regexp.MustCompile(`has been stored to "(.*)"`).FindStringSubmatch(o.stderr)
		require.Len(t, kept, 2, o.stderr)
		text, err := os.ReadFile(kept[1])
		require.NoError(t, err)
		require.NoError(t, os.Remove(kept[1]))
		require.Regexp(t, `#.*spec.cidr`, string(text), "the editor was told why")
	})
	t.Run("nothing named", func(t *testing.T) {
		require.Equal(t, ExitUsage, c.mni(t, "edit", "-n", ns).code)
	})
}
