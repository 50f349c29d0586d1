package bgp

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/network/bgp/bird"
)

// Cleanup ends the BIRD that a speaker left running in a folder, and removes the folder and the kernel's routes to nowhere. Peers
// are told at once that the node announces nothing more.
func Cleanup(runDir string, log *slog.Logger) error {
	if runDir == "" {
		return errors.New("--run-dir is missing: name the folder of BIRD's sockets")
	}
	daemon := &bird.Daemon{Dir: runDir, Log: log}
	if err := daemon.Stop(); err != nil {
		return err
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4,
		&netlink.Route{Protocol: unix.RTPROT_BIRD, Type: unix.RTN_BLACKHOLE}, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TYPE)
	if err != nil {
		return fmt.Errorf("list the kernel's routes: %w", err)
	}
	var errs []error
	for i := range routes {
		if err := netlink.RouteDel(&routes[i]); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("remove the route %s: %w", routes[i].Dst, err))
		}
	}
	return errors.Join(append(errs, os.RemoveAll(runDir))...)
}
