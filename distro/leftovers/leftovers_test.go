package leftovers

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/distro/cgroup"
	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/node"
	"github.com/mnicloud/mnicloud/distro/spawn"
	"github.com/mnicloud/mnicloud/distro/underlay"
)

// ground makes what an instance's parts stand on, and takes it away when the test ends.
func ground(t *testing.T, name string, slot, nodes int) instance.Instance {
	t.Helper()
	inst := instance.Instance{Name: name, Slot: slot}
	pinnable(t)
	tree, err := cgroup.Detect()
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, Remove(context.WithoutCancel(t.Context()), inst))
		require.NoError(t, os.RemoveAll(inst.StateDir()))
	})
	require.NoError(t, node.MountRunDir(inst))
	require.NoError(t, tree.Make(inst.Cgroup()+"/system"))
	all := inst.Nodes(nodes)
	require.NoError(t, underlay.Ensure(t.Context(), inst, all, instance.Outside{Pool: inst.Addresses().Pool}))
	for _, n := range all {
		require.NoError(t, tree.Make(n.PodCgroup()))
		require.NoError(t, node.Ensure(n, t.TempDir(), []byte("nameserver 192.0.2.53\n")))
	}
	return inst
}

// pinnable mounts the machine's BPF file system, as `mni up` does, where nobody has.
func pinnable(t *testing.T) {
	t.Helper()
	dir := filepath.Dir(instance.PinRoot)
	var fs unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &fs))
	if fs.Type == unix.BPF_FS_MAGIC {
		return
	}
	require.NoError(t, unix.Mount("bpf", dir, "bpf", 0, "mode=0700"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
}

// run runs a command in the place and returns what it printed.
func run(t *testing.T, place spawn.Place, command ...string) string {
	t.Helper()
	var out strings.Builder
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, spawn.Start(place, cmd))
	require.NoError(t, cmd.Wait(), out.String())
	return strings.TrimSpace(out.String())
}

func kinds(t *testing.T, inst instance.Instance) []string {
	t.Helper()
	left, err := Find(t.Context(), inst)
	require.NoError(t, err)
	var all []string
	for _, l := range left {
		all = append(all, l.Kind)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestEverythingOfAnInstanceIsFoundAndRemoved(t *testing.T) {
	inst := ground(t, "unit-left", 7, 2)
	other := ground(t, "unit-left-node-1", 8, 1) // a name that starts with the other's
	n := inst.Nodes(2)[0]
	place := node.Place(n)
	place.Cgroup = inst.Cgroup() + "/system"
	part := exec.Command("/bin/sleep", "1000")
	require.NoError(t, spawn.Start(place, part))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = part.Wait()
	}()
	require.NoError(t, os.MkdirAll(n.PinDir(), 0o700))

	require.Equal(t, []string{"cgroup", "file", "link", "mount", "namespace", "pin", "process", "route", "table"}, kinds(t, inst))
	pids, err := Processes(inst)
	require.NoError(t, err)
	require.Equal(t, []int{part.Process.Pid}, pids)
	before := kinds(t, other)

	require.NoError(t, Remove(t.Context(), inst))
	<-done
	require.Empty(t, kinds(t, inst))
	require.Equal(t, before, kinds(t, other), "another instance is left alone")
	require.DirExists(t, inst.StateDir(), "the state stays")
	require.NoError(t, Remove(t.Context(), inst), "there is nothing to remove a second time")
}

func TestANodeHasItsOwnRunVarAndSysAndTheMachineSeesNothingOfIt(t *testing.T) {
	inst := ground(t, "unit-node", 7, 2)
	first, second := inst.Nodes(2)[0], inst.Nodes(2)[1]
	run(t, node.Place(first), "/bin/sh", "-ec", "echo mine > /run/mark; echo mine > /var/lib/mark; mkdir /run/volume; mount -t tmpfs volume /run/volume")
	require.Equal(t, "mine mine", run(t, node.Place(first), "/bin/sh", "-ec", "echo $(cat /run/mark) $(cat /var/lib/mark)"),
		"what one process of a node writes another reads, with no process in between")
	require.Contains(t, run(t, node.Place(first), "cat", "/proc/self/mountinfo"), " /run/volume ", "its mounts last")
	for _, elsewhere := range []spawn.Place{{}, node.Place(second)} {
		require.Equal(t, "no no", run(t, elsewhere, "/bin/sh", "-c", "test -e /run/mark || echo -n 'no '; test -e /var/lib/mark || echo no"))
		require.NotContains(t, run(t, elsewhere, "cat", "/proc/self/mountinfo"), "/run/volume")
	}
	require.Equal(t, "eth0\nlo", run(t, node.Place(first), "ls", "/sys/class/net"))
	require.Equal(t, "nameserver 192.0.2.53", run(t, node.Place(first), "cat", "/etc/resolv.conf"))
	require.Equal(t, "1 10", run(t, node.Place(first), "/bin/sh", "-c", "echo $(cat /proc/sys/vm/overcommit_memory) $(cat /proc/sys/kernel/panic)"))
	require.NotEmpty(t, run(t, node.Place(first), "ls", "/sys/fs/cgroup"))
	marked := filepath.Join(first.StateDir(), "mark")
	require.NoError(t, os.WriteFile(marked, []byte("state"), 0o600))
	require.Equal(t, "state", run(t, node.Place(first), "cat", marked), "a node's state has one path, inside and outside")
	require.NotContains(t, run(t, node.Place(first), "ls", filepath.Dir(first.StateDir())), second.Name(), "and sees no other node's")
}

func TestEachNodeReachesTheMachineAndTheOthersOverTheUnderlay(t *testing.T) {
	inst := ground(t, "unit-net", 7, 2)
	nodes := inst.Nodes(2)
	members := map[netip.Addr]spawn.Place{inst.Addresses().Machine: {}}
	for _, n := range nodes {
		members[n.Address()] = spawn.Place{Netns: underlay.NetnsPath(n.Netns())}
	}
	for server, place := range members {
		var listener net.Listener
		require.NoError(t, spawn.Run(place, func() (err error) {
			listener, err = net.Listen("tcp", net.JoinHostPort(server.String(), "0"))
			return err
		}))
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = fmt.Fprint(conn, server) // its own identity
				_ = conn.Close()
			}
		}()
		for client, from := range members {
			require.NoError(t, spawn.Run(from, func() error {
				conn, err := net.Dial("tcp", listener.Addr().String())
				if err != nil {
					return err
				}
				defer func() { _ = conn.Close() }()
				var said string
				if _, err := fmt.Fscan(conn, &said); err != nil {
					return fmt.Errorf("%s: %w", server, err)
				}
				if said != server.String() {
					return fmt.Errorf("%s answers %q", server, said)
				}
				return nil
			}), "from %s to %s", client, server)
		}
		require.NoError(t, listener.Close())
	}
}

func TestMakingTheGroundAgainChangesNothing(t *testing.T) {
	inst := ground(t, "unit-again", 7, 1)
	n := inst.Nodes(1)[0]
	identity := func() (ids []uint64) {
		for _, path := range []string{underlay.NetnsPath(n.Netns()), n.MountNamespace(), inst.RunDir()} {
			var stat unix.Stat_t
			require.NoError(t, unix.Stat(path, &stat))
			ids = append(ids, stat.Ino, stat.Dev)
		}
		return ids
	}
	before := identity()
	require.NoError(t, node.MountRunDir(inst))
	require.NoError(t, underlay.Ensure(t.Context(), inst, inst.Nodes(2), instance.Outside{Pool: inst.Addresses().Pool}))
	require.NoError(t, node.Ensure(n, t.TempDir(), nil))
	require.Equal(t, before, identity())
	require.Equal(t, "eth0\nlo", run(t, spawn.Place{Netns: underlay.NetnsPath(inst.Nodes(2)[1].Netns())}, "ls", "/proc/sys/net/ipv4/neigh", "-I", "default"),
		"a node was added")
}

func TestFilesOfNamespacesThatAPowerCutLeftAreUsedAgain(t *testing.T) {
	inst := instance.Instance{Name: "unit-cut", Slot: 7}
	for _, name := range []string{inst.SwitchNetns(), inst.Nodes(1)[0].Netns()} {
		require.NoError(t, os.MkdirAll(underlay.NetnsRoot, 0o755))
		require.NoError(t, os.WriteFile(underlay.NetnsPath(name), nil, 0o444))
	}
	ground(t, inst.Name, inst.Slot, 1)
	require.True(t, underlay.Pinned(underlay.NetnsPath(inst.SwitchNetns())))
}
