package node

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/distro/spawn"
)

func TestAThreadIsKeptOnEachProcessorThereIs(t *testing.T) {
	all := processors()
	require.NotEmpty(t, all)
	for _, cpu := range all {
		kept := make(chan unix.CPUSet, 1)
		go spawn.OnThread(func() {
			var set unix.CPUSet
			if err := onProcessor(cpu); err != nil {
				t.Error(err)
			}
			if err := unix.SchedGetaffinity(0, &set); err != nil {
				t.Error(err)
			}
			kept <- set
		})
		set := <-kept
		require.Equal(t, 1, set.Count())
		require.True(t, set.IsSet(cpu))
	}
	require.Equal(t, all, processors(), "and no other thread is")
}
