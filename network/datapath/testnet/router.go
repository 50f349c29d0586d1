package testnet

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Router is FRR in a namespace: a BGP that is not ours. Its routes are in the namespace's kernel.
type Router struct {
	t   testing.TB
	ns  *Namespace
	dir string
	// bgpd is the program that runs.
	bgpd *exec.Cmd
}

// StartRouter starts zebra, bfdd and bgpd of Debian's package frr with bgpd's configuration. They end with the test.
func StartRouter(t testing.TB, ns *Namespace, config string) *Router {
	t.Helper()
	account, err := user.Lookup("frr")
	require.NoError(t, err, "Debian's package frr is not installed")
	uid, err := strconv.Atoi(account.Uid)
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "frr") //nolint:usetesting // t.TempDir's parents are not for other users
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	r := &Router{t: t, ns: ns, dir: dir}
	require.NoError(t, os.WriteFile(r.path("bgpd.conf"), []byte(config), 0o644))
	require.NoError(t, os.Chown(dir, uid, -1))
	r.start("zebra", os.DevNull)
	r.start("bfdd", os.DevNull, "--bfdctl", r.path("bfdd.sock"))
	r.bgpd = r.start("bgpd", r.path("bgpd.conf"))
	said, err := os.ReadFile(r.path("bgpd.out"))
	require.NoError(t, err)
	require.NotContains(t, string(said), "No such command")
	return r
}

// Restart ends bgpd, which closes its sessions, and starts it again.
func (r *Router) Restart() {
	r.t.Helper()
	require.NoError(r.t, r.bgpd.Process.Signal(syscall.SIGTERM))
	_ = r.bgpd.Wait()
	require.NoError(r.t, os.Remove(r.path("bgpd.vty")))
	r.bgpd = r.start("bgpd", r.path("bgpd.conf"))
}

func (r *Router) path(name string) string { return filepath.Join(r.dir, name) }

func (r *Router) start(name, config string, more ...string) *exec.Cmd {
	r.t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(r.t.Context()), "/usr/lib/frr/"+name, append([]string{
		"-u", "frr", "-g", "frr", "--vty_socket", r.dir, "-z", r.path("zserv.api"), "-i", r.path(name + ".pid"), "-P", "0",
		"--log", "stdout", "-f", config,
	}, more...)...)
	out, err := os.Create(r.path(name + ".out"))
	require.NoError(r.t, err)
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(r.t, r.ns.Do(cmd.Start))
	r.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if said, err := os.ReadFile(out.Name()); err == nil && r.t.Failed() {
			r.t.Logf("%s: %s", name, said)
		}
	})
	require.Eventually(r.t, func() bool {
		_, err := os.Stat(r.path(name + ".vty"))
		return err == nil
	}, 30*time.Second, 10*time.Millisecond, "%s does not start", name)
	return cmd
}

// Ask asks bgpd, zebra and bfdd by vtysh and returns what they say.
func (r *Router) Ask(command string) string {
	out, err := exec.CommandContext(context.WithoutCancel(r.t.Context()), "vtysh", "--vty_socket", r.dir, "-c", command).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return string(out)
}

// Routes are the kernel's routes of BGP, as "RANGE via ADDRESS ADDRESS".
func (r *Router) Routes() []string {
	r.t.Helper()
	list, err := r.ns.links.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Protocol: unix.RTPROT_BGP}, netlink.RT_FILTER_PROTOCOL)
	require.NoError(r.t, err)
	var routes []string
	for _, route := range list {
		var hops []string
		if route.Gw != nil {
			hops = append(hops, route.Gw.String())
		}
		for _, hop := range route.MultiPath {
			hops = append(hops, hop.Gw.String())
		}
		slices.Sort(hops) // which was learned first is chance
		routes = append(routes, route.Dst.String()+" via "+strings.Join(hops, " "))
	}
	return routes
}
