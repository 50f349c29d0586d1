package cli

import (
	"fmt"
	"net/netip"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/mnicloud/mnicloud/network/inspect"
)

func (n *netCommands) conntrackCommand() *cobra.Command {
	var filter inspect.Filter
	var output netOutput
	var address, protocol, kind, state string
	cmd := &cobra.Command{
		Use:     "conntrack",
		Aliases: []string{"connections"},
		Short:   "List the connections that nodes know",
		Long: `List the connections that nodes know, those used last first. A node knows those that go through a
Service (kind service), those that a policy let through (policy), those that a host or the platform
opened to an infrastructure address (infrastructure) and those that leave by a NATGateway (nat; TRANSLATED
is what the outside sees as the source). Between two interfaces without policies nothing has to be
known, so nothing is listed.

AGE is the time since the last packet. A connection that has ended stays until its place is needed.`,
		Example: `  mni net conntrack --namespace red

  # What an address speaks with
  mni net conntrack --address 10.0.1.5 --vpc red/main

  # Connections that a policy has cut
  mni net conntrack --state cut`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: n.run(func(cmd *cobra.Command, _ []string) error {
			var of netip.Addr
			if address != "" {
				var err error
				if of, err = netip.ParseAddr(address); err != nil {
					return usagef("--address %q is not an address such as 10.0.1.5", address)
				}
			}
			seen, err := n.look(cmd.Context())
			if err != nil {
				return err
			}
			known, err := seen.Connections(filter, of)
			rows := []inspect.Connection{}
			for _, c := range known {
				if (protocol == "" || c.Protocol == protocol) && (kind == "" || c.Kind == kind) && (state == "" || c.State == state) {
					rows = append(rows, c)
				}
			}
			printErr := output.write(cmd.OutOrStdout(), rows, func(w *tabwriter.Writer) { connectionsTable(w, rows) })
			if printErr != nil {
				return printErr
			}
			return err
		}),
	}
	n.filterFlags(cmd, &filter)
	outputFlag(cmd, &output)
	cmd.Flags().StringVar(&address, "address", "", "only with this address at one end")
	oneOf(cmd, &protocol, "protocol", "only of this protocol", "tcp", "udp", "icmp")
	oneOf(cmd, &kind, "kind", "only of this kind", inspect.KindService, inspect.KindPolicy, inspect.KindInfrastructure, inspect.KindNAT)
	oneOf(cmd, &state, "state", "only in this state", inspect.States...)
	return cmd
}

func connectionsTable(w *tabwriter.Writer, rows []inspect.Connection) {
	if len(rows) == 0 {
		fmt.Fprintln(w, "No connection is known.")
		return
	}
	row(w, "NODE", "VPC", "INTERFACE", "KIND", "PROTOCOL", "SOURCE", "DESTINATION", "TRANSLATED", "STATE", "AGE")
	for _, c := range rows {
		row(w, c.Node, c.VPC, c.Name(), c.Kind, c.Protocol, c.Source, c.Destination, c.Translated, c.State,
			duration.HumanDuration(time.Duration(c.AgeSeconds)*time.Second))
	}
}
