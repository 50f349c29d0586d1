package cli

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
)

func TestAStoppedCloudOfThisMachineIsNotDialed(t *testing.T) {
	state, run := t.TempDir(), t.TempDir()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", "")
	t.Setenv(instanceVariable, "")
	t.Setenv(profileVariable, "")
	for _, name := range []string{"default", "c1"} {
		write(t, state, name+"/"+ownerKubeconfig, "what it says is not read")
		write(t, state, name+"/"+gatewayKubeconfig, "what it says is not read")
	}
	said := func(args ...string) string {
		var out bytes.Buffer
		root := newRoot("v0", folders{state: state, run: run}, nil, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
		require.Equal(t, ExitFailure, Execute(t.Context(), root, args))
		return out.String()
	}
	for _, args := range [][]string{{"get", "vpc"}, {"login", "--user", "ada"}} {
		require.Contains(t, said(args...), "cloud \"default\" is not running: start it with `mni up`\n")
		require.Contains(t, said(append(args, "--instance", "c1")...), "cloud \"c1\" is not running: start it with `mni up --instance c1`\n")
	}
	require.NoError(t, os.Mkdir(filepath.Join(run, "c1"), 0o700))
	require.NotContains(t, said("get", "vpc", "--instance", "c1"), "is not running")
}

func (c *cloud) testConnection(t *testing.T) {
	ns := c.tenant(t)
	own, err := os.ReadFile(c.kubeconfig)
	require.NoError(t, err)
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("KUBECONFIG", "")
	t.Setenv(instanceVariable, "")
	get := func(stateDir string, args ...string) output {
		return runMni(t.Context(), stateDir, "", append([]string{"get", "vpc", "-n", ns, "-o", "name"}, args...)...)
	}
	found := output{stdout: "vpc.vpc.mnicloud.jp/net\n"}

	t.Run("no cloud", func(t *testing.T) {
		require.Equal(t, output{code: ExitFailure, stderr: "error: no cloud found: log in with `mni login`, run `mni up`, or give a kubeconfig with --kubeconfig\n"}, get(t.TempDir()))
	})
	t.Run("the machine's own cloud", func(t *testing.T) {
		state := t.TempDir()
		write(t, state, "default/admin.kubeconfig", string(own))
		require.Equal(t, found, get(state))
	})
	t.Run("a named instance, by flag or environment", func(t *testing.T) {
		state := t.TempDir()
		write(t, state, "c1/admin.kubeconfig", string(own))
		require.Equal(t, found, get(state, "--instance", "c1"))
		o := get(state, "--instance", "c2")
		require.Equal(t, ExitFailure, o.code)
		require.Contains(t, o.stderr, `no cloud named "c2" on this machine`)
		require.Contains(t, o.stderr, "mni up --instance c2")
		require.Equal(t, ExitUsage, get(state, "--instance", "../c1").code)
		require.Equal(t, ExitUsage, get(state, "--instance", "c1", "--kubeconfig", c.kubeconfig).code)
		t.Setenv(instanceVariable, "c1")
		require.Equal(t, found, get(state))
	})
	t.Run("KUBECONFIG goes before the machine's own cloud, --instance before KUBECONFIG", func(t *testing.T) {
		state := t.TempDir()
		write(t, state, "default/admin.kubeconfig", "not a kubeconfig")
		write(t, state, "c1/admin.kubeconfig", string(own))
		t.Setenv("KUBECONFIG", filepath.Join(home, "nothing")+string(os.PathListSeparator)+c.kubeconfig)
		require.Equal(t, found, get(state))
		t.Setenv("KUBECONFIG", filepath.Join(home, "nothing"))
		require.Contains(t, get(state).stderr, "no cloud found")
		require.Equal(t, errNoCloud.Error(), strings.TrimPrefix(strings.TrimSpace(runMni(t.Context(), state, "", "get", "vpc").stderr), "error: "), "and nothing of the library's own words")
		require.Equal(t, found, get(state, "--instance", "c1"))
	})
	t.Run("a tenant by its name, for the owner too", func(t *testing.T) {
		tenant := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "auth.mnicloud.jp/v1alpha1", "kind": "Tenant", "metadata": map[string]any{"name": "red"}}}
		require.NoError(t, c.client.Create(t.Context(), tenant))
		t.Cleanup(func() { require.NoError(t, c.client.Delete(context.Background(), tenant)) })
		by := func(args ...string) output {
			return runMni(t.Context(), t.TempDir(), "", append([]string{"get", "vpc", "-o", "name", "--kubeconfig", c.kubeconfig}, args...)...)
		}
		require.Contains(t, by("-t", "red").stderr, "has no namespace yet")
		const namespace = "4b2f6a3e-0c1d-4e5f-8a9b-0c1d2e3f4a5b"
		tenant.Object["status"] = map[string]any{"namespace": namespace}
		require.NoError(t, c.client.Status().Update(t.Context(), tenant))
		require.NoError(t, c.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
		require.NoError(t, c.client.Create(t.Context(), newVpc(namespace, "reds")))
		require.Equal(t, output{stdout: "vpc.vpc.mnicloud.jp/reds\n"}, by("-t", "red"))
		require.Contains(t, by("-t", "blue").stderr, "the cloud has no such tenant")
		require.Equal(t, ExitUsage, by("-t", "red", "-n", ns).code)
	})
	t.Run("the namespace of the kubeconfig's context", func(t *testing.T) {
		config := &rest.Config{Host: "https://127.0.0.1:1"}
		file := writeKubeconfig(t, config, "elsewhere")
		o := runMni(t.Context(), t.TempDir(), "", "get", "vpc", "--kubeconfig", file)
		require.Equal(t, ExitFailure, o.code)
		require.Contains(t, o.stderr, "no cloud answers at https://127.0.0.1:1 (")
		require.Contains(t, o.stderr, "connection refused")
	})
	t.Run("a cloud that is not there", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		address := listener.Addr().String()
		require.NoError(t, listener.Close())
		file := writeKubeconfig(t, &rest.Config{Host: "https://" + address}, "")
		for _, args := range [][]string{{"get"}, {"apply", "-f", "-"}, {"wait", "vpc", "x"}, {"delete", "vpc", "x"}, {"logs", "x"}, {"describe", "vpc", "x"}, {"explain", "vpc"}, {"api-resources"}} {
			o := runMni(t.Context(), t.TempDir(), webYAML, append(args, "--kubeconfig", file)...)
			require.Equal(t, ExitFailure, o.code, args)
			require.Regexp(t, `^error: no cloud answers at https://`+address+` \(.*connection refused\): .mni status. tells how it is, .mni up. starts it\n$`, o.stderr, "mni %v", args)
		}
	})
	t.Run("a kubeconfig that is missing or of another cloud", func(t *testing.T) {
		o := get(t.TempDir(), "--kubeconfig", "/nonexistent")
		require.Equal(t, output{code: ExitFailure, stderr: "error: kubeconfig: open /nonexistent: no such file or directory\n"}, o)
		for _, token := range []string{"", "forged"} {
			stranger := writeKubeconfig(t, &rest.Config{Host: c.host, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: c.ca}}, "")
			require.Contains(t, get(t.TempDir(), "--kubeconfig", stranger).stderr, "the cloud does not accept the kubeconfig's credentials")
		}
		distrusting := writeKubeconfig(t, &rest.Config{Host: c.host}, "")
		require.Contains(t, get(t.TempDir(), "--kubeconfig", distrusting).stderr, "is not the cloud that the kubeconfig is for")
	})
}

func (c *cloud) testCompletion(t *testing.T) {
	ns := c.tenant(t)
	tests := map[string]struct {
		args []string
		want []string
	}{
		"kinds":                 {[]string{"get", ""}, []string{"externalip", "floatingip", "natgateway", "routetable", "securitygroup", "subnet", "vpcpeering", "vpc", "container"}},
		"kinds that begin so":   {[]string{"describe", "su"}, []string{"subnet"}},
		"names of a kind":       {[]string{"get", "-n", ns, "vpc", ""}, []string{"net"}},
		"names after a slash":   {[]string{"delete", "-n", ns, "subnet/f"}, []string{"subnet/front"}},
		"no name twice":         {[]string{"wait", "-n", ns, "vpc", "net", ""}, nil},
		"kinds after KIND/NAME": {[]string{"wait", "-n", ns, "vpc/net", "c"}, []string{"container/"}},
		"Containers for logs":   {[]string{"logs", "-n", ns, ""}, []string{"web"}},
		"Containers for exec":   {[]string{"exec", "-n", ns, "w"}, []string{"web"}},
		"namespaces":            {[]string{"get", "-n", ns[:len(ns)-1]}, []string{ns}},
		"output forms":          {[]string{"get", "-o", "wi"}, []string{"wide"}},
		"conditions":            {[]string{"wait", "--for", ""}, []string{"condition=Ready", "delete"}},
		"kinds to explain":      {[]string{"explain", "v"}, []string{"vpcpeering", "vpc"}},
		"commands":              {[]string{"api"}, []string{"api-resources"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := runMni(t.Context(), t.TempDir(), "", append([]string{"__completeNoDesc", "--kubeconfig", c.kubeconfig}, test.args...)...)
			require.Equal(t, test.want, completions(o.stdout), o.stdout+o.stderr)
		})
	}
	t.Run("instances", func(t *testing.T) {
		state := t.TempDir()
		write(t, state, "c1/admin.kubeconfig", "")
		write(t, state, "d1/admin.kubeconfig", "")
		require.Equal(t, []string{"c1"}, completions(runMni(t.Context(), state, "", "__completeNoDesc", "get", "--instance", "c").stdout))
	})
	t.Run("scripts", func(t *testing.T) {
		for _, shell := range []string{"bash", "zsh", "fish"} {
			require.Contains(t, c.must(t, "completion", shell), "mni")
		}
	})
}

// completions are the words that the shell is given.
func completions(stdout string) []string {
	var words []string
	for _, line := range strings.Split(strings.TrimSpace(stdout), "\n") {
		if !strings.HasPrefix(line, ":") {
			words = append(words, line)
		}
	}
	return words
}
