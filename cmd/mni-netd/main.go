// Command mni-netd is the network daemon of one node (see network/daemon).
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/mnicloud/mnicloud/network/daemon"
	"github.com/mnicloud/mnicloud/network/daemon/host"
	"github.com/mnicloud/mnicloud/network/datapath"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mni-netd:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	options := daemon.Options{VXLANPort: datapath.DefaultVXLANPort}
	var debug bool
	root := &cobra.Command{
		Use: "mni-netd", Short: "The network daemon of one node: serves the CNI plugin and programs the datapath",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			level := slog.LevelInfo
			if debug {
				level = slog.LevelDebug
			}
			log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
			ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
			return daemon.Run(cmd.Context(), options, log)
		},
	}
	f := root.Flags()
	f.BoolVar(&debug, "debug", false, "log more")
	f.StringVar(&options.Kubeconfig, "kubeconfig", "", "client configuration for the API server")
	f.StringVar(&options.NodeName, "node-name", "", "name of this node in Kubernetes")
	f.TextVar(&options.NodeAddress, "node-address", netip.Addr{}, "address of this host on the underlay")
	f.StringVar(&options.Uplink, "uplink", "", "name of the link to the underlay")
	f.Uint16Var(&options.VXLANPort, "vxlan-port", options.VXLANPort, "UDP port of the tunnels, the same on all members")
	f.TextVar(&options.ServiceCIDR, "service-cidr", netip.Prefix{}, "range of Services' addresses")
	f.TextVar(&options.InfrastructureCIDR, "infrastructure-cidr", netip.Prefix{}, "range of Pods' infrastructure addresses")
	f.Var((*ranges)(&options.ReservedCIDRs), "reserved-cidr", "range that no route in a VPC leads to, beside the well-known ones: the underlay's (may be repeated)")
	f.StringVar(&options.PinPath, "pin-path", "", "folder on a BPF file system for this host's maps and links")
	f.StringVar(&options.Socket, "socket", "", "Unix socket to serve the CNI plugin on")
	f.StringVar(&options.QueueDir, "queue-dir", "", "folder where the plugin queues detachments while the daemon is down")
	f.StringVar(&options.StateDir, "state-dir", "", `folder of the attachments' records (default "attachments" beside --queue-dir)`)
	f.StringVar(&options.CNIConf, "cni-conf", "", "CNI configuration list to write once Pods can be attached")
	f.Var((*addresses)(&options.ExtraHosts), "extra-hosts", "addresses of members that are not nodes, separated by commas")
	f.BoolVar(&options.HostOnly, "host-only", false, "this host is a member of the network but has no Pods")
	f.StringVar(&options.LinkPrefix, "link-prefix", "mni", "first part of the names of this host's links")
	f.StringVar(&options.MetricsAddress, "metrics-address", "", "where to serve /metrics, /healthz and /readyz (nowhere when empty)")
	f.Uint32Var(&options.Flows, "flows", 131072, "how many entries the tables of flows have, each about 700 bytes of memory from the start; with Pods there are at least 262144 of NATGateways' flows")
	f.BoolVar(&options.ForceClsact, "force-clsact", false, "attach with clsact filters even where the kernel has tcx")
	root.AddCommand(cleanup())
	return root
}

// cleanup removes what a daemon that has stopped left programmed.
func cleanup() *cobra.Command {
	var prefix, pins string
	cmd := &cobra.Command{
		Use: "cleanup", Short: "Remove the links, pins and nftables tables that a stopped daemon left in this network namespace",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.Join(host.Remove(prefix), host.Masquerade{Table: daemon.Table(prefix)}.Remove(),
				host.Ports{Table: daemon.PortsTable(prefix)}.Remove(), datapath.Remove(pins))
		},
	}
	cmd.Flags().StringVar(&prefix, "link-prefix", "mni", "first part of the names of this host's links")
	cmd.Flags().StringVar(&pins, "pin-path", "", "folder of this host's maps and links")
	if err := cmd.MarkFlagRequired("pin-path"); err != nil {
		panic(err)
	}
	return cmd
}
