// Package edge is the edge router of an instance: FRR (https://frrouting.org), a BGP implementation that is not the cloud's own,
// in a network namespace on the underlay. It learns external addresses from the nodes, and the machine reaches them through it.
// FRR and not a Go library, because it also does BFD, takes routes into the kernel over several next hops, and is what many
// people's real routers run. This room writes its configuration and says how its programs are started.
package edge

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/mnicloud/mnicloud/distro/instance"
)

// BinDir is where Debian's package frr has its daemons.
const BinDir = "/usr/lib/frr"

// account is the user and group that FRR's daemons run as. Debian's package makes it.
const account = "frr"

// Daemon is one of FRR's programs.
type Daemon struct {
	// Name is the program's, in BinDir.
	Name string
	// Command starts it in the foreground.
	Command []string
	// Socket is a Unix socket that accepts once it works.
	Socket string
}

// Daemons are what the edge router runs; each needs the first.
func Daemons(inst instance.Instance) []Daemon {
	dir := inst.EdgeDir()
	daemon := func(name, config string, more ...string) Daemon {
		return Daemon{
			Name: name, Socket: filepath.Join(dir, name+".vty"),
			Command: append([]string{
				filepath.Join(BinDir, name), "-u", account, "-g", account, "--vty_socket", dir, "-z", filepath.Join(dir, "zserv.api"),
				"-i", filepath.Join(dir, name+".pid"), "-P", "0", "--log", "stdout", "--log-level", "informational", "-f", config,
			}, more...),
		}
	}
	return []Daemon{
		daemon("zebra", os.DevNull),
		daemon("bfdd", os.DevNull, "--bfdctl", filepath.Join(dir, "bfdd.sock")),
		daemon("bgpd", configFile(inst)),
	}
}

func configFile(inst instance.Instance) string { return filepath.Join(inst.EdgeDir(), "bgpd.conf") }

// Config is bgpd's configuration. Any node may connect, so that it is the same whatever the number of nodes, and no session ends
// when one is added.
func Config(inst instance.Instance) string {
	plan := inst.Addresses()
	return fmt.Sprintf(`frr defaults traditional
hostname edge
router bgp %[1]d
 bgp router-id %[2]s
 bgp graceful-restart
 no bgp default ipv4-unicast
 no bgp ebgp-requires-policy
 neighbor nodes peer-group
 neighbor nodes remote-as %[3]d
 neighbor nodes bfd %[6]d %[7]d %[7]d
 bgp listen limit %[5]d
 bgp listen range %[4]s peer-group nodes
 address-family ipv4 unicast
  neighbor nodes activate
  maximum-paths %[5]d
 exit-address-family
`, instance.EdgeASN, plan.Edge, instance.ASN, plan.Underlay, instance.MaxNodes, BFDMultiplier, BFDIntervalMilliseconds)
}

// A node that is lost is noticed after BFDMultiplier intervals (RFC 5880).
const (
	BFDIntervalMilliseconds = 300
	BFDMultiplier           = 3
)

// Prepare makes the edge router's folder and writes its configuration there: FRR gives up its rights before it reads it, and
// cannot read the instance's state.
func Prepare(inst instance.Instance) error {
	u, err := user.Lookup(account)
	if err != nil {
		return fmt.Errorf("the user of FRR is missing (%w): run `mni host install`", err)
	}
	uid, errUID := strconv.Atoi(u.Uid)
	gid, errGID := strconv.Atoi(u.Gid)
	if err := errors.Join(errUID, errGID); err != nil {
		return err
	}
	if err := os.MkdirAll(inst.EdgeDir(), 0o750); err != nil {
		return err
	}
	if err := instance.WriteFile(configFile(inst), []byte(Config(inst)), 0o640); err != nil {
		return err
	}
	return errors.Join(os.Chown(inst.EdgeDir(), uid, gid), os.Chown(configFile(inst), uid, gid))
}
