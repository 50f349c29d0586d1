package preflight

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("tries the kernel for real, which only root may")
	}
}

func TestEveryKernelFeatureIsFoundOnThisKernel(t *testing.T) {
	needRoot(t)
	for _, f := range kernelFeatures() {
		t.Run(f.name, func(t *testing.T) { require.NoError(t, f.try(t.TempDir())) })
	}
}

func TestAnAttemptLeavesNothingOnTheMachine(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	before, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	for _, f := range kernelFeatures() {
		require.NoError(t, f.try(dir), f.name)
	}
	after, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
	_, err = net.InterfaceByName("check0")
	require.Error(t, err)
}

func TestAnInterfaceTheKernelDoesNotKnowIsAFailedAttempt(t *testing.T) {
	needRoot(t)
	err := tryLink(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: "check0"}, LinkType: "no-such-kind"})("")
	require.ErrorIs(t, err, unix.EOPNOTSUPP)
}

func TestAnOverlayOnAFileSystemThatCannotCarryOneIsAFailedAttempt(t *testing.T) {
	needRoot(t)
	require.Error(t, tryOverlay("/proc"))
}

func TestAPortInUseIsFoundThoughItsAddressIsNotOnTheMachine(t *testing.T) {
	taken, err := net.Listen("tcp4", "0.0.0.0:0")
	require.NoError(t, err)
	defer taken.Close()
	port := uint16(taken.Addr().(*net.TCPAddr).Port)
	at := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.200"), port)

	require.ErrorIs(t, tryListen(t.Context(), "tcp", at), unix.EADDRINUSE)
	require.Contains(t, portHolder("tcp", port), "(process ")
	require.NoError(t, taken.Close())
	require.NoError(t, tryListen(t.Context(), "tcp", at))
	require.Empty(t, portHolder("tcp", port))
}

func TestAUDPPortInUseIsFound(t *testing.T) {
	taken, err := net.ListenPacket("udp4", "0.0.0.0:0")
	require.NoError(t, err)
	defer taken.Close()
	port := uint16(taken.LocalAddr().(*net.UDPAddr).Port)
	at := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.200"), port)

	require.ErrorIs(t, tryListen(t.Context(), "udp", at), unix.EADDRINUSE)
	require.Contains(t, portHolder("udp", port), "(process ")
}

func TestFreeSpaceIsThatOfTheNearestFolderThatExists(t *testing.T) {
	dir := t.TempDir()
	free, err := freeDisk(filepath.Join(dir, "not", "made", "yet"))
	require.NoError(t, err)
	require.Positive(t, free)
	found, err := nearestFolder(filepath.Join(dir, "not", "made", "yet"))
	require.NoError(t, err)
	require.Equal(t, dir, found)
}

func TestMemoryIsReadInBytes(t *testing.T) {
	got, err := parseMemory(strings.NewReader("MemTotal:  4096 kB\nMemAvailable:    2048 kB\n"))
	require.NoError(t, err)
	require.Equal(t, uint64(2<<20), got)
	_, err = parseMemory(strings.NewReader("MemTotal:  4096 kB\n"))
	require.Error(t, err)
	available, err := availableMemory()
	require.NoError(t, err)
	require.Positive(t, available)
}

func TestCapabilitiesAreReadFromTheEffectiveSet(t *testing.T) {
	got, err := parseCapabilities("CapPrm:\t0000000000000000\nCapEff:\t0000000000201000\n")
	require.NoError(t, err)
	require.Equal(t, uint64(1<<unix.CAP_SYS_ADMIN|1<<unix.CAP_NET_ADMIN), got)
	_, err = parseCapabilities("Name:\tx\n")
	require.Error(t, err)
}

func TestControlGroupControllersAreFoundInBothVersions(t *testing.T) {
	require.NoError(t, lackingControllers(strings.Fields("cpuset cpu io memory hugetlb pids rdma")))
	require.ErrorContains(t, lackingControllers(strings.Fields("cpu pids")), "cpuset, memory")
	legacy := legacyControllers("cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,cpu,cpuacct 0 0\n"+
		"cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw,nsdelegate 0 0\n"+
		"cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\ncgroup /hidden cgroup rw,memory 0 0\n",
		func(mountPoint string) bool { return mountPoint != "/hidden" })
	require.ErrorContains(t, lackingControllers(legacy), "not available: memory")
}

func TestThisMachinesAddressesAreListedByInterface(t *testing.T) {
	addresses, err := machineAddresses()
	require.NoError(t, err)
	require.Contains(t, addresses["lo"], netip.MustParsePrefix("127.0.0.1/8"))
}
