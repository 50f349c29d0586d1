package loopback

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// pod is the path of a new network namespace. It ends with the thread that made it, when the test ends.
func pod(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("makes network namespaces, which only root may: run it with sudo")
	}
	path, ended := make(chan string), make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this function, and the namespace with it
		ns, err := netns.New()
		if err != nil {
			close(path)
			return
		}
		path <- fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns)
		<-ended
		_ = ns.Close()
	}()
	t.Cleanup(func() { close(ended) })
	p, ok := <-path
	require.True(t, ok, "a new network namespace")
	return p
}

// printed is what f writes to the standard output.
func printed(t *testing.T, f func()) []byte {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	require.NoError(t, err)
	defer file.Close()
	stdout := os.Stdout
	os.Stdout = file
	defer func() { os.Stdout = stdout }()
	f()
	out, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	return out
}

func TestAddBringsLoopbackUpInThePodAndSaysSo(t *testing.T) {
	args := &skel.CmdArgs{ContainerID: "c1", IfName: "lo", Netns: pod(t), StdinData: []byte(`{"cniVersion":"1.0.0","name":"lo","type":"loopback"}`)}
	require.ErrorContains(t, check(args), "lo is down")

	for range 2 { // once more changes nothing
		out := printed(t, func() { require.NoError(t, add(args)) })
		var result types100.Result
		require.NoError(t, json.Unmarshal(out, &result), "%s", out)
		require.Equal(t, "lo", result.Interfaces[0].Name)
		require.Equal(t, args.Netns, result.Interfaces[0].Sandbox)
		require.Equal(t, "127.0.0.1/8", result.IPs[0].Address.String())
		require.NoError(t, check(args))
	}

	ns, err := netns.GetFromPath(args.Netns)
	require.NoError(t, err)
	defer ns.Close()
	links, err := netlink.NewHandleAt(ns)
	require.NoError(t, err)
	defer links.Close()
	lo, err := links.LinkByName("lo")
	require.NoError(t, err)
	require.NotZero(t, lo.Attrs().Flags&net.FlagUp)
	addresses, err := links.AddrList(lo, netlink.FAMILY_V4)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1/8", addresses[0].IPNet.String())
}

func TestWhatIsNotThereIsNamed(t *testing.T) {
	conf := []byte(`{"cniVersion":"1.0.0","name":"lo","type":"loopback"}`)
	gone := &skel.CmdArgs{IfName: "lo", Netns: "/run/netns/none-of-this-name", StdinData: conf}
	require.ErrorContains(t, add(gone), gone.Netns)
	require.ErrorContains(t, check(gone), gone.Netns)
	other := &skel.CmdArgs{IfName: "lo7", Netns: pod(t), StdinData: conf}
	require.ErrorContains(t, add(other), "find lo7 in the Pod")
	broken := &skel.CmdArgs{IfName: "lo", Netns: pod(t), StdinData: []byte(`{`)}
	var cniError *types.Error
	require.ErrorAs(t, add(broken), &cniError)
	require.Equal(t, types.ErrDecodingFailure, cniError.Code)
}
