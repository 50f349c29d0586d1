package cli

import (
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/mnicloud/mnicloud/network/inspect"
)

// fullPercent is from where a map's fill is worth a line.
const fullPercent = 50

// netStatus is what `mni net status` prints.
type netStatus struct {
	Version string `json:"version"`
	inspect.Status
}

func (n *netCommands) statusCommand() *cobra.Command {
	var output netOutput
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say how the network is on each node: programs, interfaces, drops, fill of maps",
		Long: `Say how the network is on each node: how the programs are attached (tcx, or clsact on kernels before
6.6), how many interfaces there are, what was delivered and dropped since they came, and how full
the maps are. UNEXPECTED are the drops that healthy traffic does not meet: "mni net drops" tells
what they are. The exit code is 1 when something of a node cannot be seen.`,
		Example: `  mni net status

  # How full every map is
  mni net status -o yaml`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: n.run(func(cmd *cobra.Command, _ []string) error {
			seen, err := n.look(cmd.Context())
			if err != nil {
				return err
			}
			s := netStatus{Version: n.version, Status: seen.Status()}
			if err := output.write(cmd.OutOrStdout(), s, s.table); err != nil {
				return err
			}
			var errs []error
			for _, node := range s.Nodes {
				if node.Error != "" {
					errs = append(errs, errors.New(node.Error))
				}
			}
			return errors.Join(errs...)
		}),
	}
	outputFlag(cmd, &output)
	return cmd
}

func (s netStatus) table(w *tabwriter.Writer) {
	row(w, "NODE", "ADDRESS", "PROGRAMS", "LOADED", "INTERFACES", "PEERS", "DELIVERED", "DROPPED", "UNEXPECTED", "FULLEST MAP")
	for _, n := range s.Nodes {
		programs, loaded := "none", ""
		if n.Attached != "" {
			programs = fmt.Sprintf("%s %.8s", n.Attached, n.Programs)
			loaded = duration.HumanDuration(time.Duration(n.LoadedSecondsAgo) * time.Second)
		}
		full := n.Fullest()
		row(w, n.Node, n.Address, programs, loaded, n.Interfaces, n.Members, n.DeliveredPackets, n.DroppedPackets, n.UnexpectedPackets,
			fmt.Sprintf("%s %.1f%%", full.Map, full.Percent()))
	}
	fmt.Fprintln(w)
	row(w, "VPC", "ID", "SUBNETS", "INTERFACES")
	for _, v := range s.VPCs {
		row(w, v.VPC, v.ID, v.Subnets, v.Interfaces)
	}
	for _, n := range s.Nodes {
		for _, m := range n.Maps {
			if m.Percent() >= fullPercent {
				fmt.Fprintf(w, "\nThe map %s of %s is full to %.0f%% (%d of %d entries).\n", m.Map, n.Node, m.Percent(), m.Entries, m.Max)
			}
		}
	}
	fmt.Fprintf(w, "\nmni %s\n", s.Version)
}
