package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/network/plugin"
)

// buildPlugin builds the plugin as nodes have it: small, not the tests' binary.
func buildPlugin(t testing.TB) string {
	built := filepath.Join(t.TempDir(), plugin.Type)
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", built, "../../cmd/mni-cni")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Stderr = os.Stderr
	require.NoError(t, build.Run())
	return built
}

// usePlugin makes the node's runtime call this plugin.
func (n *node) usePlugin(path string) {
	t := n.cloud.t
	n.cni("1.0.0") // makes the folder of plugins
	link := filepath.Join(n.dir, "bin", plugin.Type)
	require.NoError(t, os.Remove(link))
	require.NoError(t, os.Symlink(path, link))
}

// BenchmarkAdd attaches Pods whose interfaces are Ready, one after the other, through the plugin as it is built for nodes. Its
// aim is at most 100 ms for 99 of 100 (go test -run '^$' -bench Add -benchtime 300x).
func BenchmarkAdd(b *testing.B) {
	c := newCloud(b, 1)
	n := c.nodes[0]
	n.start()
	n.awaitReady()
	n.usePlugin(buildPlugin(b))

	red := c.subnet("red", "10.1.0.0/16", 1001, 1001)
	var pods []*pod
	for i := range b.N {
		pods = append(pods, n.pod(fmt.Sprint("pod-", i), red, fmt.Sprintf("10.1.%d.%d", i/250+1, i%250+1), fmt.Sprintf("198.18.%d.%d", i/250+1, i%250+1)))
	}
	took := make([]time.Duration, 0, b.N)
	b.ResetTimer()
	for _, p := range pods {
		started := time.Now()
		p.mustAdd()
		took = append(took, time.Since(started))
	}
	b.StopTimer()
	slices.Sort(took)
	for _, percent := range []int{50, 99} {
		b.ReportMetric(float64(took[len(took)*percent/100].Microseconds())/1000, fmt.Sprintf("ms/p%d", percent))
	}
}
