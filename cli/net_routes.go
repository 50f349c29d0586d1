package cli

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/mnicloud/mnicloud/network/inspect"
)

func (n *netCommands) routesCommand() *cobra.Command {
	var node string
	var output netOutput
	var endpoints bool
	cmd := &cobra.Command{
		Use:   "routes [VPC | SUBNET]",
		Short: "List the ways that nodes know to addresses",
		Long: `List the ways that nodes know to addresses, of all VPCs or of one VPC or Subnet: its own range, routes to
others, and each address (endpoint) with the node that has it. A node knows only what its own
interfaces may need. Of all VPCs the endpoints are listed with --endpoints.`,
		Example: `  # Where are the addresses of a tenant's VPC?
  mni net routes red/main

  # The same of a Subnet, as one node sees it
  mni net routes red/front --node node-1

  mni net routes -o json`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return n.words(cmd.Context(), word, func(seen *inspect.Network) []string {
				return append(seen.Objects.VPCNames(), seen.Objects.SubnetNames()...)
			})
		},
		RunE: n.run(func(cmd *cobra.Command, args []string) error {
			seen, err := n.look(cmd.Context())
			if err != nil {
				return err
			}
			of := ""
			if len(args) > 0 {
				of, endpoints = args[0], true
			}
			routes, err := seen.Routes(node, of, endpoints)
			printErr := output.write(cmd.OutOrStdout(), routes, func(w *tabwriter.Writer) { routesTable(w, routes) })
			if printErr != nil {
				return printErr
			}
			return err
		}),
	}
	cmd.Flags().StringVar(&node, "node", "", "only as this node knows them")
	n.completeNodes(cmd)
	cmd.Flags().BoolVar(&endpoints, "endpoints", false, "also list every address")
	outputFlag(cmd, &output)
	return cmd
}

func routesTable(w *tabwriter.Writer, routes []inspect.Route) {
	if len(routes) == 0 {
		fmt.Fprintln(w, "No route is known.")
		return
	}
	row(w, "NODE", "VPC", "SUBNET", "KIND", "PREFIX", "NEXT HOP", "AT")
	for _, r := range routes {
		row(w, r.Node, r.VPC, r.Subnet, r.Kind, r.Prefix, r.NextHop, r.At)
	}
}
