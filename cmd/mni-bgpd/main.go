// Command mni-bgpd is the BGP speaker of one node (see network/bgp).
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/mnicloud/mnicloud/network/bgp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mni-bgpd:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var options bgp.Options
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	root := &cobra.Command{
		Use: "mni-bgpd", Short: "The BGP speaker of one node: announces the cloud's external addresses with BIRD",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
			return bgp.Run(cmd.Context(), options, log)
		},
	}
	f := root.Flags()
	f.StringVar(&options.Kubeconfig, "kubeconfig", "", "client configuration for the API server")
	f.StringVar(&options.NodeName, "node-name", "", "name of this node in Kubernetes")
	f.StringVar(&options.BIRD, "bird", "", "path of BIRD (default: the one on PATH)")
	f.StringVar(&options.MetricsAddress, "metrics-address", "", "where to serve /metrics, /healthz and /readyz (nowhere when empty)")
	root.PersistentFlags().StringVar(&options.RunDir, "run-dir", "", "folder for BIRD's configuration and sockets, gone after a reboot")
	root.AddCommand(&cobra.Command{
		Use: "cleanup", Short: "End the BIRD that a stopped speaker left; its peers forget its routes at once",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return bgp.Cleanup(options.RunDir, log) },
	})
	return root
}
