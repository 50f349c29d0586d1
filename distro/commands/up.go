package commands

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/mnicloud/mnicloud/distro/cloud"
)

func upCommand() *cobra.Command {
	var name, pool, peer, api, cert, key string
	var nodes int
	var quiet bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cloud on this machine, or bring a running one up to date",
		Long: `Start a cloud on this machine, and return when it answers.

What an earlier cloud of the same name kept (VPCs, containers, images) is there again. A cloud that runs already is
brought to the programs and configuration of this mni; parts that did not change are left alone.

The external addresses (--pool) and the router that learns them (--peer) are remembered; "default" goes back to what they were at
first: a range for documentation, and an edge router in a network namespace of this machine.

The API is served on an address of this machine that others reach only when --api names one: with a certificate of yours
(--api-cert and --api-key; the files are read again when they change), or with one that the cloud's own authority signs.
That is remembered too; "default" takes it back.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := rootOnly(); err != nil {
				return err
			}
			c, err := cloud.Take(name)
			if err != nil {
				return err
			}
			start := time.Now()
			summary, err := c.Up(cmd.Context(), cloud.Wanted{Nodes: nodes, Pool: pool, Peer: peer, API: api, Cert: cert, Key: key}, progress(cmd.ErrOrStderr()))
			if err != nil {
				ifStopped(cmd, func() string { return halfStarted(name, c.Running(context.WithoutCancel(cmd.Context()))) })
				return err
			}
			printSummary(cmd.OutOrStdout(), name, summary, time.Since(start))
			if !quiet {
				printHints(cmd.OutOrStdout(), cmd.Root().CommandPath(), cloud.Flag(name))
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&nodes, "nodes", 2, "how many nodes the cloud has")
	cmd.Flags().StringVar(&pool, "pool", "", "range of the cloud's external addresses, such as 192.168.50.0/24")
	cmd.Flags().StringVar(&peer, "peer", "", "a router of yours that learns them by BGP, as ASN@ADDRESS, instead of the built-in edge router")
	cmd.Flags().StringVar(&api, "api", "", "serve the API on ADDRESS:PORT too, such as 192.0.2.10:443")
	cmd.Flags().StringVar(&cert, "api-cert", "", "`file` with a certificate for that address, PEM, and those of who signed it")
	cmd.Flags().StringVar(&key, "api-key", "", "`file` with its private key, PEM")
	cmd.Flags().BoolVar(&quiet, "no-hints", false, "do not say what to try next")
	instanceFlag(cmd, &name)
	return cmd
}

func printSummary(out io.Writer, name string, s cloud.Summary, took time.Duration) {
	if s.Already {
		fmt.Fprintf(out, "Cloud %q was running already, with %d nodes.\n", name, s.Nodes)
	} else {
		fmt.Fprintf(out, "Cloud %q is ready: %d nodes, in %.1f s.\n", name, s.Nodes, took.Seconds())
	}
	for _, warning := range s.Warnings {
		fmt.Fprintf(out, "\nWarning: %s.\n", warning)
	}
	found := ""
	if cloud.Flag(name) == "" {
		found = "   (mni uses it by default)"
	}
	fmt.Fprintf(out, "\n  API          %s   (for users; its authority is in %s)\n  API server   %s\n  kubeconfig   %s%s\n", s.Gateway, s.Authority, s.APIServer, s.Kubeconfig, found)
	if s.Face != "" {
		fmt.Fprintf(out, "  API too      %s\n", s.Face)
	}
	if s.Administrator != nil {
		fmt.Fprintf(out, "  first login  %s, password %s   (shown once; also in %s)\n", s.Administrator.User, s.Administrator.Password, s.AdministratorFile)
	}
}

// printHints says what to try next: the commands as the user calls them, with the flag that names the instance.
func printHints(out io.Writer, mni, flag string) {
	fmt.Fprintf(out, `
Try:
  %[1]s status%[2]s
  %[1]s login%[2]s --user admin
  %[1]s get%[2]s containers -A
  %[1]s down%[2]s
`, mni, flag)
}

// halfStarted says how a cloud is whose start was stopped, as ifStopped wants it.
func halfStarted(name string, running bool) string {
	flag := cloud.Flag(name)
	if running {
		return fmt.Sprintf("before cloud %q was ready: its parts run on without this command; `mni status%[2]s` tells how they are, `mni up%[2]s` waits for them, `mni down%[2]s` stops them", name, flag)
	}
	return fmt.Sprintf("before cloud %q ran: `mni up%[2]s` starts anew, `mni down%[2]s` removes what was made so far", name, flag)
}
