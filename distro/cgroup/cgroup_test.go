package cgroup

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryLayoutOfHierarchiesIsUnderstood(t *testing.T) {
	for name, c := range map[string]struct {
		mounts  string
		dirs    []string
		unified bool
	}{
		"v2 alone": {
			mounts:  "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n",
			dirs:    []string{"/sys/fs/cgroup/mni/a"},
			unified: true,
		},
		"v1 with a v2 hierarchy": {
			mounts: "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n" +
				"cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n" +
				"cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0\n" +
				"cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n",
			dirs: []string{"/sys/fs/cgroup/cpu,cpuacct/mni/a", "/sys/fs/cgroup/cpuset/mni/a", "/sys/fs/cgroup/unified/mni/a"},
		},
		"mounted twice": {
			mounts: "cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\ncgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\n",
			dirs:   []string{"/sys/fs/cgroup/pids/mni/a"},
		},
		"somewhere else": {
			mounts: "cgroup2 /mnt/other cgroup2 rw 0 0\n/dev/sda / ext4 rw 0 0\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tree := parse(c.mounts)
			require.Equal(t, c.dirs, tree.Dirs("/mni/a"))
			require.Equal(t, c.unified, tree.Unified())
		})
	}
}

func TestANewCpusetIsFilledInFromItsParent(t *testing.T) {
	tree := parse("cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n")
	require.True(t, tree.hierarchies[0].cpuset)
	require.False(t, tree.hierarchies[1].cpuset)
}
