package commands

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/mnicloud/mnicloud/distro/cloud"
	"github.com/mnicloud/mnicloud/distro/supervisor"
)

func statusCommand() *cobra.Command {
	var name, output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say how each part of a cloud is",
		Long:  "Say how each part of a cloud is. The exit code is 0 when all are ready, 1 otherwise.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return fmt.Errorf("--output %q: only json is known", output)
			}
			c, err := cloud.Find(name)
			if err != nil {
				return err
			}
			status, err := c.Client().Status(cmd.Context(), 0, true)
			if errors.Is(err, supervisor.ErrNotRunning) {
				return fmt.Errorf("cloud %q is not running: `mni up%s` starts it", name, cloud.Flag(name))
			}
			if err != nil {
				return err
			}
			if output == "json" {
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				if err := encoder.Encode(status); err != nil {
					return err
				}
			} else if err := printStatus(cmd.OutOrStdout(), status, time.Now()); err != nil {
				return err
			}
			if !status.Ready() {
				return errors.New("not all parts are ready")
			}
			return nil
		},
	}
	instanceFlag(cmd, &name)
	cmd.Flags().StringVarP(&output, "output", "o", "", "output format: json")
	return cmd
}

func printStatus(out io.Writer, status supervisor.Status, now time.Time) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "PART\tSTATE\tRESTARTS\tAGE\tMEMORY\tMESSAGE")
	var memory int64
	for _, p := range append(slices.Clone(status.Parts), status.Guards...) {
		age, size := "-", "-"
		if !p.Since.IsZero() {
			age = duration.HumanDuration(now.Sub(p.Since))
		}
		if p.MemoryBytes > 0 {
			size = fmt.Sprintf("%d MiB", p.MemoryBytes>>20)
		}
		memory += p.MemoryBytes
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\t%s\n", p.Name, p.State, p.Restarts, age, size, p.Message)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%d parts, %d MiB\n", len(status.Parts), memory>>20)
	return err
}
