//go:build e2e

package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/test/apiserver"
	"github.com/mnicloud/mnicloud/test/cloud"
)

var conformance = cloud.Cloud{Instance: "conformance"}

// unsupported are upstream's tests of what mNi Cloud declares it does not do, with the reason (docs/conformance.md).
var unsupported = map[string]string{}

// images are those that the tests ask for, as the set "conformance" of the image builder names them.
var images = []string{"e2e/agnhost:2.63.0", "e2e/glibc-dns-testing:2.0.0", "e2e/busybox:1.37.0-1", "e2e/pause:3.10.2"}

// repositories say where the tests find their images.
const repositories = "promoterE2eRegistry: registry.mni.internal/e2e\ngcRegistry: registry.mni.internal/e2e\n"

// workers is how many of upstream's tests run at once.
const workers = 4

// TestUpstreamsNetworkTests runs upstream's tests, each as a subtest. With -short only every sixth runs.
func TestUpstreamsNetworkTests(t *testing.T) {
	ctx := t.Context()
	build(t)
	mni(t, "reset", "--yes")
	t.Cleanup(func() {
		if _, err := conformance.Mni(context.Background(), "reset", "--yes"); err != nil {
			t.Error(err)
		}
	})
	mni(t, "up", "--nodes", "2")
	for _, image := range images {
		mniImage(t, "push", layout(), image)
	}
	list := filepath.Join(t.TempDir(), "repositories.yaml")
	require.NoError(t, os.WriteFile(list, []byte(repositories), 0o600))

	kubectl := filepath.Join(t.TempDir(), "kubectl")
	require.NoError(t, os.Symlink(filepath.Join(apiserver.Root(), "bin", "mni-kube"), kubectl))
	run := func(ctx context.Context, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, filepath.Join(apiserver.Root(), "bin", "conformance.test"), append([]string{
			"-kubeconfig", filepath.Join("/var/lib/mni", conformance.Instance, "admin.kubeconfig"), "-provider", "local", "-kube-test-repo-list", list,
			"-kubectl-path", kubectl, "-node-os-distro", "debian", "-test.timeout", "1h",
		}, args...)...)
		cmd.Env = append(os.Environ(), "KUBE_TEST_REPO_LIST="+list)
		return cmd
	}
	names := specs(t, run, `\[sig-network\].*\[Conformance\]`)
	require.Greater(t, len(names), 35, "upstream's Conformance tests of the network: %q", names)

	queue := make(chan string)
	go func() {
		defer close(queue)
		for i, name := range names {
			if testing.Short() && i%6 != 0 {
				continue
			}
			queue <- name
		}
	}()
	results := map[string]error{}
	var mu sync.Mutex
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for name := range queue {
				start := time.Now()
				out, err := run(ctx, "-ginkgo.focus", regexp.QuoteMeta(name)+"$", "-ginkgo.no-color").CombinedOutput()
				if err == nil && !strings.Contains(string(out), "Ran 1 of ") {
					err = errors.New("it did not run")
				}
				if err != nil {
					err = fmt.Errorf("%w\n%s", err, tail(out, 60))
				}
				mu.Lock()
				results[name] = err
				t.Logf("%4.0f s  %v  %s", time.Since(start).Seconds(), err == nil, name)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	for name, err := range results {
		t.Run(name, func(t *testing.T) {
			if reason, ok := unsupported[name]; ok {
				require.Error(t, err, "it passes: take it off the list of what is not supported (%s)", reason)
				return
			}
			require.NoError(t, err)
		})
	}
}

func layout() string { return filepath.Join(apiserver.Root(), "build", "conformance-images") }

func build(t *testing.T) {
	t.Helper()
	cmd := exec.Command(filepath.Join(apiserver.Root(), "bin", "mni"), "image", "build", "--set", "conformance", "--out", layout())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func mni(t *testing.T, args ...string) {
	t.Helper()
	_, err := conformance.Mni(t.Context(), args...)
	require.NoError(t, err)
}

func mniImage(t *testing.T, verb string, args ...string) {
	t.Helper()
	args = append([]string{"image", verb, "--instance", conformance.Instance}, args...)
	out, err := exec.Command(filepath.Join(apiserver.Root(), "bin", "mni"), args...).CombinedOutput()
	require.NoError(t, err, "mni %s\n%s", strings.Join(args, " "), out)
}

// specs are the full names of the tests that the focus selects, from the report that a dry run writes.
func specs(t *testing.T, run func(ctx context.Context, args ...string) *exec.Cmd, focus string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "all.json")
	out, err := run(t.Context(), "-ginkgo.dry-run", "-ginkgo.json-report", file, "-ginkgo.focus", focus).CombinedOutput()
	require.NoError(t, err, "%s", out)
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var reports []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeText, State     string
		}
	}
	require.NoError(t, json.Unmarshal(data, &reports))
	var names []string
	for _, report := range reports {
		for _, spec := range report.SpecReports {
			if spec.State == "passed" && spec.LeafNodeText != "" {
				names = append(names, strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " "))
			}
		}
	}
	return names
}

// tail is the last lines of out.
func tail(out []byte, lines int) string {
	all := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
