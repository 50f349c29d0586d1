package cli

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vpc "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// terminal is a buffer that can be read while a command writes to it.
type terminal struct {
	lock sync.Mutex
	text bytes.Buffer
}

func (w *terminal) Write(p []byte) (int, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.text.Write(p)
}

func (w *terminal) String() string {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.text.String()
}

// eventually waits until the text appears.
func (w *terminal) eventually(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(w.String(), text) }, 20*time.Second, 5*time.Millisecond, "%q never appeared in %q", text, w)
}

// start runs a command line as if people looked at it. The exit code comes when it ends.
func (c *cloud) start(ctx context.Context, args ...string) (stdout, stderr *terminal, code chan int) {
	stdout, stderr, code = &terminal{}, &terminal{}, make(chan int, 1)
	root := &cobra.Command{Use: "mni", SilenceErrors: true, SilenceUsage: true}
	root.SetErr(stderr)
	conn := newConnection(root, "v0", folders{state: "/nonexistent"}, genericiooptions.IOStreams{In: strings.NewReader(""), Out: stdout, ErrOut: stderr})
	conn.watched = true
	root.AddCommand(newGetCommand(conn), newWaitCommand(conn), newDeleteCommand(conn))
	go func() { code <- Execute(ctx, root, append([]string{"--kubeconfig", c.kubeconfig}, args...)) }()
	return stdout, stderr, code
}

func (c *cloud) testWait(t *testing.T) {
	t.Run("until all are Ready, saying what is waited for", func(t *testing.T) {
		ns := c.tenant(t)
		stdout, stderr, code := c.start(t.Context(), "wait", "-n", ns)
		stderr.eventually(t, "waiting for container/web: it has no condition Ready yet")
		c.setReady(t, "vpc", ns, "net", metav1.ConditionTrue, "Ready", "")
		stdout.eventually(t, "vpc/net is Ready\n")
		c.setReady(t, "container", ns, "web", metav1.ConditionFalse, "SubnetNotReady", "waits for Subnet front")
		stderr.eventually(t, "waiting for container/web: waits for Subnet front (SubnetNotReady)\n")
		c.setReady(t, "subnet", ns, "front", metav1.ConditionTrue, "Ready", "")
		c.setReady(t, "container", ns, "web", metav1.ConditionTrue, "Running", "")
		require.Zero(t, <-code, stderr)
		require.Equal(t, 3, strings.Count(stdout.String(), " is Ready"))
	})
	t.Run("the time is up: why each one is not Ready", func(t *testing.T) {
		ns := c.tenant(t)
		c.setReady(t, "container", ns, "web", metav1.ConditionFalse, "ImagePullFailed", "cannot pull web:1")
		c.setReady(t, "vpc", ns, "net", metav1.ConditionTrue, "Ready", "")
		o := c.mni(t, "wait", "vpc/net", "subnet/front", "container/web", "-n", ns, "--timeout", "300ms")
		require.Equal(t, ExitFailure, o.code)
		require.Equal(t, "vpc/net is Ready\n", o.stdout)
		require.Contains(t, o.stderr, "error: container/web is not Ready after 300ms: cannot pull web:1 (ImagePullFailed)\n")
		require.Contains(t, o.stderr, "error: subnet/front is not Ready after 300ms: it has no condition Ready yet")
		require.NotContains(t, o.stderr, "waiting for", "nobody looks at it")
	})
	t.Run("a change that has not been taken up is not Ready", func(t *testing.T) {
		ns := c.tenant(t)
		c.setReady(t, "container", ns, "web", metav1.ConditionTrue, "Running", "")
		c.must(t, "wait", "container", "web", "-n", ns)
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"image":"web:2"}}`))
		require.NoError(t, c.client.Patch(t.Context(), newContainer(ns, "web"), patch))
		o := c.mni(t, "wait", "container", "web", "-n", ns, "--timeout", "3s")
		require.Contains(t, o.stderr, "its last change has not been taken up yet")
	})
	t.Run("files, with kinds that have no conditions", func(t *testing.T) {
		ns := c.tenant(t)
		for _, name := range []string{"net", "front"} {
			c.setReady(t, map[string]string{"net": "vpc", "front": "subnet"}[name], ns, name, metav1.ConditionTrue, "Ready", "")
		}
		file := write(t, t.TempDir(), "net.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+ns+"}\n---\n"+networkYAML)
		require.Equal(t, 3, strings.Count(c.must(t, "wait", "-n", ns, "-f", file), "is Ready"))
		missing := write(t, t.TempDir(), "web.yaml", strings.ReplaceAll(webYAML, "name: web", "name: nope"))
		o := c.mni(t, "wait", "-n", ns, "-f", missing)
		require.Equal(t, ExitFailure, o.code)
		require.Contains(t, o.stderr, "web.yaml:1: container/nope not found")
	})
	t.Run("another condition, and deletion", func(t *testing.T) {
		ns := c.tenant(t)
		c.setReady(t, "vpc", ns, "net", metav1.ConditionFalse, "No", "")
		require.Contains(t, c.must(t, "wait", "vpc", "net", "-n", ns, "--for", "condition=Ready=False"), "vpc/net is Ready=False")
		require.Empty(t, c.must(t, "wait", "vpc", "nope", "-n", ns, "--for", "delete"))
		stdout, stderr, code := c.start(t.Context(), "wait", "vpc", "net", "-n", ns, "--for=delete")
		stderr.eventually(t, "waiting for vpc/net: it has not been asked to go")
		require.NoError(t, c.client.Delete(t.Context(), newVpc(ns, "net")))
		require.Zero(t, <-code)
		require.Contains(t, stdout.String(), "vpc/net is gone")
	})
	t.Run("what is waited for is deleted", func(t *testing.T) {
		ns := c.tenant(t)
		_, stderr, code := c.start(t.Context(), "wait", "vpc", "net", "-n", ns)
		stderr.eventually(t, "waiting for vpc/net")
		require.NoError(t, c.client.Delete(t.Context(), newVpc(ns, "net")))
		require.Equal(t, ExitFailure, <-code)
		require.Contains(t, stderr.String(), "error: vpc/net was deleted\n")
	})
	t.Run("a signal ends it", func(t *testing.T) {
		ns := c.tenant(t)
		ctx, cancel := context.WithCancel(t.Context())
		_, stderr, code := c.start(ctx, "wait", "-n", ns)
		stderr.eventually(t, "waiting for vpc/net")
		cancel()
		require.Equal(t, ExitInterrupted, <-code)
	})
	t.Run("command lines that cannot come true", func(t *testing.T) {
		ns := c.namespace(t)
		require.Equal(t, output{code: ExitFailure, stderr: "error: nothing to wait for\n"}, c.mni(t, "wait", "-n", ns))
		require.Equal(t, ExitUsage, c.mni(t, "wait", "vpc", "x", "--for", "luck").code)
		require.Equal(t, ExitUsage, c.mni(t, "wait", "vpc", "x", "-f", "y").code)
		require.Contains(t, c.mni(t, "wait", "vpc", "x", "-n", ns).stderr, "vpc/x not found")
	})
}

func (c *cloud) testDelete(t *testing.T) {
	t.Run("waits for the cleanup and says for what", func(t *testing.T) {
		ns := c.tenant(t)
		held := newVpc(ns, "held")
		held.Finalizers = []string{vpc.Finalizer}
		require.NoError(t, c.client.Create(t.Context(), held))
		stdout, stderr, code := c.start(t.Context(), "delete", "vpc", "held", "-n", ns)
		stderr.eventually(t, "waiting for vpc/held: cleaning up (vpc.mnicloud.jp/cleanup)\n")
		c.setReady(t, "vpc", ns, "held", metav1.ConditionFalse, "InUse", "waits for Subnet front to go")
		stderr.eventually(t, "waiting for vpc/held: waits for Subnet front to go (InUse)\n")
		require.NotContains(t, stdout.String(), "deleted")
		require.NoError(t, c.client.Patch(t.Context(), held, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))
		require.Zero(t, <-code)
		require.Equal(t, "vpc/held deleted\n", stdout.String())
	})
	t.Run("the time is up", func(t *testing.T) {
		ns := c.namespace(t)
		held := newVpc(ns, "held")
		held.Finalizers = []string{vpc.Finalizer}
		require.NoError(t, c.client.Create(t.Context(), held))
		o := c.mni(t, "delete", "vpc", "held", "-n", ns, "--timeout", "200ms")
		require.Equal(t, ExitFailure, o.code)
		require.Equal(t, "error: vpc/held is not gone after 200ms: cleaning up (vpc.mnicloud.jp/cleanup)\n", o.stderr)
		require.Equal(t, "vpc/held is asked to go\n", c.must(t, "delete", "vpc", "held", "-n", ns, "--wait=false"))
		require.NoError(t, c.client.Patch(t.Context(), held, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))
	})
	t.Run("everything, files, labels, several names", func(t *testing.T) {
		ns := c.tenant(t)
		require.Equal(t, 3, strings.Count(c.must(t, "delete", "all", "--all", "-n", ns), " deleted"))
		require.Contains(t, c.mni(t, "get", "-n", ns).stderr, "No resources found")
		file := write(t, t.TempDir(), "net.yaml", networkYAML)
		c.must(t, "apply", "-n", ns, "-f", file)
		require.Contains(t, c.must(t, "delete", "-n", ns, "-f", file, "--dry-run"), "vpc/net deleted (dry run)\n")
		require.Equal(t, "subnet/front is asked to go\nvpc/net is asked to go\n", c.must(t, "delete", "-n", ns, "-f", file, "--wait=false"), "the last one first")
		o := c.mni(t, "delete", "-n", ns, "-f", file)
		require.Equal(t, ExitFailure, o.code)
		require.Contains(t, o.stderr, "net.yaml:2 (document 1): vpc/net not found")
		require.Zero(t, c.mni(t, "delete", "-n", ns, "-f", file, "--ignore-not-found").code)
	})
	t.Run("one that is not there does not keep the others", func(t *testing.T) {
		ns := c.tenant(t)
		o := c.mni(t, "delete", "container/nope", "container/web", "-n", ns)
		require.Equal(t, ExitFailure, o.code)
		require.Contains(t, o.stdout, "container/web deleted")
		require.Contains(t, o.stderr, "container/nope not found")
	})
	t.Run("command lines that would delete more than they name", func(t *testing.T) {
		for _, args := range [][]string{{"delete"}, {"delete", "vpc"}, {"delete", "all"}, {"delete", "vpc", "net", "--all"}, {"delete", "vpc", "-f", "x"}} {
			require.Equal(t, ExitUsage, c.mni(t, args...).code, args)
		}
	})
}
