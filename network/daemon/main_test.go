package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/mnicloud/mnicloud/network/datapath"
	"github.com/mnicloud/mnicloud/network/datapath/otherlayout"
	"github.com/mnicloud/mnicloud/network/plugin"
	"github.com/mnicloud/mnicloud/test/apiserver"
	"github.com/mnicloud/mnicloud/test/isolate"
)

// optionsEnv makes the test's binary a daemon; called by the plugin's name it is the plugin. So both run as processes of their
// own, as they do in the field.
const optionsEnv = "MNI_TEST_NETD_OPTIONS"

// otherVersionEnv makes it another version, whose tables have another layout.
const otherVersionEnv = "MNI_TEST_NETD_OTHER_VERSION"

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if filepath.Base(os.Args[0]) == plugin.Type {
		plugin.Main()
		return 0
	}
	if encoded := os.Getenv(optionsEnv); encoded != "" {
		if err := runDaemon(encoded); err != nil {
			fmt.Fprintln(os.Stderr, "daemon:", err)
			return 1
		}
		return 0
	}
	return isolate.Run(func() int {
		if err := makeUnderlay(); err != nil {
			fmt.Fprintln(os.Stderr, "make the underlay:", err)
			return 1
		}
		return apiserver.Main(m)
	})
}

// makeUnderlay makes the bridge that nodes are on, with the machine's address and a default route to nowhere (the API server
// insists on one).
func makeUnderlay() error {
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: underlay}}); err != nil {
		return err
	}
	bridge, err := netlink.LinkByName(underlay)
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr(machineAddress + "/24")
	if err != nil {
		return err
	}
	return errors.Join(
		netlink.AddrAdd(bridge, address), netlink.LinkSetUp(bridge),
		netlink.RouteAdd(&netlink.Route{LinkIndex: bridge.Attrs().Index, Gw: net.IPv4(192, 0, 2, 254)}),
	)
}

func runDaemon(encoded string) error {
	var options Options
	if err := json.Unmarshal([]byte(encoded), &options); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("node", options.NodeName)
	if os.Getenv(otherVersionEnv) == "" {
		return Run(ctx, options, log)
	}
	return run(ctx, options, log, func(config datapath.Config) (*datapath.Datapath, error) {
		return datapath.LoadObject(config, otherlayout.LoadBpf)
	})
}
