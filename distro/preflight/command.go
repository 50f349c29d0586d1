package preflight

import (
	"fmt"

	"github.com/spf13/cobra"
)

// Command is `check`: it says what is in the way of a cloud on this machine.
func Command() *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use:           "check",
		Short:         "Say what is in the way of a cloud on this machine, and what to do about it",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := Error(Check(cmd.Context(), o)); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "this machine is ready for a cloud")
			return nil
		},
	}
	cmd.Flags().StringVar(&o.StateDir, "state-dir", DefaultStateDir, "folder of the cloud's state")
	return cmd
}
