//go:build e2e

package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/test/cloud"
)

var bench = cloud.Cloud{Instance: "bench"}

// result prints one line of the report.
func result(t *testing.T, what, value, target string) {
	t.Helper()
	t.Logf("RESULT %-60s %12s   target %s", what, value, target)
}

// took is how long a command of mni took, in seconds.
func took(t *testing.T, args ...string) string {
	t.Helper()
	start := time.Now()
	_, err := bench.Mni(t.Context(), args...)
	require.NoError(t, err)
	return fmt.Sprintf("%.1f s", time.Since(start).Seconds())
}

func TestStartTimeAndIdleCost(t *testing.T) {
	_, err := bench.Mni(t.Context(), "reset", "--yes")
	require.NoError(t, err)
	t.Cleanup(func() {
		if _, err := bench.Mni(context.Background(), "reset", "--yes"); err != nil {
			t.Error(err)
		}
	})
	result(t, "up, two nodes, from nothing", took(t, "up", "--nodes", "2"), "at most 20 s")
	result(t, "up of a cloud that runs", took(t, "up", "--nodes", "2"), "-")
	result(t, "down", took(t, "down"), "-")
	result(t, "up, two nodes, with state", took(t, "up", "--nodes", "2"), "at most 20 s")

	t.Run("from apply to the first answer", func(t *testing.T) {
		var seconds []float64
		for i := range 5 {
			tenant := cloud.Tenant{Cloud: bench, Name: fmt.Sprintf("bench-%d", i)}
			start := time.Now()
			require.NoError(t, tenant.Create(t.Context()))
			require.NoError(t, tenant.AnswersWithin(t.Context(), 2*time.Minute))
			seconds = append(seconds, time.Since(start).Seconds())
			require.NoError(t, tenant.Delete(t.Context()))
		}
		slices.Sort(seconds)
		result(t, "a new tenant's containers answer (median of 5)", fmt.Sprintf("%.1f s", seconds[2]), "seconds")
	})

	t.Run("a tenant's containers", oneAfterTheOther)
	t.Run("external addresses", outsideAnswers)
	t.Run("dependents", startsAfter)

	t.Run("idle", func(t *testing.T) {
		const window = 60 * time.Second
		settle := time.NewTimer(30 * time.Second)
		<-settle.C
		before := cpuSeconds(t)
		start := time.Now()
		<-time.NewTimer(window).C
		share := (cpuSeconds(t) - before) / time.Since(start).Seconds()
		result(t, "idle, share of one core", fmt.Sprintf("%.1f %%", 100*share), "at most 20 %")
		result(t, "idle, memory (PSS)", fmt.Sprintf("%d MiB", memory(t)>>20), "at most 2048 MiB")
	})
}

// group is the control group of the cloud in the hierarchy that counts processor time: version 1 or 2.
func group(t *testing.T) string {
	t.Helper()
	for _, hierarchy := range []string{"cpuacct", "cpu,cpuacct", ""} {
		dir := filepath.Join("/sys/fs/cgroup", hierarchy, "mni", bench.Instance)
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
	}
	t.Fatal("no control group of the cloud")
	return ""
}

// cpuSeconds is the processor time that everything in the cloud has used.
func cpuSeconds(t *testing.T) float64 {
	t.Helper()
	dir := group(t)
	if usage, err := os.ReadFile(filepath.Join(dir, "cpuacct.usage")); err == nil {
		nanoseconds, err := strconv.ParseFloat(strings.TrimSpace(string(usage)), 64)
		require.NoError(t, err)
		return nanoseconds / 1e9
	}
	stat, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	require.NoError(t, err)
	for line := range strings.Lines(string(stat)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "usage_usec "); ok {
			microseconds, err := strconv.ParseFloat(value, 64)
			require.NoError(t, err)
			return microseconds / 1e6
		}
	}
	t.Fatal("no usage_usec in cpu.stat")
	return 0
}

// memory is the proportional set size of all processes in the cloud, in bytes: pages that several share count once.
func memory(t *testing.T) int64 {
	t.Helper()
	var total int64
	err := filepath.WalkDir(group(t), func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.Name() != "cgroup.procs" {
			return err
		}
		pids, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, pid := range strings.Fields(string(pids)) {
			rollup, err := os.ReadFile("/proc/" + pid + "/smaps_rollup")
			if err != nil {
				continue // it has just ended
			}
			for line := range strings.Lines(string(rollup)) {
				if value, ok := strings.CutPrefix(line, "Pss:"); ok {
					kib, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
					if err != nil {
						return err
					}
					total += kib << 10
				}
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.Positive(t, total)
	return total
}
