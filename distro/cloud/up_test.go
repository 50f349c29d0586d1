package cloud

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/distro/instance"
)

func TestTheFreeSpaceThatCountsIsThatOfTheInstancesOwnFolder(t *testing.T) {
	require.Equal(t, "/var/lib/mni/shop", needs(instance.Instance{Name: "shop", Slot: 1}).StateDir)
}
