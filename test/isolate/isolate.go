// Package isolate runs a package's tests in network and mount namespaces of their own, so that links, routes, firewall tables,
// mounts and pins they make can neither disturb the machine nor outlive the tests.
package isolate

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/containernetworking/plugins/pkg/testutils"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// marker in the environment says that the process is isolated already.
const marker = "MNI_TEST_ISOLATED"

// Main is for TestMain, which exits with what it returns: it runs the tests in a child process with its own network namespace, in which lo is up, and its own
// mount namespace, in which /run is empty and /sys/fs/bpf is a BPF file system. Tests need root.
func Main(m *testing.M) int { return Run(m.Run) }

// Run is Main for a TestMain that has more to do than to run the tests: it calls run in the isolated child and returns its exit
// code.
func Run(run func() int) int {
	if os.Getenv(marker) == "" {
		return child()
	}
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "isolate the tests:", err)
		return 1
	}
	return run()
}

func child() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), marker+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL,
	}
	signal.Ignore(syscall.SIGINT) // the child has it too
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "isolate the tests (they need root):", err)
		return 1
	}
	return 0
}

func prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	for _, m := range []struct{ target, kind string }{{"/proc", "proc"}, {"/sys", "sysfs"}, {"/sys/fs/bpf", "bpf"}, {"/run", "tmpfs"}} {
		if err := unix.Mount(m.kind, m.target, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.target, err)
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// Netns makes a network namespace that lasts until the test ends.
func Netns(t testing.TB) ns.NetNS {
	t.Helper()
	netns, err := testutils.NewNS()
	if err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	t.Cleanup(func() { RemoveNetns(t, netns) })
	return netns
}

// RemoveNetns removes a network namespace as a runtime does. One that is gone is a success.
func RemoveNetns(t testing.TB, netns ns.NetNS) {
	t.Helper()
	_ = netns.Close()
	if _, err := os.Stat(netns.Path()); errors.Is(err, os.ErrNotExist) {
		return
	}
	if err := testutils.UnmountNS(netns); err != nil {
		t.Errorf("remove network namespace %s: %v", netns.Path(), err)
	}
}
