package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mnicloud/mnicloud/network/inspect"
)

// dropsInterval is how often --watch looks.
const dropsInterval = time.Second

func (n *netCommands) dropsCommand() *cobra.Command {
	var filter inspect.Filter
	var output netOutput
	var watch, all bool
	cmd := &cobra.Command{
		Use:   "drops",
		Short: "List what was dropped, by interface and reason, with what to do about it",
		Long: `List what the datapath dropped, by the interface and the reason, with what the reason means and what to
do about it. Packets that a policy lets not in are counted at the destination, all others where
they came from. Counters begin with the interface.

Drops that healthy traffic meets too (IPv6 discovery, broadcast, announcements) are listed with --all.`,
		Example: `  mni net drops

  # As they happen, of one tenant
  mni net drops --watch --namespace red

  # Everything of one node, for a program
  mni net drops --all --node node-1 -o json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: n.run(func(cmd *cobra.Command, _ []string) error {
			seen, err := n.look(cmd.Context())
			if err != nil {
				return err
			}
			list := func(seen *inspect.Network) ([]inspect.Drop, error) {
				drops, err := seen.Drops(filter)
				if !all {
					drops = slices.DeleteFunc(drops, func(d inspect.Drop) bool { return d.Expected })
				}
				return drops, err
			}
			if watch {
				return n.watchDrops(cmd.Context(), cmd.OutOrStdout(), output, list)
			}
			drops, err := list(seen)
			if printErr := output.write(cmd.OutOrStdout(), drops, func(w *tabwriter.Writer) { dropsTable(w, drops) }); printErr != nil {
				return printErr
			}
			return err
		}),
	}
	n.filterFlags(cmd, &filter)
	outputFlag(cmd, &output)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "print what is dropped from now on, each second, until interrupted")
	cmd.Flags().BoolVar(&all, "all", false, "also list what healthy traffic meets")
	return cmd
}

func dropsTable(w *tabwriter.Writer, drops []inspect.Drop) {
	if len(drops) == 0 {
		fmt.Fprintln(w, "Nothing was dropped.")
		return
	}
	row(w, "NODE", "VPC", "INTERFACE", "REASON", "PACKETS", "BYTES")
	for _, d := range drops {
		row(w, d.Node, d.VPC, d.Name(), d.Reason, d.Packets, d.Bytes)
	}
	fmt.Fprintln(w)
	explained := map[string]bool{}
	for _, d := range drops {
		if explained[d.Reason] {
			continue
		}
		explained[d.Reason] = true
		fmt.Fprintf(w, "%s: %s.\n", d.Reason, d.Meaning)
		if d.Remedy != "" {
			fmt.Fprintf(w, "  What to do: %s.\n", d.Remedy)
		}
	}
}

// dropKey is what a counter is known by.
type dropKey struct {
	owner  inspect.Owner
	reason string
}

// watchDrops prints what is dropped from now on until ctx ends. Interfaces come and go, so names are read again each time.
func (n *netCommands) watchDrops(ctx context.Context, out io.Writer, output netOutput, list func(*inspect.Network) ([]inspect.Drop, error)) error {
	before := map[dropKey]inspect.Drop{}
	ticker := time.NewTicker(dropsInterval)
	defer ticker.Stop()
	for first := true; ; first = false {
		seen, err := n.look(ctx)
		if err != nil {
			return err
		}
		drops, err := list(seen)
		if err != nil {
			return err
		}
		now := map[dropKey]inspect.Drop{}
		for _, d := range drops {
			key := dropKey{d.Owner, d.Reason}
			now[key] = d
			old := before[key]
			if first || d.Packets == old.Packets {
				continue
			}
			if d.Packets > old.Packets {
				d.Packets, d.Bytes = d.Packets-old.Packets, d.Bytes-old.Bytes
			}
			if err := printDrop(out, output, d); err != nil {
				return err
			}
		}
		before = now
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func printDrop(out io.Writer, output netOutput, d inspect.Drop) error {
	if output != asTable {
		return output.write(out, []inspect.Drop{d}, nil)
	}
	at := time.Now().Format(time.TimeOnly)
	_, err := fmt.Fprintf(out, "%s  %s  %s  %s: %d packets, %d bytes (%s)\n", at, d.Node, d.Name(), d.Reason, d.Packets, d.Bytes, d.Meaning)
	return err
}
