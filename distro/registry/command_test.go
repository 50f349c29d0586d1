package registry

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/distro/instance"
)

func TestTheEnvironmentNamesTheCloudWhoseRegistryIsMeant(t *testing.T) {
	t.Setenv(instance.Variable, "shop")
	require.Equal(t, "shop", Command().PersistentFlags().Lookup("instance").DefValue)
}

func TestACloudThatNeverStartedHasNoRegistry(t *testing.T) {
	dir := t.TempDir()
	require.True(t, started(dir))
	require.False(t, started(filepath.Join(dir, "default", "pki")))
}

func TestWhoMayUseTheRegistryAfterwardsIsSaid(t *testing.T) {
	s := State{Dir: t.TempDir()}
	state := func() (State, error) { return s, nil }
	run := func(command *cobra.Command, args ...string) string {
		var said bytes.Buffer
		command.SetErr(&said)
		command.SetOut(&said)
		command.SetArgs(args)
		require.NoError(t, command.ExecuteContext(t.Context()))
		return said.String()
	}
	require.NoError(t, s.AddUser("shop", "a password"))
	require.Contains(t, run(removeUserCommand(state), "shop"), "user shop is removed; authentication stays on")
	require.Contains(t, run(offCommand(state)), "authentication is off")
}
