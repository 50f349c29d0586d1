package leftovers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// isolated in the environment says that the process is in namespaces of its own.
const isolated = "MNI_TEST_LEFTOVERS_ISOLATED"

// TestMain runs the tests in a network and a mount namespace of their own, where /run and /var/lib are empty. The machine's
// control groups stay visible, as the tests are about them too. It takes root's rights.
func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if os.Getenv(isolated) == "" {
		return child()
	}
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "isolate the tests:", err)
		return 1
	}
	return m.Run()
}

func child() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), isolated+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "isolate the tests:", err)
		return 1
	}
	return 0
}

func prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return err
	}
	for _, dir := range []string{"/run", "/var/lib"} {
		if err := unix.Mount("test", dir, "tmpfs", 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}
