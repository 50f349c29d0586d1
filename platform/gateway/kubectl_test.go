package gateway_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/mnicloud/mnicloud/test/apiserver"
	"github.com/mnicloud/mnicloud/test/seeds"
)

// kubectl is upstream's, with a kubeconfig of a user whose namespace is a tenant's name.
type kubectl struct {
	*world
	kubeconfig string
}

func (w *world) kubectl(user, tenant string) *kubectl {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["mni"] = &clientcmdapi.Cluster{Server: w.url, CertificateAuthorityData: w.ca}
	config.AuthInfos["me"] = &clientcmdapi.AuthInfo{Token: user}
	config.Contexts["mni"] = &clientcmdapi.Context{Cluster: "mni", AuthInfo: "me", Namespace: tenant}
	config.CurrentContext = "mni"
	require.NoError(w.t, clientcmd.WriteToFile(*config, file))
	return &kubectl{w, file}
}

// try runs kubectl and returns all that it says.
func (k *kubectl) try(stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(k.ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(apiserver.Root(), "bin", "mni-kube"), append([]string{"kubectl"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+k.kubeconfig, "KUBECACHEDIR="+k.t.TempDir())
	cmd.Stdin = strings.NewReader(stdin)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	k.noNamespace(string(out))
	return string(out), err
}

func (k *kubectl) run(stdin string, args ...string) string {
	k.t.Helper()
	out, err := k.try(stdin, args...)
	require.NoError(k.t, err, "kubectl %s: %s", strings.Join(args, " "), out)
	return out
}

func TestUpstreamKubectlWorksUnchanged(t *testing.T) {
	w := newWorld(t)
	w.tenant("tenant-a")
	w.user("alice", map[string]string{"acme": "member", "tenant-a": "member"})
	k := w.kubectl("alice", "acme")

	require.Contains(t, k.run("", "api-resources"), "vpcs")
	require.NotContains(t, k.run("", "api-resources"), "secrets")
	require.Contains(t, k.run("", "explain", "vpc.spec.cidr"), "address range")
	require.Contains(t, k.run(demoVpc, "apply", "-f", "-"), "vpc.vpc.mnicloud.jp/demo created")
	require.Contains(t, k.run(demoVpc, "apply", "-f", "-"), "unchanged")
	require.Contains(t, k.run(demoVpc, "apply", "--server-side", "--force-conflicts", "-f", "-"), "serverside-applied")
	require.Contains(t, k.run("", "get", "vpc"), "10.42.0.0/16")
	require.Regexp(t, `acme +demo +10.42.0.0/16`, k.run("", "get", "vpc", "-A"))
	require.Contains(t, k.run("", "describe", "vpc", "demo"), "Namespace:    acme")
	k.run("", "label", "vpc", "demo", "a=b")
	require.Contains(t, k.run("", "get", "vpc", "-l", "a=b", "-o", "name"), "demo")
	require.Contains(t, k.run("", "get", "vpc", "--field-selector", "metadata.namespace=acme", "-o", "name"), "demo")
	k.run("", "patch", "vpc", "demo", "--type=json", "-p", `[{"op":"add","path":"/metadata/labels/c","value":"d"}]`)

	for range 2 { // apply, and apply again
		k.run(seeds.Vpc, "apply", "-f", "-")
	}
	require.Contains(t, k.run(seeds.Vpc, "apply", "-f", "-"), "unchanged")
	short := k.run("", "get", "vpcs.v1alpha.vpc", "-n", "tenant-a", "demo-vpc", "-o", "yaml")
	for _, line := range []string{"apiVersion: vpc/v1alpha\n", "displayName: Tenant A Shared VPC\n", "description: VPC for tenant-a workloads\n", "namespace: tenant-a\n"} {
		require.Contains(t, short, line)
	}
	require.Contains(t, k.run("", "get", "vpc", "-n", "tenant-a", "demo-vpc", "-o", "yaml"), "mnicloud.jp/display-name: Tenant A Shared VPC")

	require.Contains(t, k.run(seeds.FloatingIP, "apply", "-f", "-"), "floatingip.vpc.mnicloud.jp/my-fip created")
	require.Contains(t, k.run(seeds.FloatingIP, "apply", "-f", "-"), "unchanged")

	refused, err := k.try("", "get", "vpc", "-n", "globex")
	require.Error(t, err)
	require.Contains(t, refused, "not a member of a tenant")
	refused, err = k.try(strings.Replace(demoVpc, "10.42.0.0/16", "nonsense", 1), "apply", "--dry-run=server", "-n", "acme", "-f", "-")
	require.Error(t, err)
	require.Contains(t, refused, "cidr")
	refused, err = k.try("", "get", "vpc", "none")
	require.Error(t, err)
	require.Contains(t, refused, `vpcs.vpc.mnicloud.jp "none" not found`)
	for _, kind := range []string{"secrets", "nodes", "namespaces", "configmaps"} {
		_, err := k.try("", "get", kind)
		require.Error(t, err, kind)
	}
	k.run("", "delete", "vpc", "demo", "--wait")
}
