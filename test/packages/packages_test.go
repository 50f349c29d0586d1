//go:build e2e

package packages

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/distro/packages"
)

const ownPolicy = "#!/bin/sh\n# the owner's own\nexit 0\n"

func TestABareDebianLacksOurPackagesAndHasThemAfterTheStep(t *testing.T) {
	d := bareDebian(t)

	t.Run("it holds none of our packages", func(t *testing.T) {
		out := d.must("dpkg-query", "--show", "--showformat", "${Package}\n")
		require.NotEmpty(t, packages.Runtime())
		for _, p := range packages.Runtime() {
			require.NotContains(t, strings.Fields(out), p.Name)
		}
	})
	t.Run("the preflight names each of them, what it is for and the remedy, and nothing else", func(t *testing.T) {
		out, code := d.run("mni", "host", "check")
		require.NotZero(t, code)
		for _, p := range packages.Runtime() {
			require.Contains(t, out, "package "+p.Name+" is missing ("+p.Reason+"): run `mni host install`")
		}
		require.Equal(t, len(packages.Runtime()), strings.Count(out, "\n  - "), out)
	})
	t.Run("the list shows them missing", func(t *testing.T) {
		for line := range strings.Lines(d.must("mni", "host", "install", "--list")) {
			require.NotContains(t, line, "present")
		}
	})
	t.Run("without package lists the step fetches them, installs all and starts nothing", func(t *testing.T) {
		require.NoError(t, os.RemoveAll(d.path("/var/lib/apt/lists")))
		// The processes left after the step are the shell and its ls.
		out, code := d.run("sh", "-c", "mni host install && echo LEFT $(ls -d /proc/[0-9]*)")
		require.Zero(t, code, out)
		for _, p := range packages.Runtime() {
			require.Contains(t, out, "installed "+p.Name+": "+p.Reason)
		}
		_, left, _ := strings.Cut(out, "LEFT ")
		require.LessOrEqual(t, len(strings.Fields(left)), 3, left)
	})
	t.Run("the preflight finds nothing in the way", func(t *testing.T) {
		require.Contains(t, d.must("mni", "host", "check"), "ready for a cloud")
	})
	t.Run("a second step has nothing to do", func(t *testing.T) {
		require.Empty(t, d.must("mni", "host", "install"))
	})
	t.Run("no policy is left behind", func(t *testing.T) {
		left, err := filepath.Glob(d.path("/usr/sbin/policy-rc.d*"))
		require.NoError(t, err)
		require.Empty(t, left)
	})
	t.Run("an ordinary user is told to use root", func(t *testing.T) {
		out, code := d.run("setpriv", "--reuid=65534", "mni", "host", "check")
		require.NotZero(t, code)
		require.Contains(t, out, "not as root")
		require.Equal(t, 1, strings.Count(out, "\n  - "), out)
	})
	t.Run("a missing capability is named", func(t *testing.T) {
		out, code := d.run("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", "mni", "host", "check")
		require.NotZero(t, code)
		require.Contains(t, out, "CAP_NET_ADMIN")
		require.Equal(t, 1, strings.Count(out, "\n  - "), out)
	})
	t.Run("a full disk is named", func(t *testing.T) {
		out, code := d.run("sh", "-c", "mkdir -p /small && mount -t tmpfs -o size=1m tmpfs /small && mni host check --state-dir /small")
		require.NotZero(t, code)
		require.Contains(t, out, "0.0 GiB are free under /small")
	})
	t.Run("control groups that are not mounted are named", func(t *testing.T) {
		out, code := d.run("sh", "-c", "mount -t tmpfs tmpfs /sys && mni host check")
		require.NotZero(t, code)
		require.Contains(t, out, "control groups")
		require.Contains(t, out, "(BTF)")
	})
}

// With systemd running, deb-systemd-invoke(1) starts services through systemctl: a systemctl that only notes what it is
// asked stands for it.
func TestUnderSystemdNoServiceIsStartedOrEnabled(t *testing.T) {
	d := bareDebian(t)
	d.write("/usr/bin/systemctl", `#!/bin/sh
echo "$@" >> /var/log/systemctl
case "$*" in
*is-enabled*) echo enabled ;;
*is-active*) exit 3 ;;
esac
`, 0o755)
	d.write("/usr/sbin/policy-rc.d", ownPolicy, 0o750)
	asked := func() string {
		data, err := os.ReadFile(d.path("/var/log/systemctl"))
		if err != nil {
			return ""
		}
		return string(data)
	}
	systemd := func(command string) string {
		return d.must("sh", "-c", "mkdir -p /run/systemd/system && "+command)
	}

	systemd("deb-systemd-invoke start example.service")
	require.Contains(t, asked(), "start example.service", "the test sees a service that is started")
	require.NoError(t, os.Remove(d.path("/var/log/systemctl")))

	systemd("mni host install")
	for line := range strings.Lines(asked()) {
		for _, verb := range []string{"start", "restart", "reload-or-restart", "try-restart", "enable"} {
			require.NotContains(t, strings.Fields(line), verb, "systemctl %s", line)
		}
	}
	require.Equal(t, ownPolicy, d.read("/usr/sbin/policy-rc.d"), "the owner's policy is back")
	enabled, err := filepath.Glob(d.path("/etc/systemd/system/*.wants/*"))
	require.NoError(t, err)
	for _, link := range enabled {
		for _, p := range packages.Runtime() {
			require.NotContains(t, p.Units, filepath.Base(link))
		}
	}
}

func TestAPackageThatNoSourceHasIsReportedAndNothingIsLeftBehind(t *testing.T) {
	d := bareDebian(t)
	d.write("/etc/apt/sources.list", "", 0o644)
	require.NoError(t, os.RemoveAll(d.path("/var/lib/apt/lists")))
	out, code := d.run("mni", "host", "install")
	require.NotZero(t, code)
	require.Contains(t, out, "/etc/apt/sources.list")
	require.Contains(t, out, packages.Runtime()[0].Name)
	require.NoFileExists(t, d.path("/usr/sbin/policy-rc.d"))
}
