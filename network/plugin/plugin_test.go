package plugin

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/network/plugin/protocol"
)

func args(t *testing.T, config string, a ...any) *skel.CmdArgs {
	t.Helper()
	return &skel.CmdArgs{ContainerID: "c1", IfName: "eth0", Netns: "/run/netns/x", StdinData: fmt.Appendf(nil, config, a...)}
}

func code(t *testing.T, err error) uint {
	t.Helper()
	var cniError *types.Error
	require.ErrorAs(t, err, &cniError)
	return cniError.Code
}

func TestWithoutADaemonOnlyDelSucceeds(t *testing.T) {
	dir := t.TempDir()
	a := args(t, `{"cniVersion":"1.1.0","name":"mni","socket":"%s/none","queueDir":"%s/queue","cni.dev/valid-attachments":[]}`, dir, dir)
	f := Functions()
	require.Equal(t, types.ErrTryAgainLater, code(t, f.Add(a)))
	require.Equal(t, types.ErrTryAgainLater, code(t, f.Check(a)))
	require.Equal(t, types.ErrTryAgainLater, code(t, f.GC(a)))
	require.Equal(t, types.ErrPluginNotAvailable, code(t, f.Status(a)))
	require.NoError(t, f.Del(a))
	queued, err := protocol.Queue(filepath.Join(dir, "queue"))
	require.NoError(t, err)
	require.Len(t, queued, 1)
	require.Equal(t, "c1", queued[0].Request.ContainerID)
}

func TestDelThatCannotBeQueuedIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "queue"), nil, 0o600))
	a := args(t, `{"cniVersion":"1.0.0","name":"mni","socket":"%s/none","queueDir":"%s/queue"}`, dir, dir)
	require.Equal(t, types.ErrTryAgainLater, code(t, Functions().Del(a)))
}

func TestAConfigurationThatCannotBeIsRefused(t *testing.T) {
	f := Functions()
	require.Equal(t, types.ErrDecodingFailure, code(t, f.Add(args(t, `{"socket":1}`))))
	require.Equal(t, types.ErrInvalidNetworkConfig, code(t, f.Add(args(t, `{"name":"mni"}`))))
	missing := args(t, `{"name":"mni","socket":"/s","queueDir":"/q"}`)
	require.Equal(t, types.ErrInvalidNetworkConfig, code(t, f.GC(missing)), "a GC without its list must not collect everything")
}
