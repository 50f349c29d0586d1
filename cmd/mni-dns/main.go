// Command mni-dns is the resolver of VPCs on one node (see network/dns).
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

	"github.com/mnicloud/mnicloud/network/dns"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mni-dns:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var options dns.Options
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	root := &cobra.Command{
		Use: "mni-dns", Short: "The resolver of one node: answers what workloads in VPCs ask",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
			return dns.Run(cmd.Context(), options, log)
		},
	}
	f := root.Flags()
	f.StringVar(&options.Kubeconfig, "kubeconfig", "", "client configuration for the API server")
	f.StringVar(&options.File, "file", "", "file that keeps what is known, for a restart while the API server is away")
	f.StringVar(&options.ResolvConf, "resolv-conf", "", "file that lists the resolvers for names outside (none when empty)")
	f.StringVar(&options.MetricsAddress, "metrics-address", "", "where to serve /metrics, /healthz and /readyz (nowhere when empty)")
	return root
}
