package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMountsAreReadWithTheirTypesAndOddNames(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mountinfo")
	require.NoError(t, os.WriteFile(file, []byte(
		"22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"+
			"30 22 0:4 net:[4026532] /run/netns/mni-a-node-1 rw shared:2 master:1 - nsfs nsfs rw\n"+
			`31 22 0:40 / /run/mni/with\040space rw - tmpfs mni-a rw`+"\n"+"broken line\n"), 0o600))
	mounts, err := mountPoints(file)
	require.NoError(t, err)
	require.Equal(t, []mountPoint{{"/", "ext4"}, {"/run/netns/mni-a-node-1", "nsfs"}, {"/run/mni/with space", "tmpfs"}}, mounts)
}

func TestAFolderWithALongerNameIsNotBelowAnother(t *testing.T) {
	require.True(t, below("/run/mni/a", "/run/mni/a"))
	require.True(t, below("/run/mni/a/nodes", "/run/mni/a"))
	require.False(t, below("/run/mni/ab", "/run/mni/a"))
}
